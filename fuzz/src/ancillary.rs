//! Target: ancillary data of a received message.
//!
//! Items as the kernel writes them: kind, value length, value. After a kind of 255, arbitrary
//! bytes.

use roce_provider::link::{Ancillary, read_ancillary};

use crate::input::Input;

const GRO: usize = 0;
/// Level and kind: `UDP_GRO`, `IP_TOS`, `IP_TTL`, `IPV6_TCLASS`, `IPV6_HOPLIMIT`, `SO_RXQ_OVFL`,
/// and two without meaning here.
const KINDS: [(i32, i32); 8] =
    [(17, 104), (0, 1), (0, 2), (41, 67), (41, 52), (1, 40), (0, 8), (1, 29)];
const HEADER: usize = 16;
const LONGEST: usize = 24;

/// Panics if items are misread, or any bytes give an empty segment. Returns the number of items.
pub fn ancillary(bytes: &[u8]) -> usize {
    let mut input = Input::new(bytes);
    let mut written = Vec::new();
    let mut wanted = Ancillary { segment: 1000, ..Ancillary::default() };
    let mut items = 0;
    while !input.is_empty() {
        let kind = input.byte();
        if kind == 255 {
            break;
        }
        let kind = usize::from(kind) % KINDS.len();
        let length = usize::from(input.byte()) % LONGEST;
        let value = input.bytes(length);
        write(&mut written, KINDS[kind], value);
        expect(&mut wanted, kind, value);
        items += 1;
    }
    assert_eq!(read_ancillary(&written, 1000), wanted);
    // truncated, and followed by garbage
    for length in 0..written.len() {
        assert!(read_ancillary(&written[..length], 1000).segment > 0);
    }
    written.extend_from_slice(input.bytes(usize::MAX));
    assert!(read_ancillary(&written, 1000).segment > 0);
    assert!(read_ancillary(bytes, 1).segment > 0);
    items
}

fn write(to: &mut Vec<u8>, (level, kind): (i32, i32), value: &[u8]) {
    to.extend((HEADER + value.len()).to_ne_bytes());
    to.extend(level.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend_from_slice(value);
    to.resize(to.len().next_multiple_of(8), 0xEE);
}

fn expect(wanted: &mut Ancillary, kind: usize, value: &[u8]) {
    let int = value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
    match (kind, int) {
        // an invalid length counts as none
        (GRO, Some(segment)) => wanted.segment = usize::try_from(segment).unwrap_or(0).max(1),
        (1, _) => wanted.traffic_class = value.first().copied().unwrap_or(wanted.traffic_class),
        (2 | 4, Some(limit)) => wanted.hop_limit = limit as u8,
        (3, Some(class)) => wanted.traffic_class = class as u8,
        (5, Some(drops)) => wanted.drops = Some(drops.cast_unsigned()),
        _ => {}
    }
}
