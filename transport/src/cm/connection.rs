//! One connection, from the first message to the end of its time wait, or one question for a
//! datagram service.

use alloc::boxed::Box;
use core::{net::IpAddr, time::Duration};

use super::{
    ListenerId,
    message::{CmMad, Message, Rep, Req},
    service::ServiceId,
};
use crate::{
    addr::{AddressVector, Mtu, PKey, Qpn},
    gids::Path,
    psn::Psn,
    time::Instant,
};

/// Names a connection, and is the communication ID that its peer gets to see. Not used again soon
/// after its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub(super) u32);

/// Where a connection stands (12.9.5 to 12.9.7; for datagrams 12.11).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CmState {
    /// Active: the request is on its way.
    ReqSent,
    /// Active: the peer has the request and needs more time.
    MraReqRcvd,
    /// Active: the reply is here; the program is to use it or not.
    RepRcvd,
    /// Passive: a request is here; the program is to accept it or not.
    ReqRcvd,
    /// Passive: the reply is on its way.
    RepSent,
    /// Passive: the peer has the reply and needs more time.
    MraRepRcvd,
    /// Both sides may use it.
    Established,
    /// The end is announced.
    DreqSent,
    /// The peer has announced the end.
    DreqRcvd,
    /// Over; its name and its queue pair's must not be used while packets of it may be under way.
    TimeWait,
    /// A question for a datagram service is on its way.
    SidrReqSent,
    /// A question is here; the program is to answer it.
    SidrReqRcvd,
}

/// How messages get to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CmPath {
    pub(crate) path: Path,
    /// The partition that they are sent in.
    pub(crate) pkey: PKey,
}

impl CmPath {
    pub(crate) const fn peer(&self) -> IpAddr {
        self.path.dst
    }

    pub(crate) const fn own(&self) -> IpAddr {
        self.path.src
    }
}

/// A connection.
pub(super) struct Connection {
    pub(super) state: CmState,
    pub(super) way: CmPath,
    pub(super) local_qpn: Qpn,
    /// The peer's name for it, and the peer; 0 before they are known.
    pub(super) remote_id: u32,
    pub(super) remote_guid: u64,
    pub(super) remote_qpn: Qpn,
    pub(super) transaction: u64,
    /// For a datagram service: which.
    pub(super) service_id: ServiceId,
    /// The listener in whose backlog it still counts.
    pub(super) pending: Option<ListenerId>,
    /// Nobody wants to hear of it any more.
    pub(super) abandoned: bool,
    /// How long packets of it may be under way after its end.
    pub(super) time_wait: Duration,
    pub(super) resend: Option<Resend>,
    /// When it has something to do: sends again, gives up, ends.
    pub(super) deadline: Option<Instant>,
    pub(super) setup: Option<Box<Setup>>,
}

/// A message that is sent until it is answered.
pub(super) struct Resend {
    pub(super) mad: Box<CmMad>,
    pub(super) left: u8,
    /// Once nobody has listened at the peer: until when it is asked again.
    pub(super) until: Option<Instant>,
}

/// What both sides have said of a connection until it is established.
pub(super) struct Setup {
    pub(super) req: Req,
    pub(super) rep: Rep,
    pub(super) av: AddressVector,
    /// Of an active side: its queue pair is one of the same adapter, which is moved when the reply
    /// comes.
    pub(super) managed: bool,
    pub(super) min_rnr_timer: u8,
}

/// What moves a queue pair to RTR and RTS for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpSetup {
    /// The queue pair.
    pub qpn: Qpn,
    /// The peer's.
    pub dest_qpn: Qpn,
    /// The path MTU, where its code is valid.
    pub path_mtu: Option<Mtu>,
    /// The first PSN expected.
    pub rq_psn: Psn,
    /// The first PSN sent.
    pub sq_psn: Psn,
    /// The way.
    pub av: AddressVector,
    /// READs and atomics answered at once.
    pub max_dest_rd_atomic: u8,
    /// READs and atomics outstanding at once.
    pub max_rd_atomic: u8,
    /// The acknowledge timeout's code.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs.
    pub rnr_retry: u8,
    /// RNR NAK timer's code.
    pub min_rnr_timer: u8,
}

impl Connection {
    pub(super) fn new(state: CmState, way: CmPath) -> Self {
        Self {
            state,
            way,
            local_qpn: Qpn::default(),
            remote_id: 0,
            remote_guid: 0,
            remote_qpn: Qpn::default(),
            transaction: 0,
            service_id: ServiceId::default(),
            pending: None,
            abandoned: false,
            time_wait: Duration::ZERO,
            resend: None,
            deadline: None,
            setup: None,
        }
    }

    /// Whether a message from this address may be about it.
    pub(super) fn is_with(&self, peer: IpAddr, own: IpAddr) -> bool {
        (self.way.peer(), self.way.own()) == (peer, own)
    }

    /// Whether the peer called, not we.
    pub(super) fn is_passive(&self) -> bool {
        matches!(self.state, CmState::ReqRcvd | CmState::RepSent | CmState::MraRepRcvd)
    }

    pub(super) fn message(&self, message: Message) -> CmMad {
        CmMad { transaction: self.transaction, modifier: 0, message }
    }

    /// What its queue pair needs, once both sides have spoken. What one side can answer the other
    /// may have outstanding.
    pub(super) fn qp_setup(&self) -> Option<QpSetup> {
        let Setup { req, rep, av, min_rnr_timer, .. } = &**self.setup.as_ref()?;
        let passive = self.is_passive();
        let (own_psn, peer_psn, dest_qpn, rnr_retry) = if passive {
            (rep.starting_psn, req.starting_psn, req.local_qpn, req.rnr_retry)
        } else {
            (req.starting_psn, rep.starting_psn, rep.local_qpn, rep.rnr_retry)
        };
        let (answers, asks) = if passive {
            (rep.responder_resources, rep.initiator_depth)
        } else {
            (rep.initiator_depth, rep.responder_resources)
        };
        Some(QpSetup {
            qpn: self.local_qpn,
            dest_qpn,
            path_mtu: Mtu::ALL.into_iter().find(|&mtu| mtu as u8 == req.path_mtu),
            rq_psn: own_psn,
            sq_psn: peer_psn,
            av: *av,
            max_dest_rd_atomic: answers,
            max_rd_atomic: asks,
            timeout: req.primary.ack_timeout,
            retry_cnt: req.retry_count,
            rnr_retry,
            min_rnr_timer: *min_rnr_timer,
        })
    }
}
