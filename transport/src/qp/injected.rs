//! Injected completion errors, which act like real errors.

use alloc::{boxed::Box, collections::VecDeque};
use core::fmt;

use super::state::QpType;
use crate::{
    ids::Qpn,
    work::{Cause, WcError, WcOpcode, WcStatus},
};

/// The queue of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Queue {
    /// The send queue.
    Send,
    /// The receive queue or shared receive queue.
    Receive,
}

/// A request about to succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completing {
    /// Queue pair.
    pub qpn: Qpn,
    /// Service.
    pub qp_type: QpType,
    /// Queue.
    pub queue: Queue,
    /// Kind of request.
    pub opcode: WcOpcode,
    /// It consumes the peer's receive request.
    pub needs_receive: bool,
}

impl Completing {
    /// True if this status is possible.
    #[must_use]
    pub const fn may_be(&self, status: WcStatus) -> bool {
        use WcOpcode as Op;
        use WcStatus as Status;
        if matches!(self.queue, Queue::Receive) {
            return may_be_received(status)
                && !(matches!(self.qp_type, QpType::Ud | QpType::Uc | QpType::RawPacket)
                    && matches!(status, Status::RemInvReqErr));
        }
        let is_local = matches!(self.opcode, Op::BindMw | Op::LocalInv);
        match status {
            Status::WrFlushErr | Status::LocQpOpErr => true,
            Status::MwBindErr => matches!(self.opcode, Op::BindMw),
            Status::LocLenErr | Status::LocProtErr => !is_local,
            Status::LocAccessErr => false,
            Status::RnrRetryExcErr => self.qp_type.is_reliable() && !is_local && self.needs_receive,
            Status::RemAccessErr => {
                self.qp_type.is_reliable() && !is_local && !(matches!(self.opcode, Op::Send))
            }
            Status::BadRespErr | Status::RemInvReqErr | Status::RemOpErr | Status::RetryExcErr => {
                self.qp_type.is_reliable() && !is_local
            }
        }
    }
}

/// True if receive requests can have this status.
#[must_use]
pub const fn may_be_received(status: WcStatus) -> bool {
    matches!(
        status,
        WcStatus::LocLenErr
            | WcStatus::LocQpOpErr
            | WcStatus::LocProtErr
            | WcStatus::LocAccessErr
            | WcStatus::RemInvReqErr
            | WcStatus::WrFlushErr
    )
}

/// Chooses requests to fail; called under the adapter's lock, must not wait.
pub trait CompletionFaults: Send + fmt::Debug {
    /// Returns a [possible](Completing::may_be) status to inject.
    fn judge(&mut self, completing: &Completing) -> Option<WcStatus>;
}

#[derive(Debug, Default)]
pub(crate) struct Injected {
    pub(crate) faults: Option<Box<dyn CompletionFaults>>,
    /// Queue pairs before their state change.
    failed: VecDeque<(Qpn, Queue, WcError)>,
}

impl Injected {
    /// An injected error, or a flush behind one.
    #[inline]
    pub(crate) fn judge(&mut self, completing: impl FnOnce() -> Completing) -> Option<WcError> {
        if self.faults.is_none() && self.failed.is_empty() {
            return None;
        }
        self.judge_one(&completing())
    }

    #[cold]
    fn judge_one(&mut self, completing: &Completing) -> Option<WcError> {
        let &Completing { qpn, qp_type, queue, .. } = completing;
        let is_behind = self.failed.iter().any(|(of, failed, _)| {
            *of == qpn && (qp_type.is_reliable() || *failed == Queue::Receive || *failed == queue)
        });
        if is_behind {
            return Some(WcError::FLUSHED);
        }
        let status = self.faults.as_mut()?.judge(completing)?;
        let error = WcError { status, cause: Cause::Injected };
        self.failed.push_back((qpn, queue, error));
        Some(error)
    }

    pub(crate) fn pop(&mut self) -> Option<(Qpn, Queue, WcError)> {
        self.failed.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.failed.is_empty()
    }
}
