use std::{collections::BTreeSet, time::Duration};

use roce_fabric::Network;
use roce_transport::{
    adapter::AdapterConfig,
    event::{Counters, DropReason},
    qp::QpType,
    time::Instant,
    work::{RecvWr, SendWr},
};

use super::{
    UDP_SEGMENT,
    node::{End, Node, Options, Side},
};

/// Adapters on a switch.
pub struct Star {
    pub nodes: Vec<Node>,
    pub network: Network,
    pub now: Instant,
    /// Nodes that may send.
    awake: BTreeSet<usize>,
    allowed: BTreeSet<DropReason>,
}

#[derive(Clone, Debug)]
pub struct Flow {
    pub from: usize,
    pub to: usize,
    pub near: End,
    pub far: End,
}

impl Star {
    pub fn new(count: u8, plan: &str, seed: u64) -> Self {
        Self::with_config(count, plan, seed, |config| config)
    }

    pub fn with_config(
        count: u8,
        plan: &str,
        seed: u64,
        configure: impl Fn(AdapterConfig) -> AdapterConfig,
    ) -> Self {
        let node = |n: u8| {
            let config = configure(AdapterConfig::new([n; 32]));
            Node::with_config(config, [10, 0, 0, n + 1].into(), UDP_SEGMENT)
        };
        Self {
            nodes: (0..count).map(node).collect(),
            network: Network::with_plan(plan.parse().unwrap(), seed),
            now: Instant::from_nanos(1_000_000),
            awake: BTreeSet::new(),
            allowed: BTreeSet::new(),
        }
    }

    pub fn allow_all(&mut self, reasons: &[DropReason]) {
        self.allowed.extend(reasons);
    }

    pub fn connect(&mut self, from: usize, to: usize, options: Options) -> Flow {
        let near = self.nodes[from].qp(Side::A, QpType::Rc, &options);
        let far = self.nodes[to].qp(Side::B, QpType::Rc, &options);
        let (near_ip, far_ip) = (self.nodes[from].ip, self.nodes[to].ip);
        let (a, b) = (options.a_psn, options.b_psn);
        self.nodes[from].connect(near.qpn, far_ip, far.qpn, b, a, &options);
        self.nodes[to].connect(far.qpn, near_ip, near.qpn, a, b, &options);
        Flow { from, to, near, far }
    }

    #[track_caller]
    pub fn post_send(&mut self, flow: &Flow, wr: &SendWr) {
        self.awake.insert(flow.from);
        self.nodes[flow.from].adapter.post_send(self.now, flow.near.qpn, wr).unwrap();
    }

    #[track_caller]
    pub fn post_recv(&mut self, flow: &Flow, wr: &RecvWr) {
        self.awake.insert(flow.to);
        self.nodes[flow.to].adapter.post_recv(self.now, flow.far.qpn, wr).unwrap();
    }

    pub fn count(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        self.nodes.iter().map(|node| of(node.adapter.counters())).sum()
    }

    #[track_caller]
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now.plus(time);
        for _ in 0..10_000_000 {
            self.transmit();
            if self.deliver() {
                continue;
            }
            let timeouts = self.nodes.iter_mut().filter_map(|node| node.adapter.poll_timeout());
            let next = timeouts.chain(self.network.poll_timeout()).min();
            match next {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => {
                    self.now = end;
                    return;
                }
            }
            for (index, node) in self.nodes.iter_mut().enumerate() {
                if node.adapter.poll_timeout().is_some_and(|due| due <= self.now) {
                    node.adapter.handle_timeout(self.now);
                    self.awake.insert(index);
                }
            }
        }
        panic!("the nodes do not come to rest");
    }

    fn transmit(&mut self) {
        while let Some(index) = self.awake.pop_first() {
            let node = &mut self.nodes[index];
            loop {
                node.transmit.clear();
                node.adapter.poll_transmit(self.now, &mut node.transmit);
                if node.transmit.is_empty() && !node.transmit.may_have_more() {
                    break;
                }
                for (net, bytes) in node.transmit.datagrams() {
                    self.network.send(self.now, &net, bytes);
                }
            }
            node.drain_events();
            node.events.clear();
        }
    }

    #[track_caller]
    fn deliver(&mut self) -> bool {
        let mut any = false;
        while let Some(datagram) = self.network.poll_deliver(self.now) {
            any = true;
            let to = datagram.net.dst;
            let Some(index) = self.nodes.iter().position(|node| node.ip == to) else { continue };
            let (_, dropped) = self.nodes[index].handle(self.now, &datagram);
            self.awake.insert(index);
            if let Some(reason) = dropped.iter().find(|&reason| !self.allowed.contains(reason)) {
                panic!("a packet was dropped ({reason}), which this test does not allow");
            }
        }
        any
    }
}
