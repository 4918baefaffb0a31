//! Queue pair attributes that hurt on a network.

use roce_provider::transport::{
    addr::Qpn,
    qp::{QpInfo, State},
};

use super::{finding::Kind, report, requests};

/// Compares READs with a responder in this process. Call in RTR or RTS.
pub(crate) fn connected(qpn: u32) {
    let Some((this, peer)) = requests::connected(Qpn::new(qpn)) else { return };
    for (asks, responses) in [(&this, &peer), (&peer, &this)] {
        let (most, room) = (asks.requester.max_rd_atomic, responses.responder.max_dest_rd_atomic);
        let responds_already = matches!(responses.state, State::Rtr | State::Rts);
        if asks.state == State::Rts && responds_already && most > room {
            report::emit_here(Kind::ReadsExceedPeer, "called", exceeded(asks, responses));
        }
    }
}

fn exceeded(asks: &QpInfo, responses: &QpInfo) -> String {
    format!(
        "qp {:#x} has max_rd_atomic {}, and its peer, qp {:#x}, max_dest_rd_atomic {}",
        asks.qpn.get(),
        asks.requester.max_rd_atomic,
        responses.qpn.get(),
        responses.responder.max_dest_rd_atomic
    )
}
