//! A link with faults: loss, duplication, delay, damage.

use std::{io, net::IpAddr, os::fd::BorrowedFd, time::Duration};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    time::Instant,
    wire::NetHeader,
};

use super::{
    AddressSetLink, Datagram, FrameCounters, FrameLink, Lease, Link, MacAddr, MulticastLink,
    SharingLink,
};
use crate::{
    fabric::{Delivery, Direction, Network},
    faults::live::{self, CountedPlan, Follower},
};

/// A link that injects faults in both directions. A rule without direction counts both together.
pub(crate) struct FaultyLink {
    inner: Box<dyn Link>,
    outward: Network,
    inward: Network,
    /// A datagram without room in `inner`, and the time of its retry.
    held: Option<(Delivery, Instant)>,
    /// Error of a delayed datagram, for the next call that can report it.
    error: Option<io::Error>,
    /// Initial faults; faults switched later, outward and inward.
    plan: CountedPlan,
    live: Option<[Follower; 2]>,
}

const RETRY: Duration = Duration::from_millis(1);

impl FaultyLink {
    /// Wraps `inner`; the same seed gives the same faults to the same datagrams.
    pub(crate) fn new(inner: Box<dyn Link>, plan: CountedPlan, seed: u64) -> Self {
        let network = |direction, seed| {
            let mut network = Network::new(plan.plan.toward(direction).conditions, seed);
            plan.add_to(network.faults_mut(), direction);
            network
        };
        Self {
            inner,
            outward: network(Direction::Sent, seed),
            inward: network(Direction::Received, !seed),
            held: None,
            error: None,
            live: live::is_on().then(Default::default),
            plan,
        }
    }

    fn follow(&mut self) {
        let Self { outward, inward, plan, live: Some([out, into]), .. } = self else { return };
        out.follow(outward.faults_mut(), plan, Direction::Sent);
        into.follow(inward.faults_mut(), plan, Direction::Received);
    }

    /// Sends delayed datagrams that are due, while `inner` has room.
    fn forward(&mut self, now: Instant) {
        loop {
            let held = self.held.take().map(|(datagram, _)| datagram);
            let Some(datagram) = held.or_else(|| self.outward.poll_deliver(now)) else { break };
            let NetHeader { src, dst, src_port, traffic_class, hop_limit, frame, .. } =
                datagram.net;
            let (segment, range) = (datagram.bytes.len(), 0..datagram.bytes.len());
            let run =
                Transmit { src, dst, src_port, traffic_class, hop_limit, frame, segment, range };
            match self.inner.send(now, &datagram.bytes, &[run]) {
                Ok(0) => {
                    self.held = Some((datagram, now.plus(RETRY)));
                    break;
                }
                Ok(_) => {}
                Err(error) => self.error = Some(error),
            }
        }
    }
}

impl Link for FaultyLink {
    forward! {
        inner:
        fn addresses(&self) -> Vec<IpAddr>;
        fn lease(&self) -> Option<Lease>;
        fn source_port(&self) -> SourcePort;
        fn flow_ports(&self, address: IpAddr) -> Vec<u16>;
        fn control_port(&self, address: IpAddr) -> Option<u16>;
        fn socket_drops(&self) -> u64;
        fn frame_counters(&self) -> FrameCounters;
        fn has_waiting(&self) -> bool;
        fn blocked(&self) -> Option<BorrowedFd<'_>>;
        fn descriptors(&self) -> Vec<BorrowedFd<'_>>;
        fn frame_address(&self) -> Option<MacAddr>;
    }

    forward! {
        inner:
        fn poll_addresses(&mut self) -> bool;
        fn park(&mut self) -> bool;
        fn unpark(&mut self);
        fn look(&mut self);
        fn multicast(&mut self) -> Option<&mut dyn MulticastLink>;
        fn frames(&mut self) -> Option<&mut dyn FrameLink>;
        fn sharing(&mut self) -> Option<&mut dyn SharingLink>;
        fn address_set(&mut self) -> Option<&mut dyn AddressSetLink>;
    }

    fn limits(&self) -> TransmitLimits {
        // A lost datagram would shift the identifications behind it in a run.
        TransmitLimits::SINGLE
    }

    fn receive_buffer(&self) -> Option<usize> {
        let receiver = self.inward.faults().conditions().receiver.map(|receiver| receiver.room());
        [self.inner.receive_buffer(), receiver].into_iter().flatten().min()
    }

    /// Takes one run per call: an error is that run's or of earlier delayed datagrams.
    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
        self.forward(now);
        if self.held.is_some() {
            return Ok(0);
        }
        let Some(run) = runs.first() else { return Ok(0) };
        let payload = run.payload(bytes);
        self.follow();
        self.outward.send(now, &run.net_header(0), payload);
        self.forward(now);
        self.error.take().map_or(Ok(1), Err)
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        self.forward(now);
        self.follow();
        let inward = &mut self.inward;
        // The socket's state, whichever datagrams the faults pass.
        let mut congested = false;
        let mut room = Vec::new();
        let mut count = self.inner.receive(now, &mut |datagram| {
            congested |= datagram.meta.congested;
            inward.send(now, datagram.net, datagram.sealed(&mut room));
        })?;
        while let Some(mut delivery) = self.inward.poll_deliver(now) {
            delivery.congested = congested;
            sink(&delivery.datagram());
            count += 1;
        }
        Ok(count)
    }

    fn deadline(&self) -> Option<Instant> {
        let outward = match &self.held {
            Some((_, retry)) => Some(*retry), // delayed datagrams wait behind it
            None => self.outward.poll_timeout(),
        };
        [self.inner.deadline(), outward, self.inward.poll_timeout()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use roce_transport::wire::{FrameFields, Ident};

    use super::*;
    use crate::{fabric::FaultPlan, link::DatagramMeta};

    /// Delivers a SEND Only per call, and counts sent runs.
    struct Wire(Arc<Mutex<usize>>);

    const SEND_ONLY: [u8; 16] = [4, 0x40, 0xFF, 0xFF, 0, 0, 0, 0x12, 0x80, 0, 0, 7, 0, 0, 0, 0];

    fn net() -> NetHeader {
        NetHeader {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            src_port: 49152,
            traffic_class: 0,
            hop_limit: 64,
            ident: Ident::Known { id: 0, dont_fragment: true },
            frame: FrameFields::default(),
        }
    }

    fn run(range: std::ops::Range<usize>) -> Transmit {
        let NetHeader { src, dst, src_port, traffic_class, hop_limit, frame, .. } = net();
        let segment = 16;
        Transmit { src, dst, src_port, traffic_class, hop_limit, frame, segment, range }
    }

    impl Link for Wire {
        fn addresses(&self) -> Vec<IpAddr> {
            vec![net().dst]
        }

        fn limits(&self) -> TransmitLimits {
            TransmitLimits::SINGLE
        }

        fn source_port(&self) -> SourcePort {
            SourcePort::PerFlow
        }

        fn send(&mut self, _: Instant, _: &[u8], runs: &[Transmit]) -> io::Result<usize> {
            *self.0.lock().unwrap() += runs.len();
            Ok(runs.len())
        }

        fn receive(
            &mut self,
            _: Instant,
            sink: &mut dyn FnMut(&Datagram<'_>),
        ) -> io::Result<usize> {
            let meta = DatagramMeta { checksum_verified: true, congested: true, not_ready: false };
            sink(&Datagram { net: &net(), bytes: &SEND_ONLY, meta });
            Ok(1)
        }

        fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
            Vec::new()
        }
    }

    fn faulty(link: impl Link + 'static, plan: &str) -> FaultyLink {
        FaultyLink::new(Box::new(link), (&plan.parse::<FaultPlan>().unwrap()).into(), 1)
    }

    /// Passes four datagrams each way. Returns the number sent, and the readiness of each received.
    fn pass(plan: &str) -> (usize, Vec<bool>) {
        let sent = Arc::new(Mutex::new(0));
        let mut link = faulty(Wire(sent.clone()), plan);
        let mut ready = Vec::new();
        for _ in 0..4 {
            link.send(Instant::ZERO, &SEND_ONLY, &[run(0..16)]).unwrap();
            let mut note = |datagram: &Datagram<'_>| {
                assert!(!datagram.meta.checksum_verified, "something may have happened to it");
                assert!(datagram.meta.congested, "the socket fills all the same");
                ready.push(!datagram.meta.not_ready);
            };
            link.receive(Instant::ZERO, &mut note).unwrap();
        }
        let sent = *sent.lock().unwrap();
        (sent, ready)
    }

    #[test]
    fn a_rule_is_for_both_directions_or_for_one() {
        // each direction in turn
        assert_eq!(pass("drop nth 2"), (4, vec![true; 3]));
        assert_eq!(pass("drop every 3"), (3, vec![true; 3]));
        assert_eq!(pass("drop psn 7..7 once"), (3, vec![true; 4]));
        assert_eq!(pass("drop psn 7 once tx, drop psn 7 once rx"), (3, vec![true; 3]));
        assert_eq!(pass("drop nth 2 tx"), (3, vec![true; 4]));
        assert_eq!(pass("drop send rx"), (4, vec![]));
        assert_eq!(pass("drop 100% tx"), (0, vec![true; 4]));
    }

    #[test]
    fn the_smaller_receive_buffer_counts() {
        let buffer = |plan: &str| faulty(Wire(Arc::default()), plan).receive_buffer();
        assert_eq!((buffer("drop 1%"), buffer("receiver 1us 64kb")), (None, Some(65_536)));
    }

    /// A rate applies each way, a receive buffer only inward.
    #[test]
    fn ports_and_receivers_have_a_direction() {
        let wire = |plan: &str| {
            let mut link = faulty(Wire(Arc::default()), plan);
            link.send(Instant::ZERO, &SEND_ONLY, &[run(0..16)]).unwrap();
            link.receive(Instant::ZERO, &mut |_| {}).unwrap();
            let passed = |network: &Network| {
                (network.port(None).passed, network.receive_buffer(None).passed)
            };
            (passed(&link.outward), passed(&link.inward), link.deadline())
        };
        let at = |nanos| Some(Instant::from_nanos(nanos));
        assert_eq!(wire("rate 1mbit"), ((1, 0), (1, 0), at((16 + 66) * 8000)));
        assert_eq!(wire("receiver 1us"), ((0, 0), (0, 1), at(1000)));
    }

    #[test]
    fn readiness_is_a_matter_of_what_is_received() {
        assert_eq!(pass("rnr nth 2"), (4, vec![true, false, true, true]));
        assert_eq!(pass("rnr send twice rx"), (4, vec![false, false, true, true]));
    }

    /// Has room only now and then; records each datagram's first byte.
    struct Narrow {
        room: Arc<Mutex<usize>>,
        sent: Arc<Mutex<Vec<u8>>>,
    }

    impl Link for Narrow {
        fn addresses(&self) -> Vec<IpAddr> {
            vec![net().src]
        }

        fn limits(&self) -> TransmitLimits {
            TransmitLimits::SINGLE
        }

        fn source_port(&self) -> SourcePort {
            SourcePort::PerFlow
        }

        fn send(&mut self, _: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
            let mut room = self.room.lock().unwrap();
            if *room == 0 {
                return Ok(0);
            }
            *room -= 1;
            self.sent.lock().unwrap().push(bytes[runs[0].range.start]);
            Ok(1)
        }

        fn receive(&mut self, _: Instant, _: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
            Ok(0)
        }

        fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
            Vec::new()
        }
    }

    #[test]
    fn what_was_delayed_waits_for_room_too() {
        let (room, sent) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
        let narrow = Narrow { room: room.clone(), sent: sent.clone() };
        let mut link = faulty(narrow, "delay 10us");
        let at = |micros| Instant::ZERO.plus(Duration::from_micros(micros));
        let bytes: Vec<u8> = (0..4).flat_map(|first| [first; 16]).collect();
        let runs: Vec<_> = (0..4).map(|index| run(16 * index..16 * (index + 1))).collect();
        assert_eq!(link.send(at(0), &bytes, &runs).unwrap(), 1);
        assert_eq!(link.send(at(1), &bytes, &runs[1..]).unwrap(), 1);
        assert_eq!(link.deadline(), Some(at(10)));
        link.receive(at(20), &mut |_| {}).unwrap();
        assert_eq!(link.deadline(), Some(at(20).plus(RETRY)), "it is not asked again at once");
        assert_eq!(link.send(at(21), &bytes, &runs[2..]).unwrap(), 0);
        *room.lock().unwrap() = 10;
        link.receive(at(22), &mut |_| {}).unwrap();
        assert_eq!(*sent.lock().unwrap(), [0, 1]);
        for (step, run) in runs[2..].iter().enumerate() {
            let now = at(30 + step as u64);
            assert_eq!(link.send(now, &bytes, std::slice::from_ref(run)).unwrap(), 1);
        }
        link.receive(at(50), &mut |_| {}).unwrap();
        assert_eq!((&sent.lock().unwrap()[..], link.deadline()), (&[0, 1, 2, 3][..], None));
    }
}
