//! Values that come with events, and that connections are made with.

use std::fmt;

use roce_transport::{
    addr::{AddressVector, QKey},
    cm::without_padding,
    ids::Qpn,
    work::UdDestination,
};

/// The queue key of datagram queue pairs that ids make, and of multicast groups (`RDMA_UDP_QKEY`).
pub const UDP_QKEY: QKey = QKey(0x0123_4567);

/// Values of a connection (`rdma_conn_param`): those that a program requests, and, in an
/// event, those of the peer, seen from this side.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnParam {
    /// For the peer's program. At most 56 bytes to connect, 196 to accept; for datagrams 180 and
    /// 136. In an event all bytes that the message has room for, zeros after what the peer gave.
    pub private_data: Vec<u8>,
    /// READs and atomics that this side answers at once, 0..=128; 255 for as many as it can. 16 by
    /// default. What is more than the peer wants to have outstanding is cut in
    /// [`accept`](super::CmId::accept).
    pub responder_resources: u8,
    /// READs and atomics that this side has outstanding at once, 0..=128; 255 for as many as it
    /// can. 16 by default. What is more than the peer answers is cut in
    /// [`accept`](super::CmId::accept).
    pub initiator_depth: u8,
    /// True if the peer obeys credits: only in events. The value given is not sent, since RoCE has
    /// no such flow control.
    pub flow_control: bool,
    /// Number of times that both sides send a request again without progress, 0..=7. Only for
    /// [`connect`](super::CmId::connect). 7 by default.
    pub retry_count: u8,
    /// Number of times that the peer sends again when this side is not ready to receive, 0..=7; 7
    /// means without limit. 7 by default.
    pub rnr_retry_count: u8,
    /// True if the queue pair receives from a shared receive queue. Only for queue pairs that the
    /// id does not know.
    pub srq: bool,
    /// The queue pair, for ids that have none of their own: the program then moves it itself. In an
    /// event the peer's.
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

/// Values of a datagram service or of a multicast group (`rdma_ud_param`).
#[derive(Clone, PartialEq, Eq)]
pub struct UdParam {
    /// From the peer's program, zeros after what it gave.
    pub private_data: Vec<u8>,
    /// Path to the peer (`ah_attr`).
    pub av: AddressVector,
    /// The peer's queue pair; 0 in a request, which does not name it.
    pub qpn: Qpn,
    /// Queue key of that queue pair; 0 in a request.
    pub qkey: QKey,
}

impl UdParam {
    /// Destination of datagrams, for [`SendWr::send_to`](roce_transport::work::SendWr::send_to) and
    /// [`post_ud_send`](super::CmId::post_ud_send).
    #[must_use]
    pub const fn destination(&self) -> UdDestination {
        UdDestination::new(self.av, self.qpn, self.qkey)
    }
}

impl fmt::Debug for ConnParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnParam")
            .field("private_data", &Used(&self.private_data))
            .field("responder_resources", &self.responder_resources)
            .field("initiator_depth", &self.initiator_depth)
            .field("flow_control", &self.flow_control)
            .field("retry_count", &self.retry_count)
            .field("rnr_retry_count", &self.rnr_retry_count)
            .field("srq", &self.srq)
            .field("qpn", &self.qpn)
            .finish()
    }
}

impl fmt::Debug for UdParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdParam")
            .field("private_data", &Used(&self.private_data))
            .field("av", &self.av)
            .field("qpn", &self.qpn)
            .field("qkey", &self.qkey)
            .finish()
    }
}

/// Private data without the zeros that fill the message.
struct Used<'a>(&'a [u8]);

impl fmt::Debug for Used<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", without_padding(self.0))
    }
}

/// Values that come with an event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Param {
    #[default]
    None,
    Conn(ConnParam),
    Ud(UdParam),
    Private(Vec<u8>),
    User(u64),
}
