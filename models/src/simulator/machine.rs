//! Processors, threads and virtual time.
//!
//! A simulated thread is a thread of the system. One runs at a time: that whose operation ends
//! first in virtual time. Equal times are ordered by processor, so each run is the same.

use std::{
    any::Any,
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    fmt, mem,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use roce_transport::time::Instant;

/// Begin of the time: nothing has happened for long.
pub(super) const START: u64 = 1_000_000_000;
/// A later time is a program without end.
const END: u64 = 100 * START;
const NEVER: u64 = u64::MAX;
const NOBODY: usize = usize::MAX;
/// Lines of the trace.
const LINES: usize = 120;

/// Costs of operations in ns, of docs/performance.md's machine.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Reading the clock.
    pub clock: u64,
    /// Locking, or one turn of a spinning loop.
    pub lock: u64,
    /// A yield without another thread.
    pub yields: u64,
    /// A small system call.
    pub call: u64,
    /// Setting a timer.
    pub timer: u64,
    /// Building a packet of a request.
    pub post: u64,
    /// A send call, whose packets then arrive.
    pub send: u64,
    /// A receive without packets.
    pub receive: u64,
    /// Receiving and handling a packet.
    pub packet: u64,
    /// A packet's way.
    pub wire: u64,
    /// Wake-up on an idle processor.
    pub wakeup: u64,
    /// Change of threads on a processor.
    pub switch: u64,
    /// Time slice while others are ready.
    pub slice: u64,
    /// Time slice of a background thread, which preempts when it wakes (Linux 6.12 and later);
    /// `None`: like others.
    pub short_slice: Option<u64>,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            clock: 30,
            lock: 20,
            yields: 300,
            call: 300,
            timer: 2_000,
            post: 300,
            send: 2_500,
            receive: 1_000,
            packet: 600,
            wire: 200,
            wakeup: 25_000,
            switch: 1_500,
            slice: 3_000_000,
            short_slice: None,
        }
    }
}

/// Figures of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Processor time.
    pub ran: Duration,
    /// Ended sleeps.
    pub wakeups: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Running(usize),
    Asleep,
    Ended,
}

struct Thread {
    name: &'static str,
    state: State,
    is_background: bool,
    /// Rest of the operation.
    work: u64,
    /// Ends a sleep, or a loop that spins.
    until: Option<Box<dyn Fn() -> bool + Send>>,
    wakes_at: u64,
    /// Rest of the time slice, if it was preempted.
    rest: u64,
    figures: Figures,
    turn: Arc<Condvar>,
}

#[derive(Clone, Copy)]
struct Processor {
    thread: Option<usize>,
    slice: u64,
    slice_end: u64,
}

struct World {
    now: u64,
    /// Thread that runs on the system.
    turn: usize,
    threads: Vec<Thread>,
    processors: Vec<Processor>,
    ready: VecDeque<usize>,
    events: BTreeMap<(u64, u64), Box<dyn FnOnce() + Send>>,
    events_before: u64,
    /// Programs that have not ended.
    programs: usize,
    failure: Option<&'static str>,
    trace: VecDeque<String>,
}

impl World {
    fn advance(&mut self, costs: &Costs) {
        while self.failure.is_none() {
            while self.events.first_key_value().is_some_and(|((at, _), _)| *at <= self.now) {
                self.events.pop_first().into_iter().for_each(|(_, event)| event());
            }
            self.share(costs);
            self.wake(costs);
            let mut running = self.processors.iter().filter_map(|it| it.thread);
            if let Some(next) = running.find(|&thread| self.threads[thread].work == 0) {
                self.turn = next;
                return;
            }
            match self.next() {
                next if next < END => self.pass(next),
                NEVER if self.threads.iter().all(|it| it.state == State::Ended) => break,
                NEVER => self.failure = Some("every thread sleeps"),
                _ => self.failure = Some("no end"),
            }
        }
        self.turn = NOBODY;
        self.threads.iter().for_each(|it| it.turn.notify_one());
    }

    /// Ends slices, and gives processors to those that wait first.
    fn share(&mut self, costs: &Costs) {
        for index in 0..self.processors.len() {
            let Processor { thread, slice_end, .. } = self.processors[index];
            if thread.is_some() && slice_end <= self.now && !self.ready.is_empty() {
                let thread = self.leave(index, State::Ready);
                self.ready.push_back(thread);
            }
            if self.processors[index].thread.is_none()
                && let Some(next) = self.ready.pop_front()
            {
                self.place(next, index, costs.switch, costs);
            }
        }
    }

    fn wake(&mut self, costs: &Costs) {
        for index in 0..self.threads.len() {
            let thread = &mut self.threads[index];
            let is_over = thread.until.as_ref().is_some_and(|until| until());
            let wakes = thread.state == State::Asleep && (is_over || thread.wakes_at <= self.now);
            if is_over || wakes {
                (thread.until, thread.wakes_at, thread.work) = (None, NEVER, 0);
            }
            if !wakes {
                continue;
            }
            thread.figures.wakeups += 1;
            thread.state = State::Ready;
            let preempts = thread.is_background && costs.short_slice.is_some();
            self.note(index, "wakes", None);
            let others =
                |it: &Processor| it.thread.is_some_and(|it| !self.threads[it].is_background);
            if let Some(idle) = self.processors.iter().position(|it| it.thread.is_none()) {
                self.place(index, idle, costs.wakeup, costs);
            } else if let Some(busy) = self.processors.iter().position(others).filter(|_| preempts)
            {
                let rest = self.processors[busy].slice_end - self.now;
                let preempted = self.leave(busy, State::Ready);
                self.threads[preempted].rest = rest;
                self.ready.push_front(preempted);
                self.place(index, busy, costs.switch, costs);
            } else {
                self.ready.push_back(index);
            }
        }
    }

    fn place(&mut self, thread: usize, processor: usize, cost: u64, costs: &Costs) {
        let it = &mut self.threads[thread];
        let whole = costs.short_slice.filter(|_| it.is_background).unwrap_or(costs.slice);
        (it.state, it.work) = (State::Running(processor), it.work.saturating_add(cost));
        let rest = mem::take(&mut it.rest);
        let slice_end = self.now + if rest > 0 { rest } else { whole };
        self.processors[processor] = Processor { thread: Some(thread), slice: whole, slice_end };
        self.note(thread, "runs on", Some(processor as u64));
    }

    fn leave(&mut self, processor: usize, state: State) -> usize {
        let thread = self.processors[processor].thread.take().expect("a thread runs there");
        self.threads[thread].state = state;
        if state == State::Ready {
            self.note(thread, "loses its processor", None);
        }
        thread
    }

    fn leave_as(&mut self, thread: usize, state: State) {
        let State::Running(processor) = self.threads[thread].state else { return };
        self.leave(processor, state);
    }

    fn next(&self) -> u64 {
        let running = self.processors.iter().filter_map(|processor| {
            let ends = self.now.saturating_add(self.threads[processor.thread?].work);
            Some(if self.ready.is_empty() { ends } else { ends.min(processor.slice_end) })
        });
        let asleep = self.threads.iter().map(|thread| thread.wakes_at);
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        running.chain(asleep).chain(event).min().unwrap_or(NEVER)
    }

    fn pass(&mut self, to: u64) {
        let time = to - mem::replace(&mut self.now, to);
        for processor in &mut self.processors {
            let Some(thread) = processor.thread else { continue };
            let thread = &mut self.threads[thread];
            thread.work = thread.work.saturating_sub(time);
            thread.figures.ran += Duration::from_nanos(time);
            while self.ready.is_empty() && processor.slice_end <= to {
                processor.slice_end += processor.slice; // alone, it gets another slice
            }
        }
    }

    fn note(&mut self, thread: usize, text: &str, number: Option<u64>) {
        self.trace.truncate(LINES - 1);
        let (at, name) = ((self.now - START) as f64 / 1e3, self.threads[thread].name);
        let number = number.map(|number| format!(" {number}")).unwrap_or_default();
        self.trace.push_front(format!("{at:12.2} µs  {name:12} {text}{number}"));
    }
}

struct Machine {
    world: Mutex<World>,
    costs: Costs,
}

/// The simulation has failed elsewhere.
struct Stopped;

impl Machine {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, me: usize, change: impl FnOnce(&mut World)) {
        let mut world = self.world();
        change(&mut world);
        world.advance(&self.costs);
        hand_over(world, me);
    }

    /// A thread of the system as a simulated thread.
    fn host(self: &Arc<Self>, me: usize, body: Box<dyn FnOnce() + Send>) -> thread::Result<()> {
        CURRENT.set(Some((self.clone(), me)));
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            hand_over(self.world(), me);
            body();
        }));
        let mut world = self.world();
        world.leave_as(me, State::Ended);
        (world.threads[me].state, world.threads[me].wakes_at) = (State::Ended, NEVER);
        if result.is_err() {
            world.failure = world.failure.or(Some("a thread has panicked"));
        }
        world.advance(&self.costs);
        if world.turn != NOBODY {
            world.threads[world.turn].turn.notify_one();
        }
        result
    }
}

/// Lets the thread run whose turn it is, until it is this one's again.
fn hand_over(mut world: MutexGuard<'_, World>, me: usize) {
    if world.turn != me && world.turn != NOBODY {
        world.threads[world.turn].turn.notify_one();
    }
    let turn = world.threads[me].turn.clone();
    while world.turn != me && world.failure.is_none() {
        world = turn.wait(world).unwrap_or_else(PoisonError::into_inner);
    }
    if world.failure.is_some() {
        drop(world);
        panic::resume_unwind(Box::new(Stopped));
    }
}

thread_local! {
    static CURRENT: RefCell<Option<(Arc<Machine>, usize)>> = const { RefCell::new(None) };
}

fn current<R>(act: impl FnOnce(&Machine, usize) -> R) -> Option<R> {
    let (machine, me) = CURRENT.with_borrow(Clone::clone).filter(|_| !thread::panicking())?;
    Some(act(&machine, me))
}

/// `None` outside of simulations.
pub(crate) fn read_clock() -> Option<Instant> {
    spend(|costs| costs.clock);
    current(|machine, _| Instant::from_nanos(machine.world().now))
}

pub(super) fn spend(cost: impl FnOnce(&Costs) -> u64) {
    current(|machine, me| {
        let cost = cost(&machine.costs);
        machine.step(me, |world| world.threads[me].work += cost);
    });
}

pub(super) fn yield_now() {
    current(|machine, me| {
        machine.step(me, |world| {
            world.threads[me].work += machine.costs.yields;
            if !world.ready.is_empty() {
                world.leave_as(me, State::Ready);
                world.ready.push_back(me);
            }
        });
    });
}

pub(super) fn sleep(timeout: Option<Duration>, until: impl Fn() -> bool + Send + 'static) {
    spend(|costs| costs.call);
    if timeout.is_some_and(|timeout| timeout.is_zero()) || until() {
        return;
    }
    current(|machine, me| {
        machine.step(me, |world| {
            let wakes_at = timeout.map_or(NEVER, |it| world.now + it.as_nanos() as u64);
            world.note(me, "sleeps", None);
            world.leave_as(me, State::Asleep);
            let thread = &mut world.threads[me];
            thread.until = Some(Box::new(until));
            thread.wakes_at = wakes_at;
        });
    });
}

/// Calls `event` later, between two operations.
pub(super) fn after(time: u64, event: impl FnOnce() + Send + 'static) {
    current(|machine, _| {
        let mut world = machine.world();
        world.events_before += 1;
        let at = (world.now + time, world.events_before);
        world.events.insert(at, Box::new(event));
    });
}

pub(super) fn costs() -> Costs {
    current(|machine, _| machine.costs).unwrap_or_default()
}

/// Index of this thread.
pub(super) fn me() -> Option<usize> {
    current(|_, me| me)
}

pub(super) fn is_background() -> bool {
    current(|machine, me| machine.world().threads[me].is_background).unwrap_or_default()
}

pub(super) fn run_time(thread: usize) -> Duration {
    current(|machine, _| machine.world().threads[thread].figures.ran).unwrap_or_default()
}

/// True if the thread runs or waits for a processor.
pub(super) fn is_ready(thread: usize) -> bool {
    let state = current(|machine, _| machine.world().threads[thread].state);
    matches!(state, Some(State::Ready | State::Running(_)))
}

/// Adds a line to the trace.
pub(super) fn note(text: &str, number: u64) {
    current(|machine, me| machine.world().note(me, text, Some(number)));
}

/// Time in ns; reading it costs nothing.
#[must_use]
pub fn now() -> u64 {
    current(|machine, _| machine.world().now).unwrap_or(START)
}

/// Computes for a time.
pub fn work(time: Duration) {
    spend(|_| time.as_nanos() as u64);
}

/// Looks at memory, without calls, until the condition holds.
pub(super) fn spin_until(holds: impl Fn() -> bool + Send + 'static) {
    if holds() {
        return;
    }
    current(|machine, me| {
        machine.step(me, |world| {
            let thread = &mut world.threads[me];
            thread.until = Some(Box::new(holds));
            thread.work = NEVER;
        });
    });
}

/// Sleeps for a time, elsewhere than in the adapter.
pub fn pause(time: Duration) {
    sleep(Some(time), || false);
}

/// A thread's figures until now.
#[must_use]
pub fn figures(name: &str) -> Figures {
    let find = |world: &World| world.threads.iter().find(|it| it.name == name).map(|it| it.figures);
    current(|machine, _| find(&machine.world())).flatten().unwrap_or_default()
}

type Action = Box<dyn FnOnce() + Send>;

/// Threads on a number of processors.
pub struct Simulation {
    machine: Arc<Machine>,
    bodies: Vec<Action>,
    at_end: Arc<Mutex<Vec<Action>>>,
}

impl Simulation {
    /// Without threads.
    #[must_use]
    pub fn new(processors: usize, costs: Costs) -> Self {
        let idle = Processor { thread: None, slice: costs.slice, slice_end: START };
        let world = World {
            now: START,
            turn: NOBODY,
            threads: Vec::new(),
            processors: vec![idle; processors],
            ready: VecDeque::new(),
            events: BTreeMap::new(),
            events_before: 0,
            programs: 0,
            failure: None,
            trace: VecDeque::new(),
        };
        let machine = Arc::new(Machine { world: Mutex::new(world), costs });
        Self { machine, bodies: Vec::new(), at_end: Arc::default() }
    }

    fn thread(&mut self, name: &'static str, is_background: bool, body: Action) {
        let mut world = self.machine.world();
        let (state, turn) = (State::Ready, Arc::default());
        let (work, rest, until, wakes_at, figures) = (0, 0, None, NEVER, Figures::default());
        world.ready.push_back(self.bodies.len());
        let thread =
            Thread { name, state, is_background, work, until, wakes_at, rest, figures, turn };
        world.threads.push(thread);
        self.bodies.push(body);
    }

    /// A thread that `end` ends after all programs.
    pub(super) fn background(
        &mut self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
        end: impl FnOnce() + Send + 'static,
    ) {
        self.thread(name, true, Box::new(body));
        self.at_end.lock().unwrap().push(Box::new(end));
    }

    /// A thread of a program; the simulation lasts until all have ended.
    pub fn program(&mut self, name: &'static str, body: impl FnOnce() + Send + 'static) {
        self.machine.world().programs += 1;
        let at_end = self.at_end.clone();
        let body = move || {
            body();
            let left = current(|machine, _| {
                let mut world = machine.world();
                world.programs -= 1;
                world.programs
            });
            if left == Some(0) {
                let at_end = mem::take(&mut *at_end.lock().unwrap());
                at_end.into_iter().for_each(|end| end());
            }
        };
        self.thread(name, false, Box::new(body));
    }

    /// A thread that only computes.
    pub fn burner(&mut self) {
        let is_over = || current(|machine, _| machine.world().programs) == Some(0);
        let body = move || {
            while !is_over() {
                work(Duration::from_micros(100));
            }
        };
        self.thread("burner", false, Box::new(body));
    }

    /// Runs all threads to their end.
    pub fn run(&mut self) {
        let (machine, bodies) = (&self.machine, mem::take(&mut self.bodies));
        let results: Vec<_> = thread::scope(|scope| {
            let hosts: Vec<_> = bodies
                .into_iter()
                .enumerate()
                .map(|(me, body)| scope.spawn(move || machine.host(me, body)))
                .collect();
            let mut world = machine.world();
            world.advance(&machine.costs);
            world.threads.iter().for_each(|it| it.turn.notify_one());
            drop(world);
            hosts.into_iter().map(|host| host.join().and_then(|result| result)).collect()
        });
        let is_cause = |payload: &Box<dyn Any + Send>| !payload.is::<Stopped>();
        if let Some(cause) = results.into_iter().filter_map(Result::err).find(is_cause) {
            panic::resume_unwind(cause);
        }
        let failure = self.machine.world().failure;
        assert_eq!(failure, None, "the simulation has failed");
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machine.world().trace.iter().rev().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// A failed test shows the end of the trace.
impl Drop for Simulation {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{self:?}");
        }
    }
}
