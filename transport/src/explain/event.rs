use crate::event::Event;

impl Event {
    /// True for a failure.
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
