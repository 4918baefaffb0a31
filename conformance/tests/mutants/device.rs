//! A device that breaks one rule: our adapter with changed input, responses and completions.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    time::Duration,
};

use roce_conformance::{
    Simulated, Subject,
    case::{Bind, Connection, PauseFrames, Queue, Request},
    subject::{Arrival, Completion, Listener, Program, RemoteRegion, Result, Route},
};
use roce_transport::{
    addr::{Mtu, Qpn},
    mem::Access,
    time::Instant,
    wire::{NetHeader, icrc},
};

/// A mutant's memory.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) qpn: u32,
    pub(crate) last_qpn: u32,
    /// The instrument's queue pair of the device's second.
    pub(crate) second: Option<u32>,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) regions: BTreeMap<String, RemoteRegion>,
    /// PSNs of received requests, of sent packets.
    pub(crate) received: BTreeSet<u32>,
    pub(crate) sent: BTreeSet<u32>,
    /// Latest last.
    pub(crate) naks: Vec<Arrival>,
    /// After the latest received request.
    pub(crate) next: u32,
}

impl Notes {
    pub(crate) fn again(&self, packet: &[u8]) -> bool {
        self.received.contains(&psn(packet))
    }
}

/// The ICRC is corrected afterwards; `false` drops the packet.
pub(crate) type Change = fn(&mut Notes, &NetHeader, &mut Vec<u8>) -> bool;

pub(crate) enum Fault {
    /// Accepts any ICRC.
    Trusting,
    /// Received packets.
    In(Change),
    /// Sent packets.
    Out(Change),
    /// Sent packets, without correction of the ICRC.
    Raw(Change),
    /// Additional changes of memory.
    Memory(fn(&Notes, &[u8], &mut Simulated)),
    /// Sends for its second queue pair only while the others are silent.
    Starves,
    /// Additional packets.
    Besides(fn(&Notes, &[u8]) -> Option<Arrival>),
    Pause(fn(&mut PauseFrames)),
    Connect(fn(&mut Connection)),
    Register(fn(Access) -> Access),
    Bind(fn(&mut Bind)),
    Post(fn(&mut Request)),
    /// How a queue pair, by number, joins the first of these groups.
    Join(fn(&mut Simulated, &[IpAddr], usize) -> Result<()>),
    Word(fn(u32, u64) -> u64),
    /// Completes invalidations without effect.
    KeepsWindows,
    /// `false` drops the completion.
    Complete(fn(&mut Completion) -> bool),
    State(&'static str),
}

pub(crate) struct Mutant<'a> {
    inner: Simulated,
    fault: &'a Fault,
    notes: Notes,
    besides: VecDeque<Arrival>,
    /// Packets of the starving queue pair; when the others last sent.
    held: VecDeque<Arrival>,
    busy: Instant,
    chosen: usize,
    /// Requests that complete without execution.
    idle: Vec<u64>,
}

impl<'a> Mutant<'a> {
    pub(crate) fn new(fault: &'a Fault) -> Self {
        Self {
            inner: Simulated::default(),
            fault,
            notes: Notes::default(),
            besides: VecDeque::new(),
            held: VecDeque::new(),
            busy: Instant::ZERO,
            chosen: 0,
            idle: Vec::new(),
        }
    }
}

pub(crate) fn psn(packet: &[u8]) -> u32 {
    u32::from_be_bytes([0, packet[9], packet[10], packet[11]])
}

pub(crate) fn set_psn(packet: &mut [u8], psn: u32) {
    packet[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
}

pub(crate) fn syndrome(packet: &[u8]) -> Option<u8> {
    (packet[0] == 0x11).then(|| packet[12])
}

/// RC
pub(crate) fn is_request(packet: &[u8]) -> bool {
    !(0x0D..=0x12).contains(&packet[0]) && packet[0] != 0x81
}

fn seal(net: &NetHeader, packet: &mut [u8]) {
    let body = packet.len() - 4;
    let check = icrc(net, &packet[..body]).to_le_bytes();
    packet[body..].copy_from_slice(&check);
}

/// Before the second queue pair sends.
const SILENCE: Duration = Duration::from_millis(1);

impl Mutant<'_> {
    fn receive_of_others_first(&mut self, until: Instant) -> Result<Option<Arrival>> {
        loop {
            let silent = self.busy.plus(SILENCE);
            let end = if self.held.is_empty() { until } else { until.min(silent) };
            match self.inner.receive(end)? {
                Some(arrival) if self.notes.second == Some(dest_qp(&arrival.bytes)) => {
                    self.held.push_back(arrival);
                }
                Some(arrival) => {
                    self.busy = arrival.at;
                    return Ok(Some(arrival));
                }
                None if self.inner.now() >= silent && !self.held.is_empty() => {
                    let mut arrival = self.held.pop_front();
                    arrival.iter_mut().for_each(|it| it.at = self.inner.now());
                    return Ok(arrival);
                }
                None if end >= until => return Ok(None),
                None => {}
            }
        }
    }
}

pub(crate) fn dest_qp(packet: &[u8]) -> u32 {
    u32::from_be_bytes([0, packet[5], packet[6], packet[7]])
}

impl Subject for Mutant<'_> {
    fn program(&mut self) -> Result<&mut dyn Program> {
        Ok(self)
    }

    fn listener(&self) -> Option<&Listener> {
        self.inner.listener()
    }

    fn clear(&mut self) -> Result<()> {
        self.notes = Notes::default();
        self.besides.clear();
        self.held.clear();
        self.idle.clear();
        self.inner.clear()
    }

    fn route(&self) -> Route {
        self.inner.route()
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn tolerance(&self) -> Duration {
        self.inner.tolerance()
    }

    fn send(&mut self, net: &NetHeader, bytes: &[u8]) -> Result<()> {
        let mut packet = bytes.to_vec();
        if packet.len() < 16 {
            return self.inner.send(net, &packet);
        }
        match self.fault {
            Fault::In(change) => {
                let goes_on = change(&mut self.notes, net, &mut packet);
                if packet != bytes {
                    seal(net, &mut packet);
                }
                if !goes_on {
                    return Ok(());
                }
            }
            Fault::Trusting => seal(net, &mut packet),
            Fault::Memory(change) => change(&self.notes, &packet, &mut self.inner),
            Fault::Besides(make) => self.besides.extend(make(&self.notes, &packet)),
            _ => {}
        }
        if is_request(bytes) {
            self.notes.received.insert(psn(bytes));
            self.notes.next = psn(bytes).wrapping_add(1) & 0x00FF_FFFF;
        }
        self.inner.send(net, &packet)
    }

    fn pause(&mut self, mut pause: PauseFrames) -> Result<()> {
        if let Fault::Pause(change) = self.fault {
            change(&mut pause);
        }
        self.inner.pause(pause)
    }

    fn receive(&mut self, until: Instant) -> Result<Option<Arrival>> {
        if let Some(mut arrival) = self.besides.pop_front() {
            arrival.at = self.inner.now();
            return Ok(Some(arrival));
        }
        if matches!(self.fault, Fault::Starves) {
            return self.receive_of_others_first(until);
        }
        loop {
            let Some(mut arrival) = self.inner.receive(until)? else { return Ok(None) };
            let original = arrival.clone();
            let goes_on = match self.fault {
                Fault::Out(change) => {
                    let goes_on = change(&mut self.notes, &arrival.net, &mut arrival.bytes);
                    seal(&arrival.net, &mut arrival.bytes);
                    goes_on
                }
                Fault::Raw(change) => change(&mut self.notes, &arrival.net, &mut arrival.bytes),
                _ => true,
            };
            if syndrome(&original.bytes).is_some_and(|syndrome| syndrome > 0x1F) {
                self.notes.naks.push(original.clone());
            }
            self.notes.sent.insert(psn(&original.bytes));
            if goes_on {
                return Ok(Some(arrival));
            }
        }
    }
}

impl Program for Mutant<'_> {
    fn region(&mut self, name: &str, bytes: u32, rights: Access) -> Result<RemoteRegion> {
        let rights = if let Fault::Register(change) = self.fault { change(rights) } else { rights };
        let region = self.inner.region(name, bytes, rights)?;
        self.notes.regions.insert(name.to_owned(), region);
        Ok(region)
    }

    fn connect(&mut self, connection: &Connection, peer: Qpn) -> Result<Qpn> {
        let mut connection = connection.clone();
        if let Fault::Connect(change) = self.fault {
            change(&mut connection);
        }
        let qpn = self.inner.connect(&connection, peer)?;
        self.notes.last_qpn = qpn.get();
        if self.notes.qpn == 0 {
            let Connection { rq_psn, sq_psn, .. } = connection;
            (self.notes.qpn, self.notes.rq_psn, self.notes.sq_psn) = (qpn.get(), rq_psn, sq_psn);
            self.notes.next = rq_psn;
        } else {
            self.notes.second.get_or_insert(peer.get());
        }
        Ok(qpn)
    }

    fn choose(&mut self, pair: usize) {
        self.chosen = pair;
        self.inner.choose(pair);
    }

    fn post_receive(&mut self, id: u64, offset: u32, bytes: u32) -> Result<()> {
        self.inner.post_receive(id, offset, bytes)
    }

    fn post_send(&mut self, request: &Request, peer: Qpn) -> Result<()> {
        let mut request = request.clone();
        if let Fault::Post(change) = self.fault {
            change(&mut request);
        }
        self.inner.post_send(&request, peer)
    }

    fn bind(&mut self, bind: &Bind) -> Result<RemoteRegion> {
        let mut bind = bind.clone();
        if let Fault::Bind(change) = self.fault {
            change(&mut bind);
        }
        let window = self.inner.bind(&bind)?;
        self.notes.regions.insert(bind.window, window);
        Ok(window)
    }

    fn invalidate(&mut self, id: u64, window: &str) -> Result<()> {
        if matches!(self.fault, Fault::KeepsWindows) {
            self.idle.push(id);
            return Ok(());
        }
        self.inner.invalidate(id, window)
    }

    fn join(&mut self, group: IpAddr) -> Result<()> {
        match self.fault {
            Fault::Join(join) => {
                let groups = [group, roce_conformance::case::group(2, group)];
                join(&mut self.inner, &groups, self.chosen)
            }
            _ => self.inner.join(group),
        }
    }

    fn fill(&mut self, region: &str, offset: u32, bytes: u32, seed: u32) -> Result<()> {
        self.inner.fill(region, offset, bytes, seed)
    }

    fn differs(&mut self, region: &str, offset: u32, bytes: u32, seed: u32) -> Result<Option<u32>> {
        self.inner.differs(region, offset, bytes, seed)
    }

    fn set_word(&mut self, region: &str, offset: u32, value: u64) -> Result<()> {
        self.inner.set_word(region, offset, value)
    }

    fn word(&mut self, region: &str, offset: u32) -> Result<u64> {
        let value = self.inner.word(region, offset)?;
        Ok(if let Fault::Word(change) = self.fault { change(offset, value) } else { value })
    }

    fn completions(&mut self, queue: Queue) -> Result<Vec<Completion>> {
        let mut all = self.inner.completions(queue)?;
        if queue == Queue::Send {
            all.extend(self.idle.drain(..).map(|id| Completion {
                id,
                status: "SUCCESS".into(),
                bytes: 0,
                immediate: None,
            }));
        }
        if let Fault::Complete(change) = self.fault {
            all.retain_mut(change);
        }
        Ok(all)
    }

    fn state(&mut self) -> Result<String> {
        match self.fault {
            Fault::State(state) => Ok((*state).to_owned()),
            _ => self.inner.state(),
        }
    }

    fn mtu(&self) -> Mtu {
        self.inner.mtu()
    }
}
