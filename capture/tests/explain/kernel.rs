//! Kernel captures: two rxe, and CM.

use std::{fs, path::PathBuf, time::Duration};

use roce_capture::explain::{Explained, ExplainedPacket, Explanation, FindingKind, Network};
use roce_transport::{
    time::Instant,
    wire::{NetHeader, Service, icrc},
};

use super::forms;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../transport/tests/captures"].iter().collect()
}

fn explained(name: &str) -> Explained {
    let file = fs::read(folder().join(format!("{name}.pcap"))).unwrap();
    Explained::of_file(&file).unwrap()
}

#[test]
fn every_packet_has_a_reason() {
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let explained = Explained::of_file(&fs::read(&path).unwrap()).unwrap();
        assert!(explained.complete && !explained.packets.is_empty(), "{path:?}");
        for packet in &explained.packets {
            let unknown = matches!(
                packet.why,
                Explanation::Unreadable | Explanation::Damaged | Explanation::RespondsToUnseen
            );
            assert!(!unknown && packet.connection.is_some(), "{path:?}: {packet:?}");
        }
    }
}

#[test]
fn two_kernels_and_a_reliable_connection() {
    let explained = explained("rc_send_4096_mtu1024");
    let [connection] = &explained.connections[..] else { panic!("{:?}", explained.connections) };
    assert_eq!((connection.service, connection.mtu), (Service::Rc, Some(1024)));
    assert!(connection.ends.iter().all(|end| end.qpn.is_some()), "{connection:?}");
    assert_eq!(explained.findings, []);
    for summary in &connection.summaries {
        assert!(summary.round_trips.is_some_and(|times| times.count > 0), "{summary:?}");
        assert_eq!((summary.repeated, summary.damaged), (0, 0));
    }
}

#[test]
fn connections_by_messages_are_found_by_their_queue_pairs() {
    let explained = explained("cm_rping");
    let by_messages: Vec<_> =
        explained.connections.iter().filter(|connection| connection.by_messages).collect();
    let [connection] = by_messages[..] else { panic!("{:?}", explained.connections) };
    assert!(connection.ends.iter().all(|end| end.qpn.is_some()), "{connection:?}");
    assert_eq!(explained.findings, []);
}

#[test]
fn a_request_that_is_refused() {
    let explained = explained("cm_reject_no_listener");
    assert!(
        matches!(&explained.findings[..], [finding] if matches!(finding.kind, FindingKind::Rejected(_))),
        "{:?}",
        explained.findings
    );
}

/// IPv4 frames as packets from the BTH on.
fn datagrams(name: &str) -> Vec<(Instant, NetHeader, Vec<u8>)> {
    let explained = explained(name);
    let file = fs::read(folder().join(format!("{name}.pcap"))).unwrap();
    let mut at = 24;
    let mut frames = Vec::new();
    while at < file.len() {
        let length = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        frames.push(file[at + 16..at + 16 + length].to_vec());
        at += 16 + length;
    }
    let start = explained.packets[0].at;
    let datagram = |packet: &ExplainedPacket| {
        let Network::Roce(net) = packet.net else { panic!("{packet:?}") };
        let at = Instant::ZERO.plus(packet.at - start);
        (at, net, frames[packet.frame - 1][14 + 20 + 8..].to_vec())
    };
    explained.packets.iter().map(datagram).collect()
}

/// Queue pairs reconnect at nearby PSNs.
#[test]
fn queue_pairs_that_connect_again_are_another_connection() {
    let mut seen = datagrams("cm_rping");
    let first = seen.len();
    let again: Vec<_> = seen
        .iter()
        .map(|(at, net, bytes)| {
            let mut bytes = bytes.clone();
            let dest_qp = &bytes[5..8];
            if dest_qp == [0, 0, 1] {
                // communication IDs, after the headers of packet, datagram and MAD
                for at in [44, 48] {
                    bytes[at] ^= if bytes[at..at + 4] == [0; 4] { 0 } else { 0x55 };
                }
            } else {
                let psn = u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]) + 500;
                bytes[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
            }
            let body = bytes.len() - 4;
            let icrc = icrc(net, &bytes[..body]).to_le_bytes();
            bytes[body..].copy_from_slice(&icrc);
            (at.plus(Duration::from_secs(1)), *net, bytes)
        })
        .collect();
    seen.extend(again);
    let explained = Explained::of_file(&forms::of_datagrams(&seen)).unwrap();
    assert_eq!(explained.findings, []);
    let made: Vec<_> = explained.connections.iter().filter(|it| it.by_messages).collect();
    let [one, other] = made[..] else { panic!("{:?}", explained.connections) };
    assert_eq!(one.ends, other.ends);
    assert_eq!(one.summaries[0].packets, other.summaries[0].packets);
    let whys = |packets: &[ExplainedPacket]| packets.iter().map(|it| it.why).collect::<Vec<_>>();
    let is_first = |why: &&Explanation| matches!(why, Explanation::Joined);
    let joined = |packets: &[ExplainedPacket]| whys(packets).iter().filter(is_first).count();
    assert_eq!(joined(&explained.packets[..first]), joined(&explained.packets[first..]));
}
