//! A case: its name, its rule, and its steps.

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
    /// Its name, such as `order/gap`: the chapter's file, and its own.
    pub name: String,
    /// The rule for the device under test, with the statement's number where it is known.
    pub rule: String,
    /// Cost to users if the device does otherwise.
    pub cost: String,
    /// The verdict on a device that does otherwise.
    pub severity: Severity,
    /// Its steps, each with the number of its line.
    pub steps: Vec<(usize, Step)>,
    /// Its text, as it is written, with the values of its variables.
    pub text: String,
}

/// A file of cases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chapter {
    /// Its file's name, without its ending.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its cases, in their order.
    pub cases: Vec<Case>,
}

/// How bad it is if a device does otherwise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// It has not what the case is about, which the specification leaves to it.
    Optional,
    /// It departs from the rule; a peer that keeps the rules is slowed down or refused.
    Deviates,
    /// Data is lost, changed, or open to those who may not have it, or a peer can stop the device.
    Harmful,
}

/// Syndrome of a NAK that names a gap.
pub(crate) const NAK_SEQUENCE: u8 = 0x60;

/// Packets of requests that the device sends one behind the other, whose times are noted, and which
/// the instrument acknowledges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Train {
    /// How many.
    pub packets: u32,
    /// Not less than this from the first to the last.
    pub lasts: Duration,
    /// Not more than this from the first to the last.
    pub within: Duration,
    /// Least time per packet, as a multiple of that in the case's first burst.
    pub slower: u32,
    /// Meanwhile the instrument sends its last packet again, each time after so long.
    pub again: Option<Duration>,
    /// The packet with this index, from 0, counts as lost when it first arrives. Packets behind it
    /// are dropped, and the first of them is answered with a NAK.
    pub loses: Option<u32>,
}

/// Packets that all queue pairs of the device send at once, which the instrument acknowledges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shares {
    /// How many each of them sends.
    pub packets: u32,
    /// Least share of each when the first has sent all, in percent of an even share.
    pub least: u32,
    /// Not more than this from the first packet to the last.
    pub within: Duration,
}

/// READs of the device, which the instrument answers as a responder does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answers {
    /// Responses that there are in all, if none is lost.
    pub packets: u32,
    /// The responses at these places, from 0, are lost once.
    pub loses: Vec<u32>,
    /// The response at this place comes once behind the next one.
    pub swaps: Option<u32>,
    /// Number of the first byte of the data.
    pub seed: u32,
    /// Not more than this from the first request to the last response.
    pub within: Duration,
}

/// Pause frames of priority flow control (IEEE 802.1Qbb) that the instrument sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PauseFrames {
    /// The priorities that they name, a bit each.
    pub priorities: u8,
    /// Time for which the instrument repeats the longest pause. The length of a pause depends on
    /// the link's rate. `None`: one pause, whose end the device finds itself.
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
    /// A step at another queue pair than the first.
    At {
        /// Which one, from 0; `None` for each of them, one after the other.
        pair: Option<u32>,
        /// The step.
        step: Box<Step>,
    },
    /// The device makes a queue pair and connects it to the instrument.
    Connect(Connection),
    /// The device registers memory, all zero.
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
        /// Room.
        bytes: u32,
    },
    /// The device posts a send request.
    Post(Request),
    /// The device binds a memory window, which it makes if it has none of this name.
    Bind(Bind),
    /// The device invalidates a memory window.
    Invalidate {
        /// Id of the request.
        id: u64,
        /// The window.
        window: String,
    },
    /// A device that fails before has not what the case is about, which the specification leaves to
    /// it.
    Supported,
    /// The device's queue pair joins a [`group`].
    Join(u8),
    /// The instrument sends a packet.
    Send(Packet),
    /// The instrument sends its last packet again, byte for byte.
    Again {
        /// How often.
        count: u32,
        /// How long after the one before.
        every: Duration,
    },
    /// The instrument sends pause frames while the steps behind this one are played.
    Pause(PauseFrames),
    /// The next packet of the device is this one, and comes in this time.
    Expect {
        /// The packet.
        packet: Packet,
        /// Not earlier than this after the step before.
        after: Duration,
        /// Not later than this after the step before.
        within: Duration,
    },
    /// The device sends packets of requests one behind the other.
    Burst(Train),
    /// All queue pairs of the device send at once.
    Share(Shares),
    /// The device reads.
    Answer(Answers),
    /// The device sends nothing for so long.
    Silence {
        /// How long.
        time: Duration,
        /// It may send this one, as devices do that repeat early.
        but: Option<Packet>,
    },
    /// The next completion at the device is this one.
    Completes(Completes),
    /// Nothing completes at the device for so long.
    NothingCompletes(Queue, Duration),
    /// The device's program fills memory with a pattern.
    Fill(Pattern),
    /// Memory of the device holds a pattern.
    Memory(Pattern),
    /// Memory of the device holds the addresses of the instrument's last packet, as the network
    /// header has them.
    Header(MemoryLocation),
    /// The device's program sets an 8-byte word, in its host's byte order.
    SetWord(MemoryLocation, u64),
    /// An 8-byte word of the device's memory has this value.
    Word(MemoryLocation, u64),
    /// The queue pair of the device is in this state, or comes to it within a moment.
    State(String),
    /// Time passes.
    Wait(Duration),
}

/// Queue pairs of the device, and how they are connected to the instrument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// How many there are. Each has other first PSNs: those below and [`PAIR_PSNS`] more than the
    /// one before it.
    pub pairs: u32,
    /// Its service: RC, UC or UD.
    pub qp_type: QpType,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// First PSN that the device expects.
    pub rq_psn: u32,
    /// First PSN that the device sends.
    pub sq_psn: u32,
    /// Rights of the peer.
    pub rights: Access,
    /// Depth for the peer's READs and atomics, and the wait that it asks of a requester that finds
    /// no receive request.
    pub responder: ResponderAttr,
    /// Depth for its own, its timeout and its retries.
    pub requester: RequesterAttr,
    /// Queue key of a datagram queue pair.
    pub qkey: u32,
    /// Pieces of memory that a send request may have.
    pub max_send_sge: u32,
    /// Bytes that a send request may have inline.
    pub max_inline_data: u32,
    /// It receives from a shared receive queue.
    pub shared: bool,
    /// It is made by connection management, by a program that listens; what the device expects is
    /// then its own choice, as are its rights and depths.
    pub by_cm: bool,
}

/// A send request of the device. Its data lies at the start of its region `source`, the last of its
/// pieces first, and its remote memory at [`PEER_ADDRESS`], under [`PEER_KEY`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its id.
    pub id: u64,
    /// Operation.
    pub kind: RequestKind,
    /// Bytes.
    pub bytes: u32,
    /// Pieces of its own memory, all of one length.
    pub pieces: u32,
    /// Its data is copied while it is posted.
    pub inline: bool,
    /// Immediate data of a SEND or WRITE.
    pub immediate: Option<u32>,
    /// The receiver gets a solicited event.
    pub solicited: bool,
    /// Not before READs and atomics that were posted earlier are complete.
    pub fence: bool,
    /// The key of its own memory is none.
    pub wrong_key: bool,
}

impl Request {
    /// Offset and length of each piece of its own memory.
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
        /// Compared with.
        compare: u64,
        /// Written, if they are equal.
        swap: u64,
    },
    /// Fetch and add.
    FetchAdd {
        /// Added.
        add: u64,
    },
    /// Atomic WRITE.
    AtomicWrite,
    /// FLUSH to global visibility.
    Flush,
}

/// A memory window of the device, bound by a work request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    /// Id of the request.
    pub id: u64,
    /// Name of the window, which packets may then go to.
    pub window: String,
    /// True for a window of type 2, of this queue pair alone; false for one of type 1.
    pub is_type_2: bool,
    /// Where it begins.
    pub place: MemoryLocation,
    /// Length; of type 1, no bytes unbind it.
    pub bytes: u32,
    /// Rights of peers.
    pub rights: Access,
}

/// Suffix of a window's name for its state before its last bind.
pub const BEFORE: &str = ".before";

/// PSNs from the first of a queue pair to the first of the next one.
pub const PAIR_PSNS: u32 = 0x1000;
/// Bits in which a wrong key differs.
pub const WRONG_KEY: u32 = 0x007F_0000;
/// Address of the memory that the instrument seems to have.
pub const PEER_ADDRESS: u64 = 0x1_0000_0000;
/// Key of the memory that the instrument seems to have.
pub const PEER_KEY: u32 = 0x00AB_CD12;

/// Address of a multicast group, of the family of the device's address. Its scope is the site.
#[must_use]
pub fn group(number: u8, device: IpAddr) -> IpAddr {
    match device {
        IpAddr::V4(_) => Ipv4Addr::new(239, 255, 75, number).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xFF15, 0, 0, 0, 0, 0, 0x4B00, number.into()).into(),
    }
}

/// A packet: as it is sent, or as it is expected, in which case only what is named counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Operation.
    pub operation: PacketKind,
    /// Fields, in the order in which they are written.
    pub fields: Vec<Field>,
}

/// Operation of a packet, in the service of the queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    /// One of the service.
    Operation(Operation),
    /// A congestion notification.
    Cnp,
    /// A message of connection management, in a datagram to queue pair 1.
    Message(Message),
}

/// A message of connection management (12.6).
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
    /// Every message, with its name in cases.
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
    /// True for ACK, NAK and other answers, whose PSN counts from the requester's first one.
    #[must_use]
    pub const fn is_response(&self) -> bool {
        matches!(self.operation, PacketKind::Operation(operation) if operation.is_response())
    }
}

/// A field of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Field {
    /// PSN, counted from the first one of the direction that it belongs to.
    Psn(i32),
    /// BTH: an acknowledgement is asked for.
    AckReq(bool),
    /// BTH: a solicited event is asked for.
    Solicited(bool),
    /// BTH: migrated.
    MigReq(bool),
    /// BTH: the whole byte of the opcode.
    Opcode(u8),
    /// BTH: transport version.
    Version(u8),
    /// BTH: pad count.
    Pad(u8),
    /// BTH: partition key.
    PKey(u16),
    /// BTH: forward congestion notification.
    Fecn(bool),
    /// BTH: backward congestion notification.
    Becn(bool),
    /// BTH: destination queue pair.
    Qp(u32),
    /// BTH: both reserved fields, all ones.
    Reserved,
    /// Payload: so many bytes of a pattern.
    Data {
        /// Length.
        bytes: u32,
        /// Number of the first byte.
        seed: u32,
    },
    /// RETH, AtomicETH: address and key.
    Target {
        /// Region of the device, or `peer` for memory of the instrument.
        region: String,
        /// Offset.
        offset: i64,
    },
    /// RETH: length; without it that of the payload.
    Length(u32),
    /// RETH, AtomicETH, IETH: key.
    Key(Key),
    /// AETH: a positive acknowledgement; sent, with no credit count.
    Positive,
    /// AETH: syndrome.
    Syndrome(u8),
    /// AETH: a NAK that ends the connection, for whichever reason.
    Refused,
    /// AETH: an RNR NAK with any timer code.
    NotReady,
    /// AETH: message sequence number.
    Msn(u32),
    /// Immediate data.
    Immediate(u32),
    /// AtomicETH: swapped in or added.
    Swap(u64),
    /// AtomicETH: compared with.
    Compare(u64),
    /// AtomicAckETH: what was found.
    Found(u64),
    /// FETH: placement types.
    Placement(u8),
    /// FETH: selectivity level.
    Selectivity(u8),
    /// DETH: queue key.
    QKey(u32),
    /// The ICRC is not right.
    WrongIcrc,
    /// The ICRC is sent most significant byte first.
    SwappedIcrc,
    /// Number of bytes missing before the ICRC, which fits the rest.
    Cut(u32),
    /// Number of zero bytes before the ICRC.
    Extra(u32),
    /// Padding has ones in it.
    DirtyPadding,
    /// IP: traffic class, ECN bits included.
    TrafficClass(u8),
    /// IP: TTL or hop limit.
    HopLimit(u8),
    /// UDP: source port.
    SourcePort(u16),
    /// It goes to a [`group`], and the queue pair of groups.
    Group(u8),
    /// Field of a message of connection management.
    Message(MessageField),
}

/// A field of a message of connection management.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageField {
    /// Which of the instrument's communication IDs it has, counted from 1.
    Id(u8),
    /// REQ: which of the instrument's queue pairs, counted from 1; without it as the ID.
    OwnQp(u8),
    /// REQ, SIDR_REQ: port of the service; without it that of the program that listens.
    Port(u16),
    /// REQ: code of the transport service.
    Transport(u8),
    /// REQ: code of the path MTU.
    PathMtu(u8),
    /// REQ: code of the time for which the device waits for an answer.
    ResponseTimeout(u8),
    /// REQ: how often a message without an answer is sent again.
    Retries(u8),
    /// REQ: the path leads to an address that is not the device's.
    WrongGid,
    /// REQ, SIDR_REQ: version of the IP header in the private data (A11).
    IpVersion(u8),
    /// The communication ID of the device is another.
    WrongPeerId,
    /// DREQ, LAP: the queue pair of the device is another.
    WrongPeerQp,
    /// MRA, REJ: the message that it is about.
    About(Message),
    /// MRA: code of the time until the answer.
    ServiceTimeout(u8),
    /// REJ: reason.
    Reason(u16),
    /// SIDR_REP, APR: status.
    Status(u8),
    /// It is the same as the latest of its kind.
    Same,
    /// MAD: version of the frame.
    BaseVersion(u8),
    /// MAD: class.
    Class(u8),
    /// MAD: version of the class.
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
    /// One that is not the region's, in its upper bits.
    Wrong,
    /// Key of the region with its lowest bit changed.
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

/// A completion that is expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completes {
    /// Of which queue.
    pub queue: Queue,
    /// Of which request.
    pub id: u64,
    /// Its status, as verbs name it without `IBV_WC_`; one of several.
    pub statuses: Vec<String>,
    /// Its length.
    pub bytes: Option<u32>,
    /// Its immediate data.
    pub immediate: Option<u32>,
    /// It comes in this time.
    pub within: Duration,
}

/// A place in the device's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLocation {
    /// Region.
    pub region: String,
    /// Offset.
    pub offset: u32,
}

/// Bytes of a pattern in the device's memory: byte n is (seed + n) modulo 251.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Where.
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
    /// Queue pairs that the device makes.
    #[must_use]
    pub fn pairs(&self) -> u32 {
        match self.steps.first() {
            Some((_, Step::Connect(connection))) => connection.pairs,
            _ => 1,
        }
    }

    /// True for a case that needs a program that listens for connections, and no agent.
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
    /// True if it needs an agent at the device.
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

    /// True if the step says of the device that it does something, not only that it refrains: what
    /// is unplugged fails there.
    #[must_use]
    pub fn needs_life(&self) -> bool {
        match self {
            Self::At { step, .. } => step.needs_life(),
            Self::Expect { .. } | Self::Completes(_) => true,
            Self::Burst(_) | Self::Share(_) | Self::Answer(_) => true,
            _ => false,
        }
    }
}
