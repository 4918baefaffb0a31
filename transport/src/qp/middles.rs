//! Runs of middle packets of a SEND, WRITE or READ response, which differ only in PSN and payload.
//!
//! A fast path: a run ends where another packet may be due.

use alloc::sync::Arc;

use super::{
    Qp, QpType,
    attr::MAX_MESSAGE,
    common::{Common, Env},
    decision::{Decision, Decisions, Reason},
    flight,
    reply::{Attempt, Reply},
    requester::{Cursor, Requester, Transmission, WINDOW, leaves_as_writes},
    responder::{Message, Responder},
    responses::Responses,
    state::State,
};
use crate::{
    congestion::OVERHEAD,
    mem::{AccessError, Region},
    psn::Psn,
    wire::{Bth, Ext, Headers, MiddleHeaders, Opcode, Operation, XrcEth},
    work::{Half, SendOp, SendWqe, WcError},
};

/// A run, counted as sent.
#[derive(Debug)]
pub(crate) struct Middles {
    /// Request number; `None` for a response.
    pub(super) request: Option<u64>,
    repeats: bool,
    first: Psn,
    headers: MiddleHeaders,
    payload: usize,
    origin: Origin,
    pub(crate) count: u32,
}

#[derive(Debug)]
enum Origin {
    /// Address in one region.
    Memory(Arc<Region>, u64),
    /// Offset in the message: several regions, or inline.
    Request(u64),
}

impl Qp {
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
    ) -> Option<Middles> {
        if self.is_flushing() || self.congestion.due || self.rate.limit().is_some() {
            return None;
        }
        let middles = if self.responder.responses.is_empty() {
            self.requester.take_middles(most, &self.common, env)?
        } else if self.requester.may_send() || env.has_unplaced(self.common.half(Half::Responder)) {
            return None; // requests and responses take turns
        } else {
            self.responder.responses.take_middles(most, &self.common)?
        };
        let half = if middles.request.is_some() { Half::Requester } else { Half::Responder };
        let bytes = u64::from(middles.count) * length as u64;
        self.count_data(half, middles.count, bytes, env);
        if half == Half::Responder {
            self.responder.responses.pace.on_sent(bytes, env.now);
        }
        Some(middles)
    }

    /// On failure, the rest of the run does not leave.
    pub(crate) fn build_middle(
        &mut self,
        middles: &Middles,
        index: u32,
        slot: &mut [u8],
        decisions: &mut Decisions,
    ) -> bool {
        let written = middles.write(index, &self.requester, slot);
        match (written, middles.request) {
            (Ok(()), _) => {
                decisions.take(|| Decision::Packet(middles.reason(index, &self.requester)));
            }
            (Err(error), Some(number)) => self.requester.fail(number, WcError::protection(error)),
            (Err(_), None) => self.responder.responses.put_back_middles(middles, index),
        }
        written.is_ok()
    }

    /// True if the packet is next and only needs placement.
    pub(crate) fn awaits_middle(&self, operation: Operation, psn: Psn, payload: &[u8]) -> bool {
        matches!(self.common.qp_type, QpType::Rc | QpType::Uc)
            && payload.len() == self.common.mtu.bytes() as usize
            && match operation {
                Operation::ReadResponseMiddle => self.requester.awaits_middle(psn),
                _ => self.responder.awaits_middle(operation, psn, payload.len() as u64),
            }
    }

    /// After a run of responses, call [`record_responses`](Self::record_responses).
    pub(crate) fn take_middle(&mut self, operation: Operation, payload: &[u8]) -> bool {
        let taken = match operation {
            Operation::ReadResponseMiddle => {
                self.requester.take_middle(payload, self.common.mtu.bytes())
            }
            _ => self.responder.take_middle(payload),
        };
        taken.is_ok()
    }

    pub(crate) fn record_responses(&mut self, env: &mut Env<'_>) {
        self.requester.record_responses(env);
    }
}

impl Middles {
    pub(super) fn reason(&self, index: u32, requester: &Requester) -> Reason {
        match self.request {
            Some(number) => Reason::First(requester.part(number, self.first.plus(index))),
            None => Reason::Response { again: self.repeats },
        }
    }

    pub(super) fn write(
        &self,
        index: u32,
        requester: &Requester,
        slot: &mut [u8],
    ) -> Result<(), AccessError> {
        let to = &mut self.headers.write(self.first.plus(index), slot)[..self.payload];
        let skipped = u64::from(index) * self.payload as u64;
        match &self.origin {
            Origin::Memory(region, address) => region.read(address.wrapping_add(skipped), to),
            Origin::Request(offset) => {
                let wqe = self.request.and_then(|number| requester.queue.get(number));
                wqe.map_or(Ok(()), |wqe| wqe.read(offset + skipped, to))
            }
        }
    }
}

impl Requester {
    pub(super) const fn is_within_request(&self) -> bool {
        self.cursor.packet > 0
    }

    pub(super) fn take_middles(
        &mut self,
        most: u32,
        common: &Common,
        env: &Env<'_>,
    ) -> Option<Middles> {
        let Cursor { number, packet } = self.cursor;
        let wqe = self.queue.get(number).filter(|wqe| !wqe.awaits_data())?;
        if leaves_as_writes(wqe, common) {
            return None;
        }
        let first = wqe.first_psn.plus(packet);
        let may_go = matches!(common.state, State::Rts | State::Sqd) && !self.retry.is_paused();
        if packet == 0 || first != self.sent_end || !may_go {
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
            self.request(self.cursor, first.plus(1), false, Transmission::First, common)?;
        let (packet, offset, wqe) = self.contents(&request, common)?;
        let length = u64::from(count) * packet.payload as u64;
        let origin = match wqe.piece(offset, length) {
            Some((region, address)) => Origin::Memory(region.clone(), address),
            None => Origin::Request(offset),
        };
        self.cursor.packet += count;
        self.sent_end = first.plus(count);
        if is_reliable {
            self.retry.on_sent(env.now);
            self.flight.on_sent(u64::from(count) * cost, false);
        } else {
            self.oldest_unacked = self.sent_end;
        }
        let headers = packet.headers.middle_template();
        let payload = packet.payload;
        let request = Some(number);
        Some(Middles { request, repeats: false, first, headers, payload, origin, count })
    }

    pub(super) fn awaits_middle(&self, psn: Psn) -> bool {
        let is_read = |wqe: &&SendWqe| {
            wqe.started && wqe.failed.is_none() && matches!(wqe.op, SendOp::Read { .. })
        };
        psn == self.oldest_unacked
            && psn.is_before(self.sent_end)
            && self.queue.oldest().filter(is_read).is_some_and(|wqe| {
                let index = psn.after(wqe.first_psn).unwrap_or(0);
                let next = psn.plus(1);
                // the first packet checks the SGEs
                0 < index && next != wqe.end_psn() && self.read_requests.end_of(psn) != Some(next)
            })
    }

    pub(super) fn take_middle(&mut self, payload: &[u8], mtu: u32) -> Result<(), AccessError> {
        if let Some(wqe) = self.queue.oldest()
            && let Some(index) = self.oldest_unacked.after(wqe.first_psn)
        {
            wqe.write(u64::from(index * mtu), payload, |region, address, bytes| {
                region.write(address, bytes)
            })?;
            self.oldest_unacked = self.oldest_unacked.plus(1);
        }
        Ok(())
    }
}

impl Responses {
    pub(super) fn is_within_read(&self) -> bool {
        matches!(self.replies.front(), Some(Reply::Read(read)) if read.next > 0)
    }

    pub(super) fn take_middles(&mut self, most: u32, common: &Common) -> Option<Middles> {
        if self.after_read.keeps() || self.pace.limit().is_some() {
            return None;
        }
        let Some(Reply::Read(read)) = self.replies.front_mut() else { return None };
        let last = read.packets - 1;
        let count = most.min(last.saturating_sub(read.next));
        if read.next == 0 || count == 0 {
            return None;
        }
        let mtu = common.mtu.bytes();
        let first = read.first_psn.plus(read.next);
        let address = read.address.wrapping_add(u64::from(read.next) * u64::from(mtu));
        // memory behind a driver is fetched in runs
        let region = read.region.as_ref().filter(|region| !region.is_behind_driver())?;
        let origin = Origin::Memory(region.clone(), address);
        let opcode = Opcode::known(common.qp_type.service(), Operation::ReadResponseMiddle);
        let headers = Headers::built(common.bth(opcode, first), Ext::None);
        read.next += count;
        self.sent = first.plus(count - 1);
        Some(Middles {
            request: None,
            repeats: read.attempt == Attempt::Repeat,
            first,
            headers: headers.middle_template(),
            payload: mtu as usize,
            origin,
            count,
        })
    }

    pub(super) fn put_back_middles(&mut self, middles: &Middles, from: u32) {
        if let Some(Reply::Read(read)) = self.replies.front_mut() {
            read.next -= middles.count - from;
        }
    }
}

impl Responder {
    pub(super) fn awaits_middle(&self, operation: Operation, psn: Psn, payload: u64) -> bool {
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

    pub(super) fn take_middle(&mut self, payload: &[u8]) -> Result<(), AccessError> {
        match &mut self.message {
            Message::Send { wqe, received } => {
                wqe.write(*received, payload, |region, address, bytes| {
                    region.write(address, bytes)
                })?;
                *received += payload.len() as u64;
            }
            Message::Write { region: Some(region), address, done, .. } => {
                region.write(address.wrapping_add(u64::from(*done)), payload)?;
                *done += payload.len() as u32;
            }
            Message::Write { region: None, .. } | Message::None => return Ok(()),
        }
        self.expected = self.expected.plus(1);
        self.record_acknowledged();
        Ok(())
    }
}
