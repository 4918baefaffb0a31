//! Explains refused connections on loopback, where only `roce devinfo --counters` shows each
//! program's address.

use std::sync::Once;

use roce_provider::{
    cm::{CmEvent, RejectReason, Status},
    published_counters, report,
    transport::addr::Gid,
};

/// Once: programs retry.
pub(super) fn explain(event: &CmEvent) {
    static ONCE: Once = Once::new();
    let peer = event.id().peer_addr().filter(|peer| peer.ip().to_canonical().is_loopback());
    let refused = Status::Rejected(RejectReason::INVALID_SERVICE_ID);
    if let Some(peer) = peer.filter(|_| event.status() == refused) {
        ONCE.call_once(|| {
            let gid = Gid::from(peer.ip()).to_string();
            let open = published_counters().unwrap_or_default();
            let holders =
                open.iter().filter(|device| device.shares_network() && device.gids.contains(&gid));
            let holders: Vec<_> = holders
                .map(|device| format!("{} (process {})", device.program, device.pid))
                .collect();
            let holders = match holders.is_empty() {
                true => "no program of this user".to_owned(),
                false => holders.join(", "),
            };
            report::line(format_args!(
                "nothing listens on port {} of {}, used by {holders}; `roce devinfo --counters` \
                 lists addresses and their programs",
                peer.port(),
                peer.ip()
            ));
        });
    }
}
