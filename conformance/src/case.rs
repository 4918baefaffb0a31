//! Cases: name, rule, steps.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

pub use roce_transport::qp::Queue;
use roce_transport::{
    cm::About,
    mem::Access,
    qp::{QpType, RequesterAttr, ResponderAttr},
    wire::Operation,
};

pub use crate::outcome::PauseFrames;
use crate::{outcome::Verdict, words::Words};

/// A case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Chapter and name, such as `order/gap`.
    pub name: String,
    /// Rule for the device, with its statement number if known.
    pub rule: String,
    /// Cost of a deviation to users.
    pub cost: String,
    /// Verdict on a device that deviates.
    pub severity: Verdict,
    /// Line numbers and steps.
    pub steps: Vec<(usize, Step)>,
    /// Source text with values of variables.
    pub text: String,
}

/// File of cases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chapter {
    /// File name without extension.
    pub name: String,
    /// Title.
    pub title: String,
    /// Cases in order.
    pub cases: Vec<Case>,
}

pub(crate) const NAK_SEQUENCE: u8 = 0x60;

/// Consecutive request packets of the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectedBurst {
    /// Count.
    pub packets: u32,
    /// Least time, first to last.
    pub lasts: Duration,
    /// Most time, first to last.
    pub within: Duration,
    /// Least time per packet, as a multiple of the first burst's.
    pub slower: u32,
    /// Interval at which the instrument resends its last packet meanwhile.
    pub again: Option<Duration>,
    /// Index from 0 of a packet that counts as lost on first arrival. Later packets are dropped,
    /// the first with a NAK.
    pub loses: Option<u32>,
}

/// Packets of all queue pairs of the device at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Packets per queue pair.
    pub packets: u32,
    /// Least share of a queue pair when the first has finished, in percent of an even share.
    pub least: u32,
    /// Most time, first to last.
    pub within: Duration,
}

/// READs of the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Responses {
    /// Responses without loss.
    pub packets: u32,
    /// Responses lost once, by index from 0.
    pub loses: Vec<u32>,
    /// Response sent once after its successor.
    pub swaps: Option<u32>,
    /// Pattern number of the first byte.
    pub seed: u32,
    /// Most time, first request to last response.
    pub within: Duration,
}

/// A step.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "a step's comment describes its fields")]
pub enum Step {
    /// Step at a queue pair, by index from 0; `None`: at each in turn.
    At { pair: Option<u32>, step: Box<Step> },
    /// Queue pairs connected to the instrument.
    Connect(Connection),
    /// Registration of so many zeroed bytes.
    Region { name: String, bytes: u32, rights: Access },
    /// Posted receive request, with a buffer of so many bytes.
    Receive { id: u64, bytes: u32 },
    /// Posted send request.
    Post(Request),
    /// Bind of a memory window, made if missing.
    Bind(Bind),
    /// Invalidation of a memory window by the request `id`.
    Invalidate { id: u64, window: String },
    /// A device that fails before this step lacks an optional feature.
    Supported,
    /// Join of a [`group`].
    Join(u8),
    /// Packet of the instrument.
    Send(Packet),
    /// Unchanged last packet of the instrument, `count` times at the interval `every`.
    Again { count: u32, every: Duration },
    /// Pause frames during the following steps.
    Pause(PauseFrames),
    /// The device's next packet. Least and most time since the last step: `after` and `within`.
    Expect { packet: Packet, after: Duration, within: Duration },
    /// Consecutive request packets.
    Burst(ExpectedBurst),
    /// Traffic of all queue pairs.
    Share(Shares),
    /// READs.
    Response(Responses),
    /// No packet of the device for this time. `but`: exception for devices that retransmit early.
    Silence { time: Duration, but: Option<Packet> },
    /// Next completion.
    Completes(Completes),
    /// No completion.
    NothingCompletes(Queue, Duration),
    /// Write of a pattern.
    Fill(Pattern),
    /// Check of a pattern.
    Memory(Pattern),
    /// Check of the last packet's addresses, as in a network header.
    Header(MemoryLocation),
    /// Write of an 8-byte word in the device's byte order.
    SetWord(MemoryLocation, u64),
    /// Check of an 8-byte word.
    Word(MemoryLocation, u64),
    /// Check of the queue pair's state, now or soon.
    State(String),
    /// Wait.
    Wait(Duration),
}

/// Queue pairs connected to the instrument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Count; each has first PSNs [`PAIR_PSNS`] above its predecessor's.
    pub pairs: u32,
    /// RC, UC or UD.
    pub qp_type: QpType,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// First received PSN.
    pub rq_psn: u32,
    /// First sent PSN.
    pub sq_psn: u32,
    /// Peer's access rights.
    pub rights: Access,
    /// READ and atomic depth, and RNR timer.
    pub responder: ResponderAttr,
    /// READ and atomic depth, timeout and retries.
    pub requester: RequesterAttr,
    /// Q_Key of UD.
    pub qkey: u32,
    /// SGEs per send request.
    pub max_send_sge: u32,
    /// Inline bytes per send request.
    pub max_inline_data: u32,
    /// Receives from an SRQ.
    pub shared: bool,
    /// Connection by CM: a listening program chooses received PSN, rights and depths.
    pub by_cm: bool,
}

/// Send request of the device. Data: start of region `source`, last SGE first. Remote memory:
/// [`PEER_ADDRESS`], [`PEER_KEY`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Id.
    pub id: u64,
    /// Operation.
    pub kind: RequestKind,
    /// Bytes.
    pub bytes: u32,
    /// SGEs of equal length.
    pub pieces: u32,
    /// Inline data, copied when posted.
    pub inline: bool,
    /// Immediate data of a SEND or WRITE.
    pub immediate: Option<u32>,
    /// Solicited event.
    pub solicited: bool,
    /// Fence.
    pub fence: bool,
    /// Invalid L_Key.
    pub wrong_key: bool,
}

impl Request {
    /// Offset and length of each SGE.
    pub fn places(&self) -> impl Iterator<Item = (u32, u32)> {
        let length = self.bytes / self.pieces.max(1);
        (0..self.pieces).rev().map(move |piece| (piece * length, length))
    }
}

/// Operation of a [`Request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "an operation's comment describes its fields")]
pub enum RequestKind {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap: `swap` is written if the word equals `compare`.
    CompareSwap { compare: u64, swap: u64 },
    /// Fetch and add of this value.
    FetchAdd { add: u64 },
    /// Atomic WRITE.
    AtomicWrite,
    /// FLUSH to global visibility.
    Flush,
}

/// Bind of a memory window by work request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    /// Request id.
    pub id: u64,
    /// Window; packets may target it.
    pub window: String,
    /// Type 2, bound to this queue pair, instead of type 1.
    pub is_type_2: bool,
    /// Start.
    pub place: MemoryLocation,
    /// Length; zero unbinds type 1.
    pub bytes: u32,
    /// Access rights.
    pub rights: Access,
}

/// Suffix of a window's name before its last bind.
pub const BEFORE: &str = ".before";

/// Distance between first PSNs of queue pairs.
pub const PAIR_PSNS: u32 = 0x1000;
/// Bits flipped in a wrong key.
pub const WRONG_KEY: u32 = 0x007F_0000;
/// Address of the instrument's memory.
pub const PEER_ADDRESS: u64 = 0x1_0000_0000;
/// Key of the instrument's memory.
pub const PEER_KEY: u32 = 0x00AB_CD12;

/// Site-local multicast address of the device's family.
#[must_use]
pub fn group(number: u8, device: IpAddr) -> IpAddr {
    match device {
        IpAddr::V4(_) => Ipv4Addr::new(239, 255, 75, number).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xFF15, 0, 0, 0, 0, 0, 0x4B00, number.into()).into(),
    }
}

/// Packet to send or expect. Expected packets match by named fields only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Operation.
    pub operation: PacketKind,
    /// Fields in written order.
    pub fields: Vec<Field>,
}

/// Operation of a [`Packet`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    /// Operation of the queue pair's service.
    Operation(Operation),
    /// A CNP.
    Cnp,
    /// CM message to queue pair 1.
    Message(Message),
}

macro_rules! messages {
    ($($message:ident $name:literal;)*) => {
        /// CM message (12.6).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[allow(missing_docs, reason = "the specification's names")]
        pub enum Message { $($message,)* }

        impl Message {
            /// Messages and their names in cases.
            pub const ALL: &[(Self, &str)] = &[$((Self::$message, $name),)*];
        }
    };
}

messages! {
    Req "req"; Mra "mra"; Rej "rej"; Rep "rep"; Rtu "rtu"; Dreq "dreq"; Drep "drep";
    SidrReq "sidr-req"; SidrRep "sidr-rep"; Lap "lap"; Apr "apr";
}

/// The braces hold variants that the parser builds; the others take one number or none.
macro_rules! fields {
    ({ $($built:tt)* } $($word:literal $field:ident$(($number:ty))? $doc:literal;)*) => {
        /// A field of a packet.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[allow(missing_docs, reason = "a field's comment describes its parts")]
        pub enum Field {
            $($built)*
            $(#[doc = $doc] $field$(($number))?,)*
        }

        impl Field {
            /// Field of a word, unless the parser builds it.
            pub(crate) fn read(word: &str, words: &mut Words<'_>) -> Result<Option<Self>, String> {
                Ok(Some(match word {
                    $($word => Self::$field$((words.number::<$number>(word)?))?,)*
                    _ => return Ok(None),
                }))
            }
        }
    };
}

fields! {
    {
        /// PSN relative to its direction's first.
        Psn(i32),
        /// BTH: acknowledge request.
        AckReq(bool),
        /// BTH: solicited event.
        Solicited(bool),
        /// BTH: MigReq.
        MigReq(bool),
        /// BTH: FECN.
        Fecn(bool),
        /// BTH: BECN.
        Becn(bool),
        /// Payload of so many bytes. `seed`: pattern number of the first.
        Data { bytes: u32, seed: u32 },
        /// RETH, AtomicETH: address and key of a region, or of `peer`, the instrument's memory.
        Target { region: String, offset: i64 },
        /// RETH, AtomicETH, IETH: key.
        Key(Key),
        /// AETH: ACK, sent without credits.
        Positive,
        /// AETH: NAK that ends the connection.
        Refused,
        /// AETH: RNR NAK with any timer.
        NotReady,
        /// MRA, REJ: its subject.
        About(About),
    }
    "opcode" Opcode(u8) "BTH: opcode byte.";
    "version" Version(u8) "BTH: transport version.";
    "pad" Pad(u8) "BTH: pad count.";
    "pkey" PKey(u16) "BTH: partition key.";
    "qp" Qp(u32) "BTH: destination queue pair.";
    "reserved" Reserved "BTH: reserved fields of ones.";
    "length" Length(u32) "RETH: length instead of the payload's.";
    "syndrome" Syndrome(u8) "AETH: syndrome.";
    "msn" Msn(u32) "AETH: MSN.";
    "immediate" Immediate(u32) "Immediate data.";
    "swap" Swap(u64) "AtomicETH: swap or add value.";
    "compare" Compare(u64) "AtomicETH: compare value.";
    "found" Found(u64) "AtomicAckETH: original value.";
    "placement" Placement(u8) "FETH: placement types.";
    "selectivity" Selectivity(u8) "FETH: selectivity level.";
    "qkey" QKey(u32) "DETH: Q_Key.";
    "wrong-icrc" WrongIcrc "Wrong ICRC.";
    "swapped-icrc" SwappedIcrc "Byte-swapped ICRC.";
    "cut" Cut(u32) "Bytes missing before the ICRC, which covers the rest.";
    "extra" Extra(u32) "Zero bytes before the ICRC.";
    "dirty-padding" DirtyPadding "Padding of ones.";
    "tclass" TrafficClass(u8) "IP: traffic class with ECN.";
    "hop-limit" HopLimit(u8) "IP: TTL or hop limit.";
    "source-port" SourcePort(u16) "UDP: source port.";
    "group" Group(u8) "Destination: a [`group`] and the multicast queue pair.";
    // of CM messages
    "id" Id(u8) "Index from 1 of the instrument's communication ID.";
    "own-qp" OwnQp(u8) "REQ: index from 1 of the instrument's queue pair; by default the ID's.";
    "port" Port(u16) "REQ, SIDR_REQ: port instead of the listening program's.";
    "transport" Transport(u8) "REQ: transport service code.";
    "path-mtu" PathMtu(u8) "REQ: path MTU code.";
    "response-timeout" ResponseTimeout(u8) "REQ: response timeout code.";
    "cm-retries" Retries(u8) "REQ: CM retries.";
    "wrong-gid" WrongGid "REQ: another GID than the device's.";
    "ip-version" IpVersion(u8) "REQ, SIDR_REQ: IP version in the private data (A11).";
    "wrong-peer-id" WrongPeerId "Wrong communication ID.";
    "wrong-peer-qp" WrongPeerQp "DREQ, LAP: wrong queue pair.";
    "service-timeout" ServiceTimeout(u8) "MRA: service timeout code.";
    "reason" Reason(u16) "REJ: reason.";
    "status" Status(u8) "SIDR_REP, APR: status.";
    "same" Same "Equal to the latest of its kind.";
    "base-version" BaseVersion(u8) "MAD: base version.";
    "class" Class(u8) "MAD: class.";
    "class-version" ClassVersion(u8) "MAD: class version.";
    "method" Method(u8) "MAD: method.";
    "attribute" Attribute(u16) "MAD: attribute.";
}

/// Key of a [`Field`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// This key.
    Exact(u32),
    /// Upper bits differ.
    Wrong,
    /// Lowest bit flipped.
    Old,
}

/// Expected completion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completes {
    /// Queue.
    pub queue: Queue,
    /// Request.
    pub id: u64,
    /// Allowed statuses, named as in verbs without `IBV_WC_`.
    pub statuses: Vec<String>,
    /// Length.
    pub bytes: Option<u32>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Latest time.
    pub within: Duration,
}

/// Location in the device's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLocation {
    /// Region.
    pub region: String,
    /// Offset.
    pub offset: u32,
}

/// Pattern in the device's memory: byte n is (seed + n) modulo 251.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Start.
    pub place: MemoryLocation,
    /// Length.
    pub bytes: u32,
    /// Number of the first byte.
    pub seed: u32,
}

/// Bytes of a [`Pattern`].
#[must_use]
pub fn pattern(seed: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|n| (seed.wrapping_add(n) % 251) as u8).collect()
}

impl Case {
    /// Queue pairs that the device makes.
    #[must_use]
    pub fn pairs(&self) -> u32 {
        match self.steps.first() {
            Some((_, Step::Connect(connection))) => connection.pairs,
            _ => 1,
        }
    }

    /// True if the case needs a listening program and no agent.
    #[must_use]
    pub fn is_by_cm(&self) -> bool {
        match self.steps.first() {
            Some((_, Step::Connect(connection))) => connection.by_cm,
            Some((_, Step::Send(packet))) => matches!(packet.operation, PacketKind::Message(_)),
            _ => false,
        }
    }
}

impl Step {
    /// True if the step needs an agent.
    #[must_use]
    pub fn needs_agent(&self) -> bool {
        match self {
            Self::At { step, .. } => step.needs_agent(),
            Self::Connect(_) | Self::Send(_) | Self::Again { .. } | Self::Pause(_) => false,
            Self::Expect { .. } | Self::Silence { .. } | Self::Supported | Self::Wait(_) => false,
            _ => true,
        }
    }

    /// True if the step fails at an unplugged device.
    #[must_use]
    pub fn needs_life(&self) -> bool {
        match self {
            Self::At { step, .. } => step.needs_life(),
            Self::Expect { .. } | Self::Completes(_) => true,
            Self::Burst(_) | Self::Share(_) | Self::Response(_) => true,
            _ => false,
        }
    }
}
