//! Adapters in virtual time.
//!
//! A [`Pair`] is two adapters on a simulated network, whose clock jumps between events. A drop
//! reason that the test does not allow fails the test. A failed test prints every packet. A
//! [`Star`] has many adapters, a [`Half`] one.

#![allow(dead_code, reason = "every test program uses another part")]
#![allow(unused_imports, reason = "every test program uses another part")]
#![allow(unreachable_pub, reason = "a module of test programs, not of a library")]

mod half;
mod node;
mod record;
mod star;
mod trace;

use std::{collections::BTreeSet, time::Duration};

use roce_fabric::{Conditions, Matcher, Network, Rule, RuleId};
use roce_transport::{
    adapter::TransmitLimits,
    event::{Disposition, DropReason, Event},
    mem::RKey,
    qp::{PostError, QpType, State},
    time::Instant,
    trace::Record,
    wire::NetHeader,
    work::{RecvWr, Remote, SendWr, Sge},
};

pub use half::{Half, Pkt, ack, encode, nak, net, pkt, refused_with, rnr};
pub use node::{
    ALL_RIGHTS, Buffer, End, Node, Options, Outcome, QKEY, Side, outcomes, pattern, polled,
    qp_init, to_group,
};
pub use record::{Audit, Recorded};
pub use star::{Flow, Star};
pub use trace::{Rung, Trace};

/// Limits of Linux's UDP_SEGMENT.
pub const UDP_SEGMENT: TransmitLimits = TransmitLimits { segments: 128, bytes: 65507 };

/// For requests without bytes.
pub const NULL_REMOTE: Remote = Remote { address: 0, rkey: RKey(0) };

/// With room for repeated requests.
pub const AFTER_ONE_LOSS: &[DropReason] = &[
    DropReason::OutOfSequence,
    DropReason::StaleResponse,
    DropReason::RecoveryUnderWay,
    DropReason::ReadResponseGap,
];

pub const AFTER_LOSS: &[DropReason] = &[
    DropReason::OutOfSequence,
    DropReason::StaleResponse,
    DropReason::RecoveryUnderWay,
    DropReason::ReadResponseGap,
    DropReason::ReplayMissing,
    DropReason::ResponderBusy,
];

pub struct Pair {
    pub a: Node,
    pub b: Node,
    pub network: Network,
    pub now: Instant,
    pub trace: Trace,
    /// Interval between polls; zero: at once.
    pub batch: Duration,
    /// Buffers sent between two polls.
    pub buffers: usize,
    /// Compares both records with the network.
    pub audits: Option<[Audit; 2]>,
    /// Every datagram on each link, if recorded.
    pub seen: [Vec<(Instant, NetHeader, Vec<u8>)>; 2],
    allowed: BTreeSet<DropReason>,
}

impl Pair {
    /// Over IPv4, 1 µs delay.
    pub fn new() -> Self {
        Self::with_network(Network::new(Self::conditions(), 0))
    }

    pub fn over_ipv6() -> Self {
        Self::build(Network::new(Self::conditions(), 0), true)
    }

    pub fn with_network(network: Network) -> Self {
        Self::build(network, false)
    }

    pub fn build(network: Network, ipv6: bool) -> Self {
        let ip = |n: u8| match ipv6 {
            false => [10, 0, 0, n].into(),
            true => [0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n].into(),
        };
        Self {
            a: Node::new(ip(1), 0xA, UDP_SEGMENT),
            b: Node::new(ip(2), 0xB, UDP_SEGMENT),
            network,
            now: Instant::from_nanos(1_000_000),
            trace: Trace::default(),
            batch: Duration::ZERO,
            buffers: usize::MAX,
            audits: None,
            seen: Default::default(),
            allowed: BTreeSet::new(),
        }
    }

    pub fn recorded(mut self) -> Self {
        for (node, seed) in [(&mut self.a, 0xA), (&mut self.b, 0xB)] {
            *node = Node::with_record(Node::config(seed), node.ip, UDP_SEGMENT);
        }
        self.audits = Some(Default::default());
        self
    }

    /// Records are compared but not kept.
    pub fn audited(mut self) -> Self {
        self = self.recorded();
        self.audits.iter_mut().flatten().for_each(|audit| audit.forgets = true);
        self
    }

    pub fn record(&mut self, side: Side) -> &[Record] {
        let (node, audits) = match side {
            Side::A => (&self.a, &mut self.audits),
            Side::B => (&self.b, &mut self.audits),
        };
        let audit = &mut audits.as_mut().expect("the pair is recorded")[side as usize];
        audit.others(&node.adapter, &node.recorded);
        &audit.records
    }

    pub fn conditions() -> Conditions {
        Conditions { delay: Duration::from_micros(1), ..Conditions::default() }
    }

    pub fn node(&mut self, side: Side) -> &mut Node {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    pub fn connected(options: Options) -> (Self, End, End) {
        let mut pair = Self::new();
        let (a, b) = pair.connect(options);
        (pair, a, b)
    }

    pub fn connect(&mut self, options: Options) -> (End, End) {
        self.connect_with(options, options)
    }

    /// PSNs are those of `a`.
    pub fn connect_with(&mut self, a: Options, b: Options) -> (End, End) {
        self.connect_as(QpType::Rc, &a, &b)
    }

    pub fn connect_unreliably(&mut self, options: Options) -> (End, End) {
        self.connect_as(QpType::Uc, &options, &options)
    }

    fn connect_as(&mut self, qp_type: QpType, a: &Options, b: &Options) -> (End, End) {
        let ends = (self.a.qp(Side::A, qp_type, a), self.b.qp(Side::B, qp_type, b));
        self.a.connect(ends.0.qpn, self.b.ip, ends.1.qpn, a.b_psn, a.a_psn, a);
        self.b.connect(ends.1.qpn, self.a.ip, ends.0.qpn, a.a_psn, a.b_psn, b);
        ends
    }

    pub fn connect_xrc(&mut self, from: Side, options: Options) -> (End, End) {
        let (near_ip, far_ip) = (self.node(from).ip, self.node(from.other()).ip);
        let psn = if from == Side::A { options.a_psn } else { options.b_psn };
        let initiator = self.node(from).qp(from, QpType::XrcInitiator, &options);
        let target = self.node(from.other()).qp(from.other(), QpType::XrcTarget, &options);
        self.node(from).connect(initiator.qpn, far_ip, target.qpn, 0, psn, &options);
        self.node(from.other()).connect(target.qpn, near_ip, initiator.qpn, psn, 0, &options);
        (initiator, target)
    }

    pub fn datagrams(&mut self, options: Options) -> (End, End) {
        let ends =
            (self.a.qp(Side::A, QpType::Ud, &options), self.b.qp(Side::B, QpType::Ud, &options));
        self.a.start_datagrams(ends.0.qpn, &options);
        self.b.start_datagrams(ends.1.qpn, &options);
        ends
    }

    pub fn allow(&mut self, reason: DropReason) {
        self.allowed.insert(reason);
    }

    pub fn allow_all(&mut self, reasons: &[DropReason]) {
        self.allowed.extend(reasons);
    }

    pub fn rule(&mut self, rule: Rule) -> RuleId {
        self.network.faults_mut().add(rule)
    }

    pub fn fault(&mut self, text: &str) -> RuleId {
        self.rule(text.parse().unwrap())
    }

    pub fn fault_from(&mut self, side: Side, text: &str) -> RuleId {
        let rule: Rule = text.parse().unwrap();
        let src = Some(self.node(side).ip);
        self.rule(Rule { matcher: Matcher { src, ..rule.matcher }, ..rule })
    }

    #[track_caller]
    pub fn assert_hit(&self, rule: RuleId) {
        assert_eq!(self.network.faults().hits(rule), 1, "packets that the rule hit");
    }

    #[track_caller]
    pub fn post_send(&mut self, end: &End, wr: &SendWr) {
        self.try_post_send(end, wr).unwrap();
    }

    #[track_caller]
    pub fn post_recv(&mut self, end: &End, wr: &RecvWr) {
        self.try_post_recv(end, wr).unwrap();
    }

    /// Posts receives with the same buffers.
    #[track_caller]
    pub fn post_recvs(&mut self, end: &End, ids: impl IntoIterator<Item = u64>, sges: &[Sge]) {
        ids.into_iter().for_each(|id| self.post_recv(end, &RecvWr::new(id, sges.to_vec())));
    }

    pub fn try_post_send(&mut self, end: &End, wr: &SendWr) -> Result<(), PostError> {
        let now = self.now;
        self.node(end.side).adapter.post_send(now, end.qpn, wr)
    }

    pub fn try_post_recv(&mut self, end: &End, wr: &RecvWr) -> Result<(), PostError> {
        let now = self.now;
        self.node(end.side).adapter.post_recv(now, end.qpn, wr)
    }

    pub fn state(&self, end: &End) -> State {
        match end.side {
            Side::A => self.a.state(end.qpn),
            Side::B => self.b.state(end.qpn),
        }
    }

    pub fn events(&mut self, side: Side) -> Vec<Event> {
        std::mem::take(&mut self.node(side).events)
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.a.adapter.counters().dropped(reason) + self.b.adapter.counters().dropped(reason)
    }

    /// Runs until idle.
    #[track_caller]
    pub fn run(&mut self) {
        self.run_until(Instant::from_nanos(u64::MAX));
    }

    #[track_caller]
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now.plus(time));
    }

    /// Or until idle.
    #[track_caller]
    pub fn run_until(&mut self, end: Instant) {
        for _ in 0..1_000_000 {
            let more = self.transmit(Side::A) | self.transmit(Side::B);
            let grid = self.batch.as_nanos().max(1) as u64;
            if self.now.as_nanos().is_multiple_of(grid) && self.deliver() {
                continue;
            }
            let arrival = self
                .network
                .poll_timeout()
                .map(|at| at.max(self.now.plus(Duration::from_nanos(u64::from(grid > 1)))));
            let look = arrival.map(|at| Instant::from_nanos(at.as_nanos().next_multiple_of(grid)));
            let send = more.then(|| self.now.plus(Duration::from_micros(1)));
            let next = [look, send, self.a.adapter.poll_timeout(), self.b.adapter.poll_timeout()];
            match next.into_iter().flatten().min() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => {
                    if end.as_nanos() != u64::MAX {
                        self.now = end;
                    }
                    return;
                }
            }
            self.a.adapter.handle_timeout(self.now);
            self.b.adapter.handle_timeout(self.now);
        }
        panic!("the pair does not come to rest");
    }

    /// True if more is due.
    pub fn transmit(&mut self, side: Side) -> bool {
        let now = self.now;
        let (node, network) = match side {
            Side::A => (&mut self.a, &mut self.network),
            Side::B => (&mut self.b, &mut self.network),
        };
        let mut more = true;
        for _ in 0..self.buffers {
            node.transmit.clear();
            node.adapter.poll_transmit(now, &mut node.transmit);
            if let Some(audits) = &mut self.audits {
                let datagrams = node.transmit.datagrams();
                audits[side as usize].sent(&node.adapter, &node.recorded, datagrams);
            }
            if node.transmit.is_empty() && !node.transmit.may_have_more() {
                more = false;
                break;
            }
            for (net, bytes) in node.transmit.datagrams() {
                if self.audits.as_ref().is_some_and(|audits| !audits[side as usize].forgets) {
                    self.seen[side as usize].push((now, net, bytes.to_vec()));
                }
                let verdict = network.send(now, &net, bytes);
                if !self.trace.off {
                    self.trace.records.push(Rung::new(now, side, net, bytes, verdict));
                }
            }
        }
        node.drain_events();
        more
    }

    /// True if any arrived.
    #[track_caller]
    pub fn deliver(&mut self) -> bool {
        let (mut any, self_a) = (false, self.a.ip);
        while let Some(datagram) = self.network.poll_deliver(self.now) {
            any = true;
            let to = datagram.net.dst;
            for node in [&mut self.a, &mut self.b] {
                if if to.is_multicast() { !node.has_joined(to) } else { node.ip != to } {
                    continue;
                }
                let (disposition, dropped) = node.handle(self.now, &datagram);
                if let Some(audits) = &mut self.audits {
                    let side = if node.ip == self_a { Side::A } else { Side::B };
                    audits[side as usize].arrived(&node.adapter, &node.recorded, disposition);
                    if !audits[side as usize].forgets {
                        let seen = (self.now, datagram.net, datagram.bytes.clone());
                        self.seen[side as usize].push(seen);
                    }
                }
                if let Some(record) = self.trace.records.get_mut(datagram.number as usize) {
                    record.arrivals.push((self.now, disposition));
                }
                if let Some(reason) = dropped.iter().find(|&reason| !self.allowed.contains(reason))
                {
                    panic!("a packet was dropped ({reason}), which this test does not allow");
                }
            }
        }
        any
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.trace.ladder());
        }
    }
}

pub fn all_ok(ids: impl IntoIterator<Item = u64>, byte_len: u32) -> Vec<Outcome> {
    ids.into_iter().map(|id| (id, Ok(byte_len))).collect()
}
