//! Armed completion queues, channels, and waits whose event may not come.

use std::{collections::BTreeMap, ffi::c_int, mem, process};

use roce_provider::{CompletionQueue, calls::Call, transport::work::NotifyKind};

use super::{
    Finding, Kind, Stack, is_on, report,
    threads::{self, Activity, Thread},
};
use crate::sync::Mutex;

/// By pointer.
static CQS: Mutex<BTreeMap<usize, Queue>> = Mutex::new(BTreeMap::new());
/// By pointer. Never locked together with [`CQS`].
static CHANNELS: Mutex<BTreeMap<usize, Channel>> = Mutex::new(BTreeMap::new());

const IN_CALL: &str = "ibv_get_cq_event";
const IN_ASYNC: &str = "ibv_get_async_event";
const IN_POLL: &str = "poll, select or epoll_wait";

/// Explains why only another thread can cause an event. Gets the waiting call and the channel.
pub(crate) type Endless = fn(&str, usize) -> Option<String>;
/// Unpolled sends and receives of a queue; `None`: unknown.
pub(crate) type Outstanding = fn(usize) -> Option<(usize, usize)>;

struct Queue {
    process: u32,
    channel: usize,
    descriptor: c_int,
    cq: CompletionQueue,
    /// Since it was last armed.
    polled: Polled,
    last_poller: Option<u32>,
    armed: Option<Armed>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Polled {
    No,
    By(u32),
    BySeveral,
}

struct Armed {
    at: Stack,
    by: u32,
    kind: NotifyKind,
    /// Completions may precede arming.
    may_have_missed: bool,
    /// The channel had an event, which is taken first.
    had_event: bool,
    /// The arming thread has posted a request.
    has_posted: bool,
    /// `had_event` or `has_posted`, or the program has polled since.
    is_safe: bool,
    /// At the last check, without an event.
    had_completions: bool,
    /// For a signal that ends the program: a solicited message may still come.
    unsolicited: Option<Finding>,
}

/// Of completion queues, of `rdma_cm`, or a context's of asynchronous events. A forked child may
/// use its descriptor for another file.
#[derive(Clone)]
struct Channel {
    process: u32,
    descriptor: c_int,
    made: Stack,
    endless: Endless,
    is_async: bool,
    last_use: Option<Use>,
    /// At the watcher's last look.
    was_readable: bool,
}

/// `ibv_get_cq_event` or `ibv_get_async_event` that returned an event, or waits.
#[derive(Clone)]
struct Use {
    by: u32,
    at: Stack,
    is_waiting: bool,
}

pub(crate) fn add(pointer: usize, channel: usize, descriptor: c_int, cq: &CompletionQueue) {
    if is_on() {
        let new = Queue {
            process: process::id(),
            channel,
            descriptor,
            cq: cq.clone(),
            polled: Polled::No,
            last_poller: None,
            armed: None,
        };
        CQS.lock().insert(pointer, new);
    }
}

pub(crate) fn remove(cq: usize) {
    if !is_on() {
        return;
    }
    let removed = CQS.lock().remove(&cq);
    drop(removed);
}

/// `is_async`: a context, and the descriptor of its asynchronous events.
pub(crate) fn add_channel(pointer: usize, descriptor: c_int, is_async: bool, endless: Endless) {
    if is_on() {
        let (process, made, last_use) = (process::id(), Stack::here(), None);
        let was_readable = false;
        let new = Channel { process, descriptor, made, endless, is_async, last_use, was_readable };
        CHANNELS.lock().insert(pointer, new);
    }
}

pub(crate) fn remove_channel(pointer: usize) {
    if is_on() {
        CHANNELS.lock().remove(&pointer);
    }
}

/// A queue with completions, and their number.
pub(super) fn holding() -> Option<(usize, usize)> {
    let cqs = CQS.lock();
    let mut own = cqs.iter().filter(|(_, queue)| queue.process == process::id());
    own.find(|(_, queue)| !queue.cq.is_empty()).map(|(cq, queue)| (*cq, queue.cq.len()))
}

pub(crate) fn polled(cq: usize) {
    report::report_postponed();
    let this = threads::this();
    change(cq, |queue| {
        queue.last_poller = Some(this);
        queue.polled = match queue.polled {
            Polled::No => Polled::By(this),
            Polled::By(other) if other == this => Polled::By(this),
            Polled::By(_) | Polled::BySeveral => Polled::BySeveral,
        };
        if let Some(armed) = &mut queue.armed {
            (armed.is_safe, armed.had_completions) = (true, false);
            armed.unsolicited = None;
        }
    });
}

/// Records a request that completes here or causes a response.
pub(super) fn posted(cq: usize) {
    let this = threads::this();
    let is_own = |armed: &&mut Armed| armed.by == this;
    change(cq, |queue| {
        let own = queue.armed.iter_mut().filter(is_own);
        own.for_each(|armed| (armed.has_posted, armed.is_safe) = (true, true));
    });
}

/// `pending` requests might complete.
pub(crate) fn armed(cq: usize, kind: NotifyKind, pending: usize) {
    let (at, by) = (Stack::here(), threads::this());
    let mut mute = None;
    change(cq, |queue| {
        if queue.channel == 0 {
            mute = Some((queue.cq.capacity(), at.clone()));
        }
        // another thread that polled is expected to poll again
        let may_have_missed = queue.polled == Polled::By(by) && pending > 0;
        let had_event = is_readable(queue.descriptor);
        queue.polled = Polled::No;
        queue.armed = Some(Armed {
            at,
            by,
            kind,
            may_have_missed,
            had_event,
            has_posted: false,
            is_safe: had_event,
            had_completions: false,
            unsolicited: None,
        });
    });
    if let Some((capacity, at)) = mute {
        report::emit(&Finding {
            kind: Kind::ArmedWithoutChannel,
            what: format!("ibv_req_notify_cq: the queue for {capacity} was made without a channel"),
            stacks: vec![("armed", at)],
        });
    }
}

pub(crate) fn woken(cq: usize) {
    if !is_on() {
        return;
    }
    let _call = Call::begin();
    let channel = CQS.lock().get(&cq).map(|queue| queue.channel);
    if let Some(channel) = channel {
        not_polled_again(channel, Some(cq)); // after poll or epoll_wait
        use_channel(channel, false);
    }
    change(cq, |queue| match &mut queue.armed {
        Some(armed) if armed.had_event => armed.had_event = false,
        armed => *armed = None,
    });
}

/// Checks only this thread's queues: another thread may be about to poll.
pub(crate) fn before_wait(channel: usize) {
    let _call = Call::begin();
    not_polled_again(channel, None);
}

fn not_polled_again(channel: usize, only: Option<usize>) {
    let this = threads::this();
    let is_meant = |cq| only.is_none_or(|only| only == cq);
    find(channel, |cq, queue, armed| {
        (is_meant(cq) && armed.by == this && armed.may_have_missed && !armed.is_safe).then(|| {
            format!(
                "{IN_CALL}: the queue for {} was polled, armed, and not polled again",
                queue.cq.capacity()
            )
        })
    });
}

/// Runs after a long wait without an event. [`look_at_waits`] has the queues of other threads.
pub(crate) fn still_waits(channel: usize) {
    let _call = Call::begin();
    let this = threads::this();
    use_channel(channel, true);
    find(channel, |_, queue, armed| {
        let number = queue.cq.len();
        let is_this = |id: u32| id == this || threads::is_gone(id);
        let is_own = armed.by == this && queue.last_poller.is_none_or(is_this);
        (is_own && !armed.has_posted && number > 0).then(|| {
            format!(
                "{IN_CALL}: it waits, and the queue for {} holds {number} that arrived before it \
                 was armed",
                queue.cq.capacity()
            )
        })
    });
}

/// `ibv_get_async_event` begins or ends.
pub(crate) fn reads_async(context: usize, is_waiting: bool) {
    if is_on() {
        let _call = Call::begin();
        use_channel(context, is_waiting);
    }
}

/// As [`Endless`], for asynchronous events, which any of the context's objects may cause.
pub(crate) fn endless_async(call: &str, has_objects: bool) -> Option<String> {
    let this = process::id();
    let is_unread = |channel: &Channel| {
        let was_unread = channel.process == this && !channel.is_async && channel.was_readable;
        was_unread && channel.is_readable()
    };
    if threads::any_joins() {
        return (!has_objects).then(|| {
            format!("{call}; its context has no objects that cause events, and a thread joins it")
        });
    }
    // a lone thread may wait for events of the port
    CHANNELS
        .lock()
        .values()
        .any(is_unread)
        .then(|| format!("{call} for asynchronous events; the event of a channel is unread"))
}

fn use_channel(channel: usize, is_waiting: bool) {
    let last_use = Use { by: threads::this(), at: Stack::here(), is_waiting };
    if let Some(channel) = CHANNELS.lock().get_mut(&channel) {
        channel.last_use = Some(last_use);
    }
}

/// As [`Endless`], for a channel of completion queues.
pub(crate) fn endless(call: &str, channel: usize, outstanding: Outstanding) -> Option<String> {
    let cqs = CQS.lock();
    let own = || cqs.iter().filter(|(_, queue)| queue.channel == channel);
    let armed = own().filter(|(_, queue)| queue.armed.is_some());
    let armed: Vec<_> = armed.map(|(cq, queue)| (*cq, queue.cq.len())).collect();
    let is_solicited = |armed: &Armed| armed.kind != NotifyKind::Next;
    let unsolicited: usize = own()
        .filter(|(_, queue)| queue.armed.as_ref().is_some_and(is_solicited))
        .map(|(_, queue)| queue.cq.len())
        .sum();
    let number = own().count();
    drop(cqs);
    let is_done = |(cq, held): &(usize, usize)| {
        outstanding(*cq).is_some_and(|(sends, receives)| sends + receives <= *held)
    };
    Some(match (number, &armed[..]) {
        (0, _) => format!("{call}: no completion queue uses the channel"),
        (_, []) => format!("{call}: the channel has {number} completion queues, none is armed"),
        (_, armed) if armed.iter().all(is_done) => format!(
            "{call}: the channel has {number} completion queues, {} are armed, and every posted \
             request has completed{}",
            armed.len(),
            match unsolicited {
                0 => String::new(),
                held => format!(
                    "; {held} completions are in queues armed for solicited events only, which \
                     completions of sends never are"
                ),
            }
        ),
        _ => return None,
    })
}

/// The channels of all descriptors, by pointer; `None`: one belongs to another file.
fn channels_of(descriptors: &[c_int]) -> Option<Vec<(usize, Channel)>> {
    let channels = CHANNELS.lock();
    let find = |descriptor: &c_int| {
        let mut own = channels.iter().filter(|(_, channel)| channel.process == process::id());
        let (pointer, channel) = own.find(|(_, channel)| channel.descriptor == *descriptor)?;
        Some((*pointer, channel.clone()))
    };
    descriptors.iter().map(find).collect()
}

/// A thread's wait that only another thread can end: all descriptors are channels without events,
/// or epoll has reported the event of one, `once` only.
pub(super) fn endless_for(thread: u32, descriptors: &[c_int], once: &[c_int]) -> Option<Finding> {
    let waited = channels_of(descriptors)?;
    let mut unread =
        waited.iter().map(|(_, channel)| channel).filter(|channel| channel.is_readable());
    let is_unread = unread.clone().next().is_some();
    if !unread.all(|channel| channel.was_readable && once.contains(&channel.descriptor)) {
        return None;
    }
    let place = last_place(thread, &waited)?;
    let is_async = |(_, channel): &(usize, Channel)| {
        let waits = |last: &Use| last.is_waiting && last.by == thread;
        channel.is_async && channel.last_use.as_ref().is_some_and(waits)
    };
    let call = if waited.iter().any(is_async) { IN_ASYNC } else { IN_POLL };
    let call = format!("{call}: thread {thread} waits");
    let reason = |(pointer, channel): &(usize, Channel)| (channel.endless)(&call, *pointer);
    let mut reasons = waited.iter().map(reason);
    let mut what = reasons.next()??;
    if !reasons.all(|reason| reason.is_some()) {
        return None;
    }
    if is_unread {
        what += "; a channel has an event, which epoll has reported before and reports once \
                 (EPOLLET, EPOLLONESHOT)";
    }
    Some(Finding { kind: Kind::EndlessWait, what, stacks: vec![place] })
}

/// True for a wait that ends no other thread's: as [`endless_for`], or for asynchronous events.
pub(super) fn is_stuck(thread: u32, descriptors: &[c_int], once: &[c_int]) -> bool {
    let is_silent = |(_, channel): &(usize, Channel)| channel.is_async && !channel.is_readable();
    channels_of(descriptors).is_some_and(|waited| waited.iter().all(is_silent))
        || endless_for(thread, descriptors, once).is_some()
}

/// The thread's last use of the channels; else where the first was made.
fn last_place(thread: u32, waited: &[(usize, Channel)]) -> Option<(&'static str, Stack)> {
    let mut uses = waited.iter().filter_map(|(_, channel)| channel.last_use.as_ref());
    if let Some(last) = uses.find(|last| last.by == thread) {
        return Some((if last.is_waiting { "waits" } else { "last event taken" }, last.at.clone()));
    }
    let is_meant = |queue: &&Queue| waited.iter().any(|(pointer, _)| *pointer == queue.channel);
    let cqs = CQS.lock();
    let mut armed = cqs.values().filter(is_meant).filter_map(|queue| queue.armed.as_ref());
    match armed.find(|armed| armed.by == thread) {
        Some(armed) => Some(("armed", armed.at.clone())),
        None => waited.first().map(|(_, channel)| ("made", channel.made.clone())),
    }
}

/// A thread in `ibv_get_cq_event`, which wakes now and then.
struct Sleeper {
    thread: u32,
    descriptor: c_int,
    at: Stack,
}

fn sleepers() -> Vec<Sleeper> {
    let channels: Vec<_> = CHANNELS.lock().values().cloned().collect();
    let sleeper = |Channel { descriptor, last_use, .. }: Channel| {
        let Use { by: thread, at, .. } = last_use.filter(|last| last.is_waiting)?;
        threads::waits_for(thread, descriptor).then_some(Sleeper { thread, descriptor, at })
    };
    channels.into_iter().filter_map(sleeper).collect()
}

impl Channel {
    fn is_readable(&self) -> bool {
        is_readable(self.descriptor)
    }
}

/// Finds completions that cause no event, while a thread waits for one. `threads` are idle since
/// the last check.
pub(super) fn look_at_waits(threads: &[Thread], outstanding: Outstanding) {
    let waits: Vec<_> = threads.iter().map(|thread| (thread.id, thread.doing())).collect();
    let sleepers = sleepers();
    // a running thread may still poll
    let is_asleep = |id: u32| {
        sleepers.iter().any(|sleeper| sleeper.thread == id)
            || waits.iter().any(|(other, doing)| *other == id && *doing != Activity::GoesOn)
            || threads::is_gone(id)
    };
    let this = process::id();
    let is_meant = |queue: &Queue| queue.channel != 0 && queue.process == this;
    let (mut findings, mut unsolicited) = (Vec::new(), Vec::new());
    for (cq, queue) in CQS.lock().iter_mut().filter(|(_, queue)| is_meant(queue)) {
        let (number, capacity) = (queue.cq.len(), queue.cq.capacity());
        let (descriptor, poller) = (queue.descriptor, queue.last_poller);
        let Some(armed) = queue.armed.as_mut() else { continue };
        armed.unsolicited = None;
        let is_next = armed.kind == NotifyKind::Next;
        let may_be_lost = !is_next || !armed.is_safe;
        let has_completions = may_be_lost && number > 0 && !is_readable(descriptor);
        let had_completions = mem::replace(&mut armed.had_completions, has_completions);
        let are_asleep = is_asleep(armed.by) && poller.is_none_or(is_asleep);
        if !(has_completions && had_completions && are_asleep) {
            continue;
        }
        let sleeper = sleepers.iter().find(|sleeper| sleeper.descriptor == descriptor);
        let polls = waits.iter().find(|(_, doing)| doing.is_for(descriptor));
        let (call, thread) = match (sleeper, polls) {
            (Some(sleeper), _) => (IN_CALL, sleeper.thread),
            (None, Some((thread, _))) => (IN_POLL, *thread),
            (None, None) => continue,
        };
        let waits_at = sleeper.map(|sleeper| ("waits", sleeper.at.clone()));
        let stacks = waits_at.into_iter().chain([("armed", armed.at.clone())]).collect();
        let subject = format!("{call}: thread {thread} waits, and the queue for {capacity}");
        if is_next {
            let what = format!("{subject} holds {number} that arrived before it was armed");
            findings.push(Finding { kind: Kind::LostWakeUp, what, stacks });
        } else {
            let what = format!("{subject} is armed for solicited events only and holds others");
            unsolicited.push((*cq, number, Finding { kind: Kind::EndlessWait, what, stacks }));
        }
    }
    for (cq, number, finding) in unsolicited {
        // completions of sends are never solicited
        if outstanding(cq).is_some_and(|(sends, _)| number > sends) {
            change(cq, |queue| {
                if let Some(armed) = &mut queue.armed {
                    armed.unsolicited = Some(finding);
                }
            });
        }
    }
    findings.iter().for_each(report::emit);
    let mut channels = CHANNELS.lock();
    let own = channels.values_mut().filter(|channel| channel.process == this);
    own.for_each(|channel| channel.was_readable = channel.is_readable());
}

/// Call when a signal ends the program.
pub(super) fn report_unsolicited() {
    let mut cqs = CQS.lock();
    let waited = cqs.values_mut().filter(|queue| !is_readable(queue.descriptor));
    let armed = waited.filter_map(|queue| queue.armed.as_mut());
    let findings: Vec<_> = armed.filter_map(|armed| armed.unsolicited.take()).collect();
    drop(cqs);
    findings.iter().for_each(report::emit);
}

pub(crate) fn is_readable(descriptor: c_int) -> bool {
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: `wanted` is writable.
    unsafe { libc::poll(&raw mut wanted, 1, 0) == 1 }
}

fn change(cq: usize, change: impl FnOnce(&mut Queue)) {
    if let Some(queue) = CQS.lock().get_mut(&cq) {
        change(queue);
    }
}

/// Reports `say`'s text for queues armed for any completion.
fn find(channel: usize, say: impl Fn(usize, &Queue, &Armed) -> Option<String>) {
    let cqs = CQS.lock();
    let findings: Vec<_> = cqs
        .iter()
        .filter(|(_, queue)| queue.channel == channel)
        .filter_map(|(cq, queue)| {
            let armed = queue.armed.as_ref().filter(|armed| armed.kind == NotifyKind::Next)?;
            let what = say(*cq, queue, armed)?;
            Some(Finding::here(Kind::LostWakeUp, "waits", what, [("armed", armed.at.clone())]))
        })
        .collect();
    drop(cqs);
    findings.iter().for_each(report::emit);
}
