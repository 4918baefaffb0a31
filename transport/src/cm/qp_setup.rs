use super::message::{Rep, Req};
use crate::{
    addr::{AddressVector, Mtu},
    ids::Qpn,
    psn::Psn,
};

/// Attributes for RTR and RTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QpSetup {
    /// Local queue pair.
    pub qpn: Qpn,
    /// Peer's queue pair.
    pub dest_qpn: Qpn,
    /// Path MTU, if valid.
    pub path_mtu: Option<Mtu>,
    /// First PSN expected.
    pub rq_psn: Psn,
    /// First PSN sent.
    pub sq_psn: Psn,
    /// Path.
    pub av: AddressVector,
    /// READs and atomics served at once.
    pub max_dest_rd_atomic: u8,
    /// READs and atomics outstanding.
    pub max_rd_atomic: u8,
    /// Acknowledge timeout, code.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs.
    pub rnr_retry: u8,
    /// RNR NAK timer, code.
    pub min_rnr_timer: u8,
}

/// REQ and REP, and local attributes.
pub(super) struct Terms {
    pub(super) req: Req,
    /// Zero until received or prepared.
    pub(super) rep: Rep,
    pub(super) av: AddressVector,
    pub(super) ack_timeout: u8,
    pub(super) min_rnr_timer: u8,
    /// The adapter moves the queue pair.
    pub(super) managed: bool,
    pub(super) fits_ack_delay: bool,
}

impl QpSetup {
    /// One side serves the READs that the other has outstanding.
    pub(super) fn active(qpn: Qpn, terms: &Terms) -> Self {
        let rep = &terms.rep;
        Self {
            dest_qpn: rep.local_qpn,
            rq_psn: terms.req.starting_psn,
            sq_psn: rep.starting_psn,
            max_dest_rd_atomic: rep.initiator_depth,
            max_rd_atomic: rep.responder_resources,
            rnr_retry: rep.rnr_retry,
            ..Self::passive(qpn, terms)
        }
    }

    pub(super) fn passive(qpn: Qpn, terms: &Terms) -> Self {
        let &Terms { ref req, ref rep, av, ack_timeout, min_rnr_timer, .. } = terms;
        Self {
            qpn,
            dest_qpn: req.local_qpn,
            path_mtu: Mtu::from_code(req.path_mtu),
            rq_psn: rep.starting_psn,
            sq_psn: req.starting_psn,
            av,
            max_dest_rd_atomic: rep.responder_resources,
            max_rd_atomic: rep.initiator_depth,
            timeout: ack_timeout,
            retry_cnt: req.retry_count,
            rnr_retry: req.rnr_retry,
            min_rnr_timer,
        }
    }
}
