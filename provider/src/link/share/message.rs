//! Messages between the service and its clients. Each kind has one length.

use std::net::{IpAddr, Ipv6Addr};

use roce_transport::{
    addr::{Gid, PKey},
    cm::{ConnRecord, ServiceId},
    ids::Qpn,
    share::IdPartition,
    wire::{DatagramMeta, DatagramRun, FrameFields, Ident, NetHeader},
};

/// What a client writes into the door of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Knock {
    /// The client listens at the Unix socket of [this name](Self::name).
    pub(super) number: [u8; 16],
    /// What the service says first, so that the client knows it.
    pub(super) secret: [u8; 16],
}

/// Start of a knock. The last byte changes with every message of this file.
const MAGIC: [u8; 8] = *b"knock\0\0\x01";

impl Knock {
    pub(super) const LEN: usize = 64;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.number);
        bytes[24..40].copy_from_slice(&self.secret);
        bytes
    }

    /// The knocks in what was read, wherever they begin: a client may have written a part of one.
    pub(super) fn all_in(bytes: &[u8]) -> Vec<Self> {
        let all = bytes.windows(Self::LEN).filter_map(|it| Self::decode(it.try_into().ok()?));
        all.collect()
    }

    fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (secret, _) = rest.split_first_chunk()?;
        (*magic == MAGIC).then_some(Self { number: *number, secret: *secret })
    }

    /// The name in the abstract name space.
    pub(super) fn name(&self) -> String {
        format!("roce client {:032x}", u128::from_be_bytes(self.number))
    }
}

/// What a client asks for, by a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// A partition: this one, if the client's user has it already, or any.
    Open(Option<IdPartition>),
    /// Whether another client listens for the service.
    Query(ServiceId),
    /// Requests for the service.
    Claim(ServiceId),
    Release(ServiceId),
    /// The peer of this connection is to be told when the client ends.
    Keep(Record),
    Erase(u32),
}

/// What a client says of a connection. The service knows its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    remote: IpAddr,
    pkey: PKey,
    pub(super) local_id: u32,
    remote_id: u32,
    local_qpn: Qpn,
    remote_qpn: Qpn,
}

impl Request {
    pub(super) const LEN: usize = 40;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (kind, fields) = bytes.split_at_mut(4);
        match self {
            Self::Open(partition) => {
                (kind[0], kind[1]) = (1, partition.map_or(0, IdPartition::get));
            }
            Self::Query(service) => {
                kind[0] = 2;
                fields[..8].copy_from_slice(&service.0.to_ne_bytes());
            }
            Self::Claim(service) => {
                kind[0] = 3;
                fields[..8].copy_from_slice(&service.0.to_ne_bytes());
            }
            Self::Release(service) => {
                kind[0] = 4;
                fields[..8].copy_from_slice(&service.0.to_ne_bytes());
            }
            Self::Keep(record) => {
                kind[0] = 5;
                kind[2..].copy_from_slice(&record.pkey.0.to_ne_bytes());
                let qpns = [record.local_qpn.get(), record.remote_qpn.get()];
                let words = [record.local_id, record.remote_id, qpns[0], qpns[1]];
                for (field, word) in fields.chunks_exact_mut(4).zip(words) {
                    field.copy_from_slice(&word.to_ne_bytes());
                }
                fields[16..32].copy_from_slice(&Gid::from(record.remote).0);
            }
            Self::Erase(local_id) => {
                kind[0] = 6;
                fields[..4].copy_from_slice(&local_id.to_ne_bytes());
            }
        }
        bytes
    }

    /// `None`: it makes no sense.
    pub(super) fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let service = || {
            let (first, _) = bytes[4..].split_first_chunk()?;
            Some(ServiceId(u64::from_ne_bytes(*first)))
        };
        match bytes[0] {
            1 if bytes[1] == 0 => Some(Self::Open(None)),
            1 => IdPartition::new(bytes[1]).map(|partition| Self::Open(Some(partition))),
            2 => service().map(Self::Query),
            3 => service().map(Self::Claim),
            4 => service().map(Self::Release),
            5 => {
                let (remote, _) = bytes[20..].split_first_chunk::<16>()?;
                Some(Self::Keep(Record {
                    remote: Ipv6Addr::from(*remote).to_canonical(),
                    pkey: PKey(u16::from_ne_bytes([bytes[2], bytes[3]])),
                    local_id: word(4),
                    remote_id: word(8),
                    local_qpn: Qpn::new(word(12)),
                    remote_qpn: Qpn::new(word(16)),
                }))
            }
            6 => Some(Self::Erase(word(4))),
            _ => None,
        }
    }

    /// True if the service answers.
    pub(super) const fn is_answered(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Query(_) | Self::Claim(_))
    }
}

impl Record {
    pub(super) const fn of(record: &ConnRecord) -> Self {
        let &ConnRecord { remote, pkey, local_id, remote_id, local_qpn, remote_qpn, .. } = record;
        Self { remote, pkey, local_id, remote_id, local_qpn, remote_qpn }
    }

    /// The record of a connection that a client with this partition can have at `local`.
    pub(super) fn at(&self, local: IpAddr, partition: IdPartition) -> Option<ConnRecord> {
        let &Self { remote, pkey, local_id, remote_id, local_qpn, remote_qpn } = self;
        let record = ConnRecord { local, remote, pkey, local_id, remote_id, local_qpn, remote_qpn };
        partition.can_have(&record).then_some(record)
    }
}

/// Answer of the service, in the order of what was asked, by another pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The client has this partition, and the service a receive buffer of so many bytes for it.
    Opened(IdPartition, u32),
    /// The client has what it asked for; for a query: nobody has it.
    Done,
    /// Another client has it.
    InUse,
    /// The user, or the client, has as many as it can.
    Full,
}

impl Answer {
    pub(super) const LEN: usize = 8;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let (kind, partition, bytes) = match *self {
            Self::Opened(partition, bytes) => (1, partition.get(), bytes),
            Self::Done => (2, 0, 0),
            Self::InUse => (3, 0, 0),
            Self::Full => (4, 0, 0),
        };
        let [a, b, c, d] = bytes.to_ne_bytes();
        [kind, partition, 0, 0, a, b, c, d]
    }

    pub(super) fn decode(&[kind, partition, _, _, a, b, c, d]: &[u8; Self::LEN]) -> Option<Self> {
        match kind {
            1 => {
                let partition = IdPartition::new(partition)?;
                Some(Self::Opened(partition, u32::from_ne_bytes([a, b, c, d])))
            }
            2 => Some(Self::Done),
            3 => Some(Self::InUse),
            4 => Some(Self::Full),
            _ => None,
        }
    }
}

/// Header of a run of datagrams that the service sends to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RunHeader {
    src: IpAddr,
    src_port: u16,
    ident: Ident,
    segment: u16,
    traffic_class: u8,
    hop_limit: u8,
    checksum_verified: bool,
    congested: bool,
}

impl RunHeader {
    pub(super) const LEN: usize = 28;

    /// `None`: no datagram is so long. `congested`: something was lost before.
    pub(super) fn of(run: &DatagramRun<'_>, congested: bool) -> Option<Self> {
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

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (kind, id) = match self.ident {
            Ident::Likely(id) => (0, id),
            Ident::Known { id, dont_fragment } => (1 + u8::from(dont_fragment), id),
        };
        bytes[..16].copy_from_slice(&Gid::from(self.src).0);
        for (field, word) in
            bytes[16..22].chunks_exact_mut(2).zip([self.src_port, self.segment, id])
        {
            field.copy_from_slice(&word.to_ne_bytes());
        }
        bytes[22..].copy_from_slice(&[
            self.traffic_class,
            self.hop_limit,
            kind,
            self.checksum_verified.into(),
            self.congested.into(),
            0,
        ]);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::LEN]) -> Self {
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

    /// Hands over the run that is behind the header.
    pub(super) fn hand_over(
        &self,
        dst: IpAddr,
        bytes: &[u8],
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) {
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

    fn record() -> ConnRecord {
        ConnRecord {
            local: [10, 0, 0, 1].into(),
            remote: [10, 0, 0, 2].into(),
            pkey: PKey(0x8001),
            local_id: *IdPartition::new(62).unwrap().ids().end(),
            remote_id: 0x1234_5678,
            local_qpn: Qpn::new(0xF8_0001),
            remote_qpn: Qpn::new(0x12_3456),
        }
    }

    #[test]
    fn messages_are_what_they_were() {
        let knock = Knock { number: [7; 16], secret: [9; 16] };
        assert_eq!(Knock::all_in(&knock.encode()), [knock]);
        assert_eq!(knock.name(), format!("roce client {}", "07".repeat(16)));
        let service = ServiceId(u64::MAX - 5);
        for request in [
            Request::Open(None),
            Request::Open(IdPartition::new(62)),
            Request::Query(service),
            Request::Claim(service),
            Request::Release(service),
            Request::Keep(Record::of(&record())),
            Request::Erase(0x1234_5678),
        ] {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        let answers = [
            Answer::Opened(IdPartition::new(1).unwrap(), u32::MAX),
            Answer::Done,
            Answer::InUse,
            Answer::Full,
        ];
        for answer in answers {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        assert_eq!(Knock::all_in(&[0; 3 * Knock::LEN]), []);
        let knock = Knock { number: [7; 16], secret: [9; 16] };
        let torn = [&MAGIC[..], &knock.encode(), &[0; 5], &knock.encode(), &knock.encode()[..63]];
        let found = Knock::all_in(&torn.concat());
        assert_eq!((found.len(), &found[1..]), (3, &[knock; 2][..]));
        for start in [[0, 0], [1, 63], [7, 0], [255, 1]] {
            let mut bytes = [0; Request::LEN];
            bytes[..2].copy_from_slice(&start);
            assert_eq!(Request::decode(&bytes), None, "{start:?}");
        }
        for start in [[0, 0], [1, 0], [1, 63], [5, 0]] {
            let mut bytes = [0; Answer::LEN];
            bytes[..2].copy_from_slice(&start);
            assert_eq!(Answer::decode(&bytes), None, "{start:?}");
        }
    }

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
                    let header = RunHeader::of(&run, congested).unwrap();
                    let mut seen = false;
                    RunHeader::decode(&header.encode()).hand_over(net.dst, run.bytes, &mut |got| {
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

    #[test]
    fn what_cannot_be_a_record_is_none() {
        let (good, local) = (record(), IpAddr::from([10, 0, 0, 1]));
        let partition = IdPartition::new(62).unwrap();
        assert_eq!(Record::of(&good).at(local, partition), Some(good));
        for stranger in [
            ConnRecord { local_id: 0, ..good },
            ConnRecord { local_id: *IdPartition::new(8).unwrap().ids().start(), ..good },
            ConnRecord { remote: [0; 4].into(), ..good },
            ConnRecord { remote: [224, 0, 0, 1].into(), ..good },
            ConnRecord { remote: [255; 4].into(), ..good },
            ConnRecord { remote: "fd00::2".parse().unwrap(), ..good },
            ConnRecord { pkey: PKey(0), ..good },
        ] {
            assert_eq!(Record::of(&stranger).at(local, partition), None, "{stranger:?}");
        }
    }
}
