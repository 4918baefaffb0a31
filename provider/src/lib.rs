//! Devices, links and verbs of a user-space RoCEv2 adapter, over the protocol of [`transport`].
//!
//! Programs use the crate [`roce`](https://docs.rs/roce).
//!
//! [`Device::open`] returns a [`Context`], which makes [`ProtectionDomain`], [`MemoryRegion`],
//! [`CompletionQueue`] and [`QueuePair`]. Handles are cheap to clone. The last handle destroys the
//! object.
//!
//! A [`link`] carries datagrams. [`fabric`] simulates networks and faults. The engine moves
//! datagrams between link and [`Adapter`](transport::adapter::Adapter) under one lock. Verbs
//! objects are handles on the adapter. [`cm`] connects queue pairs by address and port.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

/// Methods of a trait that forward to a field.
macro_rules! forward {
    ($to:ident: $(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self $(, $argument: $kind)*) -> $result {
            self.$to.$name($($argument),*)
        })*
    };
    ($to:ident: $(fn $name:ident(&mut self) $(-> $result:ty)?;)*) => {
        $(fn $name(&mut self) $(-> $result)? {
            self.$to.$name()
        })*
    };
}

/// `Debug` with these fields, and others left out.
macro_rules! opaque_debug {
    ($type:ident $(, |$this:ident| $($field:ident: $value:expr),+)?) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($type))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}

mod bind;
#[doc(hidden)] // C interface
pub mod calls;
#[doc(hidden)] // C interface
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
#[doc(hidden)] // C interface
pub mod errnos;
#[doc(hidden)] // fuzz targets
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
#[doc(hidden)] // C interface
pub mod report;
#[doc(hidden)] // C interface
pub mod signals;
#[doc(hidden)] // C interface
pub mod sync;
mod sysfs;
#[cfg(feature = "tokio")]
pub mod tokio;
mod variables;
mod verbs;

pub use checks::{CheckForm, CheckSyntaxError, Checks};
pub use counters::{LeasedAddress, LinkCounters};
#[doc(hidden)] // C interface
pub use device::attend_rules;
pub use device::{Device, DeviceAddress, OpenError, OpenOptions, devices};
pub use diagnosis::ExplainFormat;
#[doc(hidden)] // C interface
pub use diagnosis::explain_call;
pub use engine::Progress;
#[doc(hidden)] // test watchdog
pub use engine::describe_engines;
#[doc(hidden)] // C interface
pub use engine::{any_devices, end_devices, survive_forks};
pub use environment::EnvironmentError;
pub use port::{GidEntry, GidType, PortAttr};
pub use port_counters::{PortCounter, port_counters};
pub use profile::{Profile, ProfileError};
pub use publish::{Published, PublishedCounter, published_counters, runtime_directory};
pub use reaper::Reaper;
pub use region::{FileMemory, ForeignMemory, GpuMemory, MmapMemory, Unreachable};
#[doc(hidden)] // C interface
pub use region::{copy_from_program, copy_to_program, gpus_work, map_shared, on_unmapped_access};
pub use roce_ethernet::{
    EthFilter, FlowAttr, FlowKind, FlowSpec, FlowSpecError, Ipv4Filter, Ipv6Filter, PortFilter,
};
pub use verbs::{
    AddressHandle, AhFromWcError, AsyncEvent, AsyncEvents, AtomicCap, AttachError, BadWorkRequest,
    ChannelError, ClockValues, CompletionChannel, CompletionQueue, ConnectError, Context,
    CounterSet, CounterValue, DeviceAttr, DeviceCaps, DeviceMemory, DeviceMemoryError, Endpoint,
    Flow, FlowError, Guid, MemoryRegion, MemoryWindow, NullRegion, OdpCaps, ProtectionDomain,
    QpInitAttr, QueuePair, RegionError, ReregMr, SharedReceiveQueue, ThreadDomain, WeakContext,
    XrcDomain,
};

pub use roce_capture::explain;

pub use roce_transport as transport;
