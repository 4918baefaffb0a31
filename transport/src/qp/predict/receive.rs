use super::super::{
    Qp, QpType,
    common::{Admission, Common, Env},
    flight,
    requester::Requester,
    responder::Responder,
    state::State,
};
use crate::{
    event::Disposition,
    mem::Access,
    psn::Psn,
    wire::{NetHeader, Reth, Single, SingleKind},
    work::{SendOp, WcOk, WcOpcode},
};

impl Qp {
    /// True if the packet is the peer's next; the ICRC may be unchecked.
    pub(crate) fn expects(&self, net: &NetHeader, single: &Single<'_>) -> bool {
        let Common {
            state: State::Rts,
            qp_type: QpType::Rc,
            admission: Admission { pkey, .. },
            ..
        } = &self.common
        else {
            return false;
        };
        pkey.matches(single.bth.pkey)
            && self.common.peer.sends(net)
            && match single.kind {
                SingleKind::Send | SingleKind::Write(_) => self.responder.expects(single.bth.psn),
                SingleKind::ReadResponse => self.requester.expects_response(single.bth.psn),
                SingleKind::Acknowledge => self.requester.expects_acknowledge(single.bth.psn),
            }
    }

    /// Executes an [expected](Self::expects) packet. `None`: unchanged, use the general path.
    pub(crate) fn take_expected(
        &mut self,
        single: &Single<'_>,
        env: &mut Env<'_>,
    ) -> Option<Disposition> {
        match &single.kind {
            SingleKind::Send => self.responder.take_send(single, &self.common, env)?,
            SingleKind::Write(reth) => {
                self.responder.take_write(single, reth, &self.common, env)?;
            }
            SingleKind::ReadResponse => {
                self.requester.take_response(single.payload, &self.common, env)?;
                self.settle(env);
                return Some(Disposition::Acknowledged { completed: 1 });
            }
            SingleKind::Acknowledge => {
                let (completed, _) =
                    self.requester.acknowledge(single.bth.psn.plus(1), &self.common, env);
                self.settle(env);
                return Some(Disposition::Acknowledged { completed });
            }
        }
        Some(Disposition::Executed)
    }
}

impl Responder {
    fn expects(&self, psn: Psn) -> bool {
        psn == self.expected
            && !self.is_within_message()
            && !self.has_gap()
            && self.responses.after_read.is_empty()
    }

    fn take_send(&mut self, single: &Single<'_>, common: &Common, env: &mut Env<'_>) -> Option<()> {
        let length = single.payload.len();
        if length > common.mtu.bytes() as usize {
            return None;
        }
        let oldest = self.receives(common, env).oldest();
        let wqe = oldest.filter(|wqe| length as u64 <= wqe.length)?;
        if length > 0 {
            wqe.check().ok()?;
            wqe.write(0, single.payload, |region, address, bytes| region.write(address, bytes))
                .ok()?;
        }
        self.complete(WcOpcode::Recv, single, common, env)
    }

    fn take_write(
        &mut self,
        single: &Single<'_>,
        reth: &Reth,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Option<()> {
        let length = single.payload.len();
        let lacks_receive =
            single.immediate.is_some() && self.receives(common, env).oldest().is_none();
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
            region.write(address, single.payload).ok()?;
        }
        if single.immediate.is_some() {
            return self.complete(WcOpcode::RecvRdmaWithImm, single, common, env);
        }
        self.advance(single.bth.psn, true, single.bth.ack_req);
        Some(())
    }

    fn complete(
        &mut self,
        opcode: WcOpcode,
        single: &Single<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Option<()> {
        let wqe = self.take(common, env)?;
        self.advance(single.bth.psn, true, single.bth.ack_req);
        let ok = WcOk::new(opcode, single.payload.len() as u32);
        let ok = WcOk { immediate: single.immediate, ..ok };
        common.complete_recv(wqe.id, Ok(ok), single.bth.solicited, env);
        Some(())
    }
}

impl Requester {
    fn expects_acknowledge(&self, psn: Psn) -> bool {
        self.check_window(psn).is_ok() && self.reads == 0 && !self.probe.has_repeated(psn)
    }

    /// True for a response to the oldest request, a one-packet READ.
    fn expects_response(&self, psn: Psn) -> bool {
        psn == self.oldest_unacked
            && psn.is_before(self.sent_end)
            && self.queue.oldest().is_some_and(|wqe| {
                wqe.started
                    && wqe.failed.is_none()
                    && wqe.packets == 1
                    && matches!(wqe.op, SendOp::Read { .. })
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
}
