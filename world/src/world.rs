use std::{
    collections::VecDeque,
    ops::{Index, IndexMut},
    time::Duration,
};

use roce_fabric::{Corruption, FaultPlan, Network, Verdict};
use roce_transport::{
    addr::Qpn,
    qp::{PostError, QpType},
    time::Instant,
    trace::What,
    work::{RecvWr, SendWr},
};

pub(crate) use crate::names::Shown;
use crate::{
    failure::Failure,
    line::{Direction, End, Event, Line, Tone},
    names::Names,
    node::{EndQp, Node, Options, Records, address},
    post::Request,
    settings::{Fate, Settings},
    viewer::{SentDatagram, Viewer},
};

const COPY_AFTER: Duration = Duration::from_nanos(500);

/// Adapters and network of a scenario.
pub struct World<'a> {
    /// Ends, by letter.
    pub nodes: Vec<Node>,
    /// Network, with the counters of its ports.
    pub network: Network,
    pub(crate) now: Instant,
    start: Instant,
    records: Records,
    viewer: &'a mut dyn Viewer,
    pub(crate) shown: Shown,
    names: Names,
    settings: Settings,
    /// Count of the player's requests posted.
    posted: usize,
    lines: usize,
    recorded: usize,
}

impl<'a> World<'a> {
    /// The settings' network replaces the 5 µs delay, and its port the scenario's.
    pub(crate) fn new(
        ends: usize,
        faults: &str,
        settings: &Settings,
        viewer: &'a mut dyn Viewer,
    ) -> Result<Self, Failure> {
        let network = settings.network.as_deref().unwrap_or("delay 5us");
        let mut plan: FaultPlan = network.parse()?;
        let own: FaultPlan = faults.parse()?;
        plan.rules.extend(own.rules);
        plan.conditions.bottleneck = plan.conditions.bottleneck.or(own.conditions.bottleneck);
        let records = Records::default();
        let start = Instant::from_nanos(1_000_000);
        Ok(Self {
            nodes: End::ALL.into_iter().take(ends).map(|end| Node::new(end, &records)).collect(),
            network: Network::with_plan(plan, settings.seed),
            now: start,
            start,
            records,
            viewer,
            shown: Shown::Packets,
            names: Names::default(),
            settings: settings.clone(),
            posted: 0,
            lines: 0,
            recorded: 0,
        })
    }

    /// Time since the start.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.now.since(self.start)
    }

    /// The scenario's name of a queue pair.
    #[must_use]
    pub fn name_of(&self, qpn: Qpn) -> Option<&str> {
        self.names.0.get(&qpn).map(String::as_str)
    }

    pub(crate) fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.viewer.say(text)
    }

    pub(crate) fn figures(&mut self, text: &str) -> Result<(), Failure> {
        self.viewer.figures(text)
    }

    pub(crate) fn name(&mut self, qpn: Qpn, name: &str) {
        self.names.0.insert(qpn, name.into());
    }

    pub(crate) fn quietly<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let shown = std::mem::replace(&mut self.shown, Shown::Nothing);
        let result = act(self);
        let drawn = self.draw(&mut Drawn::default());
        debug_assert!(drawn.is_ok(), "nothing is drawn");
        self.shown = shown;
        result
    }

    pub(crate) fn connect(&mut self, options: Options) -> (Qpn, Qpn) {
        self.connect_as([End::A, End::B], QpType::Rc, [options; 2])
    }

    /// Undrawn. A datagram queue pair just enters RTS.
    pub(crate) fn connect_as(
        &mut self,
        ends: [End; 2],
        service: QpType,
        options: [Options; 2],
    ) -> (Qpn, Qpn) {
        self.quietly(|world| {
            let [near, far] = [0, 1].map(|it| {
                let end = ends[it];
                EndQp { end, qpn: world[end].qp(service, &options[it]) }
            });
            world.enter_rts(service, near, far, &options[0]);
            world.enter_rts(service, far, near, &options[1]);
            (near.qpn, far.qpn)
        })
    }

    /// By way of INIT and RTR.
    pub(crate) fn enter_rts(&mut self, service: QpType, own: EndQp, to: EndQp, options: &Options) {
        let now = self.now;
        let node = &mut self[own.end];
        node.enter_init(own.qpn);
        node.enter_rtr(service, own.qpn, to, options);
        node.enter_rts(now, service, own.qpn, options);
    }

    pub(crate) fn post_send(&mut self, end: End, qpn: Qpn, wr: &SendWr) -> Result<(), Failure> {
        let now = self.now;
        let posted = self[end].adapter.post_send(now, qpn, wr);
        self.posted_at(end, posted)
    }

    pub(crate) fn post_recv(&mut self, end: End, qpn: Qpn, wr: &RecvWr) -> Result<(), Failure> {
        let now = self.now;
        let posted = self[end].adapter.post_recv(now, qpn, wr);
        self.posted_at(end, posted)
    }

    /// A full queue may be the scenario's subject.
    fn posted_at(&mut self, end: End, posted: Result<(), PostError>) -> Result<(), Failure> {
        self.draw(&mut Drawn::default())?;
        match posted {
            Ok(()) | Err(PostError::QueueFull) => Ok(()),
            Err(error) => Err(format!("{end}: {error}").into()),
        }
    }

    /// Runs until idle.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        self.run_until(Instant::from_nanos(u64::MAX))
    }

    pub(crate) fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        self.run_until(self.now.plus(time))
    }

    fn run_until(&mut self, end: Instant) -> Result<(), Failure> {
        loop {
            self.post_due()?;
            for index in 0..self.nodes.len() {
                self.transmit(index)?;
            }
            if self.deliver()? {
                continue;
            }
            let timers = self.nodes.iter_mut().map(|node| node.adapter.poll_timeout());
            match timers.chain([self.network.poll_timeout()]).flatten().min() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => {
                    if end.as_nanos() != u64::MAX {
                        self.now = end;
                    }
                    return Ok(());
                }
            }
            for index in 0..self.nodes.len() {
                self.nodes[index].adapter.handle_timeout(self.now);
                self.draw(&mut Drawn::default())?;
            }
        }
    }

    fn transmit(&mut self, index: usize) -> Result<(), Failure> {
        let now = self.now;
        let at = Duration::from_nanos(now.as_nanos());
        loop {
            let (node, network) = (&mut self.nodes[index], &mut self.network);
            let from = node.end;
            node.transmit.clear();
            node.adapter.poll_transmit(now, &mut node.transmit);
            let is_over = node.transmit.is_empty() && !node.transmit.may_have_more();
            let mut drawn = Drawn::default();
            for (net, bytes) in node.transmit.datagrams() {
                let number = network.next_number();
                let fate = self.settings.fates.get(&number);
                let verdict = network.send_with(now, &net, bytes, |verdict| {
                    if let Some(fate) = fate {
                        apply(*fate, verdict);
                    }
                });
                let way =
                    Direction { from, to: End::ALL.into_iter().find(|to| address(*to) == net.dst) };
                drawn.sent.push_back(Sent { number, way, lost: verdict.lost });
                let (net, verdict) = (&net, &verdict);
                self.viewer.datagram(&SentDatagram { number, at, way, net, bytes, verdict })?;
            }
            self.draw(&mut drawn)?;
            if is_over {
                self.nodes[index].poll();
                return Ok(());
            }
        }
    }

    fn deliver(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        while let Some(datagram) = self.network.poll_deliver(self.now) {
            any = true;
            let (from, to, now) = (datagram.net.src, datagram.net.dst, self.now);
            for node in &mut self.nodes {
                let joined = node.adapter.mcast_groups(None).any(|group| group == to.into());
                if node.ip == to || to.is_multicast() && joined {
                    node.adapter.handle_datagram(now, &datagram.datagram());
                    node.poll();
                }
            }
            let from = End::ALL.into_iter().find(|end| address(*end) == from);
            let arrived = from.map(|from| (datagram.number, from));
            self.draw(&mut Drawn { arrived, ..Drawn::default() })?;
        }
        Ok(any)
    }

    fn post_due(&mut self) -> Result<(), Failure> {
        while self.settings.posts.get(self.posted).is_some_and(|post| post.after <= self.lines) {
            self.post_next()?;
        }
        Ok(())
    }

    /// `false`: none is left.
    fn post_next(&mut self) -> Result<bool, Failure> {
        let Some(wanted) = self.settings.posts.get(self.posted) else { return Ok(false) };
        let (end, request) = (wanted.end, Request::of(wanted, self.posted));
        self.request(end, &request);
        self.posted += 1;
        // shown even where the scenario hides packets
        let shown = std::mem::replace(&mut self.shown, Shown::Packets);
        let drawn = self.draw(&mut Drawn::default());
        self.shown = shown;
        drawn.map(|()| true)
    }

    /// Without a peer the request goes to the first other end.
    fn request(&mut self, end: End, request: &Request) {
        let Some(own) = self.nodes.get(end as usize) else { return };
        let Some(&qpn) = own.queue_pairs.get(request.queue_pair) else { return };
        let other = if end == End::A { End::B } else { End::A };
        let peer = own.peer(qpn).map_or(other, |peer| peer.end);
        let [own, peer] =
            self.nodes.get_disjoint_mut([end as usize, peer as usize]).expect("two ends");
        request.post(self.now, own, qpn, peer);
    }

    pub(crate) fn post_request(&mut self, end: End, request: &Request) -> Result<(), Failure> {
        self.request(end, request);
        self.draw(&mut Drawn::default())
    }

    /// Runs to the end with the player's remaining requests.
    pub(crate) fn run_out(&mut self) -> Result<(), Failure> {
        while self.post_next()? {
            self.shown = Shown::Packets;
            self.run()?;
        }
        Ok(())
    }

    fn draw(&mut self, drawn: &mut Drawn) -> Result<(), Failure> {
        let records = std::mem::take(&mut *self.records.lock().expect("nobody panics with it"));
        self.recorded += records.len();
        for (end, record) in records {
            self.viewer.record(end, &record);
            let sent = match &record.what {
                What::Sent { .. } => drawn.sent.pop_front(),
                What::Arrived { .. } | What::Malformed { .. } => {
                    let arrived = drawn.arrived;
                    arrived.map(|(number, from)| Sent { number, way: from.to(end), lost: false })
                }
                _ => None,
            };
            let at = record.at.since(self.start);
            let datagram = sent.as_ref().map(|sent| sent.number);
            let way = sent.as_ref().map_or(Direction { from: end, to: None }, |sent| sent.way);
            if let Some((event, tone)) = self.names.event(self.shown, end, way, &record) {
                self.line(Line { at, event, tone, datagram })?;
            }
            if let What::Sent { packet, .. } = &record.what
                && sent.is_some_and(|sent| sent.lost)
                && self.shown != Shown::Nothing
            {
                let event = Event::Lost(way, self.names.packet(packet));
                self.line(Line { at, event, tone: Tone::Bad, datagram })?;
            }
        }
        let most = self.settings.most_records;
        if self.recorded > most {
            return Err(format!("ended after {most} events: this may go on for ever").into());
        }
        Ok(())
    }

    fn line(&mut self, line: Line) -> Result<(), Failure> {
        self.lines += 1;
        self.viewer.line(line)
    }
}

impl Index<End> for World<'_> {
    type Output = Node;

    fn index(&self, end: End) -> &Node {
        &self.nodes[end as usize]
    }
}

impl IndexMut<End> for World<'_> {
    fn index_mut(&mut self, end: End) -> &mut Node {
        &mut self.nodes[end as usize]
    }
}

impl std::fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Drawn {
    sent: VecDeque<Sent>,
    /// Number and sender.
    arrived: Option<(u64, End)>,
}

#[derive(Debug)]
struct Sent {
    number: u64,
    way: Direction,
    lost: bool,
}

fn apply(fate: Fate, verdict: &mut Verdict) {
    verdict.lost = fate == Fate::Lose;
    match fate {
        Fate::Pass => (verdict.copy, verdict.corruption) = (None, None),
        Fate::Lose => {}
        Fate::Hold(time) => verdict.delay = verdict.delay.saturating_add(time),
        Fate::Double => verdict.copy = Some(verdict.delay.saturating_add(COPY_AFTER)),
        Fate::Damage(offset) => verdict.corruption = Some(Corruption { offset, mask: 1 }),
    }
}
