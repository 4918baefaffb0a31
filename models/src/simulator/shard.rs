//! State under an engine's lock, with packets that are numbers.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use roce_transport::{
    adapter::{Adapter, AdapterConfig, TransmitLimits},
    time::Instant,
};

use super::{
    machine::{self, START, spend},
    publication::{PUBLISH, Publication},
    schedule::cork::{Cork, Load, Next, SendPath},
    serve::Engine,
    shared_cork::SharedCork,
    sleep::{Content, Packet, Socket},
    verbs::{Completion, Queue},
};
use crate::clock;

/// Messages of a batch, as in the provider's links.
pub(super) const BATCH: usize = 16;
/// Timeout of a request before the first measured round trip.
const TIMEOUT: Duration = Duration::from_millis(10);

#[derive(Clone, Copy)]
pub(super) struct Found {
    /// Only a peer's WRITEs to memory.
    pub(super) written: bool,
}

/// Requests between a post and a send call.
pub(super) type Posted = Arc<Mutex<Vec<Packet>>>;

/// Packets that left.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Numbers of requests, and the ends of their send calls in ns.
    pub requests: Vec<(u64, u64)>,
    /// Send calls.
    pub calls: u64,
}

pub(crate) struct Shard {
    pub(super) engine: Weak<Engine>,
    pub(super) socket: Arc<Socket>,
    /// `None`: a script plays the peer, and acknowledgements do not matter.
    pub(super) peer: Option<Arc<Socket>>,
    pub(super) queues: Arc<Vec<Arc<Queue>>>,
    pub(super) posted: Posted,
    pub(super) sent: Arc<Mutex<Sent>>,
    adapter: Adapter,
    /// For each queue: requests to acknowledge.
    owed: Vec<usize>,
    /// For each queue: requests that the peer has not acknowledged.
    outstanding: Vec<VecDeque<u64>>,
    timeout: Option<Instant>,
    /// Events to deliver.
    events: Vec<usize>,
    completed_receives: u64,
    moved: bool,
    pub(super) cork: SharedCork,
    pub(super) publication: Publication,
}

impl Shard {
    pub(super) fn new(
        engine: Weak<Engine>,
        [socket, peer]: [Option<Arc<Socket>>; 2],
        queues: &Arc<Vec<Arc<Queue>>>,
        posted: &Posted,
        sent: &Arc<Mutex<Sent>>,
    ) -> Self {
        let mut publication = Publication::default();
        publication.start(Instant::from_nanos(START).plus(PUBLISH));
        let limits = TransmitLimits { segments: 64, bytes: 65_487 };
        Self {
            engine,
            socket: socket.unwrap_or_default(),
            peer,
            queues: queues.clone(),
            posted: posted.clone(),
            sent: sent.clone(),
            adapter: Adapter::new(AdapterConfig::new([0; 32])),
            owed: vec![0; queues.len()],
            outstanding: vec![VecDeque::new(); queues.len()],
            timeout: None,
            events: Vec::new(),
            completed_receives: 0,
            moved: false,
            cork: SharedCork::new(Cork::new(limits)),
            publication,
        }
    }

    /// Without queue pairs.
    pub(super) const fn adapter(&mut self) -> &mut Adapter {
        &mut self.adapter
    }

    pub(super) const fn completed_receives(&self) -> u64 {
        self.completed_receives
    }

    pub(super) fn receive(&mut self, _: Instant) -> usize {
        let mut count = 0;
        while count < BATCH
            && let Some(packet) = self.socket.pop()
        {
            spend(|costs| costs.packet);
            self.handle(packet);
            count += 1;
        }
        spend(|costs| costs.receive);
        self.publication.counted |= count > 0;
        self.moved |= count > 0;
        count
    }

    fn handle(&mut self, Packet { queue, content }: Packet) {
        match content {
            Content::Send(number) => {
                self.completed_receives += 1;
                self.owed[queue] += 1;
                self.complete(queue, Completion::Received(number));
            }
            Content::Write(number) => {
                self.owed[queue] += 1;
                self.queues[queue].memory.store(number, Relaxed);
            }
            Content::Acknowledgement(count) => {
                for _ in 0..count.min(self.outstanding[queue].len()) {
                    let number = self.outstanding[queue].pop_front().unwrap_or_default();
                    self.complete(queue, Completion::Sent(number));
                }
                if self.outstanding.iter().all(VecDeque::is_empty) {
                    self.timeout = None;
                }
            }
        }
    }

    fn complete(&mut self, queue: usize, completion: Completion) {
        self.queues[queue].push(completion);
        if self.queues[queue].is_armed.swap(false, Relaxed) {
            self.events.push(queue);
        }
    }

    pub(super) fn has_work(&self, now: Instant) -> bool {
        self.is_due() || self.timeout.is_some_and(|due| due <= now)
    }

    pub(super) fn take_turn(&mut self, now: Instant, found: Option<Found>) -> bool {
        if self.timeout.is_some_and(|due| due <= now) {
            self.timeout = Some(now.plus(TIMEOUT));
        }
        let keeps = found.is_some_and(|found| self.find(now, found));
        if keeps {
            self.deliver_events();
        } else {
            self.transmit(now);
        }
        keeps
    }

    fn find(&mut self, now: Instant, Found { written }: Found) -> bool {
        let only_acknowledges =
            self.posted.lock().unwrap().is_empty() && self.owed.iter().any(|&owed| owed > 0);
        (written || self.cork.sent() != SendPath::Memory)
            && only_acknowledges
            && self.cork.change(|cork| cork.find(now, written))
    }

    pub(super) fn serve_timers(&mut self, now: Instant) {
        self.take_turn(now, None);
    }

    /// One call takes all requests, and behind them acknowledgements.
    pub(super) fn transmit(&mut self, now: Instant) {
        self.cork.change(Cork::leave);
        let mut packets = mem::take(&mut *self.posted.lock().unwrap());
        let requests = packets.len();
        for (queue, owed) in self.owed.iter_mut().enumerate().filter(|(_, owed)| **owed > 0) {
            packets.push(Packet { queue, content: Content::Acknowledgement(mem::take(owed)) });
        }
        if !packets.is_empty() {
            spend(|costs| costs.send);
            self.send(packets, requests, now);
        }
        self.deliver_events();
    }

    fn send(&mut self, packets: Vec<Packet>, requests: usize, now: Instant) {
        let mut sent = self.sent.lock().unwrap();
        sent.calls += 1;
        for packet in &packets[..requests] {
            let (Content::Send(number) | Content::Write(number)) = packet.content else {
                unreachable!("requests come first")
            };
            sent.requests.push((number, machine::now()));
            self.outstanding[packet.queue].push_back(number);
        }
        drop(sent);
        machine::note("sends", packets.len() as u64);
        self.timeout = self.timeout.or((requests > 0).then(|| now.plus(TIMEOUT)));
        match self.peer.clone() {
            Some(peer) => machine::after(machine::costs().wire, move || peer.push(packets)),
            None => {
                self.outstanding.iter_mut().for_each(VecDeque::clear);
                self.timeout = None;
            }
        }
        self.cork.observer().record_sent(SendPath::Call);
        (self.publication.counted, self.moved) = (true, true);
    }

    fn deliver_events(&mut self) {
        for queue in mem::take(&mut self.events) {
            self.queues[queue].add_event();
            if let Some(engine) = self.engine.upgrade() {
                engine.add_event();
                engine.record_event();
            }
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_corked()
    }

    pub(super) fn is_corked(&self) -> bool {
        self.cork.is_corked()
    }

    pub(super) fn corks(&mut self, now: Instant, load: Load, polls: u64, next: Next) -> bool {
        self.cork.change(|cork| cork.post(now, load, polls, next))
    }

    pub(super) fn is_late(&mut self, now: Instant) -> bool {
        self.cork.observer().is_late(now)
    }

    pub(super) const fn has_moved(&self) -> bool {
        self.moved
    }

    pub(super) const fn record_timer(&mut self) {
        self.moved = true;
    }

    pub(super) fn count_hold(&mut self, _: Instant) -> Instant {
        self.moved = false;
        clock::now()
    }

    pub(super) fn count_short_hold(&mut self, start: Instant) -> Instant {
        if self.moved && self.cork.sent() == SendPath::Call {
            return self.count_hold(start);
        }
        self.moved = false;
        start
    }

    pub(super) fn deadline(&mut self) -> Option<Instant> {
        self.timeout
    }

    pub(super) const fn is_lost(&self) -> bool {
        false
    }

    pub(super) const fn lose(&mut self, _: Instant) {}

    /// Sockets need no preparation.
    pub(super) const fn park(&mut self) -> bool {
        true
    }

    pub(super) const fn unpark(&mut self) {}

    pub(super) const fn look(&mut self) {}
}
