//! Asynchronous events.

use crate::event::Event;

impl Event {
    /// Returns true for a failure.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        match self {
            Self::QpFatal(_)
            | Self::QpRequestError(..)
            | Self::QpAccessError(..)
            | Self::CqError(_)
            | Self::PortError
            | Self::DeviceFatal => true,
            Self::Completion(_)
            | Self::CommunicationEstablished(_)
            | Self::SendQueueDrained(_)
            | Self::SrqLimitReached(_)
            | Self::LastWqeReached(_)
            | Self::PKeyChange
            | Self::PortActive
            | Self::GidChange => false,
        }
    }
}

reasons! {
    Event {
        Self::Completion(_) => "completion" "ibv_get_cq_event, then poll until it is empty";
        Self::CommunicationEstablished(_) => "communication_established"
            "the peer has sent before its last message of the set-up came: go on to RTS";
        Self::SendQueueDrained(_) => "sq_drained" "the queue pair in SQD may be changed now";
        Self::QpFatal(_) => "qp_fatal"
            "the queue pair is in ERR; what failed stands in its record: a completion queue that \
             overflowed, or a receive request that could not be used";
        Self::SrqLimitReached(_) => "srq_limit_reached"
            "post more receives, and arm the limit again";
        Self::LastWqeReached(_) => "last_wqe"
            "the queue pair may be destroyed when its completions are polled";
        Self::PKeyChange => "pkey_change" "ibv_query_pkey reads the table anew";
        Self::CqError(_) => "cq_overrun"
            "make the completion queue with room for every request that can be posted to the \
             queue pairs that use it, or poll before more is posted; then make it and them anew";
        Self::PortActive => "port_active" "packets flow again";
        Self::PortError => "port_down"
            "the network interface is down or gone (`ip link`); connections survive as long as \
             their retries last";
        Self::GidChange => "gid_change"
            "an address of the interface has come or gone; sgid_index of the others stays";
        Self::DeviceFatal => "device_fatal"
            "the sockets of the device cannot be read any more: close the device and open it anew";
    }
    like {
        Self::QpRequestError(_, refusal) | Self::QpAccessError(_, refusal) => refusal;
    }
}
