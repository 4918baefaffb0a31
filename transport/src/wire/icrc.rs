//! The invariant CRC of RoCEv2 (annex A17.3.3) and RoCE v1 (annex A16): a CRC-32 over everything
//! that no router changes.
//!
//! The ICRC covers the IPv4 identification, which a UDP socket does not show to its reader. A CRC
//! is linear: if all bytes but a few unknown bits are right, the difference between the received
//! and the computed CRC gives those bits. An unknown identification is therefore *computed*. The
//! packet is accepted if only the identification and the "don't fragment" bit had to change. That
//! leaves 15 of the 32 bits of checking for such packets; over IPv6, and wherever the link knows
//! the identification, all 32 are checked.

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use crc32fast::Hasher;

use super::{header::Bth, opcode::Operation, packet::ICRC_LEN};
use crate::addr::{Gid, ROCE_UDP_PORT, RoceVersion};

/// Knowledge of the identification and the "don't fragment" bit of an IPv4 header. IPv6 has
/// neither.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ident {
    /// Both are known.
    Known {
        /// The identification.
        id: u16,
        /// The "don't fragment" bit.
        dont_fragment: bool,
    },
    /// Neither is known; this identification with "don't fragment" set is likely.
    Likely(u16),
}

impl Ident {
    /// Identification of the next datagram of a run.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Known { id, dont_fragment } => {
                Self::Known { id: id.wrapping_add(1), dont_fragment }
            }
            Self::Likely(id) => Self::Likely(id.wrapping_add(1)),
        }
    }
}

/// Network headers of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NetHeader {
    /// Sender's address.
    pub src: IpAddr,
    /// Receiver's address; of the same family as `src`.
    pub dst: IpAddr,
    /// UDP source port.
    pub src_port: u16,
    /// IPv4 TOS or IPv6 traffic class, ECN bits included.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv4 identification.
    pub ident: Ident,
    /// Fields that only links that build frames send and see.
    pub frame: FrameFields,
}

/// Fields that only a link sends and sees which builds its frames itself. Others send RoCEv2, leave
/// the rest to the kernel, and have the defaults in what they receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FrameFields(u32);

impl FrameFields {
    const V1: u32 = 1 << 31;

    /// Four bits of the service level count, 0 to 15; the lower three are the priority in the VLAN
    /// tag. Of the flow label (IPv6 header, or GRH of RoCE v1) 20 bits count.
    #[must_use]
    pub const fn new(version: RoceVersion, service_level: u8, flow_label: u32) -> Self {
        let version = match version {
            RoceVersion::V1 => Self::V1,
            RoceVersion::V2 => 0,
        };
        Self(version | (service_level as u32 & 0xF) << 20 | flow_label & 0xF_FFFF)
    }

    /// Version of RoCE.
    #[must_use]
    pub const fn version(self) -> RoceVersion {
        if self.0 & Self::V1 == 0 { RoceVersion::V2 } else { RoceVersion::V1 }
    }

    /// Service level, 0 to 15.
    #[must_use]
    pub const fn service_level(self) -> u8 {
        (self.0 >> 20) as u8 & 0xF
    }

    /// Flow label, 20 bits.
    #[must_use]
    pub const fn flow_label(self) -> u32 {
        self.0 & 0xF_FFFF
    }
}

impl fmt::Debug for FrameFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameFields")
            .field("version", &self.version())
            .field("service_level", &self.service_level())
            .field("flow_label", &self.flow_label())
            .finish()
    }
}

impl NetHeader {
    /// True if a router has marked the packet "congestion experienced" (RFC 3168). RoCE v1 has no
    /// such mark.
    #[must_use]
    pub const fn is_congested(&self) -> bool {
        self.traffic_class & 3 == 3 && matches!(self.frame.version(), RoceVersion::V2)
    }
}

/// Kind of match of a packet's ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IcrcMatch {
    /// All 32 bits match with what was known.
    Exact,
    /// A match with this identification and "don't fragment" bit, which were not known before.
    Solved {
        /// The identification.
        id: u16,
        /// The "don't fragment" bit.
        dont_fragment: bool,
    },
}

impl IcrcMatch {
    /// The network header with the identification that makes the ICRC right.
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

/// The ICRC of a packet: `bytes` is the UDP payload from the BTH to the padding, without the ICRC
/// itself. It is sent least significant byte first. Total: more bytes than a datagram carries, or
/// fewer than a BTH has, give some number.
#[must_use]
pub fn icrc(net: &NetHeader, bytes: &[u8]) -> u32 {
    icrc_with(net, bytes, &[])
}

/// The ICRC that rxe computes for a FLUSH, and expects of one: everything from the BTH on counts a
/// second time, unmasked. Up to Linux 6.12 at least, its opcode table does not say where the
/// payload of a FLUSH begins.
#[must_use]
pub fn rxe_flush_icrc(net: &NetHeader, bytes: &[u8]) -> u32 {
    icrc_with(net, bytes, bytes)
}

fn icrc_with(net: &NetHeader, bytes: &[u8], again: &[u8]) -> u32 {
    if let Some(flow) = IcrcFlow::of(net) {
        return flow.icrc_with(net.ident, bytes, again);
    }
    let mut pseudo = Pseudo { bytes: [0xFF; Pseudo::MAX], len: 8 };
    let udp_length = (UDP_LEN + bytes.len() + ICRC_LEN) as u16;
    if net.frame.version() == RoceVersion::V1 {
        pseudo.global_route(net, udp_length);
    } else {
        pseudo.ipv6(net.src.into(), net.dst.into(), udp_length, NEXT_HEADER_UDP);
        pseudo.put(&net.src_port.to_be_bytes());
        pseudo.put(&ROCE_UDP_PORT.to_be_bytes());
        pseudo.put(&udp_length.to_be_bytes());
        pseudo.put(&[0xFF; 2]);
    }
    let mut crc = Hasher::new();
    crc.update(&pseudo.bytes[..pseudo.len]);
    transport(crc, bytes, again)
}

/// Goes on with what comes from the BTH on.
fn transport(mut crc: Hasher, bytes: &[u8], again: &[u8]) -> u32 {
    /// A packet of so many bytes is one piece, of a longer one the BTH is.
    const SHORT: usize = 64;
    /// FECN, BECN and what is reserved beside them.
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

/// The packets from one IPv4 socket to another: what the ICRC covers before the BTH is the same in
/// all of them, but for lengths and identification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IcrcFlow {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    src_port: u16,
    /// The CRC of that, with lengths and identification of zero, and "don't fragment" set.
    crc: u32,
}

impl IcrcFlow {
    /// Bytes of ones in the place of a local route header, an IPv4 header, and a UDP header.
    const LEN: usize = IP + IPV4_LEN + UDP_LEN;

    /// The flow of a packet; `None`: it is over IPv6, or of RoCE v1.
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
        // traffic class, hop limit and checksums are not covered
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

    /// True if a packet is of it.
    pub(crate) fn has(&self, net: &NetHeader) -> bool {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (net.src, net.dst) else { return false };
        src == self.src
            && dst == self.dst
            && net.src_port == self.src_port
            && net.frame.version() == RoceVersion::V2
    }

    /// The [ICRC](icrc) of a packet of it.
    pub(crate) fn icrc(self, ident: Ident, bytes: &[u8]) -> u32 {
        self.icrc_with(ident, bytes, &[])
    }

    fn icrc_with(self, ident: Ident, bytes: &[u8], again: &[u8]) -> u32 {
        let (id, dont_fragment) = match ident {
            Ident::Known { id, dont_fragment } => (id, dont_fragment),
            Ident::Likely(id) => (id, true),
        };
        let udp_length = (UDP_LEN + bytes.len() + ICRC_LEN) as u16;
        // wraps only for more bytes than IPv4 carries: a caller's mistake, which makes the ICRC
        // wrong and must not panic
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

/// The IPv4 header behind eight bytes of ones.
const IP: usize = 8;
const DONT_FRAGMENT: u8 = 1 << 6;
/// The byte with "don't fragment".
const FRAGMENT: usize = IP + 6;

/// Change of the CRC of a [`IcrcFlow`] by a non-zero byte at this offset: a CRC is linear.
const fn change(byte: u8, at: usize) -> u32 {
    let mut crc = byte as u32;
    let mut bits = 8 * (IcrcFlow::LEN - at);
    while bits > 0 {
        crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
        bits -= 1;
    }
    crc
}

/// The same for both bytes of the length of the IPv4 packet, of its identification, and of the
/// length of the UDP datagram.
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

/// Checks the ICRC at the end of a packet; `bytes` is the UDP payload from the
/// BTH to the ICRC. That of a FLUSH may also be [as rxe has it](rxe_flush_icrc).
#[must_use]
pub fn verify_icrc(net: &NetHeader, bytes: &[u8]) -> Option<IcrcMatch> {
    verify(net, bytes, |body, again| icrc_with(net, body, again))
}

/// The same for a packet of this flow.
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

/// The change of the network header that would explain a wrong ICRC, as a number: two packets whose
/// headers were changed alike, and nothing else, have the same. `bytes` is the UDP payload from the
/// BTH to the ICRC. `None`: it has no length of a packet.
#[must_use]
pub fn icrc_change(net: &NetHeader, bytes: &[u8]) -> Option<u32> {
    let (body, received) = bytes.split_last_chunk::<ICRC_LEN>()?;
    unshift(icrc(net, body) ^ u32::from_le_bytes(*received), UDP_LEN + body.len())
}

/// A difference of CRCs before so many bytes were shifted through it; `None`: these are no words,
/// or more than a packet has.
fn unshift(difference: u32, bytes: usize) -> Option<u32> {
    let divisor = INVERSE_SHIFTS.get(bytes / 4).filter(|_| bytes.is_multiple_of(4))?;
    Some(multiply(difference, *divisor))
}

/// The change of the IPv4 header's bytes 4 to 7 (identification, flags, fragment offset) that
/// explains this difference of CRCs. `None` if it changes more than the identification and "don't
/// fragment".
///
/// Feeding four bytes into a zero CRC register equals shifting them through it. So the difference
/// is the changed word times x^(32 + 8·n) modulo the polynomial, with n bytes behind it. Division
/// by that power gives the word.
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
pub(super) const NEXT_HEADER_UDP: u8 = 17;
/// "Next header" of a GRH behind which a BTH comes.
pub(super) const NEXT_HEADER_IBA: u8 = 27;
const IPV4_AFTER_IDENT: usize = 12;

/// Bytes that the CRC covers before the BTH. First eight bytes of ones for an InfiniBand local
/// route header; then the IP and UDP headers or the GRH, with ones wherever a router may write.
struct Pseudo {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl Pseudo {
    const MAX: usize = 8 + 40 + UDP_LEN;

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The header of RoCE v1, before so many bytes less those of a UDP header.
    #[cold]
    fn global_route(&mut self, net: &NetHeader, udp_length: u16) {
        let length = udp_length.wrapping_sub(UDP_LEN as u16);
        self.ipv6(net.src.into(), net.dst.into(), length, NEXT_HEADER_IBA);
    }

    /// The header of IPv6, which that of a global route is as well.
    fn ipv6(&mut self, src: Gid, dst: Gid, length: u16, next_header: u8) {
        self.put(&[0x6F, 0xFF, 0xFF, 0xFF]);
        self.put(&length.to_be_bytes());
        self.put(&[next_header, 0xFF]);
        self.put(&src.0);
        self.put(&dst.0);
    }
}

/// The polynomial of CRC-32, reflected: bit 31 is x^0.
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// The product of two polynomials modulo [`POLYNOMIAL`].
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

/// Entry k is x^(-32·k): the inverse of shifting k words through the CRC. Enough of them for the
/// largest packet.
static INVERSE_SHIFTS: [u32; 1100] = {
    let mut word = 1 << 31;
    let mut i = 0;
    while i < 32 {
        // dividing by x: if the constant term is set, the polynomial is added first, which clears
        // it
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

    /// Whatever they carry, and for as long as nothing else is wrong.
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
        // but nothing else may
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

    /// Of corrupted packets with an unknown identification, about one in 2^15 may pass; with a
    /// known one none of these.
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
