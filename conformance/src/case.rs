//! Cases: name, rule, steps.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use roce_transport::{
    mem::Access,
    qp::{QpType, RequesterAttr, ResponderAttr},
    wire::Operation,
};

/// A case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Name such as `order/gap`: the chapter's file, then its own.
    pub name: String,
    /// The rule for the device under test, with its statement number if known.
    pub rule: String,
    /// Cost to users of a deviation.
    pub cost: String,
    /// Verdict on a deviation.
    pub severity: Severity,
    /// Its steps with line numbers.
    pub steps: Vec<(usize, Step)>,
    /// Its source text with its variables' values.
    pub text: String,
}

/// A file of cases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chapter {
    /// Its file's name without extension.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its cases, in their order.
    pub cases: Vec<Case>,
}

/// Severity of a deviation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Lacks an optional feature.
    Optional,
    /// Breaks the rule: a conforming peer is slowed down or refused.
    Deviates,
    /// Loses, changes or exposes data, or lets a peer stop the device.
    Harmful,
}

pub(crate) const NAK_SEQUENCE: u8 = 0x60;

/// Consecutive request packets of the device, timed and acknowledged by the instrument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Train {
    /// Their number.
    pub packets: u32,
    /// Least time, first to last.
    pub lasts: Duration,
    /// Most time, first to last.
    pub within: Duration,
    /// Least time per packet, as a multiple of that in the case's first burst.
    pub slower: u32,
    /// Interval at which the instrument resends its last packet meanwhile.
    pub again: Option<Duration>,
    /// The packet with this index, from 0, counts as lost on first arrival. Later ones are dropped,
    /// the first with a NAK.
    pub loses: Option<u32>,
}

/// Packets of all queue pairs of the device at once, acknowledged by the instrument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Packets per queue pair.
    pub packets: u32,
    /// Least share of each when the first has finished, in percent of an even share.
    pub least: u32,
    /// Most time, first to last.
    pub within: Duration,
}

/// READs of the device, to which the instrument responds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Responses {
    /// Responses in all without loss.
    pub packets: u32,
    /// Responses lost once, by index from 0.
    pub loses: Vec<u32>,
    /// This response is once sent after the next.
    pub swaps: Option<u32>,
    /// Number of the data's first byte.
    pub seed: u32,
    /// Most time, first request to last response.
    pub within: Duration,
}

/// PFC pause frames (IEEE 802.1Qbb) of the instrument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PauseFrames {
    /// Priorities, one bit each.
    pub priorities: u8,
    /// Time for which the instrument repeats the longest pause, whose length depends on the link's
    /// rate. `None`: one pause, which the device ends itself.
    pub time: Option<Duration>,
}

impl fmt::Display for PauseFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<_> = (0..8).filter(|at| self.priorities >> at & 1 == 1).collect();
        match &named[..] {
            [] => f.write_str("pause of no priority")?,
            [one] => write!(f, "pause of priority {one}")?,
            all if all.len() == 8 => f.write_str("pause of all priorities")?,
            some => {
                let some: Vec<_> = some.iter().map(ToString::to_string).collect();
                write!(f, "pause of priorities {}", some.join(", "))?;
            }
        }
        match self.time {
            Some(time) => write!(f, " for {time:?}"),
            None => f.write_str(", once"),
        }
    }
}

/// A step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A step at another queue pair.
    At {
        /// Index from 0; `None`: each in turn.
        pair: Option<u32>,
        /// The step.
        step: Box<Step>,
    },
    /// The device makes queue pairs and connects them to the instrument.
    Connect(Connection),
    /// The device registers zeroed memory.
    Region {
        /// Name.
        name: String,
        /// Length.
        bytes: u32,
        /// Rights.
        rights: Access,
    },
    /// The device posts a receive request.
    Receive {
        /// Its id.
        id: u64,
        /// Bytes of the buffer.
        bytes: u32,
    },
    /// The device posts a send request.
    Post(Request),
    /// The device binds a memory window, made if it does not exist.
    Bind(Bind),
    /// The device invalidates a memory window.
    Invalidate {
        /// Id of the request.
        id: u64,
        /// The window.
        window: String,
    },
    /// A device that fails up to here lacks an optional feature.
    Supported,
    /// The device's queue pair joins a [`group`].
    Join(u8),
    /// The instrument sends a packet.
    Send(Packet),
    /// The instrument resends its last packet unchanged.
    Again {
        /// Number of times.
        count: u32,
        /// Interval.
        every: Duration,
    },
    /// The instrument sends pause frames during the following steps.
    Pause(PauseFrames),
    /// The device's next packet is this one, in this time.
    Expect {
        /// The packet.
        packet: Packet,
        /// Least time since the step before.
        after: Duration,
        /// Most time since the step before.
        within: Duration,
    },
    /// The device sends consecutive request packets.
    Burst(Train),
    /// All queue pairs of the device send at once.
    Share(Shares),
    /// The device READs.
    Response(Responses),
    /// The device sends nothing for this time.
    Silence {
        /// Duration.
        time: Duration,
        /// Allowed exception, for devices that retransmit early.
        but: Option<Packet>,
    },
    /// The device's next completion is this one.
    Completes(Completes),
    /// The device completes nothing for this time.
    NothingCompletes(Queue, Duration),
    /// The device's program fills memory with a pattern.
    Fill(Pattern),
    /// The device's memory holds a pattern.
    Memory(Pattern),
    /// The device's memory holds the addresses of the instrument's last packet, as in its network
    /// header.
    Header(MemoryLocation),
    /// The device's program sets an 8-byte word in its host's byte order.
    SetWord(MemoryLocation, u64),
    /// An 8-byte word of the device's memory has this value.
    Word(MemoryLocation, u64),
    /// The device's queue pair is, or soon gets, in this state.
    State(String),
    /// Time passes.
    Wait(Duration),
}

/// Queue pairs of the device, connected to the instrument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Their number. First PSNs are those below, and [`PAIR_PSNS`] more for each further one.
    pub pairs: u32,
    /// Service: RC, UC or UD.
    pub qp_type: QpType,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// First PSN that the device receives.
    pub rq_psn: u32,
    /// First PSN that the device sends.
    pub sq_psn: u32,
    /// The peer's access rights.
    pub rights: Access,
    /// Depth for the peer's READs and atomics, and its RNR timer.
    pub responder: ResponderAttr,
    /// Depth for its own READs and atomics, timeout and retries.
    pub requester: RequesterAttr,
    /// Q_Key of a datagram queue pair.
    pub qkey: u32,
    /// Most SGEs of a send request.
    pub max_send_sge: u32,
    /// Most inline bytes of a send request.
    pub max_inline_data: u32,
    /// It receives from an SRQ.
    pub shared: bool,
    /// CM makes it, with a listening program that chooses the received PSN, rights and depths.
    pub by_cm: bool,
}

/// A send request of the device. Data: start of its region `source`, last SGE first; remote memory:
/// [`PEER_ADDRESS`], [`PEER_KEY`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its id.
    pub id: u64,
    /// Operation.
    pub kind: RequestKind,
    /// Bytes.
    pub bytes: u32,
    /// SGEs, all of one length.
    pub pieces: u32,
    /// Inline: data is copied when posted.
    pub inline: bool,
    /// Immediate data of a SEND or WRITE.
    pub immediate: Option<u32>,
    /// Requests a solicited event.
    pub solicited: bool,
    /// Waits for earlier READs and atomics.
    pub fence: bool,
    /// Its L_Key is invalid.
    pub wrong_key: bool,
}

impl Request {
    /// Returns offset and length of each SGE.
    pub fn places(&self) -> impl Iterator<Item = (u32, u32)> {
        let length = self.bytes / self.pieces.max(1);
        (0..self.pieces).rev().map(move |piece| (piece * length, length))
    }
}

/// Operation of a [`Request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap.
    CompareSwap {
        /// Compared value.
        compare: u64,
        /// Value written if equal.
        swap: u64,
    },
    /// Fetch and add.
    FetchAdd {
        /// Added value.
        add: u64,
    },
    /// Atomic WRITE.
    AtomicWrite,
    /// FLUSH to global visibility.
    Flush,
}

/// A bind of a memory window by work request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    /// Id of the request.
    pub id: u64,
    /// Window name; packets may target it.
    pub window: String,
    /// True for type 2, bound to this queue pair; false for type 1.
    pub is_type_2: bool,
    /// Start.
    pub place: MemoryLocation,
    /// Length; zero unbinds type 1.
    pub bytes: u32,
    /// Access rights.
    pub rights: Access,
}

/// Suffix of a window's name for its state before the last bind.
pub const BEFORE: &str = ".before";

/// Distance between the first PSNs of two queue pairs.
pub const PAIR_PSNS: u32 = 0x1000;
/// Bits flipped in a wrong key.
pub const WRONG_KEY: u32 = 0x007F_0000;
/// Address of the instrument's simulated memory.
pub const PEER_ADDRESS: u64 = 0x1_0000_0000;
/// Key of the instrument's simulated memory.
pub const PEER_KEY: u32 = 0x00AB_CD12;

/// Returns a site-local multicast address of the device's address family.
#[must_use]
pub fn group(number: u8, device: IpAddr) -> IpAddr {
    match device {
        IpAddr::V4(_) => Ipv4Addr::new(239, 255, 75, number).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xFF15, 0, 0, 0, 0, 0, 0x4B00, number.into()).into(),
    }
}

/// A packet to send, or to expect; then only named fields count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Operation.
    pub operation: PacketKind,
    /// Its fields in written order.
    pub fields: Vec<Field>,
}

/// Operation of a packet in the queue pair's service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    /// An operation of the service.
    Operation(Operation),
    /// A CNP.
    Cnp,
    /// A CM message in a datagram to queue pair 1.
    Message(Message),
}

/// A CM message (12.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the specification's names")]
pub enum Message {
    Req,
    Mra,
    Rej,
    Rep,
    Rtu,
    Dreq,
    Drep,
    SidrReq,
    SidrRep,
    Lap,
    Apr,
}

impl Message {
    /// All messages with their names in cases.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::Req, "req"),
        (Self::Mra, "mra"),
        (Self::Rej, "rej"),
        (Self::Rep, "rep"),
        (Self::Rtu, "rtu"),
        (Self::Dreq, "dreq"),
        (Self::Drep, "drep"),
        (Self::SidrReq, "sidr-req"),
        (Self::SidrRep, "sidr-rep"),
        (Self::Lap, "lap"),
        (Self::Apr, "apr"),
    ];
}

impl Packet {
    /// Returns true for ACK, NAK and other responses, whose PSN counts from the requester's first.
    #[must_use]
    pub const fn is_response(&self) -> bool {
        matches!(self.operation, PacketKind::Operation(operation) if operation.is_response())
    }
}

/// A field of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Field {
    /// PSN relative to the first of its direction.
    Psn(i32),
    /// BTH: acknowledge request.
    AckReq(bool),
    /// BTH: solicited event.
    Solicited(bool),
    /// BTH: MigReq.
    MigReq(bool),
    /// BTH: whole opcode byte.
    Opcode(u8),
    /// BTH: transport version.
    Version(u8),
    /// BTH: pad count.
    Pad(u8),
    /// BTH: partition key.
    PKey(u16),
    /// BTH: FECN.
    Fecn(bool),
    /// BTH: BECN.
    Becn(bool),
    /// BTH: destination queue pair.
    Qp(u32),
    /// BTH: both reserved fields, all ones.
    Reserved,
    /// Payload: bytes of a pattern.
    Data {
        /// Length.
        bytes: u32,
        /// Number of the first byte.
        seed: u32,
    },
    /// RETH, AtomicETH: address and key.
    Target {
        /// Region of the device, or `peer` for the instrument's memory.
        region: String,
        /// Offset.
        offset: i64,
    },
    /// RETH: length; by default the payload's.
    Length(u32),
    /// RETH, AtomicETH, IETH: key.
    Key(Key),
    /// AETH: ACK; sent without a credit count.
    Positive,
    /// AETH: syndrome.
    Syndrome(u8),
    /// AETH: any NAK that ends the connection.
    Refused,
    /// AETH: RNR NAK with any timer.
    NotReady,
    /// AETH: MSN.
    Msn(u32),
    /// Immediate data.
    Immediate(u32),
    /// AtomicETH: swap or add value.
    Swap(u64),
    /// AtomicETH: compare value.
    Compare(u64),
    /// AtomicAckETH: original value.
    Found(u64),
    /// FETH: placement types.
    Placement(u8),
    /// FETH: selectivity level.
    Selectivity(u8),
    /// DETH: Q_Key.
    QKey(u32),
    /// Wrong ICRC.
    WrongIcrc,
    /// ICRC with the most significant byte first.
    SwappedIcrc,
    /// Bytes missing before the ICRC, which covers the rest.
    Cut(u32),
    /// Zero bytes before the ICRC.
    Extra(u32),
    /// Padding of ones.
    DirtyPadding,
    /// IP: traffic class with ECN.
    TrafficClass(u8),
    /// IP: TTL or hop limit.
    HopLimit(u8),
    /// UDP: source port.
    SourcePort(u16),
    /// Goes to a [`group`] and the multicast queue pair.
    Group(u8),
    /// Field of a CM message.
    Message(MessageField),
}

/// A field of a CM message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageField {
    /// The instrument's communication ID by index, from 1.
    Id(u8),
    /// REQ: the instrument's queue pair by index, from 1; by default the ID's.
    OwnQp(u8),
    /// REQ, SIDR_REQ: service port; by default the listening program's.
    Port(u16),
    /// REQ: transport service code.
    Transport(u8),
    /// REQ: path MTU code.
    PathMtu(u8),
    /// REQ: code of the device's response timeout.
    ResponseTimeout(u8),
    /// REQ: retries of a message without response.
    Retries(u8),
    /// REQ: the path's GID is not the device's.
    WrongGid,
    /// REQ, SIDR_REQ: IP version in the private data (A11).
    IpVersion(u8),
    /// Wrong communication ID of the device.
    WrongPeerId,
    /// DREQ, LAP: wrong queue pair of the device.
    WrongPeerQp,
    /// MRA, REJ: the message it is about.
    About(Message),
    /// MRA: service timeout code.
    ServiceTimeout(u8),
    /// REJ: reason.
    Reason(u16),
    /// SIDR_REP, APR: status.
    Status(u8),
    /// Equals the latest of its kind.
    Same,
    /// MAD: base version.
    BaseVersion(u8),
    /// MAD: class.
    Class(u8),
    /// MAD: class version.
    ClassVersion(u8),
    /// MAD: method.
    Method(u8),
    /// MAD: attribute.
    Attribute(u16),
}

/// Key of a [`Field`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// This one.
    Exact(u32),
    /// Differs from the region's in the upper bits.
    Wrong,
    /// The region's with the lowest bit flipped.
    Old,
}

/// Send or receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Of send requests.
    Send,
    /// Of receive requests.
    Receive,
}

/// An expected completion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completes {
    /// Its queue.
    pub queue: Queue,
    /// Its request.
    pub id: u64,
    /// One of these statuses, named as in verbs without `IBV_WC_`.
    pub statuses: Vec<String>,
    /// Its length.
    pub bytes: Option<u32>,
    /// Its immediate data.
    pub immediate: Option<u32>,
    /// Latest time.
    pub within: Duration,
}

/// A location in the device's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLocation {
    /// Region.
    pub region: String,
    /// Offset.
    pub offset: u32,
}

/// A pattern in the device's memory: byte n is (seed + n) modulo 251.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Start.
    pub place: MemoryLocation,
    /// Length.
    pub bytes: u32,
    /// Number of the first byte.
    pub seed: u32,
}

/// Returns the bytes of a [`Pattern`].
#[must_use]
pub fn pattern(seed: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|n| (seed.wrapping_add(n) % 251) as u8).collect()
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Optional => "not supported",
            Self::Deviates => "deviates",
            Self::Harmful => "harmful",
        })
    }
}

impl Case {
    /// Returns the number of queue pairs that the device makes.
    #[must_use]
    pub fn pairs(&self) -> u32 {
        match self.steps.first() {
            Some((_, Step::Connect(connection))) => connection.pairs,
            _ => 1,
        }
    }

    /// Returns true if the case needs a listening program and no agent.
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
    /// Returns true if it needs an agent.
    #[must_use]
    pub fn needs_agent(&self) -> bool {
        if let Self::At { step, .. } = self {
            return step.needs_agent();
        }
        !matches!(
            self,
            Self::Connect(_)
                | Self::Send(_)
                | Self::Again { .. }
                | Self::Pause(_)
                | Self::Expect { .. }
                | Self::Silence { .. }
                | Self::Supported
                | Self::Wait(_)
        )
    }

    /// Returns true if the device must act, not only refrain: an unplugged device fails here.
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
