//! Playing a case.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

use roce_transport::{
    addr::Qpn,
    mem::Access,
    psn::Psn,
    qp::QpType,
    time::Instant,
    wire::{NetHeader, Service},
};

use crate::{
    case::{BEFORE, Case, Completes, Connection, Pattern, Queue, Severity, Step},
    packet::{Scene, describe, is_foreign},
    subject::{Arrival, Completion, RemoteRegion, Subject, Trouble},
};

/// What a case says of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// It does what the rule says.
    Conforms,
    /// The device, or its agent, has not what the case needs.
    NotSupported,
    /// The case could not be played to its end, or gave different verdicts when repeated.
    Inconclusive,
    /// It does otherwise.
    Deviates,
    /// It does otherwise, and that loses or exposes data, or stops it.
    Harmful,
}

impl Verdict {
    /// Every verdict, the best first.
    pub const ALL: [Self; 5] =
        [Self::Conforms, Self::NotSupported, Self::Inconclusive, Self::Deviates, Self::Harmful];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conforms => "conforms",
            Self::NotSupported => "not supported",
            Self::Inconclusive => "inconclusive",
            Self::Deviates => "deviates",
            Self::Harmful => "harmful",
        }
    }

    /// The verdict of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What came of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// What is wrong, and the number of the line that found it.
    pub finding: Option<(usize, String)>,
    /// The packets, in their order.
    pub packets: Vec<Seen>,
    /// How long it took.
    pub time: Duration,
}

/// A packet that passed between instrument and device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// When, from the start of the case.
    pub at: Duration,
    /// True if it is from the device.
    pub from_device: bool,
    /// Its network headers.
    pub net: NetHeader,
    /// UDP payload.
    pub bytes: Vec<u8>,
}

/// First queue pair of the instrument. Each case has another, so that what is late from one case
/// does not disturb the next.
const FIRST_QPN: u32 = 0x8001;
/// Time that a packet or completion may take to come, if the case does not say.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Room of the regions that every case has.
const ROOM: u32 = 32_768;
/// Region that receive requests write.
pub const INBOX: &str = "inbox";
/// Region that send requests read and READs write.
pub const SOURCE: &str = "source";
/// Region that a peer may use in every way.
pub const TARGET: &str = "target";
/// Pattern of [`SOURCE`].
const SOURCE_SEED: u32 = 1;

/// Plays cases against one device.
#[derive(Debug)]
pub struct Runner<'a, S: Subject> {
    subject: &'a mut S,
    next_qpn: u32,
}

impl<'a, S: Subject> Runner<'a, S> {
    /// A runner of cases against this device.
    pub const fn new(subject: &'a mut S) -> Self {
        Self { subject, next_qpn: FIRST_QPN }
    }

    /// Plays a case.
    pub fn run(&mut self, case: &Case) -> Outcome {
        let own = Qpn::new(self.next_qpn);
        self.next_qpn += 1;
        let start = self.subject.now();
        let mut play = Play {
            subject: self.subject,
            own,
            start,
            mark: start,
            mark_is_late: false,
            connection: None,
            regions: BTreeMap::new(),
            used: 0,
            arrivals: VecDeque::new(),
            completions: [VecDeque::new(), VecDeque::new()],
            packets: Vec::new(),
            last: None,
        };
        let (verdict, finding) = play.all(case);
        let (packets, time) = (play.packets, play.subject.now().since(start));
        let mut outcome = Outcome { verdict, finding, packets, time };
        if let Err(trouble) = self.subject.clear() {
            outcome.verdict = outcome.verdict.max(Verdict::Inconclusive);
            match &mut outcome.finding {
                None => outcome.finding = Some((0, trouble.to_string())),
                Some((_, found)) => *found += &format!("; then {trouble}"),
            }
        }
        outcome
    }
}

/// Why a step ends a case.
enum Stop {
    /// The device is wrong.
    Wrong(String),
    Trouble(Trouble),
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

fn wrong<T>(text: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Wrong(text.into()))
}

/// A mistake of the case.
fn mistake(text: impl Into<String>) -> Stop {
    Stop::Trouble(Trouble::Broken(text.into()))
}

struct Play<'a, S: Subject> {
    subject: &'a mut S,
    own: Qpn,
    start: Instant,
    /// When the step before ended.
    mark: Instant,
    /// It is the time at which a packet was seen, which may have been sent earlier.
    mark_is_late: bool,
    connection: Option<(Connection, Qpn)>,
    regions: BTreeMap<String, RemoteRegion>,
    /// Bytes of the inbox that receive requests have.
    used: u32,
    arrivals: VecDeque<Arrival>,
    completions: [VecDeque<Completion>; 2],
    packets: Vec<Seen>,
    last: Option<(NetHeader, Vec<u8>)>,
}

impl<S: Subject> Play<'_, S> {
    fn all(&mut self, case: &Case) -> (Verdict, Option<(usize, String)>) {
        let supported = case.steps.iter().position(|(_, step)| *step == Step::Supported);
        for (at, (line, step)) in case.steps.iter().enumerate() {
            let severity = match supported {
                Some(supported) if at < supported => Severity::Optional,
                _ => case.severity,
            };
            let stop = match self.step(step) {
                Ok(()) => continue,
                Err(stop) => stop,
            };
            let (verdict, text) = match stop {
                Stop::Wrong(text) => match severity {
                    Severity::Optional => (Verdict::NotSupported, text),
                    Severity::Deviates => (Verdict::Deviates, text),
                    Severity::Harmful => (Verdict::Harmful, text),
                },
                Stop::Trouble(Trouble::Unsupported(text)) => (Verdict::NotSupported, text),
                Stop::Trouble(Trouble::Broken(text)) => (Verdict::Inconclusive, text),
            };
            return (verdict, Some((*line, text)));
        }
        (Verdict::Conforms, None)
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Connect(connection) => self.connect(connection)?,
            Step::Region { name, bytes, rights } => self.region(name, *bytes, *rights)?,
            Step::Receive { id, bytes } => {
                if self.used + bytes > ROOM {
                    return Err(mistake(format!("the inbox has room for {ROOM} bytes")));
                }
                self.subject.program()?.post_receive(*id, self.used, *bytes)?;
                self.used += bytes;
            }
            Step::Post(request) => self.subject.program()?.post_send(request, self.own)?,
            Step::Bind(bind) => {
                let bound = self.subject.program()?.bind(bind)?;
                if let Some(before) = self.regions.insert(bind.window.clone(), bound) {
                    self.regions.insert(format!("{}{BEFORE}", bind.window), before);
                }
            }
            Step::Invalidate { id, window } => self.subject.program()?.invalidate(*id, window)?,
            Step::Supported => {}
            Step::Send(packet) => {
                let (net, bytes) = self.scene()?.build(packet).map_err(mistake)?;
                return self.send(net, bytes);
            }
            Step::Again => {
                let (net, bytes) =
                    self.last.clone().ok_or_else(|| mistake("nothing was sent before"))?;
                return self.send(net, bytes);
            }
            Step::Expect { packet, after, within } => {
                let until = self.mark.plus(*within).plus(self.subject.tolerance());
                let mut arrival = self.next_arrival(until)?;
                // a repeat that had come before the pause that is measured began
                while !after.is_zero()
                    && arrival.as_ref().is_some_and(|arrival| arrival.at < self.mark)
                {
                    arrival = self.next_arrival(until)?;
                }
                let Some(arrival) = arrival else {
                    return wrong(format!("nothing comes in {within:?}"));
                };
                self.scene()?
                    .check(packet, &arrival)
                    .map_err(|why| Stop::Wrong(format!("{why}, in the {}", describe(&arrival))))?;
                let waited = arrival.at.since(self.mark);
                // the packet before may have been seen late
                let early =
                    if self.mark_is_late { self.subject.tolerance() } else { Duration::ZERO };
                if waited + early < *after {
                    return wrong(format!("it comes after {waited:?}, before {after:?} are over"));
                }
                (self.mark, self.mark_is_late) = (arrival.at, true);
                return Ok(());
            }
            Step::Silence { time, but } => {
                // what the device sends for the step before is on its way
                let until = self.subject.now().plus(*time).plus(self.subject.tolerance() / 4);
                while let Some(arrival) = self.next_arrival(until)? {
                    if let Some(but) = but
                        && self.scene()?.check(but, &arrival).is_ok()
                    {
                        continue;
                    }
                    return wrong(format!("the device sends {}", describe(&arrival)));
                }
            }
            Step::Completes(completes) => self.completes(completes)?,
            Step::NothingCompletes(queue, time) => {
                self.pump(*time)?;
                if let Some(completion) = self.completion(*queue)? {
                    return wrong(format!(
                        "request {} completes with {}",
                        completion.id, completion.status
                    ));
                }
            }
            Step::Fill(Pattern { place, bytes, seed }) => {
                self.subject.program()?.fill(&place.region, place.offset, *bytes, *seed)?;
            }
            Step::Memory(pattern) => self.memory(pattern)?,
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
                    return wrong(format!("the word is {found:#x} where {value:#x} is right"));
                }
            }
            Step::State(state) => self.state(state)?,
            Step::Wait(time) => self.pump(*time)?,
        }
        (self.mark, self.mark_is_late) = (self.subject.now(), false);
        Ok(())
    }

    fn connect(&mut self, connection: &Connection) -> Result<(), Stop> {
        let mtu = self.subject.program()?.mtu().bytes();
        if connection.mtu > mtu {
            let text = format!("its port has a path MTU of {mtu}");
            return Err(Stop::Trouble(Trouble::Unsupported(text)));
        }
        let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        self.region(TARGET, ROOM, Access::LOCAL_WRITE | remote)?;
        self.region(SOURCE, ROOM, Access::LOCAL_WRITE)?;
        self.subject.program()?.fill(SOURCE, 0, ROOM, SOURCE_SEED)?;
        self.region(INBOX, ROOM, Access::LOCAL_WRITE)?;
        let device = self.subject.program()?.connect(connection, self.own)?;
        self.connection = Some((connection.clone(), device));
        Ok(())
    }

    fn region(&mut self, name: &str, bytes: u32, rights: Access) -> Result<(), Stop> {
        let region = self.subject.program()?.region(name, bytes, rights)?;
        self.regions.insert(name.to_owned(), region);
        Ok(())
    }

    fn scene(&self) -> Result<Scene<'_>, Stop> {
        let (connection, device) =
            self.connection.as_ref().ok_or_else(|| mistake("the case does not connect first"))?;
        Ok(Scene {
            route: self.subject.route(),
            service: match connection.qp_type {
                QpType::Uc => Service::Uc,
                QpType::Ud => Service::Ud,
                _ => Service::Rc,
            },
            own: self.own,
            device: *device,
            rq_psn: Psn::new(connection.rq_psn).get(),
            sq_psn: Psn::new(connection.sq_psn).get(),
            qkey: connection.qkey,
            regions: &self.regions,
        })
    }

    fn send(&mut self, net: NetHeader, bytes: Vec<u8>) -> Result<(), Stop> {
        // what has come already is no answer, and what the device does for it is not earlier
        self.pump(Duration::ZERO)?;
        (self.mark, self.mark_is_late) = (self.subject.now(), false);
        self.subject.send(&net, &bytes)?;
        let at = self.mark.since(self.start);
        self.packets.push(Seen { at, from_device: false, net, bytes: bytes.clone() });
        self.last = Some((net, bytes));
        Ok(())
    }

    /// Takes what arrives until then.
    fn take(&mut self, until: Instant) -> Result<bool, Stop> {
        let Some(arrival) = self.subject.receive(until)? else { return Ok(false) };
        let Arrival { at, net, ref bytes } = arrival;
        if !is_foreign(&arrival, self.own) {
            let at = at.since(self.start);
            self.packets.push(Seen { at, from_device: true, net, bytes: bytes.clone() });
            self.arrivals.push_back(arrival);
        }
        Ok(true)
    }

    /// The next packet, if it comes until then.
    fn next_arrival(&mut self, until: Instant) -> Result<Option<Arrival>, Stop> {
        while self.arrivals.is_empty() && self.take(until)? {}
        Ok(self.arrivals.pop_front())
    }

    /// Lets time pass.
    fn pump(&mut self, time: Duration) -> Result<(), Stop> {
        let until = self.subject.now().plus(time);
        while self.take(until)? {}
        Ok(())
    }

    fn completion(&mut self, queue: Queue) -> Result<Option<Completion>, Stop> {
        let new = self.subject.program()?.completions(queue)?;
        let waiting = &mut self.completions[queue as usize];
        waiting.extend(new);
        Ok(waiting.pop_front())
    }

    /// Asks until there is an answer, or the time is over.
    fn until<T>(
        &mut self,
        within: Duration,
        mut ask: impl FnMut(&mut Self) -> Result<Option<T>, Stop>,
    ) -> Result<Option<T>, Stop> {
        let end = self.subject.now().plus(within).plus(self.subject.tolerance());
        loop {
            if let Some(answer) = ask(self)? {
                return Ok(Some(answer));
            }
            let now = self.subject.now();
            if now >= end {
                return Ok(None);
            }
            self.pump(STEP.min(end.since(now)))?;
        }
    }

    fn completes(&mut self, expected: &Completes) -> Result<(), Stop> {
        let found = self.until(expected.within, |play| play.completion(expected.queue))?;
        let Some(found) = found else {
            return wrong(format!(
                "request {} does not complete in {:?}",
                expected.id, expected.within
            ));
        };
        let statuses = expected.statuses.join(" or ");
        if found.id != expected.id {
            return wrong(format!("request {} completes before {}", found.id, expected.id));
        }
        if !expected.statuses.contains(&found.status) {
            return wrong(format!(
                "request {} completes with {} where {statuses} is right",
                found.id, found.status
            ));
        }
        if let Some(bytes) = expected.bytes.filter(|&bytes| bytes != found.bytes) {
            return wrong(format!(
                "the completion counts {} bytes where {bytes} is right",
                found.bytes
            ));
        }
        if expected.immediate.is_some() && expected.immediate != found.immediate {
            return wrong(format!("the completion has immediate data {:x?}", found.immediate));
        }
        Ok(())
    }

    /// What was sent but is not acknowledged may still be on its way.
    fn memory(&mut self, pattern: &Pattern) -> Result<(), Stop> {
        let Pattern { place, bytes, seed } = pattern;
        let mut first = None;
        let same = self.until(self.subject.tolerance(), |play| {
            first = play.subject.program()?.differs(&place.region, place.offset, *bytes, *seed)?;
            Ok(first.is_none().then_some(()))
        })?;
        match (same, first) {
            (None, Some(offset)) => {
                wrong(format!("byte {offset} of {} is not the one of the pattern", place.region))
            }
            _ => Ok(()),
        }
    }

    fn state(&mut self, state: &str) -> Result<(), Stop> {
        let mut found = String::new();
        let reached = self.until(self.subject.tolerance(), |play| {
            found = play.subject.program()?.state()?;
            Ok((found == state).then_some(()))
        })?;
        match reached {
            Some(()) => Ok(()),
            None => wrong(format!("the queue pair is in {found} where {state} is right")),
        }
    }
}

/// Time between two questions.
const STEP: Duration = Duration::from_millis(1);
