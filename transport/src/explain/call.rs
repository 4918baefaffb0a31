use crate::{
    adapter::{McastError, ObjectError, ObjectKind, ObjectMismatch, ObjectSize},
    mem::RegisterError,
    qp::{Attribute, CountError, ModifyError, PostError, QpType, State},
    trace::CallError,
    work::SrqError,
};

reasons! {
    CallError {}
    of {
        Self::Object(error) => error;
        Self::Modify(error) => error;
        Self::Post(error) => error;
        Self::Connection(error) => error;
    }
}

reasons! {
    ObjectError {
        Self::TooMany { limit: 0, .. } => ENOMEM "no_such_objects"
            "the device has none (0 in ibv_query_device): the program needs a fallback";
        Self::TooMany { what, .. } => ENOMEM "too_many_objects" too_many(*what);
        Self::Size { what, .. } => EINVAL "object_size" size(*what);
        Self::Held(_) => EINVAL "cq_holds_more"
            "poll the completion queue before you shrink it, or choose a larger cqe";
        Self::Overrun => EINVAL "cq_overrun"
            "make the new one with cqe for every request that can be posted to its queue pairs, \
             or poll more often";
        Self::GidIndex(_) => EINVAL "gid_index" GID_INDEX;
        Self::RoceV1(_) => EINVAL "roce_v1" ROCE_V1;
        Self::NoFrames => EOPNOTSUPP "no_raw_packets"
            "raw packets need a device that builds its own Ethernet frames: -d raw:INTERFACE, or \
             ROCE_DEVICES=raw:INTERFACE, with CAP_NET_RAW";
        Self::Unknown => EINVAL "unknown_object"
            "all parts of an object belong to one open device and must outlive it: check whether \
             one was destroyed or belongs to another context";
        Self::InUse => EBUSY "object_in_use"
            "destroy its dependents first: queue pairs before their completion queues, shared \
             receive queues and domain; memory windows before their region's domain";
    }
    of {
        Self::Mismatch(mismatch) => mismatch;
    }
}

const fn too_many(what: ObjectKind) -> &'static str {
    match what {
        ObjectKind::ProtectionDomain => "ibv_query_device: max_pd; ibv_dealloc_pd frees one",
        ObjectKind::CompletionQueue => "ibv_query_device: max_cq; ibv_destroy_cq frees one",
        ObjectKind::QueuePair => "ibv_query_device: max_qp; ibv_destroy_qp frees one",
        ObjectKind::SharedReceiveQueue => "ibv_query_device: max_srq; ibv_destroy_srq frees one",
        ObjectKind::XrcDomain => "ibv_close_xrcd frees one",
        ObjectKind::AddressHandle => {
            "ibv_query_device: max_ah; make one address handle for each peer, not for each \
             message, and free it with ibv_destroy_ah"
        }
        ObjectKind::MemoryWindow => "ibv_query_device: max_mw; ibv_dealloc_mw frees one",
    }
}

const fn size(what: ObjectSize) -> &'static str {
    match what {
        ObjectSize::Completions => "cqe of ibv_create_cq; ibv_query_device: max_cqe",
        ObjectSize::MaxSendWr => "cap.max_send_wr of ibv_create_qp; ibv_query_device: max_qp_wr",
        ObjectSize::MaxRecvWr => "cap.max_recv_wr of ibv_create_qp; ibv_query_device: max_qp_wr",
        ObjectSize::MaxSendSge => "cap.max_send_sge of ibv_create_qp; ibv_query_device: max_sge",
        ObjectSize::MaxRecvSge => "cap.max_recv_sge of ibv_create_qp; ibv_query_device: max_sge",
        ObjectSize::MaxInlineData => {
            "cap.max_inline_data of ibv_create_qp: no query returns its limit; lower it until the \
             call succeeds, or send larger messages from registered memory"
        }
        ObjectSize::MaxWr => "attr.max_wr of ibv_create_srq; ibv_query_device: max_srq_wr",
        ObjectSize::MaxSge => "attr.max_sge of ibv_create_srq; ibv_query_device: max_srq_sge",
        ObjectSize::CqPeriod => "moderate.cq_period of ibv_modify_cq",
    }
}

const GID_INDEX: &str = "ibv_query_gid_table or `roce devinfo -v` lists the entries; IPv4 and IPv6 \
                         addresses do not reach each other, so take sgid_index from the entry \
                         whose family is the peer's";

const ROCE_V1: &str = "packets leave over UDP as RoCE v2: take sgid_index from an entry of that \
                       type (gid_type of ibv_query_gid_ex; gid_attrs/types in \
                       /sys/class/infiniband): the next one, with the same address";

reasons! {
    ObjectMismatch {
        Self::TargetWithQueues => EINVAL "xrc_target_with_queues"
            "IBV_QPT_XRC_RECV takes an XRC domain (IBV_QP_INIT_ATTR_XRCD) and no queues; its \
             messages go to the XRC SRQ that the peer names";
        Self::InitiatorWithSrq => EINVAL "xrc_initiator_with_srq"
            "leave srq null for IBV_QPT_XRC_SEND; the receiving end is IBV_QPT_XRC_RECV";
        Self::RawWithSrq => EINVAL "raw_packets_with_srq"
            "leave srq null for IBV_QPT_RAW_PACKET, and post receives to the queue pair";
        Self::XrcSrq => EINVAL "xrc_srq_elsewhere"
            "make the shared receive queue with IBV_SRQT_BASIC for queue pairs other than \
             IBV_QPT_XRC_RECV";
        Self::Shards => EINVAL "shards"
            "queue pairs that share a completion queue or a shared receive queue are in one \
             shard, those of rdma_cm in the first; give them separate queues, or open the device \
             with one shard (ROCE_SHARDS)";
        Self::Type1Window => EINVAL "window_type_1"
            "use IBV_MW_TYPE_2, or open the device with one shard (ROCE_SHARDS)";
    }
}

reasons! {
    ModifyError {
        Self::UnknownQp => EINVAL "unknown_qp"
            "the queue pair was destroyed by ibv_destroy_qp or rdma_destroy_qp";
        Self::IllegalTransition { qp_type, from, to } => EINVAL "illegal_transition"
            way(*qp_type, *from, *to);
        Self::StillDraining => EINVAL "still_draining"
            "wait for IBV_EVENT_SQ_DRAINED (en_sqd_async_notify), or call ibv_query_qp until \
             sq_draining is 0";
        Self::WrongService(_) => EINVAL "wrong_service"
            "give the attributes that this transition takes in this transport service: \
             ibv_modify_qp(3) has a table for each";
        Self::CqOverrun => EINVAL "cq_overrun"
            "destroy the queue pair and the completion queue, and make a larger one, with cqe for \
             every request that can be posted";
        Self::PKeyIndex(_) => EINVAL "pkey_index"
            "ibv_query_pkey lists the table; RoCE devices have one entry, 0xffff at index 0";
        Self::NotTaken { .. } => EINVAL "attribute_not_taken"
            "clear its bit in attr_mask: ibv_modify_qp(3) has the table of each transition";
        Self::NotSupported(_) => EOPNOTSUPP "path_migration"
            "clear IBV_QP_ALT_PATH and IBV_QP_PATH_MIG_STATE in attr_mask: RoCE has no automatic \
             path migration";
        Self::OtherState(_) => EINVAL "other_state"
            "cur_qp_state must be the queue pair's current state; check ibv_query_qp: an error \
             may have changed the state";
        Self::MulticastPeer(_) => EINVAL "multicast_peer"
            "ah_attr.grh.dgid of a connection is the peer's own address; multicast is for \
             IBV_QPT_UD";
        Self::GidIndex(_) => EINVAL "gid_index" GID_INDEX;
        Self::RoceV1(_) => EINVAL "roce_v1" ROCE_V1;
        Self::PathMtu { .. } => EINVAL "path_mtu"
            "set path_mtu to the lesser active_mtu of both ports (ibv_query_port); a larger \
             interface MTU allows more: 4200 for 4096";
        Self::Range { attribute, .. } => EINVAL "attribute_range" range(*attribute);
    }
}

const fn way(qp_type: QpType, from: State, to: State) -> &'static str {
    match (qp_type, from, to) {
        (_, State::Err | State::Sqe, State::Init | State::Rtr | State::Sqd)
        | (_, State::Err, State::Rts) => {
            "the queue pair failed earlier: see the finding above or its first completion in \
             error; ERR leads to RESET only"
        }
        (_, State::Reset, State::Rtr | State::Rts) => {
            "move it to RESET, INIT, RTR, RTS, with one ibv_modify_qp for each"
        }
        (_, State::Init, State::Rts) => {
            "move it to INIT, RTR, RTS: RTR first, with the peer's address (ah_attr), dest_qp_num \
             and rq_psn"
        }
        (_, State::Rtr | State::Rts, State::Init | State::Rtr) => {
            "the queue pair is already connected: move it to RESET before you reconnect it"
        }
        (_, State::Reset, State::Reset | State::Err) => "a new queue pair is already in RESET",
        _ => {
            "the order is RESET, INIT, RTR, RTS; SQD follows RTS; every state leads to ERR and \
             RESET"
        }
    }
}

const fn range(attribute: Attribute) -> &'static str {
    match attribute {
        Attribute::Timeout => "timeout is a code of five bits: 4.096 µs · 2^timeout; 14 is 67 ms",
        Attribute::RetryCnt => "retry_cnt has three bits: 7 at most",
        Attribute::RnrRetry => "rnr_retry has three bits: 7 means no limit",
        Attribute::MinRnrTimer => "min_rnr_timer is a code of five bits; 12 is 0.64 ms",
        Attribute::MaxRdAtomic => "ibv_query_device: max_qp_init_rd_atom",
        Attribute::MaxDestRdAtomic => "ibv_query_device: max_qp_rd_atom",
        Attribute::CurrentState
        | Attribute::PKeyIndex
        | Attribute::Access
        | Attribute::QKey
        | Attribute::Av
        | Attribute::AltPath
        | Attribute::PathMigration => "ibv_modify_qp(3) has the attribute's range",
    }
}

reasons! {
    PostError {
        Self::UnknownQp => EINVAL "unknown_qp" "the queue pair was destroyed before this request";
        Self::State(state) => EINVAL "post_state" before_posting(*state);
        Self::UnknownSrq => EINVAL "unknown_srq"
            "the shared receive queue was destroyed before this request";
        Self::SharedQueue => EINVAL "shared_queue"
            "the queue pair uses an SRQ: call ibv_post_srq_recv instead of ibv_post_recv";
        Self::NoSuchQueue(_) => EINVAL "no_such_queue"
            "post sends to IBV_QPT_XRC_SEND, and receives to the XRC SRQ";
        Self::RemoteSrq => EINVAL "remote_srq"
            "qp_type.xrc.remote_srqn (ibv_wr_set_xrc_srqn) is for IBV_QPT_XRC_SEND, which \
             requires it";
        Self::QueueFull => ENOMEM "queue_full"
            "poll completions before you post more, or raise max_send_wr or max_recv_wr. A slot \
             is free once the completion of its request, or of a later one, is polled; a send \
             queue without signaled requests (IBV_SEND_SIGNALED, sq_sig_all) stays full";
        Self::QueueOfZero => ENOMEM "queue_of_zero"
            "cap.max_send_wr or cap.max_recv_wr of ibv_create_qp, or attr.max_wr of \
             ibv_create_srq, was 0: set it to the number of requests posted at a time";
        Self::TooManySges { .. } => EINVAL "too_many_sges"
            "num_sge is limited by cap.max_send_sge or max_recv_sge of ibv_create_qp: raise that";
        Self::TooManyReadSges { .. } => EINVAL "too_many_sges"
            "num_sge of a READ is limited by max_sge_rd of ibv_query_device, not max_sge: post \
             several READs";
        Self::NoAtomics => EINVAL "no_atomics"
            "atomic_cap of ibv_query_device is IBV_ATOMIC_NONE: the program needs a fallback";
        Self::InlineTooLong { .. } => EINVAL "inline_too_long"
            "IBV_SEND_INLINE takes at most cap.max_inline_data bytes, which ibv_create_qp \
             returns: raise it there, or send from registered memory";
        Self::InlineRead => EINVAL "inline_read"
            "omit IBV_SEND_INLINE: sg_list is the target of the response";
        Self::NoBytes => EINVAL "no_bytes" "set num_sge to 0 and sg_list to null for this \
                                            operation";
        Self::TooLong => EINVAL "message_too_long" "send it in parts of at most max_msg_sz \
                                                    (ibv_query_port)";
        Self::WrongOperation(qp_type) => EINVAL "wrong_operation" operations(*qp_type);
    }
}

const fn before_posting(state: State) -> &'static str {
    match state {
        State::Reset => {
            "move the queue pair to INIT before you post receives, and to RTS before sends: \
             ibv_modify_qp"
        }
        State::Init | State::Rtr => "sends need RTS: call ibv_modify_qp to RTR and RTS first",
        State::Rts | State::Sqd | State::Sqe | State::Err => {
            "ibv_query_qp returns the queue pair's state; an error may have changed it"
        }
    }
}

const fn operations(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Ud => {
            "IBV_QPT_UD has SEND, with wr.ud.ah, remote_qpn and remote_qkey; WRITE, READ and atomics \
             need IBV_QPT_RC"
        }
        QpType::Uc => "IBV_QPT_UC has SEND and WRITE; READ and atomics need IBV_QPT_RC",
        QpType::RawPacket => "IBV_QPT_RAW_PACKET has SEND of whole frames, without immediate data",
        QpType::Rc | QpType::XrcInitiator | QpType::XrcTarget => {
            "a connected queue pair has one peer: wr.ud is for IBV_QPT_UD"
        }
    }
}

reasons! {
    CountError {
        Self::UnknownQp => EINVAL "unknown_qp" "the queue pair was destroyed earlier";
        Self::State(_) => EINVAL "counter_state" "attach the counter before ibv_modify_qp to RTR";
        Self::NoOperation => EINVAL "counter_of_nothing" "set bits in op_mask";
        Self::Counted => EBUSY "counted_already"
            "each operation of a queue pair has one counter at most";
    }
}

reasons! {
    SrqError {
        Self::UnknownSrq => EINVAL "unknown_srq" "the shared receive queue was destroyed earlier";
        Self::Size(_) => EINVAL "srq_size" "ibv_query_device: max_srq_wr";
        Self::Posted(_) => EINVAL "srq_holds_more"
            "shrink it only when fewer requests are posted";
        Self::Limit(_) => EINVAL "srq_limit" "srq_limit counts posted requests: max_wr at most";
    }
}

reasons! {
    RegisterError {
        Self::UnknownPd => EINVAL "unknown_pd" "the domain was freed earlier";
        Self::RemoteWithoutLocalWrite => EINVAL "remote_without_local_write"
            "add IBV_ACCESS_LOCAL_WRITE: IBV_ACCESS_REMOTE_WRITE and _REMOTE_ATOMIC require it";
        Self::NotPersistent => EINVAL "not_persistent"
            "IBV_ACCESS_FLUSH_PERSISTENT is for a mapped file; IBV_ACCESS_FLUSH_GLOBAL for any \
             memory";
        Self::AddressOverflow => EINVAL "address_overflow"
            "addr (or iova) plus length must stay below 2^64";
        Self::TooLong(_) => EINVAL "region_too_long"
            "register it in parts of at most max_mr_size (ibv_query_device)";
        Self::TooMany(_) => ENOMEM "too_many_regions"
            "ibv_query_device: max_mr; ibv_dereg_mr frees one";
        Self::Deregistered => EINVAL "deregistered"
            "use the region that ibv_rereg_mr left, or register again";
        Self::InUse => EBUSY "window_bound"
            "unbind the window first: bind it to 0 bytes (type 1), invalidate it (type 2) or call \
             ibv_dealloc_mw";
    }
}

reasons! {
    McastError {
        Self::UnknownQp => EINVAL "unknown_qp" "the queue pair was destroyed earlier";
        Self::WrongService(_) => EINVAL "mcast_service"
            "multicast is for queue pairs of type IBV_QPT_UD";
        Self::NotMulticast(_) => EINVAL "not_multicast"
            "the GID of a group is ff00::/8, or ::ffff:224.0.0.0/100 for IPv4";
        Self::TooManyGroups { .. } => ENOMEM "too_many_groups" "ibv_query_device: max_mcast_grp";
        Self::TooManyMembers { .. } => ENOMEM "too_many_members"
            "ibv_query_device: max_mcast_qp_attach";
        Self::NotAttached(_) => EINVAL "not_attached"
            "detach each group of ibv_attach_mcast once";
    }
}
