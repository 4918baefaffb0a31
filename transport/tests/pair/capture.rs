use std::panic;

use pcap_file::pcapng::{Block, PcapNgReader, blocks::enhanced_packet::EnhancedPacketOption};
use roce_transport::work::{Data, RecvWr, SendWr};

use crate::common::{Options, Pair, all_ok};

#[test]
fn a_capture_has_every_packet_with_what_became_of_it() {
    for ipv6 in [false, true] {
        let mut pair = if ipv6 { Pair::over_ipv6() } else { Pair::new() };
        let (a, b) = pair.connect(Options::default());
        pair.post_recv(&b, &RecvWr::new(1, []));
        pair.post_send(&a, &SendWr::send(1, Data::empty()));
        pair.fault("drop nth 1");
        pair.run();
        assert_eq!(a.send_outcomes(), all_ok([1], 0));
        let file = tempfile::NamedTempFile::new().unwrap();
        pair.trace.write_pcapng(file.path()).unwrap();
        let mut reader = PcapNgReader::new(file.reopen().unwrap()).unwrap();
        let mut comments = Vec::new();
        while let Some(block) = reader.next_block() {
            let Block::EnhancedPacket(packet) = block.unwrap() else { continue };
            assert_eq!(packet.data[0] >> 4, if ipv6 { 6 } else { 4 });
            for option in packet.options {
                let EnhancedPacketOption::Comment(comment) = option else { continue };
                comments.push(comment.into_owned());
            }
        }
        assert_eq!(comments.len(), 3);
        assert_eq!(comments[0], "LOST");
        assert!(comments[1].ends_with("executed"), "{comments:?}");
        assert!(comments[2].ends_with("completes a work request"), "{comments:?}");
    }
}

#[test]
fn a_drop_that_is_not_allowed_fails_the_test() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    for id in 0..3 {
        pair.post_recv(&b, &RecvWr::new(id, []));
        pair.post_send(&a, &SendWr::send(id, Data::empty()));
    }
    pair.fault("drop nth 1");
    let failure = panic::catch_unwind(panic::AssertUnwindSafe(|| pair.run())).unwrap_err();
    let message = failure.downcast_ref::<String>().unwrap();
    assert!(message.contains("a NAK was already sent"), "{message}");
    assert!(pair.trace.ladder().contains("LOST"));
}
