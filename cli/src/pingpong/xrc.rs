//! Connects each initiator with the peer's target, as ibv_xsrq_pingpong.

use roce::{AddressVector, Mtu, PeerAttr, RequesterAttr, ResponderAttr, Rtr, Rts};

use super::{plan::Plan, session::Session};
use crate::{
    exchange::{Exchange, XrcEndpoint},
    failure::Failure,
    output::outln,
};

pub(super) fn connect(
    session: &mut Session,
    exchange: &mut Exchange,
    plan: &Plan,
    gid_index: u16,
) -> Result<(), Failure> {
    let (Some(target), Some(srq), [initiator]) =
        (&session.target, session.srq_number(), &session.pairs[..])
    else {
        return Err("an XRC ping-pong has one initiator, one target and one XRC SRQ".into());
    };
    let endpoint = target
        .endpoint(gid_index)
        .ok_or_else(|| format!("GID index {gid_index} does not exist"))?;
    let ours = XrcEndpoint { target: endpoint, initiator: initiator.qpn(), srq };
    outln!("  local: {ours}");
    let theirs = exchange.swap_xrc(&ours, |theirs| {
        let (path_mtu, av) =
            (plan.mtu.unwrap_or(Mtu::B1024), AddressVector::new(theirs.target.gid, gid_index));
        let (sq_psn, rq_psn, timeout) = (ours.target.psn, theirs.target.psn, 14);
        let dest_qpn = theirs.initiator;
        target.to_rtr(Rtr::XrcTarget(
            PeerAttr { dest_qpn, path_mtu, rq_psn, av },
            ResponderAttr { max_dest_rd_atomic: 0, min_rnr_timer: 12 },
        ))?;
        target.to_rts(Rts::XrcTarget { sq_psn, timeout })?;
        let dest_qpn = theirs.target.qpn;
        let requester = RequesterAttr { timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 0 };
        initiator.to_rtr(Rtr::XrcInitiator(PeerAttr { dest_qpn, path_mtu, rq_psn, av }))?;
        Ok(initiator.to_rts(Rts::XrcInitiator(sq_psn, requester))?)
    })?;
    outln!(" remote: {theirs}");
    session.remote_srq = Some(theirs.srq);
    Ok(())
}
