//! Engine: an adapter, its link, and the threads that move packets.
//!
//! The lock's holder serves: a program that posts or polls, else a background thread, so peers'
//! READs and WRITEs proceed while the target sleeps. While a program polls, the background thread
//! only checks every few milliseconds that polling continues.

mod atomics;
mod background;
mod corked;
mod describe;
mod ended;
mod event_loop;
mod failures;
mod flows;
mod follow;
mod fork;
mod frames;
mod interface;
mod lock;
mod log;
mod loop_descriptor;
mod loop_state;
mod outgoing;
mod poller;
mod posting;
mod processor;
mod program;
mod publication;
mod room;
mod schedule;
mod serve;
mod shard;
mod shared_cork;
mod sink;
mod sleep;
mod slice;
mod start;
mod system;
mod turns;
mod waiting;
mod words;

pub use describe::describe_engines;
#[cfg(test)]
pub(crate) use failures::{LOST_AFTER, LOST_TIME};
pub use flows::FlowError;
pub use fork::{any_devices, end_devices, survive_forks};
pub(crate) use loop_descriptor::LoopDescriptor;
pub(crate) use posting::Posted;
pub(crate) use serve::Engine;
pub use serve::Progress;
pub(crate) use sink::{CounterSink, EventSink, Sinks};
pub(crate) use start::EngineParts;
