//! The objects of verbs, as handles.

mod channel;
mod context;
mod cq;
mod domain;
mod event;
mod memory;
mod queue_pair;
mod srq;
mod window;
mod xrc;

pub(crate) use channel::CqWaker;
pub use channel::{ChannelError, CompletionChannel};
pub use context::Context;
pub(crate) use context::ContextInner;
pub use cq::CompletionQueue;
pub use domain::ProtectionDomain;
pub use event::AsyncEvent;
pub(crate) use event::AsyncQueue;
pub use memory::{MemoryRegion, NullRegion, RegionError, Rereg};
pub use queue_pair::{AttachError, ConnectError, Endpoint, PostFailed, QpAttr, QueuePair};
pub use srq::SharedReceiveQueue;
pub use window::MemoryWindow;
pub use xrc::XrcDomain;
