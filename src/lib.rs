#![doc = include_str!("../README.md")]

pub use roce_provider::link::BindError;
pub use roce_provider::{
    AsyncEvent, AttachError, ChannelError, CompletionChannel, CompletionQueue, ConnectError, Context, Device, DeviceAddress,
    Endpoint, FileMemory, LinkCounters, MemoryRegion, MemoryWindow, MmapMemory, NullRegion, OpenError, OpenOptions, PortAttr,
    PostFailed, Progress, ProtectionDomain, QpAttr, QueuePair, RegionError, Rereg, SharedReceiveQueue, XrcDomain, devices,
    fabric, link,
};
pub use roce_transport as transport;
pub use roce_transport::{
    adapter::{Limits, McastError, ObjectError, PKeyTable, PKeyTableSize},
    addr::{AddressVector, Gid, Mtu, PKey, QKey, Qpn, StaticRate},
    event::{Counters, Disposition, DropReason},
    mem::{Access, AccessError, LKey, Memory, MemoryFault, RKey, RegisterError, WindowBind, WindowError, WindowType},
    psn::Psn,
    qp::{
        Attribute, Changes, CongestionCounters, Init, ModifyError, PathMigration, PostError, QpCaps, QpInfo, QpType, Quirks, Rtr,
        Rts, State,
    },
    wire::Immediate,
    work::{
        ArmKind, Data, Placement, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, SrqAttr, SrqError, SrqId, SrqInfo,
        UdDestination, Wc, WcError, WcOk, WcOpcode, WcStatus,
    },
};
