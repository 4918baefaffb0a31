//! Completion queues: the transport's files on this crate's parts.

mod completion {
    pub(super) use roce_transport::work::Wc;
}
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a file of another crate, of which no model needs all"
)]
#[path = "../../../transport/src/work/cq.rs"]
mod cq;
mod parts;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a file of another crate, of which no model needs all"
)]
#[path = "../../../transport/src/work/ring.rs"]
mod ring;

pub(crate) use cq::{CompletionQueue, CqRoom, NotifyKind, Pushed, Validity};
