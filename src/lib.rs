#![doc = include_str!("../README.md")]

pub use roce_provider::link::BindError;
pub use roce_provider::{
    AsyncEvent, ChannelError, CompletionChannel, CompletionQueue, ConnectError, Context, Device, DeviceAddress, Endpoint,
    LinkCounters, MemoryRegion, MmapMemory, OpenError, OpenOptions, PortAttr, PostFailed, Progress, ProtectionDomain, QpAttr,
    QueuePair, RegionError, SharedReceiveQueue, devices, fabric, link,
};
pub use roce_transport as transport;
pub use roce_transport::{
    adapter::{Limits, ObjectError},
    addr::{AddressVector, Gid, Mtu, PKey, QKey, Qpn},
    event::{Counters, Disposition, DropReason},
    mem::{Access, AccessError, LKey, Memory, MemoryFault, RKey},
    psn::Psn,
    qp::{Init, ModifyError, PostError, QpCaps, QpInfo, QpType, Rtr, Rts, State},
    wire::Immediate,
    work::{
        ArmKind, Data, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, SrqAttr, SrqError, SrqId, SrqInfo, UdDestination, Wc,
        WcError, WcOk, WcOpcode, WcStatus,
    },
};
