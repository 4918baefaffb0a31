//! A RoCEv2 adapter in software: RDMA verbs over UDP, in user space, with no kernel module and no privilege.
//!
//! ```
//! use roce::{Access, Device, OpenOptions, QpAttr, QpType, SendWr};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two adapters, each on a loopback address of its own.
//! let here = Device::named("roce_lo")?.open(OpenOptions::default())?;
//! let there = Device::named("roce_lo")?.open(OpenOptions::default())?;
//! let (pd_here, pd_there) = (here.alloc_pd()?, there.alloc_pd()?);
//! let (cq_here, cq_there) = (here.create_cq(16, None)?, there.create_cq(16, None)?);
//! let source = pd_here.allocate(4096, Access::empty())?;
//! let target = pd_there.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!
//! // Two queue pairs, connected to each other.
//! let qp_here = pd_here.create_qp(&QpAttr::new(QpType::Rc, &cq_here))?;
//! let qp_there = pd_there.create_qp(&QpAttr::new(QpType::Rc, &cq_there))?;
//! let (end_here, end_there) = (qp_here.endpoint(0).unwrap(), qp_there.endpoint(0).unwrap());
//! qp_here.connect_to(end_there)?;
//! qp_there.connect_to(end_here)?;
//!
//! // An RDMA WRITE: the target's program does nothing.
//! source.write_at(0, b"over the wire")?;
//! qp_here.post_send(&[SendWr::write(1, target.remote(0), source.sge(0..13))])?;
//! let completion = loop {
//!     if let Some(wc) = cq_here.poll_one() {
//!         break wc;
//!     }
//! };
//! completion.result?;
//! assert_eq!(target.to_vec(0..13)?, b"over the wire");
//! # Ok(())
//! # }
//! ```

pub use roce_provider::link::BindError;
pub use roce_provider::{
    AsyncEvent, ChannelError, CompletionChannel, CompletionQueue, ConnectError, Context, Device, DeviceAddress, Endpoint,
    LinkCounters, MemoryRegion, MmapMemory, OpenError, OpenOptions, PortAttr, PostFailed, Progress, ProtectionDomain, QpAttr,
    QueuePair, RegionError, devices, fabric, link,
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
    work::{ArmKind, Data, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, UdDestination, Wc, WcError, WcOk, WcOpcode, WcStatus},
};
