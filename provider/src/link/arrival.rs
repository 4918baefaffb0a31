//! Header of a received run handed to another process.

use std::net::{IpAddr, Ipv6Addr};

use roce_transport::{
    addr::Gid,
    wire::{DatagramMeta, DatagramRun, FrameFields, Ident, NetHeader},
};

use super::RunSink;

/// A run's metadata without its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::link) struct Arrival {
    src: IpAddr,
    src_port: u16,
    ident: Ident,
    segment: u16,
    traffic_class: u8,
    hop_limit: u8,
    checksum_verified: bool,
    congested: bool,
}

impl Arrival {
    pub(in crate::link) const LEN: usize = 28;

    /// `None`: segments too long. `congested`: losses came before.
    pub(in crate::link) fn of(run: &DatagramRun<'_>, congested: bool) -> Option<Self> {
        let &NetHeader { src, src_port, ident, traffic_class, hop_limit, .. } = run.net;
        Some(Self {
            src,
            src_port,
            ident,
            segment: u16::try_from(run.segment).ok()?,
            traffic_class,
            hop_limit,
            checksum_verified: run.meta.checksum_verified,
            congested: congested || run.meta.congested,
        })
    }

    pub(in crate::link) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (kind, id) = match self.ident {
            Ident::Likely(id) => (0, id),
            Ident::Known { id, dont_fragment } => (1 + u8::from(dont_fragment), id),
        };
        bytes[..16].copy_from_slice(&Gid::from(self.src).0);
        bytes[16..18].copy_from_slice(&self.src_port.to_ne_bytes());
        bytes[18..20].copy_from_slice(&self.segment.to_ne_bytes());
        bytes[20..22].copy_from_slice(&id.to_ne_bytes());
        bytes[22..25].copy_from_slice(&[self.traffic_class, self.hop_limit, kind]);
        bytes[25..27].copy_from_slice(&[self.checksum_verified, self.congested].map(u8::from));
        bytes
    }

    pub(in crate::link) fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let src: [u8; 16] = std::array::from_fn(|at| bytes[at]);
        Self {
            src: Ipv6Addr::from(src).to_canonical(),
            src_port: word(16),
            segment: word(18),
            ident: match bytes[24] {
                0 => Ident::Likely(word(20)),
                kind => Ident::Known { id: word(20), dont_fragment: kind > 1 },
            },
            traffic_class: bytes[22],
            hop_limit: bytes[23],
            checksum_verified: bytes[25] != 0,
            congested: bytes[26] != 0,
        }
    }

    pub(in crate::link) fn hand_over(&self, dst: IpAddr, bytes: &[u8], sink: &mut RunSink<'_>) {
        let &Self { src, src_port, ident, traffic_class, hop_limit, .. } = self;
        let frame = FrameFields::default();
        let net = NetHeader { src, dst, src_port, traffic_class, hop_limit, ident, frame };
        let &Self { checksum_verified, congested, .. } = self;
        let meta = DatagramMeta { checksum_verified, congested, not_ready: false };
        let segment = usize::from(self.segment).clamp(1, bytes.len().max(1));
        sink(&DatagramRun { net: &net, bytes, segment, meta });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_what_it_was() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fe80::1", "2001:db8::2")] {
            for ident in [
                Ident::Likely(0x1234),
                Ident::Known { id: 0xFFFF, dont_fragment: false },
                Ident::Known { id: 1, dont_fragment: true },
            ] {
                let net = NetHeader {
                    src: src.parse().unwrap(),
                    dst: dst.parse().unwrap(),
                    src_port: 49_152,
                    traffic_class: 3,
                    hop_limit: 64,
                    ident,
                    frame: FrameFields::default(),
                };
                let meta = DatagramMeta { checksum_verified: true, ..DatagramMeta::default() };
                let run = DatagramRun { net: &net, bytes: b"datagrams", segment: 4, meta };
                for congested in [false, true] {
                    let header = Arrival::of(&run, congested).unwrap();
                    let mut seen = false;
                    Arrival::decode(&header.encode()).hand_over(net.dst, run.bytes, &mut |got| {
                        let meta = DatagramMeta { congested, ..meta };
                        assert_eq!((got.net, got.bytes), (&net, run.bytes));
                        assert_eq!((got.segment, got.meta), (4, meta));
                        seen = true;
                    });
                    assert!(seen);
                }
            }
        }
    }
}
