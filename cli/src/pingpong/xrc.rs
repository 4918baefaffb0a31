//! Connects each initiator with the peer's target, as ibv_xsrq_pingpong.

use roce::{Endpoint, Mtu};

use super::session::Session;
use crate::{
    exchange::{self, Exchange, XrcEndpoint},
    failure::Failure,
    output::outln,
};

pub(super) fn connect(
    session: &mut Session,
    exchange: &mut Exchange,
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
    let mtu = session.plan.mtu.unwrap_or(Mtu::B1024);
    let theirs = exchange.swap_xrc(&ours, |theirs| {
        let their_initiator = Endpoint { qpn: theirs.initiator, ..theirs.target };
        exchange::connect(target, mtu, 0, gid_index, endpoint.psn, &their_initiator)?;
        exchange::connect(initiator, mtu, 0, gid_index, endpoint.psn, &theirs.target)
    })?;
    outln!(" remote: {theirs}");
    session.remote_srq = Some(theirs.srq);
    Ok(())
}
