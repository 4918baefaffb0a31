use std::{net::IpAddr, ops::RangeInclusive, time::Duration};

use roce_transport::{
    addr::Qpn,
    psn::Psn,
    wire::{MadHeader, NetHeader, Operation, Packet, PacketPosition, Service, Syndrome},
};

/// Direction, seen from the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Adapter to link.
    Sent,
    /// Link to adapter.
    Received,
}

/// Family of packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// SEND, WRITE, READ, atomic and UD requests.
    Request,
    /// Acknowledgements and READ responses.
    Response,
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// READ request.
    ReadRequest,
    /// READ response.
    ReadResponse,
    /// Positive acknowledgement.
    Ack,
    /// NAK, not RNR.
    Nak,
    /// RNR NAK.
    RnrNak,
    /// Congestion notification.
    Cnp,
    /// One operation.
    Operation(Operation),
    /// CM message, by its attribute.
    Connecting(u16),
}

impl Kind {
    fn matches(self, packet: &Packet<'_>) -> bool {
        use Operation as Op;
        let operation = packet.headers.bth().opcode.operation();
        let aeth = packet.headers.ext().aeth().filter(|_| operation == Op::Acknowledge);
        let syndrome = aeth.map(|aeth| aeth.syndrome);
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
            Self::Ack => matches!(syndrome, Some(Syndrome::Ack { .. })),
            Self::Nak => matches!(syndrome, Some(Syndrome::Nak(_))),
            Self::RnrNak => matches!(syndrome, Some(Syndrome::RnrNak { .. })),
            Self::Operation(this) => operation == this,
            Self::Connecting(attribute) => message_of(packet) == Some(attribute),
            Self::Cnp => false,
        }
    }
}

/// Condition of a rule: all set fields must match.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Matcher {
    /// Kind of packet.
    pub kind: Option<Kind>,
    /// Position in the message.
    pub place: Option<PacketPosition>,
    /// Destination queue pair.
    pub dest_qp: Option<Qpn>,
    /// PSN range, inclusive; wraps if the end is smaller.
    pub psn: Option<RangeInclusive<u32>>,
    /// Sender's address.
    pub src: Option<IpAddr>,
    /// Receiver's address.
    pub dst: Option<IpAddr>,
}

impl Matcher {
    /// True for a match. A malformed packet has only addresses.
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

/// Selection among matches: `3%`, `every 7`, `nth 3`, `once`, `twice`, `times 5`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Often {
    /// Selection; `None`: all.
    pub frequency: Option<Frequency>,
    /// Most hits; `None`: unlimited.
    pub times: Option<u64>,
}

/// Selection by chance or number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Frequency {
    /// Each with this probability, 0 to 1.
    Chance(f64),
    /// Every n-th: 3 hits the third, sixth, …
    Every(u64),
    /// Only the n-th, from 1.
    Nth(u64),
}

/// Change of one byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Corruption {
    /// Index in the UDP payload, modulo its length.
    pub offset: usize,
    /// Bits to flip.
    pub mask: u8,
}

impl Corruption {
    /// Flips the bits.
    pub fn apply(&self, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            bytes[self.offset % bytes.len()] ^= self.mask;
        }
    }
}

/// Action of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Exempts from later rules and conditions; full queues still drop.
    Pass,
    /// Drops.
    Drop,
    /// Delivers twice.
    Duplicate,
    /// Delays.
    Delay(Duration),
    /// Corrupts; `None`: a random byte.
    Corrupt(Option<Corruption>),
    /// Marks "congestion experienced".
    Mark,
    /// RNR NAK for a received SEND or WRITE with immediate, in RC and XRC.
    NotReady,
}

fn message_of(packet: &Packet<'_>) -> Option<u16> {
    let mad = MadHeader::parse(packet.payload.first_chunk()?);
    let is_it = packet.headers.bth().dest_qp == Qpn::GSI && mad.class == MadHeader::CM_CLASS;
    is_it.then_some(mad.attribute)
}

const fn is_send(operation: Operation) -> bool {
    use Operation as Op;
    (operation as u8) < Op::WriteFirst as u8
        || matches!(operation, Op::SendLastInvalidate | Op::SendOnlyInvalidate)
}

/// True if the packet can get an RNR NAK.
pub(super) fn asks_for_receive(packet: &Packet<'_>) -> bool {
    use Operation as Op;
    let opcode = packet.headers.bth().opcode;
    let first_of_send = is_send(opcode.operation()) && opcode.operation().position().starts();
    matches!(opcode.service(), Service::Rc | Service::Xrc)
        && (first_of_send || matches!(opcode.operation(), Op::WriteLastImm | Op::WriteOnlyImm))
}

/// Rule for single datagrams. The first hit decides, instead of the conditions.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// Condition.
    pub matcher: Matcher,
    /// Selection.
    pub often: Often,
    /// Action.
    pub action: Action,
    /// Direction; `None`: both. No effect on an in-process network.
    pub direction: Option<Direction>,
}

impl Rule {
    /// True if the rule applies in this direction; not-ready rules: received only.
    #[must_use]
    pub fn concerns(&self, direction: Direction) -> bool {
        self.direction.is_none_or(|its| its == direction)
            && (self.action != Action::NotReady || direction == Direction::Received)
    }

    /// Hits everything that matches.
    #[must_use]
    pub const fn new(matcher: Matcher, action: Action) -> Self {
        let often = Often { frequency: None, times: None };
        Self { matcher, often, action, direction: None }
    }
}
