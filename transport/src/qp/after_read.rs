//! Requests behind an unfinished READ.
//!
//! The specification lets them pass without a fence (volume 1, 10.8.3.3), but adapters and rxe keep
//! the order, and programs rely on it. READ memory is read as the response leaves, while later
//! requests execute on arrival. Therefore
//!
//! * up to [`KEPT`] response packets are copied before their memory changes; beyond that, the
//!   request gets a NAK;
//! * receives complete after the READ's response.
//!
//! A repeated READ may see later changes (9.7.5.1.4).

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

/// Covers the largest window behind a READ.
const KEPT: usize = 256;

#[derive(Debug, Default)]
pub(super) struct AfterRead {
    pub(super) queued: u64,
    pub(super) responded: u64,
    kept: BTreeMap<u32, Box<[u8]>>,
    completions: VecDeque<Completion>,
}

/// A receive that waits for `after` READ responses.
#[derive(Debug)]
struct Completion {
    after: u64,
    /// An XRC target's queue at that time.
    cq: Option<Arc<CompletionQueue>>,
    wr_id: u64,
    ok: WcOk,
    solicited: bool,
}

impl AfterRead {
    pub(super) const fn is_empty(&self) -> bool {
        self.queued == self.responded
    }

    /// Does not complete receives behind the READs.
    pub(super) fn forget_reads(&mut self) {
        self.responded = self.queued;
        self.kept.clear();
    }

    /// Copies unsent READ data before a change; false without space.
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
            // an unreadable packet is refused in its turn
            if source.read(read.address.wrapping_add(offset), &mut bytes).is_ok() {
                self.kept.insert(psn.get(), bytes.into());
            }
        }
        true
    }

    pub(super) fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    pub(super) fn take(&mut self, psn: Psn, length: usize) -> Option<Box<[u8]>> {
        if self.kept.is_empty() {
            return None;
        }
        self.kept.remove(&psn.get()).filter(|bytes| bytes.len() == length)
    }

    pub(super) fn on_responses(&mut self, replies: &VecDeque<Reply>) {
        self.responded += 1;
        if !self.kept.is_empty() {
            // a repeated response may have started behind its copies
            let waits = |psn: Psn| {
                replies.iter().any(|reply| matches!(reply, Reply::Read(read) if read.holds(psn)))
            };
            self.kept.retain(|&psn, _| waits(Psn::new(psn)));
        }
    }

    pub(super) fn is_being_read(&self, replies: &VecDeque<Reply>, key: RKey) -> bool {
        let reads = |reply: &Reply| match reply {
            Reply::Read(ReadReply { region: Some(region), .. }) => region.rkey() == key,
            _ => false,
        };
        !self.is_empty() && replies.iter().any(reads)
    }

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

    pub(super) fn complete_responses(&mut self, common: &Common, env: &mut Env<'_>) {
        while self.completions.front().is_some_and(|next| next.after <= self.responded)
            && let Some(next) = self.completions.pop_front()
        {
            next.complete(common, env);
        }
    }

    /// Completes receives before an error behind them is reported.
    pub(super) fn complete_all(&mut self, common: &Common, env: &mut Env<'_>) {
        for next in core::mem::take(&mut self.completions) {
            next.complete(common, env);
        }
    }

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
