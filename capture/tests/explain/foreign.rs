//! Captures of other stacks: a Verilog requester on an FPGA
//! ([blue-rdma](https://github.com/open-rdma)), and programs whose connections begin at PSN 0.

use std::{fs, path::PathBuf};

use roce_capture::explain::{Explained, Explanation};

fn explained(name: &str) -> Explained {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/captures"].iter().collect();
    Explained::of_file(&fs::read(folder.join(name)).unwrap()).unwrap()
}

fn repeats(explained: &Explained) -> Vec<String> {
    let again = explained.packets.iter().filter(|it| matches!(it.why, Explanation::Retransmit(_)));
    again.map(|packet| packet.why.to_string()).collect()
}

/// The requester takes milliseconds per packet. Its timer does not expire in 291 ms.
#[test]
fn a_slow_requester_behind_a_nak() {
    for (name, count) in [("blue-rdma-nak.pcapng", 2), ("blue-rdma-first-lost.pcapng", 3)] {
        let explained = explained(name);
        assert_eq!(repeats(&explained), vec!["retransmitted: NAK"; count], "{name}");
        let known = |why| matches!(why, Explanation::DuplicateAcknowledge(_));
        assert!(!explained.packets.iter().any(|packet| known(packet.why)), "{name}");
    }
}

#[test]
fn connections_that_begin_at_psn_0() {
    let explained = explained("same-psn.pcapng");
    assert_eq!(explained.findings, []);
    let pairs: Vec<_> = explained
        .connections
        .iter()
        .map(|it| it.ends.map(|end| end.qpn.map_or(0, |qpn| qpn.get())))
        .collect();
    assert_eq!(pairs, [[0x663E41, 0x6F33F2], [0x65A38C, 0x6E9565], [0x646A04, 0x6F3D74]]);
    let count = |end: usize| explained.connections.iter().map(move |it| it.summaries[end].packets);
    assert!(count(0).eq([6; 3]) && count(1).eq([3; 3]));
}
