//! Presence of a loopback peer: an unused address gives no response, where a kernel refuses.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    thread,
    time::Duration,
};

use roce_transport::{addr::ROCE_UDP_PORT, time::Instant};

use crate::{calls::ProcessMutex, clock, device::open_contexts};

const PAUSE: Duration = Duration::from_millis(2);
/// Validity of a check, which can take 1 ms.
const VALIDITY: Duration = Duration::from_secs(1);

static SEEN: ProcessMutex<Option<(Ipv4Addr, Instant)>> = ProcessMutex::new(None);

/// Waits up to `grace` for a peer at a loopback address. True for other addresses, or if unknown.
pub(super) fn wait_for(peer: IpAddr, grace: Duration) -> bool {
    let IpAddr::V4(peer) = peer else { return true };
    let is_open_here =
        || open_contexts().iter().any(|context| context.gids().contains(&IpAddr::V4(peer).into()));
    if !peer.is_loopback() || is_open_here() {
        return true;
    }
    let start = clock::now();
    if SEEN.lock().is_some_and(|(seen, at)| seen == peer && start.since(at) < VALIDITY) {
        return true;
    }
    loop {
        match fs::read_to_string("/proc/net/udp") {
            Ok(sockets) if !has_socket(&sockets, peer) => {}
            _ => break,
        }
        if clock::now().since(start) >= grace {
            return false;
        }
        thread::sleep(PAUSE);
    }
    *SEEN.lock() = Some((peer, clock::now()));
    true
}

/// True with a RoCE socket in `/proc/net/udp`; rxe has one for all addresses.
fn has_socket(sockets: &str, ip: Ipv4Addr) -> bool {
    // address bytes in memory order, as a number
    let shown =
        |ip: Ipv4Addr| format!("{:08X}:{ROCE_UDP_PORT:04X}", u32::from_ne_bytes(ip.octets()));
    let wanted = [shown(ip), shown(Ipv4Addr::UNSPECIFIED)];
    let local = sockets.lines().filter_map(|line| line.split_ascii_whitespace().nth(1));
    local.into_iter().any(|local| wanted.iter().any(|wanted| wanted == local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_are_found_by_address_and_port() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n \
             13: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000\n \
             14: 0200007F:12B8 0300007F:12B7 07 00000000:00000000 00:00000000\n";
        let has = |last| has_socket(table, Ipv4Addr::new(127, 0, 0, last));
        assert!(has(1) && !has(2) && !has(3));
        let all = "   1: 00000000:12B7 00000000:0000 07 00000000:00000000";
        assert!(has_socket(all, Ipv4Addr::LOCALHOST));
    }
}
