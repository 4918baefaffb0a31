use super::super::{
    Qp, QpType,
    attr::MAX_MESSAGE,
    common::{Admission, Common, Env},
    flight,
    requester::Requester,
    responder::{Message, Responder},
    state::State,
};
use crate::{
    event::Disposition,
    mem::Access,
    psn::Psn,
    wire::{Bth, NetHeader, Operation, Predictable, Predicted, Reth},
    work::{SendOp, SendWqe, WcOk, WcOpcode},
};

impl Qp {
    /// True if the packet is the peer's next; the ICRC may be unchecked.
    pub(crate) fn expects(&self, net: &NetHeader, packet: &Predictable<'_>) -> bool {
        let Common { state: State::Rts, qp_type, admission: Admission { pkey, .. }, .. } =
            &self.common
        else {
            return false;
        };
        let Bth { opcode, pkey: its_pkey, psn, ack_req, .. } = packet.bth;
        if opcode.service() != qp_type.service()
            || !pkey.matches(its_pkey)
            || !self.common.peer.sends(net)
        {
            return false;
        }
        match (packet.kind, qp_type) {
            (Predicted::Middle(operation), QpType::Rc | QpType::Uc) => {
                !ack_req && self.expects_middle(operation, psn, packet.payload)
            }
            (Predicted::Send | Predicted::Write(_), QpType::Rc) => self.responder.expects(psn),
            (Predicted::ReadResponse, QpType::Rc) => {
                self.requester.read_at(psn).is_some_and(|wqe| wqe.packets == 1)
            }
            (Predicted::Acknowledge, QpType::Rc) => self.requester.expects_acknowledge(psn),
            _ => false,
        }
    }

    /// True if this middle packet is next and only needs placement.
    #[inline]
    pub(crate) fn expects_middle(&self, operation: Operation, psn: Psn, payload: &[u8]) -> bool {
        payload.len() == self.common.mtu.bytes() as usize
            && match operation {
                Operation::ReadResponseMiddle => self.requester.expects_middle(psn),
                _ => self.responder.expects_middle(operation, psn, payload.len() as u64),
            }
    }

    /// Executes an [expected](Self::expects) packet. `None`: unchanged, use the general path.
    pub(crate) fn take_expected(
        &mut self,
        packet: &Predictable<'_>,
        env: &mut Env<'_>,
    ) -> Option<Disposition> {
        let completed = match &packet.kind {
            Predicted::Send => {
                self.responder.take_send(packet, &self.common, env)?;
                return Some(Disposition::Executed);
            }
            Predicted::Write(reth) => {
                self.responder.take_write(packet, reth, &self.common, env)?;
                return Some(Disposition::Executed);
            }
            Predicted::Middle(operation) => {
                self.take_middle(*operation, packet.payload)?;
                if !operation.is_response() {
                    return Some(Disposition::Executed);
                }
                self.requester.record_responses(env);
                0
            }
            Predicted::ReadResponse => {
                self.requester.take_response(packet.payload, &self.common, env)?;
                1
            }
            Predicted::Acknowledge => {
                self.requester.acknowledge(packet.bth.psn.plus(1), &self.common, env).0
            }
        };
        self.settle(env);
        Some(Disposition::Acknowledged { completed })
    }

    /// Places an [expected](Self::expects_middle) packet. `None`: unchanged. After a run of
    /// responses, call [`record_responses`](Self::record_responses).
    #[inline]
    pub(crate) fn take_middle(&mut self, operation: Operation, payload: &[u8]) -> Option<()> {
        match operation {
            Operation::ReadResponseMiddle => {
                self.requester.take_middle(payload, self.common.mtu.bytes())
            }
            _ => self.responder.take_middle(payload),
        }
    }

    pub(crate) fn record_responses(&mut self, env: &mut Env<'_>) {
        self.requester.record_responses(env);
    }
}

impl Responder {
    fn expects(&self, psn: Psn) -> bool {
        psn == self.expected
            && !self.is_within_message()
            && !self.has_gap()
            && self.responses.after_read.is_empty()
    }

    fn take_send(
        &mut self,
        packet: &Predictable<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Option<()> {
        let length = packet.payload.len();
        if length > common.mtu.bytes() as usize {
            return None;
        }
        let oldest = self.receives(common, env).oldest();
        let wqe = oldest.filter(|wqe| length as u64 <= wqe.length)?;
        if length > 0 {
            wqe.check().ok()?;
            wqe.write(0, packet.payload, |region, address, bytes| region.write(address, bytes))
                .ok()?;
        }
        self.complete(WcOpcode::Recv, packet, common, env)
    }

    fn take_write(
        &mut self,
        packet: &Predictable<'_>,
        reth: &Reth,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Option<()> {
        let length = packet.payload.len();
        let lacks_receive =
            packet.immediate.is_some() && self.receives(common, env).oldest().is_none();
        if lacks_receive
            || length > common.mtu.bytes() as usize
            || length != reth.dma_length as usize
            || !common.completions.counters.is_empty()
            || !common.admission.access.contains(Access::REMOTE_WRITE)
        {
            return None;
        }
        if length > 0 {
            let (address, needed) = (reth.virtual_address, Access::REMOTE_WRITE);
            let region = env
                .resources
                .regions
                .remote(reth.rkey, common.user(), address, length as u64, needed)
                .ok()?;
            region.write(address, packet.payload).ok()?;
        }
        if packet.immediate.is_some() {
            return self.complete(WcOpcode::RecvRdmaWithImm, packet, common, env);
        }
        self.advance(packet.bth.psn, true, packet.bth.ack_req);
        Some(())
    }

    fn complete(
        &mut self,
        opcode: WcOpcode,
        packet: &Predictable<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Option<()> {
        let wqe = self.take(common, env)?;
        self.advance(packet.bth.psn, true, packet.bth.ack_req);
        let ok = WcOk::new(opcode, packet.payload.len() as u32);
        let ok = WcOk { immediate: packet.immediate, ..ok };
        common.complete_recv(wqe.id, Ok(ok), packet.bth.solicited, env);
        Some(())
    }

    #[inline]
    fn expects_middle(&self, operation: Operation, psn: Psn, payload: u64) -> bool {
        let continues = match (&self.message, operation) {
            (Message::Send { wqe, received }, Operation::SendMiddle) => {
                received + payload <= wqe.length.min(u64::from(MAX_MESSAGE))
            }
            (Message::Write { region: Some(_), done, length, .. }, Operation::WriteMiddle) => {
                u64::from(*done) + payload < u64::from(*length)
            }
            _ => false,
        };
        // no earlier READ still sends memory that it changes
        continues && psn == self.expected && !self.has_gap() && self.responses.after_read.is_empty()
    }

    fn take_middle(&mut self, payload: &[u8]) -> Option<()> {
        match &mut self.message {
            Message::Send { wqe, received } => {
                wqe.write(*received, payload, |region, address, bytes| {
                    region.write(address, bytes)
                })
                .ok()?;
                *received += payload.len() as u64;
            }
            Message::Write { region: Some(region), address, done, .. } => {
                region.write(address.wrapping_add(u64::from(*done)), payload).ok()?;
                *done += payload.len() as u32;
            }
            Message::Write { region: None, .. } | Message::None => return None,
        }
        self.expected = self.expected.plus(1);
        self.record_acknowledged();
        Some(())
    }
}

impl Requester {
    fn expects_acknowledge(&self, psn: Psn) -> bool {
        self.check_window(psn).is_ok() && self.reads == 0 && !self.probe.has_repeated(psn)
    }

    /// The oldest request, if it is a READ whose next response has this PSN.
    fn read_at(&self, psn: Psn) -> Option<&SendWqe> {
        let is_next = psn == self.oldest_unacked && psn.is_before(self.sent_end);
        self.queue.oldest().filter(|wqe| {
            is_next && wqe.started && wqe.failed.is_none() && matches!(wqe.op, SendOp::Read { .. })
        })
    }

    fn take_response(&mut self, payload: &[u8], common: &Common, env: &mut Env<'_>) -> Option<()> {
        let wqe = self.queue.oldest().filter(|wqe| payload.len() == wqe.length as usize)?;
        wqe.check_local(common.receiving.pd).ok()?;
        wqe.write(0, payload, |region, address, bytes| region.write(address, bytes)).ok()?;
        let cost = flight::cost(wqe, 0, 1, common.mtu.bytes());
        self.flight.on_acknowledged(cost, env.now);
        self.oldest_unacked = self.oldest_unacked.plus(1);
        self.reads -= self.read_requests.on_data(self.oldest_unacked);
        self.complete_oldest(common, env);
        self.on_progress(env);
        Some(())
    }

    fn expects_middle(&self, psn: Psn) -> bool {
        self.read_at(psn).is_some_and(|wqe| {
            let next = psn.plus(1);
            // the first packet checks the SGEs
            psn != wqe.first_psn
                && next != wqe.end_psn()
                && self.read_requests.end_of(psn) != Some(next)
        })
    }

    fn take_middle(&mut self, payload: &[u8], mtu: u32) -> Option<()> {
        let wqe = self.queue.oldest()?;
        let offset = self.oldest_unacked.after(wqe.first_psn)? * mtu;
        wqe.write(offset.into(), payload, |region, address, bytes| region.write(address, bytes))
            .ok()?;
        self.oldest_unacked = self.oldest_unacked.plus(1);
        Some(())
    }
}
