//! The way to a peer.

use std::{net::SocketAddr, time::Duration};

use rustix::io::Errno;

use super::errors::{of_cm, reason};
use roce_provider::cm::{CmId, EventChannel, EventKind, Status};

/// Time to resolve an address and a route, which takes none here.
const RESOLUTION: Duration = Duration::from_secs(2);

/// Finds the device and the local address towards a peer for an id of this channel. Nothing is
/// sent.
///
/// # Errors
/// Those of [`CmId::resolve_addr`]; `EHOSTUNREACH` and others where no way leads.
pub(super) fn resolve(
    id: &CmId,
    channel: &EventChannel,
    own: Option<SocketAddr>,
    peer: SocketAddr,
) -> Result<(), Errno> {
    id.resolve_addr(own, peer, RESOLUTION).map_err(|error| of_cm(&error))?;
    expect(channel, EventKind::AddrResolved)?;
    id.resolve_route(RESOLUTION).map_err(|error| of_cm(&error))?;
    expect(channel, EventKind::RouteResolved)
}

/// The event of a call that has just returned.
fn expect(channel: &EventChannel, kind: EventKind) -> Result<(), Errno> {
    match channel.poll() {
        Some(event) if event.kind() == kind && event.status() == Status::Success => Ok(()),
        Some(event) => Err(reason(&event)),
        None => Err(Errno::HOSTUNREACH),
    }
}
