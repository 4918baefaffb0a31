//! Two adapters in virtual time on a simulated network, and everything that they record, drawn as
//! it happens.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use roce::{
    fabric::{FaultPlan, Network, QueueCounters},
    link::Capture,
    transport::{
        addr::Qpn,
        event::Disposition,
        qp::{PostError, QpType},
        time::Instant,
        trace::{Reason, Record, Recovery, What, Why, WindowRule},
        wire::Syndrome,
        work::{RecvWr, SendWr},
    },
};

use super::{
    keys::Keys,
    node::{Node, Options, Records},
};
use crate::{
    failure::Failure,
    ladder::{Event, Ladder, Side, Tone},
    output::outln,
    packet_text,
};

/// What of the record is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    Nothing,
    /// Packets, calls, completions, timers, losses, failures.
    Packets,
    /// The same, and changes of state that the program asked for.
    States,
    /// Only what congestion control does.
    Congestion,
}

pub(super) struct World {
    pub(super) a: Node,
    pub(super) b: Node,
    network: Network,
    pub(super) now: Instant,
    start: Instant,
    records: Records,
    ladder: Ladder,
    keys: Option<Keys>,
    capture: Option<Capture>,
    pub(super) shown: Shown,
    /// Short names of queue pairs, where there are several.
    names: BTreeMap<Qpn, String>,
    heads_due: bool,
}

impl World {
    /// A network that takes five microseconds, with these faults.
    pub(super) fn new(
        faults: &str,
        keys: Option<Keys>,
        capture: Option<Capture>,
    ) -> Result<Self, Failure> {
        let plan: FaultPlan = format!("delay 5us{faults}").parse()?;
        let records = Records::default();
        let start = Instant::from_nanos(1_000_000);
        Ok(Self {
            a: Node::new(Side::Left, &records),
            b: Node::new(Side::Right, &records),
            network: Network::with_plan(plan, 1),
            now: start,
            start,
            records,
            ladder: Ladder::new(),
            keys,
            capture,
            shown: Shown::Packets,
            names: BTreeMap::new(),
            heads_due: true,
        })
    }

    /// It is over. Hands back the capture.
    pub(super) fn finish(self) -> Option<Capture> {
        self.capture
    }

    /// Counters of the network's ports.
    pub(super) fn port(&self) -> QueueCounters {
        self.network.port(None)
    }

    // Text.

    /// A paragraph.
    pub(super) fn say(&mut self, text: &str) {
        outln!("");
        for line in self.ladder.prose(text, Tone::Plain) {
            outln!("{line}");
        }
        self.heads_due = true;
    }

    /// A line of figures.
    pub(super) fn figures(&self, text: &str) {
        outln!("{text}");
    }

    /// Names a queue pair, where there are several of a side.
    pub(super) fn name(&mut self, qpn: Qpn, name: &str) {
        self.names.insert(qpn, name.into());
    }

    // Setting up.

    fn node(&mut self, side: Side) -> &mut Node {
        match side {
            Side::Left => &mut self.a,
            Side::Right => &mut self.b,
        }
    }

    /// Does something that is not drawn.
    pub(super) fn quietly<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let shown = std::mem::replace(&mut self.shown, Shown::Nothing);
        let result = act(self);
        let drawn = self.draw(&mut VecDeque::new());
        debug_assert!(drawn.is_ok(), "nothing is drawn");
        self.shown = shown;
        result
    }

    /// Connects a new queue pair of A to a new one of B, out of sight.
    pub(super) fn connect(&mut self, options: Options) -> (Qpn, Qpn) {
        self.connect_with(options, options)
    }

    pub(super) fn connect_with(&mut self, near: Options, far: Options) -> (Qpn, Qpn) {
        self.quietly(|world| {
            let (a_ip, b_ip) = (world.a.ip, world.b.ip);
            let a = world.a.qp(QpType::Rc, &near);
            let b = world.b.qp(QpType::Rc, &far);
            let now = world.now;
            for (node, own, to, options) in
                [(&mut world.a, a, (b_ip, b), &near), (&mut world.b, b, (a_ip, a), &far)]
            {
                node.enter_init(own);
                node.enter_rtr(QpType::Rc, own, to, options);
                node.enter_rts(now, QpType::Rc, own, options);
            }
            (a, b)
        })
    }

    // Working.

    /// Posts a send request of one side; an error is drawn, too.
    pub(super) fn post_send(&mut self, side: Side, qpn: Qpn, wr: &SendWr) -> Result<(), Failure> {
        let now = self.now;
        let posted = self.node(side).adapter.post_send(now, qpn, wr);
        self.draw(&mut VecDeque::new())?;
        self.expect(posted, side)
    }

    pub(super) fn post_recv(&mut self, side: Side, qpn: Qpn, wr: &RecvWr) -> Result<(), Failure> {
        let now = self.now;
        let posted = self.node(side).adapter.post_recv(now, qpn, wr);
        self.draw(&mut VecDeque::new())?;
        self.expect(posted, side)
    }

    /// A full queue is what a scenario may be about; anything else is a mistake in it.
    fn expect(&self, posted: Result<(), PostError>, side: Side) -> Result<(), Failure> {
        match posted {
            Ok(()) | Err(PostError::QueueFull) => Ok(()),
            Err(error) => Err(format!("{side:?}: {error}; this is a bug in roce").into()),
        }
    }

    /// Runs until nothing is left to do.
    pub(super) fn run(&mut self) -> Result<(), Failure> {
        self.run_until(Instant::from_nanos(u64::MAX))
    }

    pub(super) fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        self.run_until(self.now.plus(time))
    }

    fn run_until(&mut self, end: Instant) -> Result<(), Failure> {
        loop {
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
                self.node(side).adapter.handle_timeout(now);
                self.draw(&mut VecDeque::new())?;
            }
        }
    }

    fn transmit(&mut self, side: Side) -> Result<(), Failure> {
        let now = self.now;
        loop {
            let (node, network) = match side {
                Side::Left => (&mut self.a, &mut self.network),
                Side::Right => (&mut self.b, &mut self.network),
            };
            node.transmit.clear();
            node.adapter.poll_transmit(now, &mut node.transmit);
            let is_empty = node.transmit.is_empty();
            let mut lost = VecDeque::new();
            for (net, bytes) in node.transmit.datagrams() {
                let is_lost = network.send(now, &net, bytes).lost;
                lost.push_back(is_lost);
                if let Some(capture) = &mut self.capture {
                    let at = Duration::from_nanos(now.as_nanos());
                    capture.write(at, &net, bytes, is_lost.then(|| "lost on the way".into()))?;
                }
            }
            self.draw(&mut lost)?;
            if is_empty {
                self.node(side).poll();
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
            self.draw(&mut VecDeque::new())?;
        }
        Ok(any)
    }

    // Drawing.

    /// Draws what has been recorded. `lost`: for each packet among it that was sent, what the
    /// network said.
    fn draw(&mut self, lost: &mut VecDeque<bool>) -> Result<(), Failure> {
        let records = match self.records.lock() {
            Ok(mut records) => std::mem::take(&mut *records),
            Err(_) => return Err("a record could not be taken; this is a bug in roce".into()),
        };
        for (side, record) in records {
            let event = self.event(side, &record);
            if let Some((event, tone)) = event {
                self.line(record.at, &event, tone)?;
            }
            if let What::Sent { packet, .. } = &record.what
                && lost.pop_front() == Some(true)
                && self.shown != Shown::Nothing
            {
                let what = self.packet(packet);
                self.line(record.at, &Event::Lost(side, what), Tone::Bad)?;
            }
        }
        Ok(())
    }

    /// The line of a record, if it is shown.
    fn event(&self, side: Side, record: &Record) -> Option<(Event, Tone)> {
        let note = |text: String, tone| Some((Event::Note(side, self.at(record, text)), tone));
        let is_shown = match self.shown {
            Shown::Nothing => false,
            Shown::Packets => !matches!(
                &record.what,
                What::State { failure: roce::transport::trace::Failure::Asked, .. }
            ),
            Shown::States => true,
            Shown::Congestion => is_congestion(&record.what),
        };
        if !is_shown {
            return None;
        }
        match &record.what {
            What::Sent { packet, why } => {
                let tone = match why {
                    Why::Queue(Reason::Again(..) | Reason::Probe { .. }) => Tone::Warned,
                    Why::Queue(Reason::Negative(..)) => Tone::Bad,
                    _ => Tone::Plain,
                };
                let why = match why {
                    Why::Cm(_) if why.to_string() == "for the first time" => String::new(),
                    // the packet says as much
                    Why::Queue(Reason::Congestion) => String::new(),
                    _ => why.to_string(),
                };
                Some((Event::Sent(side, self.packet(packet), why), tone))
            }
            What::Arrived { packet, disposition } => {
                let tone = match disposition {
                    Disposition::Dropped(_)
                    | Disposition::Refused(..)
                    | Disposition::NakReceived(Syndrome::Nak(_) | Syndrome::RnrNak { .. }) => {
                        Tone::Bad
                    }
                    Disposition::Duplicate => Tone::Warned,
                    _ => Tone::Plain,
                };
                Some((Event::Arrived(side, self.packet(packet), disposition.to_string()), tone))
            }
            What::Call { result: Err(_), .. } => note(record.what.to_string(), Tone::Bad),
            What::Call { .. } => note(record.what.to_string(), Tone::Strong),
            What::Completed { result: Err(_), .. } => note(record.what.to_string(), Tone::Bad),
            What::Completed { .. } => note(record.what.to_string(), Tone::Strong),
            What::Recovery { recovery: Recovery::GiveUp { .. }, .. } => {
                note(record.what.to_string(), Tone::Bad)
            }
            What::Recovery { .. } | What::Timer(_) => note(record.what.to_string(), Tone::Warned),
            What::State { failure: roce::transport::trace::Failure::Asked, .. } => {
                note(record.what.to_string(), Tone::Faint)
            }
            What::State { .. } => note(record.what.to_string(), Tone::Bad),
            What::Window { rule: WindowRule::Acknowledged | WindowRule::Start, .. } => None,
            What::Window { .. } | What::Rate { .. } => note(record.what.to_string(), Tone::Warned),
            // the arrival before it says so
            What::Acknowledged { .. } => None,
            _ => note(record.what.to_string(), Tone::Plain),
        }
    }

    /// A text about a queue pair that has a name.
    fn at(&self, record: &Record, text: String) -> String {
        match self.names.get(&record.qpn) {
            Some(name) => format!("{name}: {text}"),
            None => text,
        }
    }

    fn packet(&self, packet: &roce::transport::trace::PacketRecord) -> String {
        let mad = packet.message.as_deref();
        let text = packet_text::packet(&packet.headers, packet.payload as usize, mad);
        match self.names.get(&packet.headers.bth().dest_qp) {
            Some(name) => format!("{text} to {name}"),
            None => text,
        }
    }

    fn line(&mut self, at: Instant, event: &Event, tone: Tone) -> Result<(), Failure> {
        if std::mem::take(&mut self.heads_due) {
            outln!("");
            outln!("{}", self.ladder.heads("A", "B"));
        }
        for line in self.ladder.event(at.since(self.start), event, tone) {
            outln!("{line}");
        }
        self.keys.as_ref().map_or(Ok(()), Keys::wait)
    }
}

/// What congestion control does, and what it acts on.
fn is_congestion(what: &What) -> bool {
    match what {
        What::Sent { why, .. } => *why == Why::Queue(Reason::Congestion),
        What::Arrived { disposition, .. } => *disposition == Disposition::Congestion,
        What::Window { rule, .. } => *rule == WindowRule::Notification,
        What::Rate { from: None, .. } | What::Rate { to: None, .. } => true,
        What::Rate { from: Some(from), to: Some(to) } => to < from,
        What::Recovery { .. } => true,
        _ => false,
    }
}
