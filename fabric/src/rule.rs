//! Rules: which datagrams, how often, and what happens to them.

use std::{net::IpAddr, ops::RangeInclusive, time::Duration};

use roce_transport::{
    addr::Qpn,
    psn::Psn,
    wire::{NetHeader, Operation, Packet, PacketPosition, Service, Syndrome},
};

/// Direction of a datagram, seen from the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From the adapter to the link.
    Sent,
    /// From the link to the adapter.
    Received,
}

/// A family of packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// SEND, WRITE and READ requests and atomics; datagrams of UD, too.
    Request,
    /// Acknowledgements of every kind and READ responses.
    Response,
    /// A packet of a SEND.
    Send,
    /// A packet of an RDMA WRITE.
    Write,
    /// A READ request.
    ReadRequest,
    /// A packet of the answer to a READ.
    ReadResponse,
    /// A positive acknowledgement.
    Ack,
    /// A NAK that is not an RNR NAK.
    Nak,
    /// An RNR NAK.
    RnrNak,
    /// A congestion notification.
    Cnp,
    /// This operation and no other.
    Operation(Operation),
    /// A message of connection management, by its attribute.
    Connecting(u16),
}

impl Kind {
    fn matches(self, packet: &Packet<'_>) -> bool {
        use Operation as Op;
        let operation = packet.headers.bth().opcode.operation();
        let syndrome = packet.headers.ext().aeth().map(|aeth| aeth.syndrome);
        let is_cnp = packet.headers.bth().opcode.service() == Service::Cnp;
        if is_cnp || self == Self::Cnp {
            return is_cnp && self == Self::Cnp;
        }
        match self {
            Self::Request => !operation.is_response(),
            Self::Response => operation.is_response(),
            Self::Send => is_send(operation),
            Self::Write => {
                (Op::WriteFirst as u8..Op::ReadRequest as u8).contains(&(operation as u8))
            }
            Self::ReadRequest => operation == Op::ReadRequest,
            Self::ReadResponse => {
                (Op::ReadResponseFirst as u8..Op::Acknowledge as u8).contains(&(operation as u8))
            }
            Self::Ack => {
                operation == Op::Acknowledge && matches!(syndrome, Some(Syndrome::Ack { .. }))
            }
            Self::Nak => operation == Op::Acknowledge && matches!(syndrome, Some(Syndrome::Nak(_))),
            Self::RnrNak => {
                operation == Op::Acknowledge && matches!(syndrome, Some(Syndrome::RnrNak { .. }))
            }
            Self::Operation(this) => operation == this,
            Self::Connecting(attribute) => message_of(packet) == Some(attribute),
            Self::Cnp => false,
        }
    }
}

/// Condition of a rule: it looks at datagrams that agree with every field that is set. By default
/// at all of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Matcher {
    /// The kind of packet.
    pub kind: Option<Kind>,
    /// The packet's place in its message.
    pub place: Option<PacketPosition>,
    /// The destination queue pair.
    pub dest_qp: Option<Qpn>,
    /// The packet's PSN, both ends included. A range whose end is the smaller number goes across
    /// the wrap.
    pub psn: Option<RangeInclusive<u32>>,
    /// The sender's address.
    pub src: Option<IpAddr>,
    /// The receiver's address.
    pub dst: Option<IpAddr>,
}

impl Matcher {
    /// True if the datagram matches. One that is no packet of this transport has addresses and
    /// nothing else.
    #[must_use]
    pub fn matches(&self, net: &NetHeader, packet: Option<&Packet<'_>>) -> bool {
        let Self { kind, place, dest_qp, psn, src, dst } = self;
        let needs_packet = kind.is_some() || place.is_some() || dest_qp.is_some() || psn.is_some();
        let addresses =
            src.is_none_or(|src| src == net.src) && dst.is_none_or(|dst| dst == net.dst);
        let Some(packet) = packet else { return addresses && !needs_packet };
        let bth = packet.headers.bth();
        addresses
            && kind.is_none_or(|kind| kind.matches(packet))
            && place.is_none_or(|place| place == bth.opcode.operation().position())
            && dest_qp.is_none_or(|qpn| qpn == bth.dest_qp)
            && psn.as_ref().is_none_or(|range| {
                let (first, last) = (Psn::new(*range.start()), Psn::new(*range.end()));
                bth.psn.after(first).is_some() && last.after(bth.psn).is_some()
            })
    }
}

/// Selection among the datagrams that match.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Frequency {
    /// All.
    #[default]
    Always,
    /// Each with this probability, 0..=1.
    Chance(f64),
    /// Every n-th: with 3, the third, the sixth, …
    Every(u64),
    /// Only the n-th, counted from 1.
    Nth(u64),
}

/// A change of one byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Corruption {
    /// Index of the byte in the UDP payload; beyond its end, counting goes on at its start.
    pub offset: usize,
    /// The bits to flip.
    pub mask: u8,
}

impl Corruption {
    /// Changes the byte.
    pub fn apply(&self, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            bytes[self.offset % bytes.len()] ^= self.mask;
        }
    }
}

/// Action on a datagram that a rule hits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Nothing: the datagram arrives, whatever later rules and the conditions say, if the ports and
    /// receive buffers on its way have room.
    Pass,
    /// Loses the datagram.
    Drop,
    /// Delivers it twice.
    Duplicate,
    /// Delays it by this time.
    Delay(Duration),
    /// Changes some of its bits; `None` for a random byte.
    Corrupt(Option<Corruption>),
    /// Marks it "congestion experienced".
    Mark,
    /// The receiver counts as not ready, as without a receive request. A SEND or a WRITE with
    /// immediate data is answered with an RNR NAK, and its requester retries. The rule applies to
    /// received packets of reliable services that need a receive request.
    NotReady,
}

/// The attribute of a message of connection management.
fn message_of(packet: &Packet<'_>) -> Option<u16> {
    const CLASS: u8 = 7;
    let is_it =
        packet.headers.bth().dest_qp == Qpn::new(1) && packet.payload.get(1) == Some(&CLASS);
    let attribute = packet.payload.get(16..18).filter(|_| is_it)?;
    Some(u16::from_be_bytes([attribute[0], attribute[1]]))
}

const fn is_send(operation: Operation) -> bool {
    use Operation as Op;
    (operation as u8) < Op::WriteFirst as u8
        || matches!(operation, Op::SendLastInvalidate | Op::SendOnlyInvalidate)
}

/// True if the packet takes a receive request, and an RNR NAK answers it when there is none.
pub(super) fn asks_for_receive(packet: &Packet<'_>) -> bool {
    use Operation as Op;
    let opcode = packet.headers.bth().opcode;
    let first_of_send = is_send(opcode.operation()) && opcode.operation().position().starts();
    matches!(opcode.service(), Service::Rc | Service::Xrc)
        && (first_of_send || matches!(opcode.operation(), Op::WriteLastImm | Op::WriteOnlyImm))
}

/// A rule for single datagrams. Of several rules the first that hits decides, and the general
/// conditions are left aside.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// Condition that a datagram must match.
    pub matcher: Matcher,
    /// Selection among those that match.
    pub frequency: Frequency,
    /// Action on those that are hit.
    pub action: Action,
    /// Greatest number of datagrams that it hits; `None` for no limit.
    pub times: Option<u64>,
    /// Only what the device sends, or only what it receives; `None` for both. On a network in the
    /// process every datagram is both, and this does not matter.
    pub direction: Option<Direction>,
}

impl Rule {
    /// True if the rule looks at datagrams in this direction. One about a receiver that is not
    /// ready looks at received ones only.
    #[must_use]
    pub fn concerns(&self, direction: Direction) -> bool {
        self.direction.is_none_or(|its| its == direction)
            && (self.action != Action::NotReady || direction == Direction::Received)
    }

    /// A rule that hits everything that matches.
    #[must_use]
    pub const fn new(matcher: Matcher, action: Action) -> Self {
        Self { matcher, frequency: Frequency::Always, action, times: None, direction: None }
    }

    /// The same rule, but it hits at most so many datagrams.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// The same rule, but it hits only the `n`-th datagram that matches, counted from 1.
    #[must_use]
    pub const fn nth(mut self, n: u64) -> Self {
        self.frequency = Frequency::Nth(n);
        self
    }
}
