use alloc::sync::Arc;

use super::super::{
    Qp, QpType,
    common::{Common, Env, PeerEnd},
    flight,
    reply::Reply,
    requester::{Cursor, Requester, Transmission, WINDOW, leaves_as_writes},
    responses::Responses,
    state::State,
};
use crate::{
    congestion::{Dcqcn, OVERHEAD},
    mem::Region,
    psn::Psn,
    qp::Credits,
    time::Instant,
    wire::{
        Aeth, Bth, Ext, Headers, MiddleHeaders, Opcode, Operation, Reth, Service, XrcEth, padding,
    },
    work::{Half, SendFlags, SendOp, SendWqe, WcError},
};

pub(crate) struct BuiltSingle {
    pub(crate) length: usize,
    pub(crate) is_request: bool,
}

/// Middle packets of a SEND, WRITE or READ response, counted as sent: they differ only in PSN and
/// payload. The run ends where another packet may be due.
#[derive(Debug)]
pub(crate) struct MiddleRun {
    /// Request number; `None` for a response.
    request: Option<u64>,
    first_psn: Psn,
    /// First byte's offset in the message.
    offset: u64,
    /// First byte's address, if one region has all.
    source: Option<(Arc<Region>, u64)>,
    headers: MiddleHeaders,
    /// Bytes of each packet.
    payload: usize,
    pub(crate) count: u32,
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

    /// Length of a possible next middle packet, without ICRC.
    pub(crate) fn middle_length(&self) -> Option<usize> {
        let continues =
            self.requester.is_within_request() || self.responder.responses.is_within_read();
        let Common { qp_type, mtu, .. } = self.common;
        let is_request = self.responder.responses.is_empty();
        let xrceth = if is_request && qp_type == QpType::XrcInitiator { XrcEth::LEN } else { 0 };
        continues.then_some(Bth::LEN + xrceth + mtu.bytes() as usize)
    }

    pub(crate) fn take_middles(
        &mut self,
        most: u32,
        length: usize,
        env: &Env<'_>,
    ) -> Option<MiddleRun> {
        if self.is_flushing() || self.congestion.due || self.rate.limit().is_some() {
            return None;
        }
        let (half, run) = if self.responder.responses.is_empty() {
            (Half::Requester, self.requester.take_middles(most, &self.common, env)?)
        } else if self.requester.may_send() {
            return None; // requests and responses take turns
        } else {
            (Half::Responder, self.responder.responses.take_middles(most, &self.common)?)
        };
        let bytes = u64::from(run.count) * length as u64;
        self.count_data(half, run.count, bytes, env);
        if half == Half::Responder {
            self.responder.responses.pace.on_sent(bytes, env.now);
        }
        Some(run)
    }

    /// On failure, the rest of the run does not leave.
    pub(crate) fn build_middle(&mut self, run: &MiddleRun, index: u32, slot: &mut [u8]) -> bool {
        let to = &mut run.headers.write(run.first_psn.plus(index), slot)[..run.payload];
        let skipped = u64::from(index) * run.payload as u64;
        let wqe = || self.requester.queue.get(run.request?);
        let read = match &run.source {
            Some((region, address)) => region.read(address.wrapping_add(skipped), to),
            None => wqe().map_or(Ok(()), |wqe| wqe.read(run.offset + skipped, to)),
        };
        match (read, run.request) {
            (Ok(()), _) => {}
            (Err(error), Some(number)) => self.requester.fail(number, WcError::protection(error)),
            (Err(_), None) => self.responder.responses.put_back_middles(run.count - index),
        }
        read.is_ok()
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

    fn is_within_read(&self) -> bool {
        matches!(self.replies.front(), Some(Reply::Read(read)) if read.next > 0)
    }

    fn take_middles(&mut self, most: u32, common: &Common) -> Option<MiddleRun> {
        if self.after_read.keeps() || self.pace.limit().is_some() {
            return None;
        }
        let Some(Reply::Read(read)) = self.replies.front_mut() else { return None };
        let first = read.next;
        let count = most.min((read.packets - 1).saturating_sub(first));
        // memory behind a driver is fetched in runs
        let region = read.region.as_ref().filter(|region| !region.is_behind_driver())?;
        if first == 0 || count == 0 {
            return None;
        }
        let first_psn = read.first_psn.plus(first);
        let opcode = Opcode::known(common.qp_type.service(), Operation::ReadResponseMiddle);
        let headers = Headers::built(common.bth(opcode, first_psn), Ext::None).middle_template();
        read.next += count;
        self.sent = first_psn.plus(count - 1);
        let payload = common.mtu.bytes() as usize;
        let offset = u64::from(first) * payload as u64;
        let source = Some((region.clone(), read.address.wrapping_add(offset)));
        Some(MiddleRun { request: None, first_psn, offset, source, headers, payload, count })
    }

    fn put_back_middles(&mut self, count: u32) {
        if let Some(Reply::Read(read)) = self.replies.front_mut() {
            read.next -= count;
        }
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

    const fn is_within_request(&self) -> bool {
        self.cursor.packet > 0
    }

    fn take_middles(&mut self, most: u32, common: &Common, env: &Env<'_>) -> Option<MiddleRun> {
        let Cursor { number, packet } = self.cursor;
        let wqe = self.queue.get(number).filter(|wqe| !wqe.awaits_data())?;
        if leaves_as_writes(wqe, common) {
            return None;
        }
        let first_psn = wqe.first_psn.plus(packet);
        let may_go = matches!(common.state, State::Rts | State::Sqd) && !self.retry.is_paused();
        if packet == 0 || first_psn != self.sent_end || !may_go {
            return None;
        }
        let last = wqe.packets - 1;
        let mut count = most.min(last.saturating_sub(packet));
        let mtu = common.mtu.bytes();
        let cost = flight::cost(wqe, packet, packet + 1, mtu);
        let is_reliable = common.qp_type.is_reliable();
        if is_reliable {
            let largest = u64::from(mtu) + OVERHEAD;
            let allowed = self.flight.packets_before_ack_req(cost, largest, env.send_credits);
            count = count.min(WINDOW.saturating_sub(self.outstanding())).min(allowed);
        }
        if count == 0 {
            return None;
        }
        let request =
            self.request(self.cursor, first_psn.plus(1), false, Transmission::First, common)?;
        let (packet, offset, wqe) = self.contents(&request, common)?;
        let source = wqe.only_region().map(|(region, address)| (region.clone(), address + offset));
        self.cursor.packet += count;
        self.sent_end = first_psn.plus(count);
        if is_reliable {
            self.retry.on_sent(env.now);
            self.flight.on_sent(u64::from(count) * cost, false);
        } else {
            self.oldest_unacked = self.sent_end;
        }
        let headers = packet.headers.middle_template();
        let (request, payload) = (Some(number), packet.payload);
        Some(MiddleRun { request, first_psn, offset, source, headers, payload, count })
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
