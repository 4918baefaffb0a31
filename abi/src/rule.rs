//! Rules of the C interface. Those of objects stand with the objects.

use std::ffi::{c_int, c_uint};

use roce_provider::transport::{
    explain::{Explain, Reason},
    qp::{ModifyError, QpType, State},
};

use crate::layout::consts::*;

/// Name, `errno`, cause, text and advice of each rule.
macro_rules! rules {
    ($($name:ident $errno:ident $cause:literal $rule:literal $advice:literal;)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Rule {
            $($name,)*
            Modify(ModifyError),
            MissingAttributes { qp_type: QpType, from: State, to: State, mask: c_uint },
            ExtraAttributes { qp_type: QpType, from: State, to: State, mask: c_uint },
            TooManySges { count: usize, limit: u32 },
            InlineTooLong { limit: u32 },
        }

        impl Rule {
            /// Rules without parameters.
            #[cfg(test)]
            const PLAIN: &[Self] = &[$(Self::$name,)*];

            /// `errno` and its name.
            pub(crate) const fn errno(self) -> (c_int, &'static str) {
                match self {
                    $(Self::$name => (libc::$errno, stringify!($errno)),)*
                    Self::Modify(_)
                    | Self::MissingAttributes { .. }
                    | Self::ExtraAttributes { .. }
                    | Self::TooManySges { .. }
                    | Self::InlineTooLong { .. } => (libc::EINVAL, "EINVAL"),
                }
            }

            /// Cause, text, advice.
            const fn text(self) -> Option<(&'static str, &'static str, &'static str)> {
                match self {
                    $(Self::$name => Some(($cause, $rule, $advice)),)*
                    Self::Modify(_)
                    | Self::MissingAttributes { .. }
                    | Self::ExtraAttributes { .. }
                    | Self::TooManySges { .. }
                    | Self::InlineTooLong { .. } => None,
                }
            }
        }
    };
}

rules! {
    NullArgument EINVAL "null_argument"
        "an argument that must lead to a structure, or to a place for the answer, is null"
        "the call's manual page says what each pointer leads to";
    NullObject EINVAL "null_object"
        "the object that the call is about is null"
        "an earlier call that was to make it has failed: look at what it returned";
    NoSuchObject ENOENT "no_such_object"
        "the pointer is to no object of this kind"
        "it may have been destroyed, or be of another kind, or its members context or handle were \
         overwritten";
    NothingToWaitFor EBADF "nothing_to_wait_for"
        "the pointer is neither a channel nor a context"
        "end the threads that wait for its events before it is destroyed";
    StillUsed EBUSY "object_in_use"
        "other objects still use it"
        "destroy first what was made from it: queue pairs before their completion queues, shared \
         receive queues and domain; all of them before the channel";
    OtherContext EINVAL "other_context"
        "the objects are of different contexts"
        "make domain, completion queues and queue pair from one ibv_open_device";
    Port EINVAL "port_number"
        "the port number is not 1"
        "ports are counted from 1, and every device here has one: port_num = 1";
    Index EINVAL "table_index"
        "the table has no such entry"
        "ibv_query_port: gid_tbl_len and pkey_tbl_len";
    NoEntry ENODATA "unused_entry"
        "the entry of the GID table is unused"
        "`roce devinfo -v` lists those that are used";
    NoPKey ENOENT "no_pkey"
        "no entry of the P_Key table matches"
        "RoCE devices have one entry, 0xffff; ibv_get_pkey_index takes network byte order";
    StructureSize EINVAL "structure_size"
        "the structure is shorter than any version of it"
        "compile program and libraries with the same headers of rdma-core";
    UnknownMask EOPNOTSUPP "unknown_mask"
        "comp_mask has bits that are not known here"
        "set comp_mask to the bits of the members that are filled in, and zero the structure first";
    Members EINVAL "members"
        "the members that comp_mask names do not go together, or some are missing"
        "the call's manual page says which are required; zero the structure first";
    EntriesRoom EINVAL "no_room"
        "there is no room for all entries"
        "max_entries of ibv_query_gid_table: gid_tbl_len of all ports (ibv_query_port)";
    UnknownPollMask EINVAL "unknown_mask"
        "comp_mask of ibv_poll_cq_attr has bits that are not known here"
        "set comp_mask to 0";
    Rereg EINVAL "members"
        "flags is 0 or has unknown bits, or the new memory is null or empty"
        "IBV_REREG_MR_CHANGE_TRANSLATION with addr and length, _CHANGE_PD with pd, _CHANGE_ACCESS";
    EntryFlags EOPNOTSUPP "flags"
        "flags has bits that are not known here"
        "set flags to 0";
    NoGpu EOPNOTSUPP "no_gpu"
        "the process has loaded no driver of a GPU, or ROCE_GPU is 0"
        "programs copy through memory of the process then; libcuda.so.1 is what is looked for";
    NotSupported EOPNOTSUPP "not_supported"
        "devices of this kind do not have this function"
        "programs go another way when a device answers EOPNOTSUPP; ibv_query_device_ex says what \
         there is";
    NoMemory ENOMEM "no_memory"
        "there is not enough memory"
        "`ulimit -a`, memory of the process or host";
    NotInside EFAULT "not_inside"
        "the range is not inside the object"
        "compare offset and length with what was allocated or registered";
    Unmapped EFAULT "memory_unreachable"
        "the memory cannot be read or written"
        "the address must be mapped now; inline data is read while the request is posted";
    NoGid EINVAL "no_gid"
        "RoCE needs a GID: ah_attr.is_global is 0"
        "set ah_attr.is_global = 1, grh.dgid to the peer's GID and grh.sgid_index to a local GID \
         (ibv_rc_pingpong -g 0; perftest -x 0). `roce devinfo -v` lists the GIDs";
    StaticRate EINVAL "static_rate"
        "ah_attr.static_rate is not a rate"
        "0 stands for the port's rate; otherwise enum ibv_rate";
    PathMtu EINVAL "path_mtu"
        "path_mtu is not a code of enum ibv_mtu"
        "IBV_MTU_1024, not 1024; the lesser active_mtu of both ports (ibv_query_port)";
    QpType EINVAL "qp_type"
        "qp_type is not a type of a queue pair"
        "IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND or IBV_QPT_XRC_RECV; zero the \
         structure before members are set";
    OtherQpType EOPNOTSUPP "qp_type"
        "this kind of device has no such queue pairs"
        "vendors' own queue pairs need their hardware";
    Flow EINVAL "flow"
        "the flow, or one of its specs, is malformed"
        "num_of_specs of struct ibv_flow_attr is at most 10, and as many specs lie behind it, each with its \
         own kind and size; flags are 0 or IBV_FLOW_ATTR_FLAGS_DONT_TRAP";
    FlowKind EOPNOTSUPP "flow_kind"
        "flows do not look at this here"
        "there are IBV_FLOW_SPEC_ETH, _IPV4, _IPV4_EXT without flags, _IPV6, _TCP, _UDP, _ACTION_TAG and \
         _ACTION_DROP, of what is received; nothing within tunnels";
    QpState EINVAL "qp_state"
        "the state is none of enum ibv_qp_state"
        "set attr.qp_state, and cur_qp_state where attr_mask has IBV_QP_CUR_STATE";
    Migration EINVAL "path_migration"
        "path_mig_state is none of enum ibv_mig_state"
        "RoCE has no path migration: leave IBV_QP_PATH_MIG_STATE away";
    AccessFlags EINVAL "access_flags"
        "the access flags have unknown bits"
        "enum ibv_access_flags; zero qp_access_flags before bits are set";
    QpMask EOPNOTSUPP "unknown_mask"
        "attr_mask has bits that no queue pair here knows"
        "attributes up to IBV_QP_DEST_QPN; no rate limit (IBV_QP_RATE_LIMIT)";
    RateLimit EOPNOTSUPP "rate_limit"
        "queue pairs have no rate of their own here"
        "ROCE_DCQCN and the network's own limits (`tc`) are what there is";
    NeedsDomain EINVAL "needs_domain"
        "comp_mask does not name a protection domain"
        "IBV_QP_INIT_ATTR_PD (IBV_SRQ_INIT_ATTR_PD) in comp_mask, and pd";
    NeedsXrcDomain EINVAL "needs_xrc_domain"
        "comp_mask does not name an XRC domain"
        "IBV_QP_INIT_ATTR_XRCD in comp_mask, and xrcd, for IBV_QPT_XRC_RECV";
    CreateFlags EOPNOTSUPP "create_flags"
        "create_flags asks for what devices of this kind do not have"
        "set create_flags to 0";
    SendOperations EOPNOTSUPP "send_operations"
        "send_ops_flags has operations that this transport service does not have"
        "IBV_QPT_UD has SEND, IBV_QPT_UC SEND and WRITE, IBV_QPT_RC all but TSO";
    NoTarget EINVAL "no_target"
        "no XRC receive queue pair of this number is in the domain, or members are missing"
        "qp_num, xrcd and qp_type IBV_QPT_XRC_RECV, with their bits in comp_mask";
    Opcode EINVAL "opcode"
        "wr.opcode is none of enum ibv_wr_opcode"
        "zero the request before members are set; each request of the list has its own opcode";
    OtherOpcode EOPNOTSUPP "opcode"
        "devices of this kind do not have this operation"
        "TSO and vendors' operations need their hardware";
    SendFlags EINVAL "send_flags"
        "wr.send_flags has unknown bits"
        "zero the request before members are set: enum ibv_send_flags";
    SgeCount EINVAL "sge_count"
        "num_sge is negative"
        "zero the request before members are set";
    NotPosting EINVAL "not_posting"
        "no request was begun, or one of its parts is wrong"
        "ibv_wr_start, then ibv_wr_send or its like, then ibv_wr_set_*, then ibv_wr_complete";
    WindowType EINVAL "window_type"
        "the type of the memory window is unknown"
        "IBV_MW_TYPE_1 or IBV_MW_TYPE_2";
    WindowBind EINVAL "window_bind"
        "a window of type 1 cannot be bound so"
        "ibv_bind_mw is for connections, without IBV_ACCESS_ZERO_BASED";
    CompletionVector EINVAL "completion_vector"
        "comp_vector is not below num_comp_vectors"
        "num_comp_vectors of the context; every device here has one: comp_vector = 0";
    ForeignChannel EBADF "foreign_channel"
        "the completion channel is of another context"
        "make channel and completion queue from one ibv_open_device";
    CqSize EINVAL "cq_size"
        "cqe is negative"
        "ibv_query_device: max_cqe";
    CqOverrun EOVERFLOW "cq_overrun"
        "the completion queue has overflowed, and gives nothing more"
        "make it with room for every request that can be posted to its queue pairs, or poll \
         before more is posted";
    CqAttributes EINVAL "cq_attributes"
        "attr_mask names no attribute that can change"
        "IBV_CQ_ATTR_MODERATE, with moderate.cq_count and cq_period";
    SrqAttributes EINVAL "srq_attributes"
        "srq_attr_mask has unknown bits, or srq_limit is more than max_wr"
        "IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT; the limit counts posted requests";
    SrqType EINVAL "srq_type"
        "the type of the shared receive queue is unknown, or its members are missing"
        "IBV_SRQT_BASIC with pd; IBV_SRQT_XRC with pd, xrcd and cq, and their bits in comp_mask";
    NoCounter EINVAL "no_counter"
        "the counter does not exist, or there is no room for its value"
        "index of ibv_attach_counters_point_flow below ncounters of ibv_read_counters";
    Wraps EINVAL "address_and_iova"
        "address and length pass the end of memory, or iova and addr differ within a page"
        "iova modulo 4096 must be addr modulo 4096";
    DmaBuf EINVAL "dma_buf"
        "the descriptor is not of a dma-buf or a memfd, or the range is empty or not inside of it"
        "offset and length count bytes of the buffer; iova modulo 4096 must be offset modulo 4096";
    NoRegion EINVAL "no_region"
        "the region has no memory that could be changed or fetched"
        "null regions and those of device memory stay as they are";
    NotWritable EPERM "not_writable"
        "the region is not writable"
        "IBV_ACCESS_LOCAL_WRITE when it is registered, or prefetch for reading";
    BufferRegion EINVAL "buffer"
        "the range is not inside the buffer, or it is of another domain"
        "ibv_reg_mr of a buffer takes the domain that ibv_alloc_buf got, and a part of it";
    NoDescriptor ENODATA "no_descriptor"
        "the buffer is memory of the process, of which there is no descriptor"
        "share it by mmap of a file or memfd, and register that";
    ReadOnlyRegion EPERM "foreign_region"
        "the region is of another protection domain"
        "use a region of the same ibv_pd";
    Alignment EINVAL "alignment"
        "offset or length is not a multiple of 4, or the host's address is null"
        "device memory is copied in words of 4 bytes";
    ZeroBased EINVAL "zero_based"
        "device memory has no addresses"
        "register it with IBV_ACCESS_ZERO_BASED, and a range inside it";
    DeviceRange EINVAL "not_inside"
        "offset or length of device memory is too great"
        "compare offset and length with what ibv_alloc_dm was asked for";
    NoDevice ENODEV "no_device"
        "the device is not in the list any more"
        "`roce devinfo`, ROCE_DEVICES";
    NotADescriptor EBADF "not_a_descriptor"
        "the descriptor is not open, or not one of a device"
        "cmd_fd of an ibv_context of this process; a file that is open for an XRC domain";
    NotACommandFile EINVAL "not_a_descriptor"
        "the descriptor is not that of an open device"
        "cmd_fd of an ibv_context of this process";
    XrcdExists EINVAL "xrcd_exists"
        "the file has an XRC domain already (O_EXCL), or -1 was given without O_CREAT"
        "oflags O_CREAT, with or without a file";
    XrcdMissing EAGAIN "xrcd_missing"
        "the file has no XRC domain yet"
        "oflags O_CREAT for who comes first";
    Allocator EINVAL "allocator"
        "a parent domain has both functions, to allocate and to free, or none"
        "alloc and free with IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS";
    ThreadDomain EINVAL "thread_domain"
        "a thread domain has no attributes"
        "set comp_mask to 0";
    Address EINVAL "address"
        "the address is null, or neither IPv4 nor IPv6"
        "set sa_family to AF_INET or AF_INET6; zero the structure first";
    PortSpace EPROTONOSUPPORT "port_space"
        "the port space is not known here"
        "RDMA_PS_TCP for connections, RDMA_PS_UDP and RDMA_PS_IPOIB for datagrams";
    IdWithoutDevice EINVAL "id_without_device"
        "the id has no device yet, or not in this state"
        "rdma_resolve_addr, and its event, or rdma_bind_addr to one address come first";
    IdHasObject EINVAL "id_has_object"
        "the id has one already, or what is given is not its own"
        "id->qp, id->srq, id->send_cq and recv_cq must be null, or the same; pd of id->verbs";
    Option EINVAL "option"
        "the option's value has another length, or is not one that it may have"
        "rdma_set_option(3) has types and ranges";
    OptionUnknown ENOSYS "option_unknown"
        "there is no such option"
        "RDMA_OPTION_ID and RDMA_OPTION_IB of rdma_set_option(3)";
    Joined EADDRINUSE "joined"
        "the id is in this group already"
        "join each group once";
    Name ENOENT "name"
        "the name, or the service, does not resolve"
        "`getent hosts NAME`, `getent services NAME`";
    NameAgain EAGAIN "name_again"
        "the name server does not answer now"
        "try again later; `resolvectl status` or /etc/resolv.conf";
    Event EINVAL "event"
        "the event is not one that this call takes"
        "rdma_notify takes IBV_EVENT_COMM_EST; rdma_write_cm_event RDMA_CM_EVENT_USER";
    Busy EBUSY "busy"
        "the id still waits for the answer to another call"
        "take the event of the first call before the second";
    Synchronous EINVAL "synchronous"
        "only ids without a channel of their own have such calls"
        "make the id with a null channel (rdma_create_ep), or wait with rdma_get_cm_event";
    Ece EINVAL "ece"
        "the options are null, of no vendor, or of an id with a queue pair"
        "enhanced connection establishment is for queue pairs that the program moves itself";
    SocketPointer EFAULT "null_argument"
        "an argument that must lead to a structure is null"
        "the call's manual page says what each pointer leads to";
    SocketArgument EINVAL "socket_argument"
        "an argument is out of its range"
        "as with the call on sockets of the same name, without the r";
    SocketFamily EAFNOSUPPORT "socket_family"
        "rsockets are for AF_INET and AF_INET6"
        "domain of rsocket, sa_family of the address";
    SocketType ESOCKTNOSUPPORT "socket_type"
        "rsockets are streams here"
        "SOCK_STREAM; datagrams (SOCK_DGRAM) are not supported";
    SocketProtocol EPROTONOSUPPORT "socket_protocol"
        "the protocol of a stream is TCP"
        "0 or IPPROTO_TCP";
    SocketOption EOPNOTSUPP "socket_option"
        "rsockets have no such option or flag"
        "rsocket(7) lists what there is";
    SocketTime EDOM "socket_time"
        "microseconds of a time are below 1,000,000"
        "tv_usec of SO_RCVTIMEO and SO_SNDTIMEO";
    NotARsocket EBADF "not_a_rsocket"
        "the descriptor is not an rsocket"
        "it may be closed (rclose), or be a socket of the system";
    Watched EEXIST "watched"
        "the descriptor is in the set already"
        "EPOLL_CTL_MOD changes it";
    NotWatched ENOENT "not_watched"
        "the descriptor is not in the set"
        "EPOLL_CTL_ADD comes first";
}

impl Explain for Rule {
    fn explain(&self) -> Reason {
        let reason = match *self {
            Self::Modify(error) => return error.explain(),
            Self::MissingAttributes { qp_type, from, to, mask } => Reason::new(
                "missing_attribute",
                &format_args!("a {qp_type} queue pair from {from} to {to} needs {}", names(mask)),
                "set the members, and their bits in attr_mask: ibv_modify_qp(3) has the table",
            ),
            Self::ExtraAttributes { qp_type, from, to, mask } => Reason::new(
                "attribute_not_taken",
                &format_args!(
                    "a {qp_type} queue pair from {from} to {to} takes no {}",
                    names(mask)
                ),
                "leave their bits out of attr_mask: ibv_modify_qp(3) has the table",
            ),
            Self::TooManySges { count, limit } => Reason::new(
                "too_many_sges",
                &format_args!(
                    "num_sge is {count}, and the queue was made for {limit}, or sg_list is null"
                ),
                "cap.max_send_sge and max_recv_sge of ibv_create_qp (max_sge of ibv_create_srq) say \
                 how many elements a request may have: ask there for more",
            ),
            Self::InlineTooLong { limit } => Reason::new(
                "inline_too_long",
                &format_args!("more inline bytes than the {limit} that the queue was made for"),
                "cap.max_inline_data of ibv_create_qp, which it writes back: ask there for more, or \
                 send longer messages without IBV_SEND_INLINE",
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
        assert!(others[1].explain().rule.ends_with("needs IBV_QP_PORT (port_num)"));
        assert!(others[2].explain().rule.ends_with("takes no IBV_QP_AV (ah_attr)"));
    }
}
