//! Rules of the C interface; objects have others.

use std::ffi::{c_int, c_uint};

use roce_provider::transport::{
    explain::{Explain, Reason},
    qp::{ModifyError, QpType, State},
};

use crate::layout::consts::*;

/// Rules with values, all `EINVAL`; name, `errno`, cause, text and advice of each other rule.
macro_rules! rules {
    (
        { $($valued:ident $values:tt,)* }
        $($name:ident $errno:ident $cause:literal $rule:literal $advice:literal;)*
    ) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Rule {
            $($name,)*
            $($valued $values,)*
        }

        impl Rule {
            #[cfg(test)]
            const PLAIN: &[Self] = &[$(Self::$name,)*];

            pub(crate) const fn errno(self) -> (c_int, &'static str) {
                match self {
                    $(Self::$name => (libc::$errno, stringify!($errno)),)*
                    $(Self::$valued { .. })|* => (libc::EINVAL, "EINVAL"),
                }
            }

            const fn text(self) -> Option<(&'static str, &'static str, &'static str)> {
                match self {
                    $(Self::$name => Some(($cause, $rule, $advice)),)*
                    $(Self::$valued { .. })|* => None,
                }
            }
        }
    };
}

rules! {
    {
        Modify(ModifyError),
        MissingAttributes { qp_type: QpType, from: State, to: State, mask: c_uint },
        ExtraAttributes { qp_type: QpType, from: State, to: State, mask: c_uint },
        TooManySges { count: usize, limit: u32 },
        InlineTooLong { limit: u32 },
        CompletionVector { vector: u32, vectors: u32 },
    }
    NullArgument EINVAL "null_argument"
        "a pointer to a structure or to a result is null"
        "the call's manual page describes each pointer";
    NullObject EINVAL "null_object"
        "the object of the call is null"
        "the call that makes it failed: check what that call returned";
    NoSuchObject ENOENT "no_such_object"
        "the pointer is not an object of this kind"
        "the object was destroyed or has another kind, or its context or handle was overwritten";
    NothingToWaitFor EBADF "nothing_to_wait_for"
        "the pointer is neither a channel nor a context"
        "end the threads that wait for its events before you destroy it";
    StillUsed EBUSY "object_in_use"
        "other objects still use it"
        "destroy its dependents first: queue pairs before their completion queues, shared receive \
         queues and domain; all of them before the channel";
    OtherContext EINVAL "other_context"
        "the objects belong to different contexts"
        "make domain, completion queues and queue pair from one ibv_open_device";
    Port EINVAL "port_number"
        "the port number is not 1"
        "every device has one port: set port_num to 1";
    Index EINVAL "table_index"
        "the table has no entry at this index"
        "gid_tbl_len and pkey_tbl_len of ibv_query_port give the lengths";
    NoEntry ENODATA "unused_entry"
        "the entry of the GID table is unused"
        "`roce devinfo -v` lists the used entries";
    NoPKey ENOENT "no_pkey"
        "no entry of the P_Key table matches"
        "RoCE devices have one P_Key, 0xffff; ibv_get_pkey_index takes network byte order";
    StructureSize EINVAL "structure_size"
        "the structure is shorter than every known version"
        "compile the program and the libraries with the same rdma-core headers";
    UnknownMask EOPNOTSUPP "unknown_mask"
        "comp_mask has unknown bits"
        "zero the structure first, then set comp_mask to the bits of the members that you fill in";
    Members EINVAL "members"
        "the members that comp_mask names conflict, or some are missing"
        "zero the structure first; the call's manual page lists the required members";
    EntriesRoom EINVAL "no_room"
        "the array has no room for all entries"
        "set max_entries of ibv_query_gid_table to gid_tbl_len of all ports (ibv_query_port)";
    UnknownPollMask EINVAL "unknown_mask"
        "comp_mask of ibv_poll_cq_attr has unknown bits"
        "set comp_mask to 0";
    Rereg EINVAL "members"
        "flags is 0 or has unknown bits, or the new memory is null or empty"
        "pass IBV_REREG_MR_CHANGE_TRANSLATION with addr and length, _CHANGE_PD with pd, or \
         _CHANGE_ACCESS";
    EntryFlags EOPNOTSUPP "flags"
        "flags has unknown bits"
        "set flags to 0";
    NoGpu EOPNOTSUPP "no_gpu"
        "the process has loaded no driver of a GPU, or ROCE_GPU is 0"
        "programs copy through memory of the process then; libcuda.so.1 is what is looked for";
    NotSupported EOPNOTSUPP "not_supported"
        "this device does not have the function"
        "programs need a fallback for EOPNOTSUPP; ibv_query_device_ex lists the functions";
    NoMemory ENOMEM "no_memory"
        "not enough memory"
        "check `ulimit -a` and the memory of the process and host";
    NotInside EFAULT "not_inside"
        "the range exceeds the object"
        "compare offset and length with the allocation or registration";
    Unmapped EFAULT "memory_unreachable"
        "the process cannot read or write the memory"
        "map the address first; inline data is read during the post";
    NoGid EINVAL "no_gid"
        "RoCE needs a GID: ah_attr.is_global is 0"
        "set ah_attr.is_global = 1, grh.dgid to the peer's GID and grh.sgid_index to a local GID \
         (ibv_rc_pingpong -g 0; perftest -x 0). `roce devinfo -v` lists the GIDs";
    StaticRate EINVAL "static_rate"
        "ah_attr.static_rate is not a rate"
        "set it to 0 (the port's rate) or a value of enum ibv_rate";
    PathMtu EINVAL "path_mtu"
        "path_mtu is not a code of enum ibv_mtu"
        "pass IBV_MTU_1024, not 1024: the lesser active_mtu of both ports (ibv_query_port)";
    QpType EINVAL "qp_type"
        "qp_type is not a queue pair type"
        "zero the structure first, then set IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND \
         or IBV_QPT_XRC_RECV";
    OtherQpType EOPNOTSUPP "qp_type"
        "this device has no queue pairs of this type"
        "vendor queue pairs need the vendor's hardware";
    Flow EINVAL "flow"
        "the flow, or one of its specs, is malformed"
        "num_of_specs of struct ibv_flow_attr is at most 10; as many specs follow it, each with \
         its type and size; flags is 0 or IBV_FLOW_ATTR_FLAGS_DONT_TRAP";
    FlowKind EOPNOTSUPP "flow_kind"
        "flows cannot match this"
        "flows match received packets with IBV_FLOW_SPEC_ETH, _IPV4, _IPV4_EXT without flags, \
         _IPV6, _TCP, _UDP, _ACTION_TAG and _ACTION_DROP; not inside tunnels";
    QpState EINVAL "qp_state"
        "the state is not in enum ibv_qp_state"
        "set attr.qp_state, and cur_qp_state if attr_mask has IBV_QP_CUR_STATE";
    Migration EINVAL "path_migration"
        "path_mig_state is not in enum ibv_mig_state"
        "RoCE has no path migration: omit IBV_QP_PATH_MIG_STATE";
    AccessFlags EINVAL "access_flags"
        "the access flags have unknown bits"
        "zero qp_access_flags first, then set bits of enum ibv_access_flags";
    QpMask EOPNOTSUPP "unknown_mask"
        "attr_mask has bits that no queue pair supports"
        "set attributes up to IBV_QP_DEST_QPN only; no rate limit (IBV_QP_RATE_LIMIT)";
    RateLimit EOPNOTSUPP "rate_limit"
        "queue pairs have no rate limit"
        "use ROCE_DCQCN or the network's limits (`tc`)";
    NeedsDomain EINVAL "needs_domain"
        "comp_mask does not name a protection domain"
        "set pd, and IBV_QP_INIT_ATTR_PD (IBV_SRQ_INIT_ATTR_PD) in comp_mask";
    NeedsXrcDomain EINVAL "needs_xrc_domain"
        "comp_mask does not name an XRC domain"
        "for IBV_QPT_XRC_RECV, set xrcd, and IBV_QP_INIT_ATTR_XRCD in comp_mask";
    CreateFlags EOPNOTSUPP "create_flags"
        "create_flags has flags that this device does not support"
        "set create_flags to 0";
    SendOperations EOPNOTSUPP "send_operations"
        "send_ops_flags has operations that the transport service lacks"
        "IBV_QPT_UD has SEND, IBV_QPT_UC SEND and WRITE, IBV_QPT_RC all but TSO";
    NoTarget EINVAL "no_target"
        "the domain has no XRC receive queue pair of this number, or members are missing"
        "set qp_num, xrcd and qp_type IBV_QPT_XRC_RECV, and their bits in comp_mask";
    Opcode EINVAL "opcode"
        "wr.opcode is not in enum ibv_wr_opcode"
        "zero the request before you set members; each request of the list has its own opcode";
    OtherOpcode EOPNOTSUPP "opcode"
        "this device does not have the operation"
        "TSO and vendor operations need the vendor's hardware";
    SendFlags EINVAL "send_flags"
        "wr.send_flags has unknown bits"
        "zero the request first, then set bits of enum ibv_send_flags";
    SgeCount EINVAL "sge_count"
        "num_sge is negative"
        "zero the request before you set members";
    NotPosting EINVAL "not_posting"
        "no request was started, or one of its parts is wrong"
        "call ibv_wr_start, ibv_wr_send or similar, ibv_wr_set_*, then ibv_wr_complete";
    WindowType EINVAL "window_type"
        "the type of the memory window is unknown"
        "pass IBV_MW_TYPE_1 or IBV_MW_TYPE_2";
    WindowBind EINVAL "window_bind"
        "this call cannot bind a window of type 1"
        "ibv_bind_mw is for connections, without IBV_ACCESS_ZERO_BASED";
    ForeignChannel EBADF "foreign_channel"
        "the completion channel belongs to another context"
        "make channel and completion queue from one ibv_open_device";
    CqSize EINVAL "cq_size"
        "cqe is negative"
        "set cqe to at most max_cqe of ibv_query_device";
    CqOverrun EOVERFLOW "cq_overrun"
        "the completion queue has overflowed and returns no more completions"
        "make it with cqe for every request that can be posted to its queue pairs, or poll before \
         you post more";
    CqAttributes EINVAL "cq_attributes"
        "attr_mask names no attribute that can be modified"
        "set IBV_CQ_ATTR_MODERATE, moderate.cq_count and cq_period";
    SrqAttributes EINVAL "srq_attributes"
        "srq_attr_mask has unknown bits, or srq_limit exceeds max_wr"
        "set IBV_SRQ_MAX_WR or IBV_SRQ_LIMIT; the limit counts posted requests";
    SrqType EINVAL "srq_type"
        "the type of the shared receive queue is unknown, or members are missing"
        "set IBV_SRQT_BASIC with pd, or IBV_SRQT_XRC with pd, xrcd and cq, and their bits in \
         comp_mask";
    NoCounter EINVAL "no_counter"
        "the counter does not exist, or the array has no room for its value"
        "index of ibv_attach_counters_point_flow must be below ncounters of ibv_read_counters";
    Wraps EINVAL "address_and_iova"
        "addr plus length overflows, or iova and addr have different offsets in a page"
        "iova modulo 4096 must equal addr modulo 4096";
    DmaBuf EINVAL "dma_buf"
        "the descriptor is not a dma-buf or memfd, or the range is empty or exceeds it"
        "offset and length are bytes of the buffer; iova modulo 4096 must equal offset modulo 4096";
    NoRegion EINVAL "no_region"
        "the region has no memory to change or prefetch"
        "null regions and regions of device memory cannot change";
    NotWritable EPERM "not_writable"
        "the region is not writable"
        "register it with IBV_ACCESS_LOCAL_WRITE, or prefetch for reading";
    BufferRegion EINVAL "buffer"
        "the range exceeds the buffer, or the buffer belongs to another domain"
        "pass ibv_reg_mr the domain of ibv_alloc_buf and a range inside the buffer";
    NoDescriptor ENODATA "no_descriptor"
        "the buffer is process memory without a descriptor"
        "mmap a file or memfd to share memory, and register that";
    ReadOnlyRegion EPERM "foreign_region"
        "the region belongs to another protection domain"
        "use a region of the same ibv_pd";
    Alignment EINVAL "alignment"
        "offset or length is not a multiple of 4, or the host's address is null"
        "device memory is copied in 4-byte words";
    ZeroBased EINVAL "zero_based"
        "device memory has no addresses"
        "register it with IBV_ACCESS_ZERO_BASED, and a range inside it";
    DeviceRange EINVAL "not_inside"
        "offset or length exceeds the device memory"
        "compare offset and length with the length passed to ibv_alloc_dm";
    NoDevice ENODEV "no_device"
        "the device is no longer in the list"
        "check `roce devinfo` and ROCE_DEVICES";
    NotADescriptor EBADF "not_a_descriptor"
        "the descriptor is not open, or not a device's"
        "pass cmd_fd of an ibv_context of this process, or an open file for an XRC domain";
    NotACommandFile EINVAL "not_a_descriptor"
        "the descriptor is not an open device's"
        "pass cmd_fd of an ibv_context of this process";
    XrcdExists EINVAL "xrcd_exists"
        "the file already has an XRC domain (O_EXCL), or fd is -1 without O_CREAT"
        "set O_CREAT in oflags, with or without a file";
    XrcdMissing EAGAIN "xrcd_missing"
        "the file has no XRC domain"
        "set O_CREAT in oflags for the first open";
    Allocator EINVAL "allocator"
        "a parent domain needs both functions, alloc and free, or none"
        "set alloc and free with IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS";
    ThreadDomain EINVAL "thread_domain"
        "a thread domain has no attributes"
        "set comp_mask to 0";
    Address EINVAL "address"
        "the address is null, or neither IPv4 nor IPv6"
        "set sa_family to AF_INET or AF_INET6; zero the structure first";
    PortSpace EPROTONOSUPPORT "port_space"
        "the port space is unknown"
        "use RDMA_PS_TCP for connections, RDMA_PS_UDP or RDMA_PS_IPOIB for datagrams";
    IdWithoutDevice EINVAL "id_without_device"
        "the id has no device, or not in this state"
        "first call rdma_resolve_addr and take its event, or rdma_bind_addr to one address";
    IdHasObject EINVAL "id_has_object"
        "the id already has one, or the given object is not the id's"
        "id->qp, id->srq, id->send_cq and recv_cq must be null or the same objects, and pd \
         belongs to id->verbs";
    Option EINVAL "option"
        "the option's value has the wrong length or is out of range"
        "rdma_set_option(3) lists types and ranges";
    OptionUnknown ENOSYS "option_unknown"
        "the option is unknown"
        "rdma_set_option(3) lists the options of RDMA_OPTION_ID and RDMA_OPTION_IB";
    Joined EADDRINUSE "joined"
        "the id is already in this group"
        "join each group once";
    Name ENOENT "name"
        "the name or the service does not resolve"
        "check `getent hosts NAME` and `getent services NAME`";
    NameAgain EAGAIN "name_again"
        "the name server does not respond"
        "try again later; check `resolvectl status` or /etc/resolv.conf";
    Event EINVAL "event"
        "the call does not take this event"
        "rdma_notify takes IBV_EVENT_COMM_EST, rdma_write_cm_event takes RDMA_CM_EVENT_USER";
    Busy EBUSY "busy"
        "an earlier call of the id is still in progress"
        "take the event of the first call before the second call";
    Synchronous EINVAL "synchronous"
        "the call is only for ids without an event channel"
        "make the id with a null channel (rdma_create_ep), or wait with rdma_get_cm_event";
    Ece EINVAL "ece"
        "the options are null or of no vendor, or the id has a queue pair"
        "enhanced connection establishment is for queue pairs that the program itself modifies";
    SocketPointer EFAULT "null_argument"
        "a pointer to a structure is null"
        "the call's manual page describes each pointer";
    SocketArgument EINVAL "socket_argument"
        "an argument is out of range"
        "see the socket call of the same name, without the r";
    SocketFamily EAFNOSUPPORT "socket_family"
        "rsockets support AF_INET and AF_INET6 only"
        "check domain of rsocket and sa_family of the address";
    SocketType ESOCKTNOSUPPORT "socket_type"
        "rsockets support SOCK_STREAM and SOCK_DGRAM only"
        "check type of rsocket";
    SocketProtocol EPROTONOSUPPORT "socket_protocol"
        "the protocol is not that of the socket's type"
        "pass 0, or IPPROTO_TCP for SOCK_STREAM, IPPROTO_UDP for SOCK_DGRAM";
    SocketOption EOPNOTSUPP "socket_option"
        "rsockets lack this option or flag"
        "rsocket(7) lists options and flags";
    SocketTime EDOM "socket_time"
        "the microseconds of a time are not in 0 to 999,999"
        "check tv_usec of SO_RCVTIMEO and SO_SNDTIMEO";
    NotARsocket EBADF "not_a_rsocket"
        "the descriptor is not an rsocket"
        "it is closed (rclose), or a socket of the system";
    Watched EEXIST "watched"
        "the descriptor is already in the set"
        "change it with EPOLL_CTL_MOD";
    NotWatched ENOENT "not_watched"
        "the descriptor is not in the set"
        "add it with EPOLL_CTL_ADD first";
}

impl Explain for Rule {
    fn explain(&self) -> Reason {
        let reason = match *self {
            Self::Modify(error) => return error.explain(),
            Self::MissingAttributes { qp_type, from, to, mask } => Reason::new(
                "missing_attribute",
                &format_args!("{qp_type} queue pairs need {} from {from} to {to}", names(mask)),
                "set the members and their bits in attr_mask: ibv_modify_qp(3) has the table",
            ),
            Self::ExtraAttributes { qp_type, from, to, mask } => Reason::new(
                "attribute_not_taken",
                &format_args!("{qp_type} queue pairs take no {} from {from} to {to}", names(mask)),
                "clear their bits in attr_mask: ibv_modify_qp(3) has the table",
            ),
            Self::TooManySges { count, limit } => Reason::new(
                "too_many_sges",
                &format_args!(
                    "num_sge is {count} and the queue's limit is {limit}, or sg_list is null"
                ),
                "raise cap.max_send_sge or max_recv_sge of ibv_create_qp (max_sge of \
                 ibv_create_srq)",
            ),
            Self::InlineTooLong { limit } => Reason::new(
                "inline_too_long",
                &format_args!("the inline data exceeds the queue's limit of {limit} bytes"),
                "raise cap.max_inline_data of ibv_create_qp, which returns the limit, or send \
                 without IBV_SEND_INLINE",
            ),
            Self::CompletionVector { vector, vectors } => Reason::new(
                "completion_vector",
                &format_args!(
                    "comp_vector is {} and the device has {vectors}, from 0 on",
                    vector.cast_signed()
                ),
                "take comp_vector modulo num_comp_vectors of ibv_context",
            ),
            plain => {
                let (cause, rule, advice) = plain.text().unwrap_or_default();
                Reason::new(cause, &rule, advice)
            }
        };
        reason.with_errno(self.errno().1)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_number_and_says_what_to_look_at() {
        let (qp_type, from, to) = (QpType::Rc, State::Reset, State::Init);
        let others = [
            Rule::Modify(ModifyError::IllegalTransition { qp_type, from, to: State::Rts }),
            Rule::MissingAttributes { qp_type, from, to, mask: IBV_QP_PORT },
            Rule::ExtraAttributes { qp_type, from, to, mask: IBV_QP_AV },
            Rule::TooManySges { count: 3, limit: 2 },
            Rule::InlineTooLong { limit: 64 },
            Rule::CompletionVector { vector: 8, vectors: 8 },
        ];
        for rule in Rule::PLAIN.iter().chain(&others) {
            let (number, name) = rule.errno();
            assert!(number > 0 && name.starts_with('E'), "{rule:?}");
            let reason = rule.explain();
            assert_eq!(reason.errno, Some(name), "{rule:?}");
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(!reason.cause.is_empty() && reason.cause.chars().all(is_name), "{reason:?}");
            assert!(!reason.rule.is_empty() && !reason.advice.is_empty(), "{reason:?}");
            assert!(!reason.rule.contains('\n') && !reason.advice.contains('\n'), "{reason:?}");
        }
        assert!(
            others[1].explain().rule.ends_with("need IBV_QP_PORT (port_num) from RESET to INIT")
        );
        assert!(
            others[2].explain().rule.ends_with("take no IBV_QP_AV (ah_attr) from RESET to INIT")
        );
    }
}
