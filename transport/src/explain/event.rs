use crate::event::{Event, Refusal};

reasons! {
    Event {
        Self::Completion(_) => "completion" "call ibv_get_cq_event, then poll until the queue is \
                                             empty";
        Self::CommunicationEstablished(_) => "communication_established"
            "the peer sent before its last connection message arrived: move to RTS";
        Self::SendQueueDrained(_) => "sq_drained" "the queue pair in SQD may be modified now";
        Self::QpFatal(_) => "qp_fatal"
            "the queue pair is in ERR; its record shows the cause: a completion queue overflow, \
             or an unusable receive request";
        Self::SrqLimitReached(_) => "srq_limit_reached"
            "post more receives, and arm the limit again";
        Self::LastWqeReached(_) => "last_wqe"
            "poll its completions, then destroy the queue pair";
        Self::PKeyChange => "pkey_change" "call ibv_query_pkey to read the table again";
        Self::CqError(_) => "cq_overrun"
            "recreate it and its queue pairs with cqe for every request that can be posted to \
             them, or poll before you post more";
        Self::PortActive => "port_active" "packets flow again";
        Self::PortError => "port_down"
            "the network interface is down or gone (`ip link`); connections survive as long as \
             their retries last";
        Self::GidChange => "gid_change"
            "an address of the interface was added or removed; sgid_index of the others stays";
        Self::DeviceFatal => "device_fatal"
            "reading the device's sockets fails: close the device and open it again";
    }
    like {
        Self::QpRequestError(_, refusal) | Self::QpAccessError(_, refusal) => refusal;
    }
}

reasons! {
    Refusal {
        Self::MissingPacket => "missing_packet"
            "the network drops packets, or rq_psn here is not the peer's sq_psn; the peer \
             retransmits them";
        Self::PendingRead => "pending_read" "no action: the peer repeats the request";
        Self::NoReceiveRequest => "no_receive_request"
            "post receives before the peer sends (ibv_post_recv from INIT on), as many as it may \
             send before the program reposts; rnr_retry 7 at the sender retries without limit";
        Self::OpcodeOrder => "opcode_order"
            "the peer's packets do not form a message: rq_psn here must equal the peer's sq_psn";
        Self::Length => "packet_length" "path_mtu must be the same at both ends";
        Self::BufferTooSmall { .. } => "buffer_too_small"
            "post receive buffers as long as the longest message; the first posted takes the \
             first message, whatever its length";
        Self::NotEnabled => "not_enabled"
            "set qp_access_flags of ibv_modify_qp to INIT: IBV_ACCESS_REMOTE_WRITE, _READ, \
             _ATOMIC for operations of the peer, in addition to the region's access";
        Self::TooManyReads => "too_many_reads"
            "the peer's max_rd_atomic must not exceed max_dest_rd_atomic here";
        Self::Misaligned => "misaligned_atomic" "set an atomic's remote_addr to a multiple of 8";
        Self::FlushKind => "flush_kind" "set type and level of ibv_wr_flush as in ibv_wr_flush(3)";
        Self::UnknownXrcSrq => "unknown_xrc_srq"
            "set remote_srqn to the receiver's number of ibv_get_srq_num";
        Self::ForeignXrcSrq => "foreign_xrc_srq"
            "make the SRQ and IBV_QPT_XRC_RECV with one XRC domain";
        Self::FailedXrcSrq => "failed_xrc_srq"
            "the completion queue of the XRC SRQ was too small: make a larger one";
    }
    of {
        Self::Access(error) => error;
        Self::LocalBuffer(error) => error;
        Self::Invalidate(error) => error;
    }
}
