//! Two adapters in virtual time on a simulated network.

use std::{collections::VecDeque, time::Duration};

use roce_fabric::{Corruption, FaultPlan, Network, QueueCounters, Verdict};
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
    line::{Event, Line, Side, Tone},
    names::Names,
    node::{Node, Options, Records},
    post::Request,
    settings::{Fate, Settings},
    viewer::{SentDatagram, Viewer},
};

/// Time by which a copy follows its original.
const COPY_AFTER: Duration = Duration::from_nanos(500);

/// Two adapters, the network between them, and who looks on.
pub struct World<'a> {
    pub(crate) a: Node,
    pub(crate) b: Node,
    network: Network,
    pub(crate) now: Instant,
    start: Instant,
    records: Records,
    viewer: &'a mut dyn Viewer,
    pub(crate) shown: Shown,
    names: Names,
    settings: Settings,
    /// Requests of the player that have been posted.
    posted: usize,
    lines: usize,
    recorded: usize,
}

impl<'a> World<'a> {
    /// A network that takes five microseconds, or what the settings say, with these faults.
    pub(crate) fn new(
        faults: &str,
        settings: &Settings,
        viewer: &'a mut dyn Viewer,
    ) -> Result<Self, Failure> {
        let network = settings.network.as_deref().unwrap_or("delay 5us");
        let plan: FaultPlan = format!("{network}{faults}").parse()?;
        let records = Records::default();
        let start = Instant::from_nanos(1_000_000);
        Ok(Self {
            a: Node::new(Side::Left, &records),
            b: Node::new(Side::Right, &records),
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

    // What it is now.

    /// One end.
    #[must_use]
    pub const fn node(&self, side: Side) -> &Node {
        match side {
            Side::Left => &self.a,
            Side::Right => &self.b,
        }
    }

    /// Time since the start.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.now.since(self.start)
    }

    /// Datagrams on their way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.network.in_flight()
    }

    /// Counters of the network's ports.
    #[must_use]
    pub fn port(&self) -> QueueCounters {
        self.network.port(None)
    }

    /// The short name of a queue pair, if the scenario has given it one.
    #[must_use]
    pub fn name_of(&self, qpn: Qpn) -> Option<&str> {
        self.names.0.get(&qpn).map(String::as_str)
    }

    // Text.

    /// A paragraph.
    pub(crate) fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.viewer.say(text)
    }

    /// A line of figures.
    pub(crate) fn figures(&mut self, text: &str) -> Result<(), Failure> {
        self.viewer.figures(text)
    }

    /// Names a queue pair, where there are several of a side.
    pub(crate) fn name(&mut self, qpn: Qpn, name: &str) {
        self.names.0.insert(qpn, name.into());
    }

    // Setting up.

    pub(crate) fn node_mut(&mut self, side: Side) -> &mut Node {
        match side {
            Side::Left => &mut self.a,
            Side::Right => &mut self.b,
        }
    }

    /// Does something that is not drawn.
    pub(crate) fn quietly<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let shown = std::mem::replace(&mut self.shown, Shown::Nothing);
        let result = act(self);
        let drawn = self.draw(&mut Drawn::default());
        debug_assert!(drawn.is_ok(), "nothing is drawn");
        self.shown = shown;
        result
    }

    /// Connects a new queue pair of A to a new one of B, out of sight.
    pub(crate) fn connect(&mut self, options: Options) -> (Qpn, Qpn) {
        self.connect_with(options, options)
    }

    pub(crate) fn connect_with(&mut self, near: Options, far: Options) -> (Qpn, Qpn) {
        self.connect_as(QpType::Rc, near, far)
    }

    /// The same for queue pairs of any service; those of datagrams only enter RTS.
    pub(crate) fn connect_as(
        &mut self,
        service: QpType,
        near: Options,
        far: Options,
    ) -> (Qpn, Qpn) {
        self.quietly(|world| {
            let (a_ip, b_ip) = (world.a.ip, world.b.ip);
            let a = world.a.qp(service, &near);
            let b = world.b.qp(service, &far);
            let now = world.now;
            for (node, own, to, options) in
                [(&mut world.a, a, (b_ip, b), &near), (&mut world.b, b, (a_ip, a), &far)]
            {
                node.enter_init(own);
                node.enter_rtr(service, own, to, options);
                node.enter_rts(now, service, own, options);
            }
            (a, b)
        })
    }

    // Working.

    /// Posts a send request of one side; an error is drawn, too.
    pub(crate) fn post_send(&mut self, side: Side, qpn: Qpn, wr: &SendWr) -> Result<(), Failure> {
        let now = self.now;
        let posted = self.node_mut(side).adapter.post_send(now, qpn, wr);
        self.draw(&mut Drawn::default())?;
        self.expect(posted, side)
    }

    pub(crate) fn post_recv(&mut self, side: Side, qpn: Qpn, wr: &RecvWr) -> Result<(), Failure> {
        let now = self.now;
        let posted = self.node_mut(side).adapter.post_recv(now, qpn, wr);
        self.draw(&mut Drawn::default())?;
        self.expect(posted, side)
    }

    /// A full queue is what a scenario may be about; anything else is a mistake in it.
    fn expect(&self, posted: Result<(), PostError>, side: Side) -> Result<(), Failure> {
        match posted {
            Ok(()) | Err(PostError::QueueFull) => Ok(()),
            Err(error) => Err(format!("{side:?}: {error}").into()),
        }
    }

    /// Runs until nothing is left to do.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        self.run_until(Instant::from_nanos(u64::MAX))
    }

    pub(crate) fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        self.run_until(self.now.plus(time))
    }

    fn run_until(&mut self, end: Instant) -> Result<(), Failure> {
        loop {
            self.post_due()?;
            self.transmit(Side::Left)?;
            self.transmit(Side::Right)?;
            if self.deliver()? {
                continue;
            }
            let next = [
                self.network.poll_timeout(),
                self.a.adapter.poll_timeout(),
                self.b.adapter.poll_timeout(),
            ];
            match next.into_iter().flatten().min() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => {
                    if end.as_nanos() != u64::MAX {
                        self.now = end;
                    }
                    return Ok(());
                }
            }
            for side in [Side::Left, Side::Right] {
                let now = self.now;
                self.node_mut(side).adapter.handle_timeout(now);
                self.draw(&mut Drawn::default())?;
            }
        }
    }

    fn transmit(&mut self, side: Side) -> Result<(), Failure> {
        let now = self.now;
        let at = Duration::from_nanos(now.as_nanos());
        loop {
            let (node, network) = match side {
                Side::Left => (&mut self.a, &mut self.network),
                Side::Right => (&mut self.b, &mut self.network),
            };
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
                drawn.sent.push_back((number, verdict.lost));
                let (net, verdict) = (&net, &verdict);
                self.viewer.datagram(&SentDatagram { number, at, side, net, bytes, verdict })?;
            }
            self.draw(&mut drawn)?;
            if is_over {
                self.node_mut(side).poll();
                return Ok(());
            }
        }
    }

    fn deliver(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        while let Some(datagram) = self.network.poll_deliver(self.now) {
            any = true;
            let (to, now) = (datagram.net.dst, self.now);
            for node in [&mut self.a, &mut self.b] {
                let joined = node.adapter.mcast_groups(None).any(|group| group == to.into());
                if node.ip == to || to.is_multicast() && joined {
                    node.adapter.handle_datagram(now, &datagram.datagram());
                    node.poll();
                }
            }
            self.draw(&mut Drawn { arrived: Some(datagram.number), ..Drawn::default() })?;
        }
        Ok(any)
    }

    // The player's requests.

    /// Posts those whose line has been drawn.
    fn post_due(&mut self) -> Result<(), Failure> {
        while self.settings.posts.get(self.posted).is_some_and(|post| post.after <= self.lines) {
            self.post_next()?;
        }
        Ok(())
    }

    /// Posts the next one and returns true, or false if there is none.
    fn post_next(&mut self) -> Result<bool, Failure> {
        let Some(wanted) = self.settings.posts.get(self.posted) else { return Ok(false) };
        let (side, request) = (wanted.side, Request::of(wanted, self.posted));
        self.request(side, &request);
        self.posted += 1;
        // whatever the scenario leaves out
        let shown = std::mem::replace(&mut self.shown, Shown::Packets);
        let drawn = self.draw(&mut Drawn::default());
        self.shown = shown;
        drawn.map(|()| true)
    }

    fn request(&mut self, side: Side, request: &Request) {
        let (own, peer) = match side {
            Side::Left => (&mut self.a, &mut self.b),
            Side::Right => (&mut self.b, &mut self.a),
        };
        request.post(self.now, own, peer);
    }

    /// Posts a request of a script; what is refused is drawn.
    pub(crate) fn post_request(&mut self, side: Side, request: &Request) -> Result<(), Failure> {
        self.request(side, request);
        self.draw(&mut Drawn::default())
    }

    /// Runs to the end, with what the player still posts.
    pub(crate) fn run_out(&mut self) -> Result<(), Failure> {
        while self.post_next()? {
            self.shown = Shown::Packets;
            self.run()?;
        }
        Ok(())
    }

    // Drawing.

    /// Draws what has been recorded.
    fn draw(&mut self, drawn: &mut Drawn) -> Result<(), Failure> {
        let records = match self.records.lock() {
            Ok(mut records) => std::mem::take(&mut *records),
            Err(_) => return Err("a record could not be taken; this is a bug in roce".into()),
        };
        self.recorded += records.len();
        for (side, record) in records {
            self.viewer.record(side, &record);
            let (datagram, lost) = match &record.what {
                What::Sent { .. } => drawn.sent.pop_front().unzip(),
                What::Arrived { .. } | What::Malformed { .. } => (drawn.arrived, None),
                _ => (None, None),
            };
            let at = record.at.since(self.start);
            if let Some((event, tone)) = self.names.event(self.shown, side, &record) {
                self.line(Line { at, event, tone, datagram })?;
            }
            if let What::Sent { packet, .. } = &record.what
                && lost == Some(true)
                && self.shown != Shown::Nothing
            {
                let event = Event::Lost(side, self.names.packet(packet));
                self.line(Line { at, event, tone: Tone::Bad, datagram })?;
            }
        }
        if self.recorded > self.settings.most_records {
            return Err(format!(
                "ended after {} events: this may go on for ever",
                self.settings.most_records
            )
            .into());
        }
        Ok(())
    }

    fn line(&mut self, line: Line) -> Result<(), Failure> {
        self.lines += 1;
        self.viewer.line(line)
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

/// Datagrams that the next records are about.
#[derive(Debug, Default)]
struct Drawn {
    /// Those that were sent: their numbers, and whether they are lost.
    sent: VecDeque<(u64, bool)>,
    /// The one that has arrived.
    arrived: Option<u64>,
}

fn apply(fate: Fate, verdict: &mut Verdict) {
    match fate {
        Fate::Pass => {
            verdict.lost = false;
            verdict.copy = None;
            verdict.corruption = None;
        }
        Fate::Lose => verdict.lost = true,
        Fate::Hold(time) => {
            verdict.lost = false;
            verdict.delay = verdict.delay.saturating_add(time);
        }
        Fate::Double => {
            verdict.lost = false;
            verdict.copy = Some(verdict.delay.saturating_add(COPY_AFTER));
        }
        Fate::Damage(offset) => {
            verdict.lost = false;
            verdict.corruption = Some(Corruption { offset, mask: 1 });
        }
    }
}
