use std::{net::SocketAddr, time::Duration};

use rustix::io::Errno;

use super::errors::{of_cm, reason};
use roce_provider::cm::{CmId, EventChannel, EventKind, Status};

/// Time limit; resolution is immediate here.
const RESOLUTION: Duration = Duration::from_secs(2);

/// Finds device and local address without sending.
///
/// # Errors
/// Those of [`CmId::resolve_addr`]; `EHOSTUNREACH` and others without a route.
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

fn expect(channel: &EventChannel, kind: EventKind) -> Result<(), Errno> {
    match channel.poll() {
        Some(event) if event.kind() == kind && event.status() == Status::Success => Ok(()),
        Some(event) => Err(reason(&event)),
        None => Err(Errno::HOSTUNREACH),
    }
}
