//! Parameters of connections and events.

use roce_transport::{
    addr::{AddressVector, QKey},
    cm::without_padding,
    ids::Qpn,
    work::UdDestination,
};

/// Q_Key of ids' UD queue pairs and multicast groups (`RDMA_UDP_QKEY`).
pub const UDP_QKEY: QKey = QKey(0x0123_4567);

/// Connection parameters (`rdma_conn_param`); in events the peer's, from this side's view.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
pub struct ConnParam {
    /// Private data: up to 56 bytes to connect, 196 to accept; datagrams 180 and 136. Events have
    /// the full field, zero-padded.
    #[debug("{:02x?}", without_padding(private_data))]
    pub private_data: Vec<u8>,
    /// Incoming READs and atomics at once: 0..=128, 255 for the maximum; default 16.
    /// [`accept`](super::CmId::accept) limits the number to the peer's depth.
    pub responder_resources: u8,
    /// Outgoing READs and atomics at once: 0..=128, 255 for the maximum; default 16.
    /// [`accept`](super::CmId::accept) limits the number to the peer's resources.
    pub initiator_depth: u8,
    /// True if the peer obeys credits. In events only, never sent: RoCE lacks credit flow control.
    pub flow_control: bool,
    /// Retries without progress on both sides, 0..=7, default 7; for
    /// [`connect`](super::CmId::connect) only.
    pub retry_count: u8,
    /// Peer's RNR retries, 0..=7; 7, the default, is unlimited.
    pub rnr_retry_count: u8,
    /// True with a shared receive queue; for queue pairs unknown to the id.
    pub srq: bool,
    /// Queue pair that the program moves, for ids without one; in events the peer's.
    pub qpn: Option<Qpn>,
}

impl Default for ConnParam {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: 16,
            initiator_depth: 16,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qpn: None,
        }
    }
}

/// Parameters of a datagram service or multicast group (`rdma_ud_param`).
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
pub struct UdParam {
    /// Peer's private data, zero-padded.
    #[debug("{:02x?}", without_padding(private_data))]
    pub private_data: Vec<u8>,
    /// Path to the peer (`ah_attr`).
    pub av: AddressVector,
    /// Peer's queue pair; 0 in a request.
    pub qpn: Qpn,
    /// Peer's Q_Key; 0 in a request.
    pub qkey: QKey,
}

impl UdParam {
    /// Destination for [`SendWr::send_to`](roce_transport::work::SendWr::send_to) and
    /// [`post_ud_send`](super::CmId::post_ud_send).
    #[must_use]
    pub const fn destination(&self) -> UdDestination {
        UdDestination::new(self.av, self.qpn, self.qkey)
    }
}

#[derive(Clone, PartialEq, Eq, derive_more::Debug, Default)]
pub(crate) enum Param {
    #[default]
    None,
    Conn(ConnParam),
    Ud(UdParam),
    #[debug("Private({:02x?})", without_padding(_0))]
    Private(Vec<u8>),
    User(u64),
}
