//! The kernel's captures: two rxe, and connection management.

use std::{fs, path::PathBuf};

use roce_capture::explain::{Explained, Explanation, FindingKind};
use roce_transport::wire::Service;

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
                Explanation::Unreadable | Explanation::Damaged | Explanation::AnswersUnseen
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
