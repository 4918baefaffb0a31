//! InfiniBand frames from an adapter's port, in ERF records and without.

use roce_capture::explain::{Address, Explained, ExplainedPacket, Explanation};
use roce_transport::time::Instant;

use super::forms::{self, ERF};

const INFINIBAND: u32 = 247;
const RECORD: usize = 16;

/// A SEND of an echo request, and its acknowledgement.
const SEND: &str = "c04130aef8412b48150500880000007200020001001c00040440ffff00fc040780d40a550800000045000054 \
     000040004001254e0a0001220a00003a0800857617020001f7412b4800000000722908000000000010111213 \
     1415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30313233343536370acca5df24a8";
const ACK: &str = "e0ed30aef8412b48150400300000001e00020004000700011140ffff0087040800d40a551f000001a8035550 \
     3081";
/// A multicast datagram with a GRH.
const MULTICAST: &str = "003d02aef8412b4815050098000000860003c000002100046000000000541b00fe800000000000000002c902 \
     0024f636ff12401bffff000000000000ffffffff6440ffff00ffffff000020af00000b1b0000040508060000 \
     002008001404000180000405fe800000000000000002c9020024f6360a000122000000000000000000000000 \
     00000000000000000a00003abd6bd6a88883";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn records() -> Vec<Vec<u8>> {
    [MULTICAST, SEND, ACK].map(bytes).to_vec()
}

fn explained(link: u32, frames: &[Vec<u8>]) -> Explained {
    let frame = |(number, bytes): (usize, &Vec<u8>)| {
        (Instant::from_nanos(number as u64 * 1000), bytes.clone(), bytes.len())
    };
    let frames: Vec<_> = frames.iter().enumerate().map(frame).collect();
    Explained::of_file(&forms::pcap(link, &frames)).unwrap()
}

fn check(explained: &Explained) {
    assert_eq!(
        (explained.packets.len(), explained.findings.len()),
        (3, 0),
        "{:?}",
        explained.findings
    );
    let whys: Vec<_> = explained.packets.iter().map(|packet| packet.why).collect();
    let expected = |whys: &[Explanation]| {
        matches!(
            whys,
            [
                Explanation::Datagram,
                Explanation::Joined,
                Explanation::Acknowledges { packets: 1, after: Some(_), .. }
            ]
        )
    };
    assert!(expected(&whys), "{whys:?}");
    let ends: Vec<_> =
        explained.connections.iter().map(|it| it.ends.map(|end| end.address)).collect();
    let lids = |src, dst| [Address::Lid(src), Address::Lid(dst)];
    assert_eq!(ends, [lids(4, 0xC000), lids(4, 1)]);
    assert_eq!(Address::Lid(4).to_string(), "LID 4");
    assert_eq!(Address::Lid(0xC000).to_string(), "LID 0xc000");
}

#[test]
fn in_records_and_without() {
    check(&explained(ERF, &records()));
    let frames: Vec<_> = records().iter().map(|record| record[RECORD..].to_vec()).collect();
    check(&explained(INFINIBAND, &frames));
    // with an extension header
    let mut longer = records();
    for record in &mut longer {
        record[8] |= 0x80;
        record.splice(RECORD..RECORD, [0x85, 0, 0, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 1]);
    }
    check(&explained(ERF, &longer));
}

/// The ICRC omits fields that switches change or, with a GRH, routers.
#[test]
fn what_the_icrc_covers() {
    let damaged = |number: usize, at: usize| {
        let mut frames: Vec<_> = records().iter().map(|record| record[RECORD..].to_vec()).collect();
        frames[number][at] ^= 0x10;
        let explained = explained(INFINIBAND, &frames);
        let is_damaged = |packet: &ExplainedPacket| packet.why == Explanation::Damaged;
        let damaged: Vec<_> = explained.packets.iter().map(is_damaged).collect();
        assert!(!damaged.iter().enumerate().any(|(other, it)| *it && other != number));
        damaged[number]
    };
    // virtual lane, service level, sender's LID, FECN and BECN, payload
    for (at, with_grh, without) in
        [(0, false, false), (1, false, true), (7, false, true), (60, true, true)]
    {
        assert_eq!((damaged(0, at), damaged(1, at)), (with_grh, without), "byte {at}");
    }
    // hop limit, group, FECN and BECN
    assert_eq!([8 + 7, 8 + 30, 48 + 4].map(|at| damaged(0, at)), [false, true, false]);
    assert!(!damaged(1, 8 + 4));
}

/// No transport, another record type, truncated.
#[test]
fn what_is_none() {
    let mut frames = records();
    frames[0][8] = 2;
    frames[1][RECORD + 1] &= !3;
    frames[2].truncate(RECORD + 6);
    let explained = explained(ERF, &frames);
    assert_eq!((explained.packets.len(), explained.other_frames), (0, 3));
}
