//! Devices, with the calls of programs: completion queues, each with its channel.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use roce_transport::work::{Data, SendWr};

use super::{
    machine::{self, Simulation, spend},
    serve::Engine,
    shard::{Posted, Sent, Shard},
    sleep::{Content, Packet, Socket, System},
};

/// Events taken without waiting after which a program has an event loop, as in the provider.
pub(super) const USES: u32 = 64;
/// Bytes of a request.
const SIZE: usize = 64;
const NO_FINDS: u64 = u64::MAX;

/// A request's operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Completes a receive.
    Send,
    /// Changes the peer's memory.
    Write,
}

/// A completion, with the number of its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// A request has arrived.
    Received(u64),
    /// The peer has acknowledged a request.
    Sent(u64),
}

/// Completion queue, channel and memory of a queue pair.
#[derive(Default)]
pub(super) struct Queue {
    completions: Mutex<VecDeque<Completion>>,
    pub(super) is_armed: AtomicBool,
    events: AtomicU64,
    /// Events do not signal the descriptor.
    is_quiet: AtomicBool,
    /// Number of the latest WRITE.
    pub(super) memory: AtomicU64,
    is_exposed: AtomicBool,
    is_taken: AtomicBool,
    is_armed_in_loop: AtomicBool,
    sleeps: AtomicBool,
    /// Of the provider's `ChannelInner`.
    served: AtomicU64,
}

impl Queue {
    pub(super) fn push(&self, completion: Completion) {
        self.completions.lock().unwrap().push_back(completion);
    }

    pub(super) fn has_event(&self) -> bool {
        self.events.load(Relaxed) > 0
    }

    pub(super) fn add_event(&self) {
        if self.events.fetch_add(1, Relaxed) == 0 && !self.is_quiet.load(Relaxed) {
            spend(|costs| costs.call);
        }
    }

    fn pop(&self) -> Option<Completion> {
        self.completions.lock().unwrap().pop_front()
    }
}

/// A device, its engine's background thread and its program's calls.
#[derive(Clone)]
pub struct Device {
    engine: Arc<Engine>,
    queues: Arc<Vec<Arc<Queue>>>,
    system: Arc<System>,
    posted: Posted,
    sent: Arc<Mutex<Sent>>,
    /// Of the provider's `ChannelLoop`.
    finds_none: Arc<AtomicBool>,
    is_guessed: Arc<AtomicBool>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

impl Device {
    fn new(
        simulation: &mut Simulation,
        background: &'static str,
        connections: usize,
        sockets: [Option<Arc<Socket>>; 2],
    ) -> Self {
        let served = || AtomicU64::new(NO_FINDS);
        let queue = |_| Arc::new(Queue { served: served(), ..Queue::default() });
        let queues: Arc<Vec<_>> = Arc::new((0..connections).map(queue).collect());
        let socket = sockets[0].clone().unwrap_or_default();
        let system = Arc::new(System::new(socket));
        let (posted, sent) = (Posted::default(), Arc::default());
        let engine = Engine::new(&system, &queues, |engine| {
            Shard::new(engine.clone(), sockets, &queues, &posted, &sent)
        });
        let (runs, stops) = (engine.clone(), engine.clone());
        simulation.background(
            background,
            move || runs.serve_until_stopped(),
            move || stops.stop_background(),
        );
        let (finds_none, is_guessed) = (Arc::default(), Arc::default());
        Self { engine, queues, system, posted, sent, finds_none, is_guessed }
    }

    /// Two devices with connections to each other; their background threads are `a` and `b`.
    #[must_use]
    pub fn pair(simulation: &mut Simulation, connections: usize) -> [Self; 2] {
        let [a, b] = [(); 2].map(|()| Some(Arc::new(Socket::default())));
        let sockets = [("a", [a.clone(), b.clone()]), ("b", [b, a])];
        sockets.map(|(name, sockets)| Self::new(simulation, name, connections, sockets))
    }

    /// A device with a peer that a script [plays](Self::arrives); its background thread is `a`.
    #[must_use]
    pub fn alone(simulation: &mut Simulation) -> Self {
        Self::new(simulation, "a", 1, [Some(Arc::default()), None])
    }

    /// A packet arrives after a time.
    pub fn arrives(&self, after: Duration, operation: Operation, number: u64) {
        let socket = self.system.socket.clone();
        let packet = Packet { queue: 0, content: content(operation, number) };
        machine::after(after.as_nanos() as u64, move || socket.push(vec![packet]));
    }

    /// Packets that left until now.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.sent.lock().unwrap().clone()
    }

    /// Times that the background thread found packets.
    #[must_use]
    pub fn finds(&self) -> u64 {
        self.engine.background_finds()
    }

    /// Turns of the background thread as an assistant.
    #[must_use]
    pub fn assists(&self) -> u64 {
        self.engine.assists.load(Relaxed)
    }

    /// Number of the latest WRITE to memory.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.queues[0].memory.load(Relaxed)
    }

    /// Looks at memory until a WRITE arrives.
    pub fn spin(&self, number: u64) {
        let queue = self.queues[0].clone();
        machine::spin_until(move || queue.memory.load(Relaxed) >= number);
    }

    /// `ibv_post_send`.
    pub fn post(&self, queue: usize, operation: Operation, number: u64) {
        let wr = SendWr::send(number, Data::inline(&[0; SIZE]));
        spend(|costs| costs.post);
        self.engine.post_at_once(&[wr], |_, _| {
            self.posted.lock().unwrap().push(Packet { queue, content: content(operation, number) });
        });
    }

    /// `ibv_poll_cq`, as `CompletionQueue::poll_one`.
    #[must_use]
    pub fn poll(&self, queue: usize) -> Option<Completion> {
        spend(|costs| costs.lock);
        let it = &self.queues[queue];
        let found = it.pop();
        if found.is_some() {
            self.engine.count_find();
            return found;
        }
        self.serve_empty(it);
        it.pop()
    }

    fn serve_empty(&self, queue: &Queue) {
        if queue.is_taken.swap(false, Relaxed) && self.engine.has_untaken() {
            return;
        }
        if queue.is_armed_in_loop.swap(false, Relaxed) && self.engine.is_in_loop() {
            return self.engine.uncork_requests();
        }
        self.engine.progress();
    }

    /// `ibv_req_notify_cq`, as `CqInner::is_armed`.
    pub fn arm(&self, index: usize) {
        let queue = &self.queues[index];
        queue.is_armed.store(true, Relaxed);
        if queue.served.load(Relaxed) == self.finds() {
            return;
        }
        let is_exposed = queue.is_exposed.load(Relaxed);
        if is_exposed {
            if index == 0 && self.system.is_muted.swap(false, Relaxed) {
                spend(|costs| costs.call);
            }
            if self.engine.enter_loop() {
                queue.is_armed_in_loop.store(true, Relaxed);
                return;
            }
        }
        self.engine.uncork();
        if is_exposed {
            self.engine.hand_over();
        }
    }

    /// `ibv_get_cq_event` that waits, as `CompletionChannel::wait`.
    pub fn wait(&self, index: usize) {
        let queue = &self.queues[index];
        loop {
            if self.take_event(index) {
                return;
            }
            self.engine.progress();
            if self.take_event(index) {
                return;
            }
            self.end_sleep(queue);
            let found = self.engine.serve_until(queue, None, || queue.has_event());
            if found.expect("nothing interrupts") {
                queue.served.store(self.finds(), Relaxed);
                continue;
            }
            if !queue.sleeps.swap(true, Relaxed) {
                self.engine.begin_sleep();
            }
            let queue = queue.clone();
            machine::sleep(None, move || queue.has_event());
        }
    }

    fn end_sleep(&self, queue: &Queue) {
        if queue.sleeps.swap(false, Relaxed) {
            self.engine.end_sleep();
        }
    }

    fn take_event(&self, index: usize) -> bool {
        let queue = &self.queues[index];
        if !queue.has_event() {
            return false;
        }
        if queue.events.fetch_sub(1, Relaxed) == 1 && !queue.is_quiet.load(Relaxed) {
            spend(|costs| costs.call);
        }
        self.engine.take_event();
        self.end_sleep(queue);
        self.record_taken(index);
        true
    }

    /// Only the first channel's descriptor has the sockets.
    fn record_taken(&self, index: usize) {
        let queue = &self.queues[index];
        queue.is_taken.store(true, Relaxed);
        if index > 0 {
            return;
        }
        self.engine.record_taken();
        let is_listened_to = self.finds_none.load(Relaxed) || queue.is_armed.load(Relaxed);
        if !is_listened_to && self.engine.is_in_loop() && !self.system.is_muted.swap(true, Relaxed)
        {
            spend(|costs| costs.call);
        }
    }

    /// Takes the channels' descriptors for an event loop, and arms the queues.
    pub fn expose(&self) {
        for (index, queue) in self.queues.iter().enumerate() {
            queue.is_exposed.store(true, Relaxed);
            self.engine.hand_over();
            self.arm(index);
        }
    }

    /// `epoll_wait` on the channels' descriptors, until one is readable or a time passes.
    pub fn sleep_in_loop(&self, limit: Option<Duration>) -> Vec<usize> {
        let (queues, system) = (self.queues.clone(), self.system.clone());
        let is_readable =
            move |index: usize| queues[index].has_event() || index == 0 && system.wakes_loop();
        let (all, is_any) = (0..self.queues.len(), is_readable.clone());
        let each = all.clone();
        machine::sleep(limit, move || each.clone().any(&is_any));
        all.filter(|&index| is_readable(index)).collect()
    }

    /// `ibv_get_cq_event` that does not wait, as `CompletionChannel::poll` and `serve`.
    #[must_use]
    pub fn take(&self, index: usize) -> bool {
        if self.take_event(index) {
            self.count_use(index);
            return true;
        }
        if index > 0 {
            return false;
        }
        self.count_use(index);
        let queue = &self.queues[index];
        queue.is_quiet.store(true, Relaxed);
        let was_guessed = self.is_guessed.swap(false, Relaxed);
        let is_woken = self.engine.serve_in_loop(was_guessed, || queue.has_event());
        let is_taken = self.take_event(index);
        queue.is_quiet.store(false, Relaxed);
        if is_taken {
            return true;
        }
        if is_woken {
            self.engine.count_empty_wakeup();
        }
        self.is_guessed.store(!is_woken, Relaxed);
        let may_disarm = !self.finds_none.load(Relaxed) && (is_woken || !was_guessed);
        if may_disarm && queue.is_armed.swap(false, Relaxed) {
            self.engine.add_event();
            self.engine.take_event();
            self.record_taken(index);
            return true;
        }
        self.finds_none.store(true, Relaxed);
        false
    }

    fn count_use(&self, index: usize) {
        let uses = self.system.uses.load(Relaxed) + u32::from(index == 0);
        self.system.uses.store(uses.min(USES), Relaxed);
    }
}

const fn content(operation: Operation, number: u64) -> Content {
    match operation {
        Operation::Send => Content::Send(number),
        Operation::Write => Content::Write(number),
    }
}
