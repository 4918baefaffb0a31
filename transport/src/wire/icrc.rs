//! Invariant CRC of RoCEv2 (annex A17.3.3) and v1 (annex A16).
//!
//! The ICRC covers the IPv4 identification, which UDP sockets hide. CRCs are linear: the difference
//! between received and computed ICRC reveals the identification. A packet passes if only the
//! identification and "don't fragment" differ. Then 15 of 32 bits are checked, otherwise all.

use core::net::{IpAddr, Ipv4Addr};

use crc32fast::Hasher;

use super::{
    header::Bth,
    net::{GRH_LEN, Ident, NEXT_HEADER_UDP, NetHeader, grh},
    opcode::Operation,
    packet::ICRC_LEN,
};
use crate::addr::{ROCE_UDP_PORT, RoceVersion};

/// Kind of match.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "a match's comment describes its fields")]
pub enum IcrcMatch {
    /// All 32 bits match.
    Exact,
    /// Computed identification and "don't fragment" bit.
    Solved { id: u16, dont_fragment: bool },
}

impl IcrcMatch {
    /// Header with the computed identification.
    #[must_use]
    pub const fn identify(self, net: &NetHeader) -> NetHeader {
        match self {
            Self::Exact => *net,
            Self::Solved { id, dont_fragment } => {
                NetHeader { ident: Ident::Known { id, dont_fragment }, ..*net }
            }
        }
    }
}

/// ICRC of BTH to padding, sent least significant byte first.
#[must_use]
pub fn icrc(net: &NetHeader, bytes: &[u8]) -> u32 {
    icrc_with(net, bytes, &[])
}

/// rxe's ICRC of a FLUSH: BTH onwards counts twice, the second time unmasked. Through Linux 6.12 at
/// least, its opcode table lacks the payload offset.
#[must_use]
pub fn rxe_flush_icrc(net: &NetHeader, bytes: &[u8]) -> u32 {
    icrc_with(net, bytes, bytes)
}

fn icrc_with(net: &NetHeader, bytes: &[u8], again: &[u8]) -> u32 {
    if let Some(flow) = IcrcFlow::of(net) {
        return flow.icrc_with(net.ident, bytes, again);
    }
    let udp_payload = bytes.len() + ICRC_LEN;
    let mut pseudo = [0xFF; IP + GRH_LEN + UDP_LEN];
    let (header, udp) = pseudo[IP..].split_at_mut(GRH_LEN);
    header.copy_from_slice(&grh(net, udp_payload));
    // routers change traffic class, flow label and hop limit
    header[..4].copy_from_slice(&[0x6F, 0xFF, 0xFF, 0xFF]);
    header[7] = 0xFF;
    let mut length = IP + GRH_LEN;
    if net.frame.version() == RoceVersion::V2 {
        let udp_length = (UDP_LEN + udp_payload) as u16;
        udp[..2].copy_from_slice(&net.src_port.to_be_bytes());
        udp[2..4].copy_from_slice(&ROCE_UDP_PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
        length += UDP_LEN;
    }
    let mut crc = Hasher::new();
    crc.update(&pseudo[..length]);
    transport(crc, bytes, again)
}

fn transport(mut crc: Hasher, bytes: &[u8], again: &[u8]) -> u32 {
    /// Longest packet handled whole.
    const SHORT: usize = 64;
    /// FECN, BECN and reserved bits.
    const CONGESTION: usize = 4;
    let mut piece = [0; SHORT];
    let first = if bytes.len() <= SHORT { bytes.len() } else { Bth::LEN };
    let (first, rest) = bytes.split_at(first);
    piece[..first.len()].copy_from_slice(first);
    piece[CONGESTION] = 0xFF;
    crc.update(&piece[..first.len()]);
    for more in [rest, again] {
        if !more.is_empty() {
            crc.update(more);
        }
    }
    crc.finalize()
}

/// An IPv4 flow: only lengths and identification vary before the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IcrcFlow {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    src_port: u16,
    /// With lengths and identification 0 and "don't fragment".
    crc: u32,
}

impl IcrcFlow {
    const LEN: usize = IP + IPV4_LEN + UDP_LEN;

    /// `None` for IPv6 and RoCE v1.
    pub(crate) fn of(net: &NetHeader) -> Option<Self> {
        let (IpAddr::V4(src), IpAddr::V4(dst), RoceVersion::V2) =
            (net.src, net.dst, net.frame.version())
        else {
            return None;
        };
        Some(Self::new(src, dst, net.src_port))
    }

    fn new(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16) -> Self {
        const UDP: usize = IP + IPV4_LEN;
        // traffic class, hop limit and checksums are excluded
        let mut bytes = [0xFF; Self::LEN];
        bytes[IP] = 0x45;
        bytes[IP + 2..IP + 8].copy_from_slice(&[0, 0, 0, 0, DONT_FRAGMENT, 0]);
        bytes[IP + 9] = NEXT_HEADER_UDP;
        bytes[IP + 12..IP + 16].copy_from_slice(&src.octets());
        bytes[IP + 16..UDP].copy_from_slice(&dst.octets());
        bytes[UDP..UDP + 2].copy_from_slice(&src_port.to_be_bytes());
        bytes[UDP + 2..UDP + 4].copy_from_slice(&ROCE_UDP_PORT.to_be_bytes());
        bytes[UDP + 4..UDP + 6].copy_from_slice(&[0; 2]);
        Self { src, dst, src_port, crc: crc32fast::hash(&bytes) }
    }

    pub(crate) fn has(&self, net: &NetHeader) -> bool {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (net.src, net.dst) else { return false };
        src == self.src
            && dst == self.dst
            && net.src_port == self.src_port
            && net.frame.version() == RoceVersion::V2
    }

    pub(crate) fn icrc(self, ident: Ident, bytes: &[u8]) -> u32 {
        self.icrc_with(ident, bytes, &[])
    }

    fn icrc_with(self, ident: Ident, bytes: &[u8], again: &[u8]) -> u32 {
        let (id, dont_fragment) = ident.likely();
        let udp_length = (UDP_LEN + bytes.len() + ICRC_LEN) as u16;
        // wraps only beyond IPv4's length: a wrong ICRC, not a panic
        let length = udp_length.wrapping_add(IPV4_LEN as u16);
        let fields = [length, id, udp_length].map(u16::to_be_bytes);
        let mut crc = self.crc;
        for (tables, field) in CHANGES.iter().zip(fields) {
            crc ^= tables[0][usize::from(field[0])] ^ tables[1][usize::from(field[1])];
        }
        if !dont_fragment {
            crc ^= change(DONT_FRAGMENT, FRAGMENT);
        }
        transport(Hasher::new_with_initial(crc), bytes, again)
    }
}

/// After eight bytes of ones.
const IP: usize = 8;
const DONT_FRAGMENT: u8 = 1 << 6;
/// Byte of "don't fragment".
const FRAGMENT: usize = IP + 6;

/// Effect of a byte on the [`IcrcFlow`] CRC.
const fn change(byte: u8, at: usize) -> u32 {
    let mut crc = byte as u32;
    let mut bits = 8 * (IcrcFlow::LEN - at);
    while bits > 0 {
        crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
        bits -= 1;
    }
    crc
}

/// For IPv4 length, identification and UDP length.
static CHANGES: [[[u32; 256]; 2]; 3] = {
    let places = [IP + 2, IP + 4, IP + IPV4_LEN + 4];
    let mut tables = [[[0; 256]; 2]; 3];
    let mut field = 0;
    while field < 3 {
        let mut byte = 1;
        while byte < 256 {
            tables[field][0][byte] = change(byte as u8, places[field]);
            tables[field][1][byte] = change(byte as u8, places[field] + 1);
            byte += 1;
        }
        field += 1;
    }
    tables
};

/// Verifies the ICRC of BTH to ICRC; a FLUSH may have [rxe's](rxe_flush_icrc).
#[must_use]
pub fn verify_icrc(net: &NetHeader, bytes: &[u8]) -> Option<IcrcMatch> {
    verify(net, bytes, |body, again| icrc_with(net, body, again))
}

pub(crate) fn verify_icrc_of(
    flow: Option<IcrcFlow>,
    net: &NetHeader,
    bytes: &[u8],
) -> Option<IcrcMatch> {
    match flow {
        Some(flow) => verify(net, bytes, |body, again| flow.icrc_with(net.ident, body, again)),
        None => verify_icrc(net, bytes),
    }
}

#[inline]
fn verify(net: &NetHeader, bytes: &[u8], icrc: impl Fn(&[u8], &[u8]) -> u32) -> Option<IcrcMatch> {
    let (body, received) = bytes.split_last_chunk::<ICRC_LEN>()?;
    let verify = |again: &[u8]| {
        let difference = icrc(body, again) ^ u32::from_le_bytes(*received);
        if difference == 0 {
            return Some(IcrcMatch::Exact);
        }
        match net.ident {
            Ident::Likely(guess) if net.src.is_ipv4() => {
                solve(difference, body.len() + again.len(), guess)
            }
            _ => None,
        }
    };
    verify(&[]).or_else(|| {
        if body.first()? & 0x1F == Operation::Flush as u8 { verify(body) } else { None }
    })
}

/// Number of the header change behind a wrong ICRC, equal for equal changes without other damage.
/// `None` for impossible lengths.
#[must_use]
pub fn icrc_change(net: &NetHeader, bytes: &[u8]) -> Option<u32> {
    let (body, received) = bytes.split_last_chunk::<ICRC_LEN>()?;
    unshift(icrc(net, body) ^ u32::from_le_bytes(*received), UDP_LEN + body.len())
}

/// CRC difference before `bytes` of shifts; `None`: not whole words, or too many.
fn unshift(difference: u32, bytes: usize) -> Option<u32> {
    let divisor = INVERSE_SHIFTS.get(bytes / 4).filter(|_| bytes.is_multiple_of(4))?;
    Some(multiply(difference, *divisor))
}

/// Change of IPv4 bytes 4 to 7 that explains a difference; `None` beyond identification and "don't
/// fragment".
///
/// With n bytes behind, the difference is the changed word times x^(32 + 8·n) modulo the
/// polynomial.
fn solve(difference: u32, body: usize, guess: u16) -> Option<IcrcMatch> {
    let change = unshift(difference, 4 + IPV4_AFTER_IDENT + UDP_LEN + body)?;
    if change & !0x0040_FFFF != 0 {
        return None;
    }
    let [high, low, flags, _] = change.to_le_bytes();
    Some(IcrcMatch::Solved {
        id: guess ^ u16::from_be_bytes([high, low]),
        dont_fragment: flags == 0,
    })
}

const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const IPV4_AFTER_IDENT: usize = 12;

/// Reflected: bit 31 is x^0.
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// Modulo [`POLYNOMIAL`].
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 != 0 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
        bit >>= 1;
    }
    product
}

/// Entry k is x^(-32·k), up to the largest packet.
static INVERSE_SHIFTS: [u32; 1100] = {
    let mut word = 1 << 31;
    let mut i = 0;
    while i < 32 {
        // division by x: the polynomial first clears a set constant term
        word = if word & 1 << 31 != 0 { (word ^ POLYNOMIAL) << 1 | 1 } else { word << 1 };
        i += 1;
    }
    let mut table = [1 << 31; 1100];
    let mut k = 1;
    while k < table.len() {
        table[k] = multiply(table[k - 1], word);
        k += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::Ipv6Addr;

    use super::*;
    use crate::wire::FrameFields;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|d| u8::from_str_radix(core::str::from_utf8(d).unwrap(), 16).unwrap())
            .collect()
    }

    fn v4(bytes: &[u8]) -> NetHeader {
        let ip = |i: usize| IpAddr::from([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        NetHeader {
            src: ip(12),
            dst: ip(16),
            src_port: u16::from_be_bytes([bytes[20], bytes[21]]),
            traffic_class: bytes[1],
            hop_limit: bytes[8],
            ident: Ident::Known {
                id: u16::from_be_bytes([bytes[4], bytes[5]]),
                dont_fragment: bytes[6] & 0x40 != 0,
            },
            frame: FrameFields::default(),
        }
    }

    fn check_v4(datagram: &str, icrc_bytes: &str) {
        let mut datagram = hex(datagram);
        let net = v4(&datagram);
        assert_eq!(icrc(&net, &datagram[28..]).to_le_bytes(), hex(icrc_bytes)[..]);
        datagram.extend(hex(icrc_bytes));
        assert_eq!(verify_icrc(&net, &datagram[28..]), Some(IcrcMatch::Exact));
        let Ident::Known { id, dont_fragment } = net.ident else { unreachable!() };
        for guess in
            [0, 1, 0x1234, 0xFFFF].into_iter().filter(|&guess| guess != id || !dont_fragment)
        {
            let net = NetHeader { ident: Ident::Likely(guess), ..net };
            assert_eq!(
                verify_icrc(&net, &datagram[28..]),
                Some(IcrcMatch::Solved { id, dont_fragment })
            );
        }
    }

    #[test]
    fn packets_whose_headers_were_changed_alike_show_it() {
        for [a, b, other] in
            [["10.0.0.1", "10.0.0.2", "10.9.9.9"], ["fd77::1", "fd77::2", "fd77::9"]]
        {
            let [a, b, other] = [a, b, other].map(|ip| ip.parse::<IpAddr>().unwrap());
            let change = |dst: IpAddr, length: usize, damage: u8| {
                let net = NetHeader {
                    src: a,
                    dst: b,
                    src_port: 0xC000,
                    traffic_class: 0,
                    hop_limit: 64,
                    ident: Ident::Known { id: length as u16, dont_fragment: true },
                    frame: FrameFields::default(),
                };
                let mut bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
                bytes.extend(icrc(&net, &bytes).to_le_bytes());
                bytes[0] ^= damage;
                icrc_change(&NetHeader { dst, ..net }, &bytes)
            };
            let one = change(other, 12, 0);
            assert_ne!(one, Some(0));
            assert_eq!([change(other, 16, 0), change(other, 4156, 0)], [one; 2]);
            assert_ne!(change(other, 16, 1), one);
            assert_eq!([change(b, 16, 0), change(b, 4156, 0)], [Some(0); 2]);
            assert_eq!(change(b, 18, 0), None);
        }
    }

    #[test]
    fn connectx_uc_send_only() {
        check_v4(
            "45010040 0478 4000 4011b4e4c0a80007c0a80007 c00012b7002c0000
             2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e50 0000",
            "78f353f3",
        );
    }

    #[test]
    fn connectx_cnp() {
        check_v4(
            "45c2003c718c4000401191610a0011010a001201000012b700280000 8100ffff40000118000000000000000000000000
             0000000000000000",
            "82fd002a",
        );
    }

    #[test]
    fn rc_send_only_hello() {
        check_v4(
            "4502003400004000401126b50a0000010a000002c12312b700200000 0470ffff000000128000012368656c6c6f000000",
            "cc96a2dc",
        );
    }

    #[test]
    fn ipv6_rc_ack() {
        let ip = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, last));
        let net = NetHeader {
            src: ip(1),
            dst: ip(2),
            src_port: 0xC123,
            traffic_class: 2,
            hop_limit: 64,
            ident: Ident::Likely(0),
            frame: FrameFields::default(),
        };
        let mut bytes = hex("1140ffff00000011000001231f000001");
        assert_eq!(icrc(&net, &bytes).to_le_bytes(), hex("2d0d3b3f")[..]);
        bytes.extend(hex("2d0d3b3f"));
        assert_eq!(verify_icrc(&net, &bytes), Some(IcrcMatch::Exact));
        bytes[15] ^= 1;
        assert_eq!(verify_icrc(&net, &bytes), None);
    }

    #[test]
    fn a_flush_may_be_as_rxe_has_it() {
        let net = v4(&hex("4502003400004000401126b50a0000010a000002c12312b700200000"));
        let mut bytes = hex("1c40ffff000000128000012300000001000000000000100000000abc00000040");
        let unknown = NetHeader { ident: Ident::Likely(9), ..net };
        for flush in [icrc(&net, &bytes), rxe_flush_icrc(&net, &bytes)] {
            let sealed: Vec<u8> = bytes.iter().copied().chain(flush.to_le_bytes()).collect();
            assert_eq!(verify_icrc(&net, &sealed), Some(IcrcMatch::Exact));
            assert_eq!(
                verify_icrc(&unknown, &sealed),
                Some(IcrcMatch::Solved { id: 0, dont_fragment: true })
            );
        }
        // only a FLUSH may
        bytes[0] = 0x04;
        bytes.extend(rxe_flush_icrc(&net, &bytes).to_le_bytes());
        assert_eq!(verify_icrc(&net, &bytes), None);
    }

    #[test]
    fn a_cleared_dont_fragment_bit_is_solved_too() {
        let net = v4(&hex("4502003400004000401126b50a0000010a000002c12312b700200000"));
        let mut bytes = hex("0470ffff000000128000012368656c6c6f000000");
        let sent = NetHeader { ident: Ident::Known { id: 77, dont_fragment: false }, ..net };
        bytes.extend(icrc(&sent, &bytes.clone()).to_le_bytes());
        let net = NetHeader { ident: Ident::Likely(0), ..net };
        assert_eq!(
            verify_icrc(&net, &bytes),
            Some(IcrcMatch::Solved { id: 77, dont_fragment: false })
        );
    }

    /// About one corruption in 2^15 may pass; none here.
    #[test]
    fn corruption_is_found() {
        let net = v4(&hex("4502003400004000401126b50a0000010a000002c12312b700200000"));
        let mut bytes = hex("0470ffff000000128000012368656c6c6f000000cc96a2dc");
        let mut solved = 0;
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if bit / 8 != 4 {
                assert_eq!(verify_icrc(&net, &bytes), None, "bit {bit}");
                let unknown = NetHeader { ident: Ident::Likely(0), ..net };
                solved += usize::from(verify_icrc(&unknown, &bytes).is_some());
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(solved, 0);
    }
}
