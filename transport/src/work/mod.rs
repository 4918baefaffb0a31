//! Work requests, queues and completions.
//!
//! Read first: InfiniBand volume 1, 10.8, 11.4.

mod completion;
mod copies;
mod counter;
mod cq;
mod half;
mod late;
mod parts;
mod queue;
mod request;
mod ring;
mod shared;

pub use crate::ids::{AhId, CqId, SrqId, XrcdId};
pub use completion::{Cause, GrhArea, Refusal, Wc, WcError, WcOk, WcOpcode, WcStatus};
pub(crate) use copies::{FailedCopy, Fetched};
pub(crate) use counter::CompletionCounters;
pub use counter::{CompletionCounter, Counted, CountedOps};
pub use cq::{CompletionQueue, CqModeration, CqRoom, NotifyKind};
pub(crate) use cq::{Pushed, Validity};
pub(crate) use half::{Half, QpHalf};
pub(crate) use late::Late;
pub use late::LateConfig;
pub use queue::AbandonedRequests;
pub(crate) use queue::{RecvQueue, RecvWqe, SendQueue, SendWqe};
pub use request::{
    Data, Placement, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, SgeList, UdDestination,
};
pub(crate) use shared::{SharedQueue, SrqTable, XrcPart};
pub use shared::{SrqAttr, SrqError, SrqInfo};
