//! Header prediction: a fast path for usual packets of established connections (V. Jacobson, "4BSD
//! Header Prediction", 1990).
//!
//! Without prediction the same bytes leave. Nothing changes before prediction commits.

use super::{
    Qp, QpType,
    common::{Admission, Common, Env, PeerEnd},
    flight,
    reply::Reply,
    requester::{Cursor, Requester, WINDOW},
    responder::Responder,
    responses::Responses,
    state::State,
};
use crate::{
    congestion::{Dcqcn, OVERHEAD},
    event::Disposition,
    mem::Access,
    psn::Psn,
    qp::Credits,
    time::Instant,
    wire::{Aeth, Bth, NetHeader, Opcode, Operation, Reth, Service, Single, SingleKind, padding},
    work::{Half, SendFlags, SendOp, SendWqe, WcOk, WcOpcode},
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

pub(crate) struct BuiltSingle {
    pub(crate) length: usize,
    pub(crate) is_request: bool,
}

impl Qp {
    /// `credits` returns the shared credits for bytes in flight. `None`: unchanged, use the general
    /// path.
    pub(crate) fn build_single(
        &mut self,
        slot: &mut [u8],
        credits: impl FnOnce(u64) -> Credits,
        now: Instant,
        dcqcn: Option<&Dcqcn>,
    ) -> Option<BuiltSingle> {
        let Common {
            state: State::Rts,
            qp_type: QpType::Rc,
            peer: PeerEnd { path: Some(_), .. },
            ..
        } = self.common
        else {
            return None;
        };
        if self.congestion.due || self.rate.limit().is_some() {
            return None;
        }
        let responses = &mut self.responder.responses;
        let is_first = responses.is_empty()
            || responses.is_acknowledgement()
                && self.requester.has_one_packet(self.common.mtu.bytes());
        if !is_first {
            let length = match self.turn.requests_first {
                true => None,
                false => responses.build_single(&self.common, slot),
            };
            return length.map(|length| BuiltSingle { length, is_request: false });
        }
        let length = self.requester.build_single(&self.common, slot, credits, now)?;
        self.turn.record(Half::Requester, 1);
        self.rate.on_sent(length as u64, now, dcqcn);
        Some(BuiltSingle { length, is_request: true })
    }
}

impl Responses {
    fn build_single(&mut self, common: &Common, slot: &mut [u8]) -> Option<usize> {
        let Some(&Reply::Acknowledge { psn, aeth }) = self.replies.front() else { return None };
        self.replies.pop_front();
        let (bth, rest) = slot.split_first_chunk_mut()?;
        *bth = header(common, Operation::Acknowledge, 0, psn, false);
        *rest.first_chunk_mut()? = aeth.encode();
        Some(Bth::LEN + Aeth::LEN)
    }
}

impl Requester {
    /// Writes an unstarted one-packet SEND or WRITE.
    fn build_single(
        &mut self,
        common: &Common,
        slot: &mut [u8],
        credits: impl FnOnce(u64) -> Credits,
        now: Instant,
    ) -> Option<usize> {
        let psn = self.sent_end;
        let Cursor { number, packet: 0 } = self.cursor else { return None };
        let may_go = psn == self.next_psn
            && !self.retry.is_paused()
            && !self.probe.is_due()
            && self.outstanding() < WINDOW;
        let mtu = common.mtu.bytes();
        let is_plain = |wqe: &&mut SendWqe| {
            !wqe.started
                && wqe.failed.is_none()
                && wqe.length <= mtu
                && !wqe.flags.contains(SendFlags::FENCE)
        };
        let wqe = self.queue.get_mut(number).filter(is_plain).filter(|_| may_go)?;
        let (operation, mut headers, immediate) = match wqe.op {
            SendOp::Send { immediate: None } => (Operation::SendOnly, Bth::LEN, None),
            SendOp::Send { immediate } => (Operation::SendOnlyImm, Bth::LEN, immediate),
            SendOp::Write { remote, immediate } => {
                let reth = Reth {
                    virtual_address: remote.address,
                    rkey: remote.rkey,
                    dma_length: wqe.length,
                };
                *slot[Bth::LEN..].first_chunk_mut()? = reth.encode();
                let operation = match immediate {
                    None => Operation::WriteOnly,
                    Some(_) => Operation::WriteOnlyImm,
                };
                (operation, Bth::LEN + Reth::LEN, immediate)
            }
            _ => return None,
        };
        if let Some(immediate) = immediate {
            *slot[headers..].first_chunk_mut()? = immediate.0;
            headers += immediate.0.len();
        }
        wqe.check_local(common.receiving.pd).ok()?;
        let length = wqe.length as usize;
        let end = headers + length;
        if length > 0 {
            wqe.read(0, &mut slot[headers..end]).ok()?;
        }
        let cost = flight::cost(wqe, 0, 1, mtu);
        self.flight.waits = false;
        self.flight.admit(cost, u64::from(mtu) + OVERHEAD, credits(self.flight.shared()))?;
        self.read_requests.waits = false;
        (wqe.started, wqe.first_psn, wqe.packets, wqe.holds_slot) = (true, psn, 1, false);
        let solicited =
            operation != Operation::WriteOnly && wqe.flags.contains(SendFlags::SOLICITED);
        let padded = end + padding(length);
        slot[end..padded].fill(0);
        slot[0..Bth::LEN].copy_from_slice(&header(common, operation, length, psn, solicited));
        self.next_psn = psn.plus(1);
        self.sent_end = self.next_psn;
        self.cursor = Cursor { number: number + 1, packet: 0 };
        self.retry.on_sent(now);
        self.flight.on_sent(cost, true);
        if self.retry.is_running() {
            self.probe.on_sent(psn, false, now);
        }
        Some(padded)
    }
}

fn header(
    common: &Common,
    operation: Operation,
    payload: usize,
    psn: Psn,
    solicited: bool,
) -> [u8; Bth::LEN] {
    let mut bth = common.bth(Opcode::known(Service::Rc, operation), psn);
    (bth.solicited, bth.ack_req) = (solicited, !operation.is_response());
    bth.encode(padding(payload) as u8)
}
