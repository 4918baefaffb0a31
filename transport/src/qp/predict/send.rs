use super::super::{
    Qp, QpType,
    common::{Common, PeerEnd},
    flight,
    reply::Reply,
    requester::{Cursor, Requester, WINDOW},
    responses::Responses,
    state::State,
};
use crate::{
    congestion::{Dcqcn, OVERHEAD},
    psn::Psn,
    qp::Credits,
    time::Instant,
    wire::{Aeth, Bth, Opcode, Operation, Reth, Service, padding},
    work::{Half, SendFlags, SendOp, SendWqe},
};

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
