//! Errors of calls.

use crate::{
    adapter::{AcceptError, McastError, ObjectError, ObjectKind, ObjectMismatch, ObjectSize},
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
    AcceptError {}
    of {
        Self::Connection(error) => error;
        Self::QueuePair(error) => error;
    }
}

reasons! {
    ObjectError {
        Self::TooMany { limit: 0, .. } => ENOMEM "no_such_objects"
            "the device has none of them: ibv_query_device says 0; another way is needed there";
        Self::TooMany { what, .. } => ENOMEM "too_many_objects" too_many(*what);
        Self::Size { what, .. } => EINVAL "object_size" size(*what);
        Self::Held(_) => EINVAL "cq_holds_more"
            "poll the completion queue before it is made smaller, or leave it more room";
        Self::Overrun => EINVAL "cq_overrun"
            "make the new one with room for every request that can be posted to the queue pairs \
             that use it, or poll more often";
        Self::GidIndex(_) => EINVAL "gid_index" GID_INDEX;
        Self::RoceV1(_) => EINVAL "roce_v1" ROCE_V1;
        Self::NoFrames => EOPNOTSUPP "no_raw_packets"
            "raw packets need a device that builds its own Ethernet frames: -d raw:INTERFACE, or \
             ROCE_DEVICES=raw:INTERFACE, with CAP_NET_RAW";
        Self::Unknown => EINVAL "unknown_object"
            "the parts of an object are made from one open device and live as long as it does: \
             look whether one was destroyed, or came from another context";
        Self::InUse => EBUSY "object_in_use"
            "destroy first what was made from it: queue pairs before their completion queues, \
             shared receive queues and domain; memory windows before their region's domain";
    }
    of {
        Self::Mismatch(mismatch) => mismatch;
    }
}

const fn too_many(what: ObjectKind) -> &'static str {
    match what {
        ObjectKind::ProtectionDomain => "ibv_query_device: max_pd; ibv_dealloc_pd gives one back",
        ObjectKind::CompletionQueue => "ibv_query_device: max_cq; ibv_destroy_cq gives one back",
        ObjectKind::QueuePair => "ibv_query_device: max_qp; ibv_destroy_qp gives one back",
        ObjectKind::SharedReceiveQueue => {
            "ibv_query_device: max_srq; ibv_destroy_srq gives one back"
        }
        ObjectKind::XrcDomain => "ibv_close_xrcd gives one back",
        ObjectKind::AddressHandle => {
            "ibv_query_device: max_ah; make one address handle for each peer, not one for each \
             message, and give it back with ibv_destroy_ah"
        }
        ObjectKind::MemoryWindow => "ibv_query_device: max_mw; ibv_dealloc_mw gives one back",
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
            "cap.max_inline_data of ibv_create_qp: no query tells its limit, so ask for less until \
             the call succeeds, or send larger messages from registered memory"
        }
        ObjectSize::MaxWr => "attr.max_wr of ibv_create_srq; ibv_query_device: max_srq_wr",
        ObjectSize::MaxSge => "attr.max_sge of ibv_create_srq; ibv_query_device: max_srq_sge",
        ObjectSize::CqPeriod => "moderate.cq_period of ibv_modify_cq",
    }
}

const GID_INDEX: &str = "ibv_query_gid_table or `roce devinfo -v` lists the entries; IPv4 and IPv6 \
                         addresses do not reach each other, so take sgid_index from the entry \
                         whose family is the peer's";

const ROCE_V1: &str = "packets leave over UDP, as RoCE v2: take sgid_index from an entry of that type \
                       (ibv_query_gid_ex: gid_type; gid_attrs/types in /sys/class/infiniband); it \
                       is the next one, with the same address";

reasons! {
    ObjectMismatch {
        Self::TargetWithQueues => EINVAL "xrc_target_with_queues"
            "IBV_QPT_XRC_RECV takes an XRC domain (IBV_QP_INIT_ATTR_XRCD) and no queues; what it \
             receives goes to the XRC SRQ that the peer names";
        Self::InitiatorWithSrq => EINVAL "xrc_initiator_with_srq"
            "leave srq null for IBV_QPT_XRC_SEND; the receiving end is IBV_QPT_XRC_RECV";
        Self::RawWithSrq => EINVAL "raw_packets_with_srq"
            "leave srq null for IBV_QPT_RAW_PACKET, and post receives to the queue pair";
        Self::XrcSrq => EINVAL "xrc_srq_elsewhere"
            "make the shared receive queue with IBV_SRQT_BASIC for queue pairs other than \
             IBV_QPT_XRC_RECV";
        Self::Shards => EINVAL "shards"
            "queue pairs that have a completion queue or a shared receive queue in common are in \
             one shard, and those of rdma_cm in the first; give them queues of their own, or open \
             the device with one shard (ROCE_SHARDS)";
        Self::Type1Window => EINVAL "window_type_1"
            "IBV_MW_TYPE_2, or open the device with one shard (ROCE_SHARDS)";
    }
}

reasons! {
    ModifyError {
        Self::UnknownQp => EINVAL "unknown_qp"
            "the queue pair was destroyed, or rdma_destroy_qp took it";
        Self::IllegalTransition { qp_type, from, to } => EINVAL "illegal_transition"
            way(*qp_type, *from, *to);
        Self::StillDraining => EINVAL "still_draining"
            "wait for IBV_EVENT_SQ_DRAINED (en_sqd_async_notify), or ask ibv_query_qp until \
             sq_draining is 0";
        Self::WrongService(_) => EINVAL "wrong_service"
            "give the attributes that this transition takes in this transport service: \
             ibv_modify_qp(3) has a table for each";
        Self::CqOverrun => EINVAL "cq_overrun"
            "destroy the queue pair and the completion queue, and make that with room for every \
             request that can be posted";
        Self::PKeyIndex(_) => EINVAL "pkey_index"
            "ibv_query_pkey lists the table; RoCE devices have one entry, 0xffff at index 0";
        Self::NotTaken { .. } => EINVAL "attribute_not_taken"
            "leave its bit out of attr_mask: ibv_modify_qp(3) has the table of what each \
             transition takes";
        Self::NotSupported(_) => EOPNOTSUPP "path_migration"
            "leave IBV_QP_ALT_PATH and IBV_QP_PATH_MIG_STATE out of attr_mask: RoCE has no \
             automatic path migration";
        Self::OtherState(_) => EINVAL "other_state"
            "cur_qp_state must be the state that the queue pair is in; ibv_query_qp asks for it, \
             for an error may have moved it";
        Self::MulticastPeer(_) => EINVAL "multicast_peer"
            "ah_attr.grh.dgid of a connection is the peer's own address; multicast is for \
             IBV_QPT_UD";
        Self::GidIndex(_) => EINVAL "gid_index" GID_INDEX;
        Self::RoceV1(_) => EINVAL "roce_v1" ROCE_V1;
        Self::PathMtu { .. } => EINVAL "path_mtu"
            "path_mtu is the lesser of both ports' active_mtu (ibv_query_port); a larger MTU of \
             the network interface allows more: 4200 for 4096";
        Self::Range { attribute, .. } => EINVAL "attribute_range" range(*attribute);
    }
}

const fn way(qp_type: QpType, from: State, to: State) -> &'static str {
    match (qp_type, from, to) {
        (_, State::Err | State::Sqe, State::Init | State::Rtr | State::Sqd)
        | (_, State::Err, State::Rts) => {
            "the queue pair has failed before: what failed stands above, or in its first completion \
             in error; ERR is left for RESET only"
        }
        (_, State::Reset, State::Rtr | State::Rts) => {
            "go RESET, INIT, RTR, RTS, one call of ibv_modify_qp for each"
        }
        (_, State::Init, State::Rts) => {
            "go INIT, RTR, RTS: RTR first, with the peer's address (ah_attr), dest_qp_num and rq_psn"
        }
        (_, State::Rtr | State::Rts, State::Init | State::Rtr) => {
            "the queue pair is connected already: to connect it anew, move it to RESET first"
        }
        (_, State::Reset, State::Reset | State::Err) => "a new queue pair is in RESET already",
        _ => {
            "RESET, INIT, RTR, RTS is the way to send; SQD comes after RTS, ERR and RESET from \
             anywhere"
        }
    }
}

const fn range(attribute: Attribute) -> &'static str {
    match attribute {
        Attribute::Timeout => "timeout is a code of five bits: 4.096 µs · 2^timeout; 14 is 67 ms",
        Attribute::RetryCnt => "retry_cnt has three bits: 7 at most",
        Attribute::RnrRetry => "rnr_retry has three bits: 7 stands for ever",
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
            "the queue pair was made with srq: ibv_post_srq_recv instead of ibv_post_recv";
        Self::NoSuchQueue(_) => EINVAL "no_such_queue"
            "post sends to IBV_QPT_XRC_SEND, and receives to the XRC SRQ";
        Self::RemoteSrq => EINVAL "remote_srq"
            "qp_type.xrc.remote_srqn (ibv_wr_set_xrc_srqn) is for IBV_QPT_XRC_SEND, and needed \
             there";
        Self::QueueFull => ENOMEM "queue_full"
            "poll completions before more is posted: a place is free when the completion of its \
             request, or of a later one, has been polled. A send queue in which nothing is \
             signaled (IBV_SEND_SIGNALED, sq_sig_all) fills for good. Or ask for a larger \
             max_send_wr or max_recv_wr";
        Self::QueueOfZero => ENOMEM "queue_of_zero"
            "cap.max_send_wr, cap.max_recv_wr of ibv_create_qp, or attr.max_wr of ibv_create_srq, \
             was 0: fill in how many requests are posted at a time";
        Self::TooManySges { .. } => EINVAL "too_many_sges"
            "num_sge must not be more than cap.max_send_sge or max_recv_sge, which ibv_create_qp \
             was asked for; ask there for more";
        Self::TooManyReadSges { .. } => EINVAL "too_many_sges"
            "ibv_query_device: max_sge_rd, which may be less than max_sge; several READs instead \
             of one";
        Self::NoAtomics => EINVAL "no_atomics"
            "ibv_query_device: atomic_cap is IBV_ATOMIC_NONE; another way is needed there";
        Self::InlineTooLong { .. } => EINVAL "inline_too_long"
            "IBV_SEND_INLINE takes up to cap.max_inline_data bytes, which ibv_create_qp writes \
             back: ask for more there, or send from registered memory";
        Self::InlineRead => EINVAL "inline_read"
            "leave IBV_SEND_INLINE away: the list says where the answer goes";
        Self::NoBytes => EINVAL "no_bytes" "num_sge is 0 for this operation; set sg_list to null";
        Self::TooLong => EINVAL "message_too_long" "ibv_query_port: max_msg_sz; send it in parts";
        Self::WrongOperation(qp_type) => EINVAL "wrong_operation" operations(*qp_type);
    }
}

const fn before_posting(state: State) -> &'static str {
    match state {
        State::Reset => {
            "move the queue pair to INIT before receives are posted, and to RTS before sends are: \
             ibv_modify_qp"
        }
        State::Init | State::Rtr => {
            "sends can be posted from RTS on: ibv_modify_qp to RTR and RTS first"
        }
        State::Rts | State::Sqd | State::Sqe | State::Err => {
            "ibv_query_qp says in which state the queue pair is; an error may have moved it"
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
        QpType::RawPacket => "IBV_QPT_RAW_PACKET has SEND without immediate data, of whole frames",
        QpType::Rc | QpType::XrcInitiator | QpType::XrcTarget => {
            "a connection sends to its one peer: wr.ud is for IBV_QPT_UD"
        }
    }
}

reasons! {
    CountError {
        Self::UnknownQp => EINVAL "unknown_qp" "the queue pair was destroyed before";
        Self::State(_) => EINVAL "counter_state" "attach the counter before ibv_modify_qp to RTR";
        Self::NoOperation => EINVAL "counter_of_nothing" "set bits in op_mask";
        Self::Counted => EBUSY "counted_already"
            "each operation of a queue pair has one counter at most";
    }
}

reasons! {
    SrqError {
        Self::UnknownSrq => EINVAL "unknown_srq" "the shared receive queue was destroyed before";
        Self::Size(_) => EINVAL "srq_size" "ibv_query_device: max_srq_wr";
        Self::Posted(_) => EINVAL "srq_holds_more"
            "make it smaller when fewer requests are posted, or not at all";
        Self::Limit(_) => EINVAL "srq_limit" "srq_limit counts posted requests: max_wr at most";
    }
}

reasons! {
    RegisterError {
        Self::UnknownPd => EINVAL "unknown_pd" "the domain was freed before";
        Self::RemoteWithoutLocalWrite => EINVAL "remote_without_local_write"
            "access: IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE; what a peer may change, \
             its owner may, too";
        Self::NotPersistent => EINVAL "not_persistent"
            "IBV_ACCESS_FLUSH_PERSISTENT is for a mapped file; IBV_ACCESS_FLUSH_GLOBAL for any \
             memory";
        Self::AddressOverflow => EINVAL "address_overflow"
            "addr (or iova) plus length must stay below 2^64";
        Self::TooLong(_) => EINVAL "region_too_long"
            "ibv_query_device: max_mr_size; register it in parts";
        Self::TooMany(_) => ENOMEM "too_many_regions"
            "ibv_query_device: max_mr; ibv_dereg_mr gives one back";
        Self::Deregistered => EINVAL "deregistered"
            "use the region that ibv_rereg_mr left, or register anew";
        Self::InUse => EBUSY "window_bound"
            "unbind the window first: bind it to 0 bytes (type 1) or invalidate it (type 2), or \
             ibv_dealloc_mw";
    }
}

reasons! {
    McastError {
        Self::UnknownQp => EINVAL "unknown_qp" "the queue pair was destroyed before";
        Self::WrongService(_) => EINVAL "mcast_service"
            "multicast is for queue pairs of type IBV_QPT_UD";
        Self::NotMulticast(_) => EINVAL "not_multicast"
            "the GID of a group is ff00::/8, or ::ffff:224.0.0.0/100 for IPv4";
        Self::TooManyGroups { .. } => ENOMEM "too_many_groups" "ibv_query_device: max_mcast_grp";
        Self::TooManyMembers { .. } => ENOMEM "too_many_members"
            "ibv_query_device: max_mcast_qp_attach";
        Self::NotAttached(_) => EINVAL "not_attached"
            "detach what ibv_attach_mcast has attached, once";
    }
}
