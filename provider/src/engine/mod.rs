//! The engine: one adapter, its link, and the threads that move packets between them.
//!
//! The thread that has the lock serves the adapter. A program that posts or polls serves on its own
//! thread. A background thread serves when the program does neither: a peer's READ or WRITE must be
//! served while its target sleeps. While a program polls, the background thread does not wait on
//! the sockets. It checks every few milliseconds whether polling has stopped, and then takes over.

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
mod waiting;
mod words;

pub use describe::describe_engines;
#[cfg(test)]
pub(crate) use failures::{LOST_AFTER, LOST_TIME};
pub(crate) use flows::FlowRefused;
pub use fork::{any_devices, end_devices, survive_forks};
pub(crate) use loop_descriptor::LoopDescriptor;
pub(crate) use posting::Posted;
pub(crate) use serve::Engine;
pub use serve::Progress;
pub(crate) use sink::{CounterSink, EventSink, Sinks};
pub(crate) use start::EngineParts;
