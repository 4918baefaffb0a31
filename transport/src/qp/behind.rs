//! Requests behind a READ that is not answered yet.
//!
//! The specification lets what follows a READ pass it unless the requester asks for a fence (volume
//! 1, 10.8.3.3). But adapters and rxe execute requests one after the other, and programs rely on
//! it. Here the response to a READ is read when it leaves, and requests behind it are executed when
//! they arrive. To make them look later,
//!
//! * packets of the response whose memory they change are kept as they were, up to [`KEPT`] of
//!   them. Beyond that, a NAK behind the response asks for the request again;
//! * their receive requests complete when the READ is answered.
//!
//! A repeated READ is executed again, and may see later requests' changes (9.7.5.1.4).

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    vec,
};

use super::{
    common::{Common, Env},
    reply::{ReadReply, Reply},
};
use crate::{
    ids::RKey,
    mem::Region,
    psn::Psn,
    work::{CompletionQueue, WcError, WcOk},
};

/// Packets of answers that are kept: what may be on its way behind a READ, in the largest window.
const KEPT: usize = 256;

/// Requests executed behind unanswered READs, with the memory that they found.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// READs whose answers have been queued, and those of them that have left.
    pub(super) queued: u64,
    pub(super) answered: u64,
    /// Data of packets of their answers, by PSN.
    kept: BTreeMap<u32, Box<[u8]>>,
    completions: VecDeque<Completion>,
}

/// A receive request that is complete when so many READs are answered.
#[derive(Debug)]
struct Completion {
    after: u64,
    /// Of an XRC target, the queue of the SRQ that was served.
    cq: Option<Arc<CompletionQueue>>,
    wr_id: u64,
    ok: WcOk,
    solicited: bool,
}

impl Behind {
    /// True if all READs are answered.
    pub(super) const fn is_empty(&self) -> bool {
        self.queued == self.answered
    }

    /// Nothing that waits will be answered. What came behind it stays incomplete.
    pub(super) fn forget_reads(&mut self) {
        self.answered = self.queued;
        self.kept.clear();
    }

    /// Keeps what unanswered READs still have to send of `length` bytes of a region that are about
    /// to change. Returns whether there is room for it.
    pub(super) fn keep(
        &mut self,
        replies: &VecDeque<Reply>,
        changing: (&Region, u64, u64),
        common: &Common,
    ) -> bool {
        if self.is_empty() {
            return true;
        }
        let (region, address, length) = changing;
        let start = region.origin(address);
        let end = start.saturating_add(length);
        for reply in replies {
            let Reply::Read(read) = reply else { continue };
            let Some(source) = &read.region else { continue };
            let first = source.origin(read.address);
            let (from, to) = (start.saturating_sub(first), end.saturating_sub(first));
            if !self.keep_part(read, source, (from, to), common) {
                return false;
            }
        }
        true
    }

    /// The same for one answer, in bytes from its start.
    fn keep_part(
        &mut self,
        read: &ReadReply,
        source: &Region,
        (from, to): (u64, u64),
        common: &Common,
    ) -> bool {
        let mtu = u64::from(common.mtu.bytes());
        let length = u64::from(read.length);
        let from = from.max(u64::from(read.next) * mtu);
        let to = to.min(length);
        if from >= to {
            return true;
        }
        for index in from / mtu..=(to - 1) / mtu {
            let psn = read.first_psn.plus(index as u32);
            if self.kept.contains_key(&psn.get()) {
                continue;
            }
            if self.kept.len() >= KEPT {
                return false;
            }
            let offset = index * mtu;
            let mut bytes = vec![0; (length - offset).min(mtu) as usize];
            // what cannot be read will be refused when its turn comes
            if source.read(read.address.wrapping_add(offset), &mut bytes).is_ok() {
                self.kept.insert(psn.get(), bytes.into());
            }
        }
        true
    }

    /// True if data of packets is kept.
    pub(super) fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The data of a packet, if it was kept.
    pub(super) fn take(&mut self, psn: Psn, length: usize) -> Option<Box<[u8]>> {
        if self.kept.is_empty() {
            return None;
        }
        self.kept.remove(&psn.get()).filter(|bytes| bytes.len() == length)
    }

    /// The last packet of an answer leaves, or a NAK instead of it.
    pub(super) fn on_answered(&mut self, replies: &VecDeque<Reply>) {
        self.answered += 1;
        if !self.kept.is_empty() {
            // an answer that was asked for again may have started behind what was kept for it
            let waits = |psn: Psn| {
                replies.iter().any(|reply| matches!(reply, Reply::Read(read) if read.holds(psn)))
            };
            self.kept.retain(|&psn, _| waits(Psn::new(psn)));
        }
    }

    /// True if a READ that is not answered has used this key.
    pub(super) fn is_being_read(&self, replies: &VecDeque<Reply>, key: RKey) -> bool {
        let reads = |reply: &Reply| match reply {
            Reply::Read(ReadReply { region: Some(region), .. }) => region.rkey() == key,
            _ => false,
        };
        !self.is_empty() && replies.iter().any(reads)
    }

    /// Completes a receive request, when all that came before is answered.
    pub(super) fn complete(
        &mut self,
        wr_id: u64,
        ok: WcOk,
        solicited: bool,
        common: &Common,
        env: &mut Env<'_>,
    ) {
        if self.is_empty() {
            common.complete_recv(wr_id, Ok(ok), solicited, env);
        } else {
            let (after, cq) = (self.queued, common.receiving.cq.clone());
            self.completions.push_back(Completion { after, cq, wr_id, ok, solicited });
        }
    }

    /// Completes the receive requests that waited for READs that are answered now.
    pub(super) fn complete_answered(&mut self, common: &Common, env: &mut Env<'_>) {
        while self.completions.front().is_some_and(|next| next.after <= self.answered)
            && let Some(next) = self.completions.pop_front()
        {
            next.complete(common, env);
        }
    }

    /// Completes all of them: an error that comes behind them is about to be told.
    pub(super) fn complete_all(&mut self, common: &Common, env: &mut Env<'_>) {
        for next in core::mem::take(&mut self.completions) {
            next.complete(common, env);
        }
    }

    /// Completes all of them as flushed: the READs before them are not answered.
    pub(super) fn flush(&mut self, common: &Common, env: &mut Env<'_>) {
        for Completion { cq, wr_id, .. } in core::mem::take(&mut self.completions) {
            common.complete_recv_in(cq.as_ref(), wr_id, Err(WcError::FLUSHED), false, env);
        }
    }
}

impl Completion {
    fn complete(self, common: &Common, env: &mut Env<'_>) {
        let Self { cq, wr_id, ok, solicited, .. } = self;
        common.complete_recv_in(cq.as_ref(), wr_id, Ok(ok), solicited, env);
    }
}
