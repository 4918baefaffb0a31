//! Devices, links and verbs of a RoCEv2 adapter in user space, over the protocol of [`transport`].
//!
//! Programs depend on the crate [`roce`](https://docs.rs/roce), which re-exports what they need.
//!
//! [`devices`] lists what can be opened on this host; [`Device::open`] gives a [`Context`], from
//! which everything else is made: [`ProtectionDomain`], [`MemoryRegion`], [`CompletionQueue`],
//! [`QueuePair`]. Each object's documentation names its counterpart in the C API. Handles are cheap
//! to clone; the object goes when its last handle does.
//!
//! From below: [`fabric`] simulates a network and its faults. A [`link`] carries datagrams; the
//! engine moves them between a link and an [`Adapter`](transport::adapter::Adapter) under one lock.
//! The objects of verbs are handles on the adapter. [`Device`] puts all of that together; [`cm`]
//! connects queue pairs by address and port.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bind;
#[doc(hidden)] // for the C interface
pub mod calls;
#[doc(hidden)] // for the C interface
pub mod cancel;
mod checks;
mod clock;
pub mod cm;
pub mod control;
mod counters;
mod device;
mod diagnosis;
mod engine;
pub mod environment;
#[doc(hidden)] // for the C interface
pub mod errnos;
#[doc(hidden)] // for the fuzz targets
pub mod ethernet;
pub mod fabric;
pub mod faults;
pub mod link;
mod notice;
mod notify;
#[cfg(test)]
#[path = "../../tests/own_test/mod.rs"]
mod own_test;
mod port;
mod port_counters;
mod profile;
mod publish;
mod readiness;
mod reaper;
mod region;
#[doc(hidden)] // for the C interface
pub mod report;
#[doc(hidden)] // for the C interface
pub mod rsocket;
#[doc(hidden)] // for the C interface
pub mod signals;
#[doc(hidden)] // for the C interface
pub mod sync;
mod sysfs;
#[cfg(feature = "tokio")]
pub mod tokio;
mod variables;
mod verbs;

pub use checks::{CheckForm, CheckSyntaxError, Checks};
pub use counters::{LeasedAddress, LinkCounters};
#[doc(hidden)] // for the C interface
pub use device::attend_rules;
pub use device::{Device, DeviceAddress, OpenError, OpenOptions, devices};
pub use diagnosis::ExplainFormat;
#[doc(hidden)] // for the C interface
pub use diagnosis::explain_call;
pub use engine::Progress;
#[doc(hidden)] // for the watchdog of tests
pub use engine::describe_engines;
#[doc(hidden)] // for the C interface
pub use engine::{any_devices, end_devices, survive_forks};
pub use environment::EnvironmentError;
pub use ethernet::{
    EthFilter, FlowAttr, FlowKind, FlowSpec, FlowSpecError, Ipv4Filter, Ipv6Filter, PortFilter,
};
pub use port::{GidEntry, GidType, PortAttr};
pub use port_counters::{PortCounter, port_counters};
pub use profile::{Profile, ProfileError};
pub use publish::{Published, PublishedCounter, published_counters, runtime_directory};
pub use reaper::Reaper;
pub use region::{FileMemory, ForeignMemory, GpuMemory, MmapMemory, SharedMemory, Unreachable};
#[doc(hidden)] // for the C interface
pub use region::{copy_from_program, copy_to_program, gpus_work};
pub use verbs::{
    AddressHandle, AhFromWcError, AsyncEvent, AsyncEvents, AtomicCap, AttachError, BadWorkRequest,
    ChannelError, ClockValues, CompletionChannel, CompletionQueue, ConnectError, Context,
    CounterSet, CounterValue, DeviceAttr, DeviceCaps, DeviceMemory, DeviceMemoryError, Endpoint,
    Flow, FlowError, Guid, MemoryRegion, MemoryWindow, NullRegion, OdpCaps, ProtectionDomain,
    QpInitAttr, QueuePair, RegionError, ReregMr, SharedReceiveQueue, ThreadDomain, WeakContext,
    XrcDomain,
};

/// What the packets of a capture say.
pub use roce_capture::explain;

/// The protocol and its vocabulary.
pub use roce_transport as transport;
