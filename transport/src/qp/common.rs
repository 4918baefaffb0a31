//! What both halves of a queue pair need: who it is, where its peer is, and where things are reported.

use alloc::{collections::VecDeque, sync::Arc, vec::Vec};

use slab::Slab;

use super::{
    attr::{QpCaps, Quirks},
    state::{QpType, State},
};
use crate::{
    addr::{AddressVector, Mtu, QKey, Qpn},
    event::{Counters, Event},
    gids::{GidTable, Path},
    mem::{Access, PdId, RegionTable, User},
    time::Instant,
    work::{CompletionQueue, CqId, Pushed, SendFlags, SendOp, SendWqe, SharedQueue, SrqId, Wc, WcError, WcOk, WcOpcode},
};

/// The rest of the adapter, as a queue pair sees it during one call.
pub(crate) struct Env<'a> {
    pub(crate) now: Instant,
    pub(crate) regions: &'a mut RegionTable,
    pub(crate) gids: &'a GidTable,
    pub(crate) srqs: &'a mut Slab<SharedQueue>,
    pub(crate) counters: &'a mut Counters,
    pub(crate) events: &'a mut VecDeque<Event>,
    /// Completion queues that overflowed during the call.
    pub(crate) overrun: &'a mut Vec<CqId>,
}

impl Env<'_> {
    /// A request has been taken from this shared receive queue.
    pub(crate) fn note_taken(&mut self, id: SrqId) {
        if self.srqs.get_mut(id.0 as usize).is_some_and(SharedQueue::passes_limit) {
            self.events.push_back(Event::SrqLimitReached(id));
        }
    }

    fn complete(&mut self, cq: &CompletionQueue, wc: Wc, solicited: bool) {
        match cq.push(wc, solicited) {
            Pushed::Quietly | Pushed::Lost => {}
            Pushed::Waking => self.events.push_back(Event::Completion(cq.id())),
            Pushed::Overrun => {
                self.events.push_back(Event::CqError(cq.id()));
                self.overrun.push(cq.id());
            }
        }
    }
}

/// A queue pair's identity, attributes and state.
pub(crate) struct Common {
    pub(crate) qpn: Qpn,
    pub(crate) qp_type: QpType,
    pub(crate) pd: PdId,
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    /// Where it receives from, if not from a queue of its own.
    pub(crate) srq: Option<SrqId>,
    pub(crate) caps: QpCaps,
    pub(crate) sq_sig_all: bool,
    pub(crate) state: State,
    pub(crate) access: Access,
    pub(crate) qkey: QKey,
    pub(crate) mtu: Mtu,
    pub(crate) dest_qpn: Qpn,
    pub(crate) path: Option<Path>,
    pub(crate) av: Option<AddressVector>,
    pub(crate) quirks: Quirks,
    /// Whether it has bound a memory window.
    pub(crate) binds: bool,
}

impl Common {
    /// As whom it uses memory.
    pub(crate) const fn user(&self) -> User {
        User { pd: self.pd, qpn: self.qpn }
    }

    /// Completes a send request; a success only if it is signaled.
    pub(crate) fn complete_send(&self, wqe: &SendWqe, result: Result<u32, WcError>, env: &mut Env<'_>) {
        if result.is_ok() && !self.sq_sig_all && !wqe.flags.contains(SendFlags::SIGNALED) {
            return;
        }
        let opcode = match wqe.op {
            SendOp::Send { .. } | SendOp::SendTo { .. } | SendOp::SendInvalidate { .. } => WcOpcode::Send,
            SendOp::Write { .. } => WcOpcode::RdmaWrite,
            SendOp::Read { .. } => WcOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            SendOp::Flush { .. } => WcOpcode::Flush,
            SendOp::BindWindow(_) => WcOpcode::BindMw,
            SendOp::LocalInvalidate { .. } => WcOpcode::LocalInv,
        };
        let result = result.map(|byte_len| WcOk::new(opcode, byte_len));
        env.complete(&self.send_cq, Wc { wr_id: wqe.id, qpn: self.qpn, result }, false);
    }

    /// Completes a receive request.
    pub(crate) fn complete_recv(&self, wr_id: u64, result: Result<WcOk, WcError>, solicited: bool, env: &mut Env<'_>) {
        env.complete(&self.recv_cq, Wc { wr_id, qpn: self.qpn, result }, solicited);
    }
}
