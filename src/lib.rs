#![doc = include_str!("../README.md")]

pub use roce_provider::link::BindError;
#[cfg(feature = "tokio")]
pub use roce_provider::tokio;
pub use roce_provider::{
    AddressHandle, AhFromWcError, AsyncEvent, AtomicCap, AttachError, BadWorkRequest, ChannelError,
    ClockValues, CompletionChannel, CompletionQueue, ConnectError, Context, CounterSet,
    CounterValue, Device, DeviceAddress, DeviceAttr, DeviceCaps, DeviceMemory, DeviceMemoryError,
    Endpoint, EnvironmentError, FileMemory, ForeignMemory, GidEntry, GidType, Guid, LinkCounters,
    MemoryRegion, MemoryWindow, MmapMemory, NullRegion, OpenError, OpenOptions, PortAttr, Progress,
    ProtectionDomain, Published, PublishedCounter, QpInitAttr, QueuePair, RegionError, ReregMr,
    SharedReceiveQueue, ThreadDomain, Unreachable, XrcDomain, cm, devices, environment, fabric,
    link, published_counters, runtime_directory,
};
pub use roce_transport as transport;
pub use roce_transport::{
    adapter::{Limits, McastError, ObjectError, PKeyTable, PKeyTableSize},
    addr::{AddressVector, Gid, Mtu, PKey, QKey, Qpn, StaticRate},
    event::{Counter, Counters, Disposition, DropReason},
    mem::{
        Access, AccessError, LKey, Memory, MemoryFault, RKey, RegisterError, WindowBind,
        WindowError, WindowType,
    },
    psn::Psn,
    qp::{
        Attribute, CongestionCounters, Init, ModifyError, PathMigration, PostError, QpCaps, QpInfo,
        QpType, QpUpdate, Quirks, Rtr, Rts, State,
    },
    wire::Immediate,
    work::{
        CqModeration, Data, GrhArea, NotifyKind, Placement, RecvWr, Remote, SendFlags, SendOp,
        SendWr, Sge, SrqAttr, SrqError, SrqId, SrqInfo, UdDestination, Wc, WcError, WcOk, WcOpcode,
        WcStatus,
    },
};

/// The guide's examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/connecting.md")]
mod connecting {}
