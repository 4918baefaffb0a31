//! A responder's reasons for refusal.

use crate::event::Refusal;

reasons! {
    Refusal {
        Self::MissingPacket => "missing_packet"
            "the network loses packets, or rq_psn here is not the peer's sq_psn; the peer sends \
             them again";
        Self::PendingRead => "unanswered_read" "nothing: the peer asks for it again";
        Self::NoReceiveRequest => "no_receive_request"
            "post receives before the peer sends (ibv_post_recv from INIT on), and as many as it \
             may send until the program has reposted; rnr_retry 7 at the sender waits for ever";
        Self::OpcodeOrder => "opcode_order"
            "the peer's packets do not make a message: rq_psn here must be the peer's sq_psn";
        Self::Length => "packet_length" "path_mtu must be the same at both ends";
        Self::BufferTooSmall => "buffer_too_small"
            "post receive buffers as long as the longest message; the first one posted serves the \
             first message, whatever its length";
        Self::NotEnabled => "not_enabled"
            "qp_access_flags of ibv_modify_qp to INIT: IBV_ACCESS_REMOTE_WRITE, _READ, _ATOMIC \
             for what the peer may do, besides the rights of the region";
        Self::TooManyReads => "too_many_reads"
            "max_rd_atomic of the peer must not be more than max_dest_rd_atomic here";
        Self::Misaligned => "misaligned_atomic" "an atomic's remote_addr is a multiple of 8";
        Self::FlushKind => "flush_kind" "ibv_wr_flush: type and level as ibv_wr_flush(3) has them";
        Self::UnknownXrcSrq => "unknown_xrc_srq"
            "remote_srqn is the number that ibv_get_srq_num gives at the receiver";
        Self::ForeignXrcSrq => "foreign_xrc_srq"
            "make SRQ and IBV_QPT_XRC_RECV with the same XRC domain";
        Self::FailedXrcSrq => "failed_xrc_srq"
            "the completion queue of the XRC SRQ was too small: make a larger one";
    }
    of {
        Self::Access(error) => error;
        Self::LocalBuffer(error) => error;
        Self::Invalidate(error) => error;
    }
}
