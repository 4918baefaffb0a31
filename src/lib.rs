//! RoCEv2 adapter in user space: RDMA verbs over UDP port 4791, without privilege.
//!
//! A program opens a [`Device`]. Its [`Context`] makes [`ProtectionDomain`], [`MemoryRegion`],
//! [`CompletionQueue`] and [`QueuePair`]. Names follow
//! [libibverbs](https://github.com/linux-rdma/rdma-core). [`cm`] connects queue pairs by address
//! and port, like librdmacm.
//!
//! The InfiniBand transport (RC, UC, UD, XRC) reaches `roce` and the kernel's rxe. Network adapters
//! speak the protocol too, but are untested. Devices need Linux; other systems have [`transport`],
//! [`fabric`] and [`explain`].
//!
//! # Example
//!
//! An RDMA WRITE between two devices of one process:
//!
//! ```
//! use roce::{Access, Device, OpenOptions, QpInitAttr, QpType, SendWr};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // each opening has a loopback address of its own
//!     let device = Device::named("roce_lo")?;
//!     let client = device.open(OpenOptions::default())?;
//!     let server = device.open(OpenOptions::default())?;
//!
//!     // a completion queue, a protection domain and a queue pair at each end
//!     let (client_cq, server_cq) = (client.create_cq(16, None)?, server.create_cq(16, None)?);
//!     let (client_pd, server_pd) = (client.alloc_pd()?, server.alloc_pd()?);
//!     let client_qp = client_pd.create_qp(&QpInitAttr::new(QpType::Rc, &client_cq))?;
//!     let server_qp = server_pd.create_qp(&QpInitAttr::new(QpType::Rc, &server_cq))?;
//!     client_qp.connect_to(server_qp.endpoint(0).ok_or("no address")?)?;
//!     server_qp.connect_to(client_qp.endpoint(0).ok_or("no address")?)?;
//!
//!     // the server grants the client the right to write 64 bytes
//!     let source = client_pd.allocate(64, Access::empty())?;
//!     let target = server_pd.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!
//!     source.write_at(0, b"over the wire")?;
//!     client_qp.post_send(&[SendWr::write(1, target.remote(0), source.sge(0..13))])?;
//!     let completion = loop {
//!         if let Some(completion) = client_cq.poll_one() {
//!             break completion;
//!         }
//!     };
//!     completion.result?;
//!     assert_eq!(target.to_vec(0..13)?, b"over the wire");
//!     Ok(())
//! }
//! ```
//!
//! # Layers
//!
//! 1. [`transport`], the crate `roce-transport`: the protocol as a deterministic function of
//!    datagrams, commands and time; `no_std`, without `unsafe`, I/O, threads or locks.
//! 2. The crate [`roce-provider`](https://docs.rs/roce-provider): devices, [links](link), engine,
//!    memory, verbs and [`cm`].
//! 3. `roce`: re-exports.
//!
//! The [guide](https://github.com/roce-rs/roce/tree/main/docs/guide) covers connecting, existing
//! programs, fault injection and diagnosis.
//!
//! # Memory
//!
//! A peer with the key writes a region at any time. [`MemoryRegion`] copies in and out, or accesses
//! words atomically, without references.
//!
//! # Features
//!
//! `tokio`: completion and event channels for tasks. Off by default.

pub use roce_capture::explain;
pub use roce_fabric as fabric;
#[cfg(target_os = "linux")]
pub use roce_provider::link::{BindError, XdpRefusal};
#[cfg(all(feature = "tokio", target_os = "linux"))]
pub use roce_provider::tokio;
#[cfg(target_os = "linux")]
pub use roce_provider::{
    AddressHandle, AhFromWcError, AsyncEvent, AtomicCap, AttachError, BadWorkRequest, ChannelError,
    CheckForm, CheckSyntaxError, Checks, ClockValues, CompletionChannel, CompletionQueue,
    ConnectError, Context, CounterSet, CounterValue, Device, DeviceAddress, DeviceAttr, DeviceCaps,
    DeviceMemory, DeviceMemoryError, Endpoint, EnvironmentError, EthFilter, ExplainFormat,
    FileMemory, Flow, FlowAttr, FlowError, FlowKind, FlowSpec, FlowSpecError, ForeignMemory,
    GidEntry, GidType, GpuMemory, Guid, Ipv4Filter, Ipv6Filter, LeasedAddress, LinkCounters,
    MemoryRegion, MemoryWindow, MmapMemory, NullRegion, OdpCaps, OpenError, OpenOptions, PortAttr,
    PortCounter, PortFilter, Profile, ProfileError, Progress, ProtectionDomain, Published,
    PublishedCounter, QpInitAttr, QueuePair, Reaper, RegionError, ReregMr, SharedReceiveQueue,
    ThreadDomain, Unreachable, XrcDomain, cm, control, devices, environment, faults, link,
    port_counters, published_counters, runtime_directory,
};
pub use roce_transport as transport;
pub use roce_transport::{
    adapter::{
        Limits, McastError, ObjectError, ObjectKind, ObjectMismatch, ObjectSize, PKeyTable,
        PKeyTableSize,
    },
    addr::{AddressVector, Gid, Mtu, PKey, QKey, Qpn, StaticRate},
    congestion::{CongestionConfig, Dcqcn, WindowConfig},
    event::{Counter, Counters, Disposition, DropReason},
    mem::{
        Access, AccessError, LKey, Memory, MemoryFault, RKey, RegisterError, WindowBind,
        WindowError, WindowType,
    },
    psn::Psn,
    qp::{
        Attribute, CongestionCounters, CountError, Init, ModifyError, PathMigration, PeerAttr,
        PostError, QpCaps, QpInfo, QpType, QpUpdate, Quirks, RequesterAttr, ResponderAttr, Rtr,
        Rts, State,
    },
    wire::Immediate,
    work::{
        CompletionCounter, Counted, CountedOps, CqModeration, Data, GrhArea, LateConfig,
        NotifyKind, Placement, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, SrqAttr, SrqError,
        SrqId, SrqInfo, UdDestination, Wc, WcError, WcOk, WcOpcode, WcStatus,
    },
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/connecting.md")]
mod connecting {}
