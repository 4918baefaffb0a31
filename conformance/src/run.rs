mod bursts;
mod checks;
mod responses;
mod shares;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use roce_transport::{
    addr::Qpn,
    cm::RejectReason,
    mem::Access,
    psn::Psn,
    time::Instant,
    wire::{NetHeader, Service},
};

use crate::{
    case::{
        BEFORE, Case, Connection, Message, PAIR_PSNS, Packet, PacketKind, Pattern, Step, group,
    },
    dialog::{self, Dialog, NUMBERS},
    outcome::{Burst, Outcome, Pause, Seen, TraceEvent, Verdict},
    packet::{Scene, describe, destination, is_cnp, is_foreign, management, request},
    subject::{Arrival, Completion, RemoteRegion, Subject, SubjectError},
};

/// Each case has another queue pair: late packets must not disturb the next case.
const FIRST_QPN: u32 = 0x8001;
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// A listening program may end with its connection and restart.
const RESTART: Duration = Duration::from_secs(3);
/// Size of standard regions.
const ROOM: u32 = 32_768;
/// Region for receive requests.
pub const INBOX: &str = "inbox";
/// Region that send requests read and READs write.
pub const SOURCE: &str = "source";
/// Region with all remote rights except FLUSH.
pub const TARGET: &str = "target";
/// Pattern number of the first byte of [`SOURCE`].
pub const SOURCE_SEED: u32 = 1;

/// Plays cases against a device.
#[derive(Debug)]
pub struct Runner<'a, S: Subject> {
    subject: &'a mut S,
    next_qpn: u32,
}

impl<'a, S: Subject> Runner<'a, S> {
    /// A runner for `subject`.
    pub const fn new(subject: &'a mut S) -> Self {
        Self { subject, next_qpn: FIRST_QPN }
    }

    /// Plays a case.
    pub fn run(&mut self, case: &Case) -> Outcome {
        let end = self.subject.now().plus(RESTART);
        loop {
            let (outcome, is_heard) = self.once(case);
            let now = self.subject.now();
            if is_heard || now >= end || !self.wait(now.plus(RESTART / 30)) {
                return outcome;
            }
        }
    }

    /// Discards arrivals.
    fn wait(&mut self, until: Instant) -> bool {
        while let Ok(found) = self.subject.receive(until) {
            if found.is_none() {
                return true;
            }
        }
        false
    }

    /// `false`: no program listens.
    fn once(&mut self, case: &Case) -> (Outcome, bool) {
        let mut own = Qpn::new(self.next_qpn);
        let mut dialog = None;
        if case.is_by_cm() {
            if let Some(listener) = self.subject.listener() {
                own = Qpn::new(0x10_0000 | self.next_qpn.wrapping_add(listener.seed) & 0xF_FFFF);
                let base = listener.seed.wrapping_add(self.next_qpn) & 0x7FFF_FFFF;
                dialog = Some(Dialog::new(listener, self.subject.route(), base, own));
            }
            self.next_qpn += NUMBERS;
        } else {
            self.next_qpn += case.pairs();
        }
        let start = self.subject.now();
        let mut play = Play {
            subject: self.subject,
            own,
            start,
            mark: Mark { at: start, is_late: false },
            connection: None,
            pairs: Vec::new(),
            current: 0,
            dialog,
            is_heard: true,
            regions: BTreeMap::new(),
            used: 0,
            arrivals: VecDeque::new(),
            evidence: Evidence::default(),
            last: None,
        };
        let (verdict, finding) = play.all(case);
        let Evidence { packets, pauses, bursts } = std::mem::take(&mut play.evidence);
        // A failed disconnect is no verdict.
        let _ = play.disconnect();
        let is_heard = play.is_heard;
        let time = self.subject.now().since(start);
        let mut outcome = Outcome { verdict, finding, packets, pauses, bursts, time };
        if let Err(error) = self.subject.clear() {
            outcome.verdict = outcome.verdict.max(Verdict::Inconclusive);
            match &mut outcome.finding {
                None => outcome.finding = Some((0, error.to_string())),
                Some((_, found)) => *found += &format!("; then {error}"),
            }
        }
        (outcome, is_heard)
    }
}

enum Stop {
    /// The device's fault.
    Wrong(String),
    Subject(SubjectError),
}

impl From<SubjectError> for Stop {
    fn from(error: SubjectError) -> Self {
        Self::Subject(error)
    }
}

fn wrong<T>(text: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Wrong(text.into()))
}

/// Not the device's fault.
fn mistake(text: impl Into<String>) -> Stop {
    Stop::Subject(SubjectError::Broken(text.into()))
}

struct Play<'a, S: Subject> {
    subject: &'a mut S,
    own: Qpn,
    start: Instant,
    mark: Mark,
    connection: Option<Connection>,
    /// The instrument's are `own` and following.
    pairs: Vec<Pair>,
    current: usize,
    dialog: Option<Dialog>,
    is_heard: bool,
    regions: BTreeMap<String, RemoteRegion>,
    /// Used bytes of the inbox.
    used: u32,
    arrivals: VecDeque<Arrival>,
    evidence: Evidence,
    last: Option<(NetHeader, Vec<u8>)>,
}

#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    /// `at` is the arrival of a packet, perhaps after its departure.
    is_late: bool,
}

#[derive(Default)]
struct Evidence {
    packets: Vec<Seen>,
    pauses: Vec<Pause>,
    bursts: Vec<Burst>,
}

#[derive(Default)]
struct Pair {
    device: Qpn,
    rq_psn: u32,
    sq_psn: u32,
    /// Requested PSNs and messages, as in bursts and expected packets.
    requests: u32,
    messages: u32,
    completions: [VecDeque<Completion>; 2],
}

impl Pair {
    /// Distance from the next expected request, in 24 bits.
    fn ahead(&self, psn: u32) -> u32 {
        psn.wrapping_sub(self.sq_psn).wrapping_sub(self.requests) & 0x00FF_FFFF
    }
}

impl<S: Subject> Play<'_, S> {
    fn all(&mut self, case: &Case) -> (Verdict, Option<(usize, String)>) {
        if case.is_by_cm() && self.dialog.is_none() {
            return (Verdict::NotSupported, Some((0, "nobody listens for connections".into())));
        }
        let supported = case.steps.iter().position(|(_, step)| *step == Step::Supported);
        for (at, (line, step)) in case.steps.iter().enumerate() {
            let severity = match supported {
                Some(supported) if at < supported => Verdict::NotSupported,
                _ => case.severity,
            };
            let Err(stop) = self.step(step) else { continue };
            let (verdict, text) = match stop {
                Stop::Wrong(text) => (severity, text),
                Stop::Subject(SubjectError::Unsupported(text)) => (Verdict::NotSupported, text),
                Stop::Subject(SubjectError::Broken(text)) => (Verdict::Inconclusive, text),
            };
            return (verdict, Some((*line, text)));
        }
        (Verdict::Conforms, None)
    }

    fn at(&mut self, pair: Option<u32>, step: &Step) -> Result<(), Stop> {
        let all = match pair {
            Some(pair) => pair as usize..pair as usize + 1,
            None => 0..self.pairs.len(),
        };
        if all.end > self.pairs.len() {
            return Err(mistake(format!("the case connects {} queue pairs", self.pairs.len())));
        }
        for pair in all {
            self.choose(pair)?;
            self.step(step).map_err(|stop| match stop {
                Stop::Wrong(text) => Stop::Wrong(format!("queue pair {}: {text}", pair + 1)),
                stop => stop,
            })?;
        }
        self.choose(0)
    }

    fn choose(&mut self, pair: usize) -> Result<(), Stop> {
        self.current = pair;
        self.subject.program()?.choose(pair);
        Ok(())
    }

    fn own(&self) -> Qpn {
        Qpn::new(self.own.get() + self.current as u32)
    }

    fn pair(&mut self) -> Result<&mut Pair, Stop> {
        let pair = self.pairs.get_mut(self.current);
        pair.ok_or_else(|| mistake("the case does not connect first"))
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::At { pair, step } => return self.at(*pair, step),
            Step::Connect(connection) => self.connect(connection)?,
            Step::Region { name, bytes, rights } => self.region(name, *bytes, *rights)?,
            Step::Receive { id, bytes } => {
                if self.used + bytes > ROOM {
                    return Err(mistake(format!("the inbox has room for {ROOM} bytes")));
                }
                self.subject.program()?.post_receive(*id, self.used, *bytes)?;
                self.used += bytes;
            }
            Step::Post(request) => {
                let own = self.own();
                self.subject.program()?.post_send(request, own)?;
            }
            Step::Bind(bind) => {
                let bound = self.subject.program()?.bind(bind)?;
                if let Some(before) = self.regions.insert(bind.window.clone(), bound) {
                    self.regions.insert(format!("{}{BEFORE}", bind.window), before);
                }
            }
            Step::Invalidate { id, window } => self.subject.program()?.invalidate(*id, window)?,
            Step::Join(number) => {
                let group = group(*number, self.subject.route().device);
                self.subject.program()?.join(group)?;
            }
            Step::Supported => {}
            Step::Send(packet) => {
                let (net, bytes) = self.build(packet)?;
                return self.send(net, bytes);
            }
            Step::Again { count, every } => {
                for _ in 0..*count {
                    self.pump(*every)?;
                    let (net, bytes) =
                        self.last.clone().ok_or_else(|| mistake("nothing was sent before"))?;
                    self.send(net, bytes)?;
                }
                return Ok(());
            }
            Step::Pause(pause) => {
                self.pump(Duration::ZERO)?;
                let at = self.subject.now().since(self.start);
                self.subject.pause(*pause)?;
                let what = TraceEvent::Pause(*pause);
                self.evidence.packets.push(Seen { at, from_device: false, what });
            }
            Step::Burst(burst) => return self.burst(burst),
            Step::Share(shares) => return self.share(shares),
            Step::Response(responses) => return self.response(responses),
            Step::Expect { packet, after, within } => {
                let until = self.mark.at.plus(*within).plus(self.subject.tolerance());
                let mut arrival = self.next_arrival_but(packet, until)?;
                // A retransmission may precede the measured pause.
                while !after.is_zero()
                    && arrival.as_ref().is_some_and(|arrival| arrival.at < self.mark.at)
                {
                    arrival = self.next_arrival_but(packet, until)?;
                }
                let Some(arrival) = arrival else {
                    return wrong(format!("nothing comes in {within:?}"));
                };
                if let Err(why) = self.check(packet, &arrival)? {
                    let is_reply = packet.operation == PacketKind::Message(Message::Rep);
                    let rejection = management(&arrival).and_then(dialog::rejection);
                    return match rejection.filter(|_| is_reply) {
                        Some(RejectReason::INVALID_SERVICE_ID) => {
                            self.is_heard = false;
                            Err(mistake("no program listens at that port any longer"))
                        }
                        // says nothing about the device
                        Some(RejectReason::CONSUMER) => {
                            Err(mistake("the listening program rejects the connection"))
                        }
                        _ => wrong(format!("{why}, in the {}", describe(&arrival))),
                    };
                }
                let waited = arrival.at.since(self.mark.at);
                // The packet before may be seen late.
                let early =
                    if self.mark.is_late { self.subject.tolerance() } else { Duration::ZERO };
                if !after.is_zero() {
                    self.evidence.pauses.push(Pause { least: *after, measured: waited });
                }
                if waited + early < *after {
                    return wrong(format!("it comes after {waited:?}, before {after:?} are over"));
                }
                self.mark = Mark { at: arrival.at, is_late: true };
                self.count(&arrival);
                return Ok(());
            }
            Step::Silence { time, but } => {
                // responses to the last step
                let until = self.subject.now().plus(*time).plus(self.subject.tolerance() / 4);
                while let Some(arrival) = self.next_arrival(until)? {
                    if is_of_the_program(&arrival) {
                        continue;
                    }
                    if let Some(but) = but
                        && self.check(but, &arrival)?.is_ok()
                    {
                        continue;
                    }
                    return wrong(format!("the device sends {}", describe(&arrival)));
                }
            }
            Step::Completes(completes) => self.completes(completes)?,
            Step::NothingCompletes(queue, time) => {
                self.pump(*time)?;
                if let Some(Completion { id, status, .. }) = self.completion(*queue)? {
                    return wrong(format!("request {id} completes with {status}"));
                }
            }
            Step::Fill(Pattern { place, bytes, seed }) => {
                self.subject.program()?.fill(&place.region, place.offset, *bytes, *seed)?;
            }
            Step::Memory(pattern) => self.memory(pattern)?,
            Step::Header(place) => self.header(place)?,
            Step::SetWord(place, value) => {
                self.subject.program()?.set_word(&place.region, place.offset, *value)?;
            }
            Step::Word(place, value) => {
                let mut found = 0;
                let same = self.until(self.subject.tolerance(), |play| {
                    found = play.subject.program()?.word(&place.region, place.offset)?;
                    Ok((found == *value).then_some(()))
                })?;
                if same.is_none() {
                    return wrong(format!("the word is {found:#x}, expected {value:#x}"));
                }
            }
            Step::State(state) => self.state(state)?,
            Step::Wait(time) => self.pump(*time)?,
        }
        self.mark = Mark { at: self.subject.now(), is_late: false };
        Ok(())
    }

    fn connect(&mut self, connection: &Connection) -> Result<(), Stop> {
        if connection.by_cm {
            return self.connect_by_cm(connection);
        }
        let mtu = self.subject.program()?.mtu().bytes();
        if connection.mtu > mtu {
            let text = format!("its port has a path MTU of {mtu}");
            return Err(Stop::Subject(SubjectError::Unsupported(text)));
        }
        let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        self.region(TARGET, ROOM, Access::LOCAL_WRITE | remote)?;
        self.region(SOURCE, ROOM, Access::LOCAL_WRITE)?;
        self.subject.program()?.fill(SOURCE, 0, ROOM, SOURCE_SEED)?;
        self.region(INBOX, ROOM, Access::LOCAL_WRITE)?;
        for number in 0..connection.pairs {
            let psn = |first: u32| Psn::new(first.wrapping_add(PAIR_PSNS * number)).get();
            let (rq_psn, sq_psn) = (psn(connection.rq_psn), psn(connection.sq_psn));
            let connection = Connection { rq_psn, sq_psn, ..connection.clone() };
            let own = Qpn::new(self.own.get() + number);
            let device = self.subject.program()?.connect(&connection, own)?;
            self.pairs.push(Pair { device, rq_psn, sq_psn, ..Pair::default() });
        }
        self.connection = Some(connection.clone());
        self.choose(0)
    }

    fn count(&mut self, arrival: &Arrival) {
        let (Some(pair), Some(connection)) = (self.pairs.get_mut(self.current), &self.connection)
        else {
            return;
        };
        if let Ok(request) = request(arrival)
            && pair.ahead(request.psn) == 0
        {
            pair.requests += request.psns(connection.mtu);
            pair.messages += u32::from(request.ends);
        }
    }

    fn connect_by_cm(&mut self, connection: &Connection) -> Result<(), Stop> {
        if let Some(dialog) = &mut self.dialog {
            (dialog.sq_psn, dialog.mtu) = (connection.sq_psn, connection.mtu);
        }
        let message = |message| Packet { operation: PacketKind::Message(message), fields: vec![] };
        let (after, within) = (Duration::ZERO, PATIENCE);
        self.step(&Step::Send(message(Message::Req)))?;
        let replied = self.step(&Step::Expect { packet: message(Message::Rep), after, within });
        match replied {
            Err(Stop::Wrong(why)) => Err(mistake(format!("the device does not connect: {why}"))),
            _ => replied.and_then(|()| self.step(&Step::Send(message(Message::Rtu)))),
        }
    }

    fn disconnect(&mut self) -> Result<(), Stop> {
        // A response may be lost, or the device has disconnected.
        for _ in 0..2 {
            let open: Vec<_> = self.dialog.iter().flat_map(Dialog::open).collect();
            for id in open {
                if let Some(packet) = self.dialog.as_ref().map(|it| it.closing_message(id)) {
                    let (net, bytes) = self.build(&packet)?;
                    self.send(net, bytes)?;
                }
            }
            let end = self.subject.now().plus(self.subject.tolerance());
            while self.dialog.iter().flat_map(Dialog::open).next().is_some() && self.take(end)? {}
        }
        Ok(())
    }

    fn region(&mut self, name: &str, bytes: u32, rights: Access) -> Result<(), Stop> {
        let region = self.subject.program()?.region(name, bytes, rights)?;
        self.regions.insert(name.to_owned(), region);
        Ok(())
    }

    fn scene(&self) -> Result<Scene<'_>, Stop> {
        let pair = self.pairs.get(self.current);
        let (service, qkey, device, rq_psn, sq_psn) = match (&self.dialog, &self.connection, pair) {
            (Some(dialog), ..) => {
                let (device, rq_psn) = dialog.device().unwrap_or_default();
                (Service::Rc, 0, device, rq_psn, dialog.sq_psn)
            }
            (None, Some(Connection { qp_type, qkey, .. }), Some(pair)) => {
                (qp_type.service(), *qkey, pair.device, pair.rq_psn, pair.sq_psn)
            }
            _ => return Err(mistake("the case does not connect first")),
        };
        let (route, own, regions) = (self.subject.route(), self.own(), &self.regions);
        Ok(Scene { route, service, own, device, rq_psn, sq_psn, qkey, regions })
    }

    fn build(&mut self, packet: &Packet) -> Result<(NetHeader, Vec<u8>), Stop> {
        let mad = match (packet.operation, &mut self.dialog) {
            (PacketKind::Message(message), Some(dialog)) => {
                Some(dialog.encode(message, &packet.fields))
            }
            (PacketKind::Message(_), None) => {
                return Err(mistake("messages are for cases that begin with one, or connect cm"));
            }
            _ => None,
        };
        self.scene()?.build(packet, mad).map_err(mistake)
    }

    /// Inner `Err`: difference from the expected packet.
    fn check(&mut self, packet: &Packet, arrival: &Arrival) -> Result<Result<(), String>, Stop> {
        let checked = self.scene()?.check(packet, arrival);
        Ok(checked.and_then(|()| match (&mut self.dialog, management(arrival)) {
            (Some(dialog), Some(payload)) => dialog.check(packet, payload),
            _ => Ok(()),
        }))
    }

    fn send(&mut self, net: NetHeader, bytes: Vec<u8>) -> Result<(), Stop> {
        // Earlier arrivals are no responses.
        self.pump(Duration::ZERO)?;
        self.mark = Mark { at: self.subject.now(), is_late: false };
        self.subject.send(&net, &bytes)?;
        let at = self.mark.at.since(self.start);
        let what = TraceEvent::Packet { net, bytes: bytes.clone() };
        self.evidence.packets.push(Seen { at, from_device: false, what });
        self.last = Some((net, bytes));
        Ok(())
    }

    fn take(&mut self, until: Instant) -> Result<bool, Stop> {
        let Some(arrival) = self.subject.receive(until)? else { return Ok(false) };
        let Arrival { at, net, ref bytes } = arrival;
        let own = self.own.get();
        let own = own..own + self.pairs.len().max(1) as u32;
        if !is_foreign(&arrival, &own, self.dialog.as_ref()) {
            if let (Some(dialog), Some(payload)) = (&mut self.dialog, management(&arrival)) {
                dialog.record(payload);
            }
            let at = at.since(self.start);
            let what = TraceEvent::Packet { net, bytes: bytes.clone() };
            self.evidence.packets.push(Seen { at, from_device: true, what });
            self.arrivals.push_back(arrival);
        }
        Ok(true)
    }

    fn next_arrival(&mut self, until: Instant) -> Result<Option<Arrival>, Stop> {
        loop {
            let (own, is_one) = (self.own(), self.pairs.len() <= 1);
            let is_meant = |it: &Arrival| is_one || destination(it).is_none_or(|to| to == own);
            if let Some(at) = self.arrivals.iter().position(is_meant) {
                return Ok(self.arrivals.remove(at));
            }
            if !self.take(until)? {
                return Ok(None);
            }
        }
    }

    /// Skips CNPs, packets of another connection, and packets for the listening program.
    fn next_arrival_but(
        &mut self,
        packet: &Packet,
        until: Instant,
    ) -> Result<Option<Arrival>, Stop> {
        loop {
            let Some(arrival) = self.next_arrival(until)? else { return Ok(None) };
            let is_of_another = match (&self.dialog, management(&arrival)) {
                (Some(dialog), Some(payload)) => dialog.is_of_another(packet, payload),
                _ => false,
            };
            // Some adapters send a CNP on loss.
            let is_notice = packet.operation != PacketKind::Cnp && is_cnp(&arrival);
            let is_passed_over = is_notice
                || is_of_another
                || is_of_the_program(&arrival) && self.check(packet, &arrival)?.is_err();
            if !is_passed_over {
                return Ok(Some(arrival));
            }
        }
    }

    fn pump(&mut self, time: Duration) -> Result<(), Stop> {
        let until = self.subject.now().plus(time);
        while self.take(until)? {}
        Ok(())
    }
}

/// A program may send MRA and DREQ at any time.
fn is_of_the_program(arrival: &Arrival) -> bool {
    let message = management(arrival).and_then(dialog::message);
    matches!(message, Some(Message::Mra | Message::Dreq))
}
