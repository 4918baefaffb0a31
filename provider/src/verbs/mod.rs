//! The objects of verbs, as handles.

mod address;
mod channel;
mod clock;
mod context;
mod counters;
mod cq;
mod device_attr;
mod device_memory;
mod domain;
mod event;
mod memory;
mod queue_pair;
mod sink;
mod srq;
mod window;
mod xrc;

pub use address::{AddressHandle, AhFromWcError};
pub use channel::{ChannelError, CompletionChannel};
pub use clock::ClockValues;
pub use context::Context;
pub(crate) use context::ContextInner;
pub use counters::{CounterSet, CounterValue};
pub use cq::CompletionQueue;
pub use device_attr::{AtomicCap, DeviceAttr, DeviceCaps, Guid};
pub use device_memory::{DeviceMemory, DeviceMemoryError};
pub(crate) use domain::WeakDomain;
pub use domain::{ProtectionDomain, ThreadDomain};
pub use event::{AsyncEvent, AsyncEvents};
pub use memory::{MemoryRegion, NullRegion, RegionError, ReregMr};
pub use queue_pair::{AttachError, BadWorkRequest, ConnectError, Endpoint, QpInitAttr, QueuePair};
pub(crate) use sink::{AsyncQueue, ObjectEvents};
pub use srq::SharedReceiveQueue;
pub use window::MemoryWindow;
pub use xrc::XrcDomain;
