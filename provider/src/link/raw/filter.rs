//! Classic BPF filters of the packet sockets.

use socket2::SockFilter;

use roce_ethernet::{MacAddr, PAUSE_GROUP, StationConfig};

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
/// X becomes the IPv4 header length.
const LOAD_HEADER_LENGTH: u16 = (libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH) as u16;
const LOAD_HALF_BEHIND: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_IND) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const HAS_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Metadata of the removed tag.
const TAG: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32;
const HAS_TAG: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32;
const TAGS: [u16; 2] = [0x8100, 0x88A8];

/// The kernel removes tags of received frames, not of those from programs of this host.
pub(super) fn is_tagged(frame: &[u8]) -> bool {
    frame.get(12..14).is_some_and(|kind| TAGS.iter().any(|tag| tag.to_be_bytes() == kind))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Next,
    Drop,
    Accept,
    Skip(u8),
}

#[derive(Default)]
struct Program(Vec<(u16, u32, To, To)>);

impl Program {
    fn load(&mut self, code: u16, at: u32) {
        self.0.push((code, at, To::Next, To::Next));
    }

    fn jump(&mut self, code: u16, value: u32, yes: To, no: To) {
        self.0.push((code, value, yes, no));
    }

    /// Compares the result of an instruction.
    fn compare(&mut self, code: u16, at: u32, value: u32, yes: To, no: To) {
        self.load(code, at);
        self.jump(EQUAL, value, yes, no);
    }

    fn finish(self) -> Vec<SockFilter> {
        let length = self.0.len();
        let offset = |index: usize, to| match to {
            To::Next => 0,
            To::Skip(count) => count,
            To::Drop => (length - index - 1) as u8,
            To::Accept => (length - index) as u8,
        };
        let instructions = self.0.iter().enumerate().map(|(index, &(code, value, yes, no))| {
            SockFilter::new(code, offset(index, yes), offset(index, no), value)
        });
        let results = [SockFilter::new(RETURN, 0, 0, 0), SockFilter::new(RETURN, 0, 0, u32::MAX)];
        instructions.chain(results).collect()
    }
}

/// Frames from others, on the station's VLAN, to its MAC address or a group. Borrowed addresses
/// need only RoCE and neighbour discovery.
pub(super) fn of(config: &StationConfig) -> Vec<SockFilter> {
    let MacAddr(a, b, c, d, e, f) = config.mac;
    let (high, low) = (u32::from(u16::from_be_bytes([a, b])), u32::from_be_bytes([c, d, e, f]));
    let mut program = Program::default();
    // Not from itself: the socket also sees sent frames, for devices on one interface.
    program.compare(LOAD_WORD, 8, low, To::Next, To::Skip(2));
    program.compare(LOAD_HALF, 6, high, To::Drop, To::Next);
    program.load(LOAD_BYTE, 0);
    program.jump(HAS_BIT, 1, To::Skip(4), To::Next);
    program.compare(LOAD_WORD, 2, low, To::Next, To::Drop);
    program.compare(LOAD_HALF, 0, high, To::Next, To::Drop);
    // pauses are untagged on any VLAN
    program.compare(LOAD_HALF, 12, 0x8808, To::Next, To::Skip(4));
    let MacAddr(a, b, c, d, e, f) = PAUSE_GROUP;
    program.compare(LOAD_WORD, 0, u32::from_be_bytes([a, b, c, d]), To::Next, To::Drop);
    program.compare(LOAD_HALF, 4, u16::from_be_bytes([e, f]).into(), To::Accept, To::Drop);
    // the removed tag, and no other below it
    program.compare(LOAD_WORD, HAS_TAG, 0, To::Skip(6), To::Next);
    program.load(LOAD_WORD, TAG);
    program.compare(AND, 0xFFF, config.vlan.map_or(0, |vlan| vlan.id).into(), To::Next, To::Drop);
    program.compare(LOAD_HALF, 12, TAGS[0].into(), To::Drop, To::Next);
    let untagged_is_right = config.vlan.is_none();
    program.jump(EQUAL, TAGS[1].into(), To::Drop, To::Skip(if untagged_is_right { 0 } else { 2 }));
    if !untagged_is_right {
        program.compare(LOAD_HALF, 12, TAGS[0].into(), To::Next, To::Drop);
    }
    if config.replies {
        program.load(RETURN, u32::MAX);
    } else {
        only_roce(&mut program, config.roce_v1);
    }
    program.finish()
}

pub(super) fn of_packets(own: MacAddr, listens: bool) -> Vec<SockFilter> {
    let mut program = Program::default();
    if listens {
        let MacAddr(a, b, c, d, e, f) = own;
        program.compare(LOAD_WORD, 8, u32::from_be_bytes([c, d, e, f]), To::Next, To::Accept);
        program.compare(LOAD_HALF, 6, u16::from_be_bytes([a, b]).into(), To::Drop, To::Accept);
    }
    program.finish()
}

/// ARP, RoCE, neighbour advertisements and "packet too big".
fn only_roce(program: &mut Program, v1: bool) {
    program.load(LOAD_HALF, 12);
    if v1 {
        program.jump(EQUAL, 0x8915, To::Accept, To::Next);
    }
    program.jump(EQUAL, 0x0806, To::Accept, To::Next);
    program.jump(EQUAL, 0x0800, To::Next, To::Skip(6));
    program.compare(LOAD_BYTE, 23, 1, To::Accept, To::Next);
    program.jump(EQUAL, 17, To::Next, To::Drop);
    program.load(LOAD_HEADER_LENGTH, 14);
    program.compare(LOAD_HALF_BEHIND, 16, 4791, To::Accept, To::Drop);
    program.jump(EQUAL, 0x86DD, To::Next, To::Drop);
    program.compare(LOAD_BYTE, 20, 17, To::Next, To::Skip(2));
    program.compare(LOAD_HALF, 56, 4791, To::Accept, To::Drop);
    program.jump(EQUAL, 58, To::Next, To::Drop);
    program.compare(LOAD_BYTE, 54, 136, To::Accept, To::Next);
    program.jump(EQUAL, 2, To::Accept, To::Drop);
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixDatagram, time::Duration};

    use socket2::SockRef;

    use super::*;

    const MAC: MacAddr = MacAddr(2, 0, 0, 0, 0, 1);

    /// Tries the filter on an unprivileged socket.
    fn passes(config: &StationConfig, frame: &[u8]) -> bool {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        SockRef::from(&receiver).attach_filter(&of(config)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        sender.send(frame).unwrap();
        receiver.recv(&mut [0; 64]).is_ok_and(|length| length == frame.len())
    }

    fn frame(dst: MacAddr, ethertype: u16) -> Vec<u8> {
        let src = MacAddr(2, 0, 0, 0, 0, 9);
        let mut frame = [dst.octets(), src.octets()].concat();
        frame.extend(ethertype.to_be_bytes());
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn only_pauses_that_no_bridge_forwards_pass() {
        for replies in [false, true] {
            let config = StationConfig {
                mac: MAC,
                vlan: None,
                addresses: Vec::new(),
                gateways: Vec::new(),
                replies,
                roce_v1: false,
                dhcp: None,
                mbps: 0,
            };
            let passes = |dst, ethertype| passes(&config, &frame(dst, ethertype));
            assert!(passes(PAUSE_GROUP, 0x8808));
            for other in
                [MAC, MacAddr(0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF), MacAddr(1, 0x80, 0xC2, 0, 0, 2)]
            {
                assert!(!passes(other, 0x8808), "{other}");
            }
            assert!(passes(MAC, 0x0806) && !passes(MacAddr(2, 0, 0, 0, 0, 2), 0x0806));
        }
    }
}
