//! Rules of the C interface that a call can break: each with its number of `errno.h`, and what to look
//! at. Rules of the objects themselves are explained where the objects are.

use std::ffi::{c_int, c_uint};

use roce_provider::transport::{
    explain::{Explain, Reason},
    qp::{ModifyError, QpType, State},
};

use crate::layout::consts::*;

/// Why a call is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// A pointer to a structure, or to a place for the answer, is null.
    NullArgument,
    /// An object's pointer is null.
    NullObject,
    /// A pointer is to no object.
    NoSuchObject,
    StillUsed,
    OtherContext,
    Port,
    Index,
    NoEntry,
    NoPKey,
    /// A size of a structure that is no size of it.
    StructureSize,
    /// Bits of a mask that this version does not know.
    UnknownMask,
    /// A combination of members, or bits of a mask, that the call does not take.
    Members,
    /// Flags that have to be 0, or are unknown.
    EntryFlags,
    NotSupported,
    NoMemory,
    NotInside,
    Unmapped,

    NoGid,
    StaticRate,
    PathMtu,
    QpType,
    OtherQpType,
    QpState,
    Migration,
    AccessFlags,

    QpMask,
    Modify(ModifyError),
    MissingAttributes {
        qp_type: QpType,
        from: State,
        to: State,
        mask: c_uint,
    },
    ExtraAttributes {
        qp_type: QpType,
        from: State,
        to: State,
        mask: c_uint,
    },
    RateLimit,
    NeedsDomain,
    NeedsXrcDomain,
    CreateFlags,
    SendOperations,
    NoTarget,

    Opcode,
    OtherOpcode,
    SendFlags,
    SgeCount,
    TooManySges {
        count: usize,
        limit: u32,
    },
    InlineTooLong {
        limit: u32,
    },
    NotPosting,
    WindowType,
    WindowBind,

    CompletionVector,
    ForeignChannel,
    CqSize,
    CqOverrun,
    CqAttributes,
    SrqAttributes,
    SrqType,
    NoCounter,

    Wraps,
    NoRegion,
    NotWritable,
    BufferRegion,
    NoDescriptor,
    ReadOnlyRegion,
    Alignment,
    ZeroBased,
    DeviceRange,
    NoDevice,
    NotADescriptor,
    NotACommandFile,
    XrcdExists,
    XrcdMissing,
    Allocator,
    ThreadDomain,

    Address,
    PortSpace,
    IdWithoutDevice,
    IdHasObject,
    Option,
    OptionUnknown,
    Joined,
    Name,
    NameAgain,
    Event,
    Busy,
    Synchronous,
    Ece,

    SocketPointer,
    SocketArgument,
    SocketFamily,
    SocketType,
    SocketProtocol,
    SocketOption,
    SocketTime,
    NotARsocket,
    Watched,
    NotWatched,
}

impl Rule {
    /// The number, and its name.
    pub(crate) const fn errno(self) -> (c_int, &'static str) {
        match self {
            Self::NullArgument
            | Self::NullObject
            | Self::OtherContext
            | Self::Port
            | Self::Index
            | Self::StructureSize
            | Self::Members
            | Self::NoGid
            | Self::StaticRate
            | Self::PathMtu
            | Self::QpType
            | Self::QpState
            | Self::Migration
            | Self::AccessFlags
            | Self::Modify(_)
            | Self::MissingAttributes { .. }
            | Self::ExtraAttributes { .. }
            | Self::NeedsDomain
            | Self::NeedsXrcDomain
            | Self::NoTarget
            | Self::Opcode
            | Self::SendFlags
            | Self::SgeCount
            | Self::TooManySges { .. }
            | Self::InlineTooLong { .. }
            | Self::NotPosting
            | Self::WindowType
            | Self::WindowBind
            | Self::CompletionVector
            | Self::CqSize
            | Self::CqAttributes
            | Self::SrqAttributes
            | Self::SrqType
            | Self::NoCounter
            | Self::Wraps
            | Self::NoRegion
            | Self::BufferRegion
            | Self::Alignment
            | Self::ZeroBased
            | Self::DeviceRange
            | Self::NotACommandFile
            | Self::XrcdExists
            | Self::Allocator
            | Self::ThreadDomain
            | Self::Address
            | Self::IdWithoutDevice
            | Self::IdHasObject
            | Self::Option
            | Self::Event
            | Self::Synchronous
            | Self::Ece
            | Self::SocketArgument => (libc::EINVAL, "EINVAL"),
            Self::UnknownMask
            | Self::NotSupported
            | Self::EntryFlags
            | Self::OtherQpType
            | Self::QpMask
            | Self::RateLimit
            | Self::CreateFlags
            | Self::SendOperations
            | Self::OtherOpcode
            | Self::SocketOption => (libc::EOPNOTSUPP, "EOPNOTSUPP"),
            Self::StillUsed | Self::Busy => (libc::EBUSY, "EBUSY"),
            Self::NoMemory => (libc::ENOMEM, "ENOMEM"),
            Self::NoSuchObject | Self::NoPKey | Self::Name | Self::NotWatched => {
                (libc::ENOENT, "ENOENT")
            }
            Self::NoEntry | Self::NoDescriptor => (libc::ENODATA, "ENODATA"),
            Self::NotInside | Self::Unmapped | Self::SocketPointer => (libc::EFAULT, "EFAULT"),
            Self::CqOverrun => (libc::EOVERFLOW, "EOVERFLOW"),
            Self::ForeignChannel | Self::NotADescriptor | Self::NotARsocket => {
                (libc::EBADF, "EBADF")
            }
            Self::NotWritable | Self::ReadOnlyRegion => (libc::EPERM, "EPERM"),
            Self::NoDevice => (libc::ENODEV, "ENODEV"),
            Self::XrcdMissing | Self::NameAgain => (libc::EAGAIN, "EAGAIN"),
            Self::PortSpace | Self::SocketProtocol => (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
            Self::OptionUnknown => (libc::ENOSYS, "ENOSYS"),
            Self::Joined => (libc::EADDRINUSE, "EADDRINUSE"),
            Self::SocketFamily => (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
            Self::SocketType => (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
            Self::SocketTime => (libc::EDOM, "EDOM"),
            Self::Watched => (libc::EEXIST, "EEXIST"),
        }
    }

    /// Name of the cause, the rule, and what to look at.
    const fn text(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::NullArgument => (
                "null_argument",
                "an argument that must lead to a structure, or to a place for the answer, is null",
                "the call's manual page says what each pointer leads to",
            ),
            Self::NullObject => (
                "null_object",
                "the object that the call is about is null",
                "an earlier call that was to make it has failed: look at what it returned",
            ),
            Self::NoSuchObject => (
                "no_such_object",
                "the pointer is to no object of this kind",
                "it may have been destroyed, or be of another kind, or its members context or handle \
                 were overwritten",
            ),
            Self::StillUsed => (
                "object_in_use",
                "other objects still use it",
                "destroy first what was made from it: queue pairs before their completion queues, \
                 shared receive queues and domain; all of them before the channel",
            ),
            Self::OtherContext => (
                "other_context",
                "the objects are of different contexts",
                "make domain, completion queues and queue pair from one ibv_open_device",
            ),
            Self::Port => (
                "port_number",
                "the port number is not 1",
                "ports are counted from 1, and every device here has one: port_num = 1",
            ),
            Self::Index => (
                "table_index",
                "the table has no such entry",
                "ibv_query_port: gid_tbl_len and pkey_tbl_len",
            ),
            Self::NoEntry => (
                "unused_entry",
                "the entry of the GID table is unused",
                "`roce devinfo -v` lists those that are used",
            ),
            Self::NoPKey => (
                "no_pkey",
                "no entry of the P_Key table matches",
                "RoCE devices have one entry, 0xffff; ibv_get_pkey_index takes network byte order",
            ),
            Self::StructureSize => (
                "structure_size",
                "the structure is shorter than any version of it",
                "compile program and libraries with the same headers of rdma-core",
            ),
            Self::UnknownMask => (
                "unknown_mask",
                "comp_mask has bits that are not known here",
                "set comp_mask to the bits of the members that are filled in, and zero the structure \
                 first",
            ),
            Self::Members => (
                "members",
                "the members that comp_mask names do not go together, or some are missing",
                "the call's manual page says which are required; zero the structure first",
            ),
            Self::EntryFlags => {
                ("flags", "flags has bits that are not known here", "set flags to 0")
            }
            Self::NotSupported => (
                "not_supported",
                "devices of this kind do not have this function",
                "programs go another way when a device answers EOPNOTSUPP; ibv_query_device_ex says \
                 what there is",
            ),
            Self::NoMemory => (
                "no_memory",
                "there is not enough memory",
                "`ulimit -a`, memory of the process or host",
            ),
            Self::NotInside => (
                "not_inside",
                "the range is not inside the object",
                "compare offset and length with what was allocated or registered",
            ),
            Self::Unmapped => (
                "memory_unreachable",
                "the memory cannot be read or written",
                "the address must be mapped now; inline data is read while the request is posted",
            ),

            Self::NoGid => (
                "no_gid",
                "RoCE needs a GID: ah_attr.is_global is 0",
                "set ah_attr.is_global = 1, grh.dgid to the peer's GID and grh.sgid_index to the own \
                 one (ibv_rc_pingpong -g 0; perftest -x 0). `roce devinfo -v` lists the GIDs",
            ),
            Self::StaticRate => (
                "static_rate",
                "ah_attr.static_rate is no rate",
                "0 stands for the port's rate; otherwise enum ibv_rate",
            ),
            Self::PathMtu => (
                "path_mtu",
                "path_mtu is no code of enum ibv_mtu",
                "IBV_MTU_1024, not 1024; the lesser active_mtu of both ports (ibv_query_port)",
            ),
            Self::QpType => (
                "qp_type",
                "qp_type is no type of a queue pair",
                "IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND or IBV_QPT_XRC_RECV; zero the \
                 structure before members are set",
            ),
            Self::OtherQpType => (
                "qp_type",
                "this kind of device has no such queue pairs",
                "raw packets and vendors' queue pairs need their hardware",
            ),
            Self::QpState => (
                "qp_state",
                "the state is none of enum ibv_qp_state",
                "set attr.qp_state, and cur_qp_state where attr_mask has IBV_QP_CUR_STATE",
            ),
            Self::Migration => (
                "path_migration",
                "path_mig_state is none of enum ibv_mig_state",
                "RoCE has no path migration: leave IBV_QP_PATH_MIG_STATE away",
            ),
            Self::AccessFlags => (
                "access_flags",
                "the access flags have unknown bits",
                "enum ibv_access_flags; zero qp_access_flags before bits are set",
            ),

            Self::QpMask => (
                "unknown_mask",
                "attr_mask has bits that no queue pair here knows",
                "attributes up to IBV_QP_DEST_QPN; no rate limit (IBV_QP_RATE_LIMIT)",
            ),
            Self::Modify(_) => ("modify", "", ""), // explains itself
            Self::MissingAttributes { .. } => (
                "missing_attribute",
                "attr_mask lacks attributes that this transition requires",
                "set the members and their bits: ibv_modify_qp(3) has the table",
            ),
            Self::ExtraAttributes { .. } => (
                "attribute_not_taken",
                "attr_mask has attributes that this transition does not take",
                "leave their bits away: ibv_modify_qp(3) has the table",
            ),
            Self::RateLimit => (
                "rate_limit",
                "only queue pairs for raw packets have a rate of their own",
                "ROCE_DCQCN and the network's own limits (`tc`) are what there is",
            ),
            Self::NeedsDomain => (
                "needs_domain",
                "comp_mask does not name a protection domain",
                "IBV_QP_INIT_ATTR_PD (IBV_SRQ_INIT_ATTR_PD) in comp_mask, and pd",
            ),
            Self::NeedsXrcDomain => (
                "needs_xrc_domain",
                "comp_mask does not name an XRC domain",
                "IBV_QP_INIT_ATTR_XRCD in comp_mask, and xrcd, for IBV_QPT_XRC_RECV",
            ),
            Self::CreateFlags => (
                "create_flags",
                "create_flags asks for what devices of this kind do not have",
                "set create_flags to 0",
            ),
            Self::SendOperations => (
                "send_operations",
                "send_ops_flags has operations that this transport service does not have",
                "IBV_QPT_UD has SEND, IBV_QPT_UC SEND and WRITE, IBV_QPT_RC all but TSO",
            ),
            Self::NoTarget => (
                "no_target",
                "no XRC receive queue pair of this number is in the domain, or members are missing",
                "qp_num, xrcd and qp_type IBV_QPT_XRC_RECV, with their bits in comp_mask",
            ),

            Self::Opcode => (
                "opcode",
                "wr.opcode is none of enum ibv_wr_opcode",
                "zero the request before members are set; each request of the list has its own opcode",
            ),
            Self::OtherOpcode => (
                "opcode",
                "devices of this kind do not have this operation",
                "TSO and vendors' operations need their hardware",
            ),
            Self::SendFlags => (
                "send_flags",
                "wr.send_flags has unknown bits",
                "zero the request before members are set: enum ibv_send_flags",
            ),
            Self::SgeCount => {
                ("sge_count", "num_sge is negative", "zero the request before members are set")
            }
            Self::TooManySges { .. } => (
                "too_many_sges",
                "num_sge is more than the queue was made for, or sg_list is null",
                "cap.max_send_sge and max_recv_sge of ibv_create_qp (max_sge of ibv_create_srq) say how \
                 many elements a request may have: ask there for more",
            ),
            Self::InlineTooLong { .. } => (
                "inline_too_long",
                "more inline bytes than the queue was made for",
                "cap.max_inline_data of ibv_create_qp, which it writes back: ask there for more, or \
                 send longer messages without IBV_SEND_INLINE",
            ),
            Self::NotPosting => (
                "not_posting",
                "no request was begun, or one of its parts is wrong",
                "ibv_wr_start, then ibv_wr_send or its like, then ibv_wr_set_*, then ibv_wr_complete",
            ),
            Self::WindowType => (
                "window_type",
                "the type of the memory window is unknown",
                "IBV_MW_TYPE_1 or IBV_MW_TYPE_2",
            ),
            Self::WindowBind => (
                "window_bind",
                "a window of type 1 cannot be bound so",
                "ibv_bind_mw is for connections, without IBV_ACCESS_ZERO_BASED",
            ),

            Self::CompletionVector => (
                "completion_vector",
                "comp_vector is not below num_comp_vectors",
                "every device here has one completion vector: comp_vector = 0",
            ),
            Self::ForeignChannel => (
                "foreign_channel",
                "the completion channel is of another context",
                "make channel and completion queue from one ibv_open_device",
            ),
            Self::CqSize => ("cq_size", "cqe is negative", "ibv_query_device: max_cqe"),
            Self::CqOverrun => (
                "cq_overrun",
                "the completion queue has overflowed, and gives nothing more",
                "make it with room for every request that can be posted to its queue pairs, or poll \
                 before more is posted",
            ),
            Self::CqAttributes => (
                "cq_attributes",
                "attr_mask names nothing that can be changed",
                "IBV_CQ_ATTR_MODERATE, with moderate.cq_count and cq_period",
            ),
            Self::SrqAttributes => (
                "srq_attributes",
                "srq_attr_mask has unknown bits, or srq_limit is more than max_wr",
                "IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT; the limit counts posted requests",
            ),
            Self::SrqType => (
                "srq_type",
                "the type of the shared receive queue is unknown, or its members are missing",
                "IBV_SRQT_BASIC with pd; IBV_SRQT_XRC with pd, xrcd and cq, and their bits in comp_mask",
            ),
            Self::NoCounter => (
                "no_counter",
                "the counter does not exist, or there is no room for its value",
                "index of ibv_attach_counters_point_flow below ncounters of ibv_read_counters",
            ),

            Self::Wraps => (
                "address_and_iova",
                "address and length pass the end of memory, or iova and addr differ within a page",
                "iova modulo 4096 must be addr modulo 4096",
            ),
            Self::NoRegion => (
                "no_region",
                "the region has no memory that could be changed or fetched",
                "null regions and those of device memory stay as they are",
            ),
            Self::NotWritable => (
                "not_writable",
                "the region is not writable",
                "IBV_ACCESS_LOCAL_WRITE when it is registered, or prefetch for reading",
            ),
            Self::BufferRegion => (
                "buffer",
                "the range is not inside the buffer, or it is of another domain",
                "ibv_reg_mr of a buffer takes the domain that ibv_alloc_buf got, and a part of it",
            ),
            Self::NoDescriptor => (
                "no_descriptor",
                "the buffer is memory of the process, of which there is no descriptor",
                "share it by mmap of a file or memfd, and register that",
            ),
            Self::ReadOnlyRegion => (
                "foreign_region",
                "the region is of another protection domain",
                "use a region of the same ibv_pd",
            ),
            Self::Alignment => (
                "alignment",
                "offset or length is not a multiple of 4, or the host's address is null",
                "device memory is copied in words of 4 bytes",
            ),
            Self::ZeroBased => (
                "zero_based",
                "device memory has no addresses",
                "register it with IBV_ACCESS_ZERO_BASED, and a range inside it",
            ),
            Self::DeviceRange => (
                "not_inside",
                "offset or length of device memory is too great",
                "compare offset and length with what ibv_alloc_dm was asked for",
            ),
            Self::NoDevice => (
                "no_device",
                "the device is not in the list any more",
                "`roce devinfo`, ROCE_DEVICES",
            ),
            Self::NotADescriptor => (
                "not_a_descriptor",
                "the descriptor is not open, or not one of a device",
                "cmd_fd of an ibv_context of this process; a file that is open for an XRC domain",
            ),
            Self::NotACommandFile => (
                "not_a_descriptor",
                "the descriptor is not that of an open device",
                "cmd_fd of an ibv_context of this process",
            ),
            Self::XrcdExists => (
                "xrcd_exists",
                "the file has an XRC domain already (O_EXCL), or -1 was given without O_CREAT",
                "oflags O_CREAT, with or without a file",
            ),
            Self::XrcdMissing => (
                "xrcd_missing",
                "the file has no XRC domain yet",
                "oflags O_CREAT for who comes first",
            ),
            Self::Allocator => (
                "allocator",
                "a parent domain has both functions, to allocate and to free, or none",
                "alloc and free with IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS",
            ),
            Self::ThreadDomain => {
                ("thread_domain", "a thread domain has no attributes", "set comp_mask to 0")
            }

            Self::Address => (
                "address",
                "the address is null, or neither IPv4 nor IPv6",
                "set sa_family to AF_INET or AF_INET6; zero the structure first",
            ),
            Self::PortSpace => (
                "port_space",
                "the port space is not known here",
                "RDMA_PS_TCP for connections, RDMA_PS_UDP and RDMA_PS_IPOIB for datagrams",
            ),
            Self::IdWithoutDevice => (
                "id_without_device",
                "the id has no device yet, or not in this state",
                "rdma_resolve_addr, and its event, or rdma_bind_addr to one address come first",
            ),
            Self::IdHasObject => (
                "id_has_object",
                "the id has one already, or what is given is not its own",
                "id->qp, id->srq, id->send_cq and recv_cq must be null, or the same; pd of id->verbs",
            ),
            Self::Option => (
                "option",
                "the option's value has another length, or is not one that it may have",
                "rdma_set_option(3) has types and ranges",
            ),
            Self::OptionUnknown => (
                "option_unknown",
                "there is no such option",
                "RDMA_OPTION_ID and RDMA_OPTION_IB of rdma_set_option(3)",
            ),
            Self::Joined => ("joined", "the id is in this group already", "join each group once"),
            Self::Name => (
                "name",
                "the name, or the service, does not resolve",
                "`getent hosts NAME`, `getent services NAME`",
            ),
            Self::NameAgain => (
                "name_again",
                "the name server does not answer now",
                "try again later; `resolvectl status` or /etc/resolv.conf",
            ),
            Self::Event => (
                "event",
                "the event is not one that this call takes",
                "rdma_notify takes IBV_EVENT_COMM_EST; rdma_write_cm_event RDMA_CM_EVENT_USER",
            ),
            Self::Busy => (
                "busy",
                "the id still waits for the answer to another call",
                "take the event of the first call before the second",
            ),
            Self::Synchronous => (
                "synchronous",
                "only ids without a channel of their own have such calls",
                "make the id with a null channel (rdma_create_ep), or wait with rdma_get_cm_event",
            ),
            Self::Ece => (
                "ece",
                "the options are null, of no vendor, or of an id with a queue pair",
                "enhanced connection establishment is for queue pairs that the program moves itself",
            ),

            Self::SocketPointer => (
                "null_argument",
                "an argument that must lead to a structure is null",
                "the call's manual page says what each pointer leads to",
            ),
            Self::SocketArgument => (
                "socket_argument",
                "an argument is out of its range",
                "as with the call on sockets of the same name, without the r",
            ),
            Self::SocketFamily => (
                "socket_family",
                "rsockets are for AF_INET and AF_INET6",
                "domain of rsocket, sa_family of the address",
            ),
            Self::SocketType => (
                "socket_type",
                "rsockets are streams here",
                "SOCK_STREAM; datagrams (SOCK_DGRAM) are not supported",
            ),
            Self::SocketProtocol => {
                ("socket_protocol", "the protocol of a stream is TCP", "0 or IPPROTO_TCP")
            }
            Self::SocketOption => (
                "socket_option",
                "rsockets have no such option or flag",
                "rsocket(7) lists what there is",
            ),
            Self::SocketTime => (
                "socket_time",
                "microseconds of a time are below 1,000,000",
                "tv_usec of SO_RCVTIMEO and SO_SNDTIMEO",
            ),
            Self::NotARsocket => (
                "not_a_rsocket",
                "the descriptor is no rsocket",
                "it may be closed (rclose), or be a socket of the system",
            ),
            Self::Watched => {
                ("watched", "the descriptor is in the set already", "EPOLL_CTL_MOD changes it")
            }
            Self::NotWatched => {
                ("not_watched", "the descriptor is not in the set", "EPOLL_CTL_ADD comes first")
            }
        }
    }
}

impl Explain for Rule {
    fn explain(&self) -> Reason {
        if let Self::Modify(error) = self {
            return error.explain();
        }
        let (cause, rule, advice) = self.text();
        let rule = match *self {
            Self::MissingAttributes { qp_type, from, to, mask } => {
                format!("a {qp_type} queue pair from {from} to {to} needs {}", names(mask))
            }
            Self::ExtraAttributes { qp_type, from, to, mask } => {
                format!("a {qp_type} queue pair from {from} to {to} takes no {}", names(mask))
            }
            Self::TooManySges { count, limit } if count > limit as usize => {
                format!("num_sge is {count}, and the queue was made for {limit}")
            }
            Self::InlineTooLong { limit } => format!("{rule}: {limit}"),
            _ => rule.to_owned(),
        };
        Reason::new(cause, &rule, advice).with_errno(self.errno().1)
    }
}

/// Names of attributes of a queue pair.
fn names(mask: c_uint) -> String {
    const NAMES: [(c_uint, &str); 20] = [
        (IBV_QP_STATE, "IBV_QP_STATE"),
        (IBV_QP_CUR_STATE, "IBV_QP_CUR_STATE"),
        (IBV_QP_EN_SQD_ASYNC_NOTIFY, "IBV_QP_EN_SQD_ASYNC_NOTIFY"),
        (IBV_QP_ACCESS_FLAGS, "IBV_QP_ACCESS_FLAGS (qp_access_flags)"),
        (IBV_QP_PKEY_INDEX, "IBV_QP_PKEY_INDEX (pkey_index)"),
        (IBV_QP_PORT, "IBV_QP_PORT (port_num)"),
        (IBV_QP_QKEY, "IBV_QP_QKEY (qkey)"),
        (IBV_QP_AV, "IBV_QP_AV (ah_attr)"),
        (IBV_QP_PATH_MTU, "IBV_QP_PATH_MTU (path_mtu)"),
        (IBV_QP_TIMEOUT, "IBV_QP_TIMEOUT (timeout)"),
        (IBV_QP_RETRY_CNT, "IBV_QP_RETRY_CNT (retry_cnt)"),
        (IBV_QP_RNR_RETRY, "IBV_QP_RNR_RETRY (rnr_retry)"),
        (IBV_QP_RQ_PSN, "IBV_QP_RQ_PSN (rq_psn)"),
        (IBV_QP_MAX_QP_RD_ATOMIC, "IBV_QP_MAX_QP_RD_ATOMIC (max_rd_atomic)"),
        (IBV_QP_ALT_PATH, "IBV_QP_ALT_PATH"),
        (IBV_QP_MIN_RNR_TIMER, "IBV_QP_MIN_RNR_TIMER (min_rnr_timer)"),
        (IBV_QP_SQ_PSN, "IBV_QP_SQ_PSN (sq_psn)"),
        (IBV_QP_MAX_DEST_RD_ATOMIC, "IBV_QP_MAX_DEST_RD_ATOMIC (max_dest_rd_atomic)"),
        (IBV_QP_PATH_MIG_STATE, "IBV_QP_PATH_MIG_STATE"),
        (IBV_QP_DEST_QPN, "IBV_QP_DEST_QPN (dest_qp_num)"),
    ];
    let named = NAMES.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| *name);
    named.collect::<Vec<_>>().join(", ")
}
