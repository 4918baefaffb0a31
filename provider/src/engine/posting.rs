//! Lists of posted requests. Between portions of a long list the lock is released and packets
//! leave, so neither other threads nor the peer wait for its end.

use std::mem;

use roce_transport::{
    adapter::Adapter,
    ids::{Qpn, SrqId},
    qp::PostError,
    time::Instant,
    work::{Data, RecvWr, SendWr},
};

use super::{lock::Locked, program::increment, schedule::cork::Load, serve::Engine, shard::Shard};
use crate::clock;

/// Requests plus elements posted per hold of the lock.
const PORTION: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Posted {
    Send,
    /// Waits for arrivals or completes at once.
    Receive,
}

pub(crate) struct Posting<'a> {
    engine: &'a Engine,
    kind: Posted,
    /// Lock, and when it was taken.
    held: Option<(Locked<'a>, Instant)>,
    /// Rest of the portion.
    left: usize,
    load: Load,
}

impl Engine {
    pub(crate) fn post<R>(&self, kind: Posted, requests: impl FnOnce(&mut Posting<'_>) -> R) -> R {
        if kind == Posted::Send {
            increment(&self.calls.commands);
        }
        let held = Some(self.hold());
        let mut posting =
            Posting { engine: self, kind, held, left: PORTION, load: Load::default() };
        let result = requests(&mut posting);
        posting.end_portion();
        self.explain();
        result
    }

    /// Posts under one hold of the lock.
    pub(crate) fn post_at_once<R>(
        &self,
        wrs: &[SendWr],
        post: impl FnOnce(&mut Adapter, Instant) -> R,
    ) -> R {
        increment(&self.calls.commands);
        let (mut shard, now) = self.hold();
        let result = post(shard.adapter(), now);
        let mut load = Load::default();
        wrs.iter().for_each(|wr| load.add(elements_and_bytes(wr).1));
        self.cork_or_send(&mut shard, now, load);
        self.end_post(&mut shard, now);
        drop(shard);
        self.explain();
        result
    }

    fn end_post(&self, shard: &mut Shard, start: Instant) {
        let end = shard.count_short_hold(start);
        shard.cork.observer().record_end(end);
        self.after_service(shard);
    }

    fn hold(&self) -> (Locked<'_>, Instant) {
        if let Some(shard) = self.try_lock() {
            return (shard, clock::now());
        }
        let asked = clock::now();
        let mut shard = self.lock();
        let now = clock::now();
        shard.cork.observer().record_wait(now.since(asked));
        (shard, now)
    }
}

impl Posting<'_> {
    pub(crate) fn send(&mut self, qpn: Qpn, wr: &SendWr) -> Result<(), PostError> {
        let (elements, bytes) = elements_and_bytes(wr);
        self.load.add(bytes);
        self.one(elements, |adapter, now| adapter.post_send(now, qpn, wr))
    }

    pub(crate) fn receive(&mut self, qpn: Qpn, wr: &RecvWr) -> Result<(), PostError> {
        self.one(wr.sges.len(), |adapter, now| adapter.post_recv(now, qpn, wr))
    }

    pub(crate) fn receive_shared(&mut self, id: SrqId, wr: &RecvWr) -> Result<(), PostError> {
        self.one(wr.sges.len(), |adapter, _| adapter.post_srq_recv(id, wr))
    }

    fn one<R>(&mut self, elements: usize, post: impl FnOnce(&mut Adapter, Instant) -> R) -> R {
        if self.left == 0 {
            self.end_portion();
            self.engine.let_others_in();
            self.left = PORTION;
        }
        self.left = self.left.saturating_sub(1 + elements);
        let (shard, now) = self.held.get_or_insert_with(|| self.engine.hold());
        post(shard.adapter(), *now)
    }

    fn end_portion(&mut self) {
        let Some((mut shard, now)) = self.held.take() else { return };
        let load = mem::take(&mut self.load);
        match self.kind {
            Posted::Send if self.left > 0 => self.engine.cork_or_send(&mut shard, now, load),
            Posted::Receive if !shard.adapter().has_events() => {}
            _ => shard.transmit(now),
        }
        if self.kind == Posted::Send {
            self.engine.end_post(&mut shard, now);
        } else {
            shard.count_short_hold(now);
            self.engine.after_service(&mut shard);
        }
    }
}

fn elements_and_bytes(wr: &SendWr) -> (usize, usize) {
    match &wr.data {
        Data::Sges(sges) => (sges.len(), sges.iter().map(|sge| sge.length as usize).sum()),
        Data::Inline(bytes) => (1, bytes.len()),
    }
}
