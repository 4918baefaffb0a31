//! Armed completion queues, and waits whose event may not come.

use std::{collections::BTreeMap, ffi::c_int, mem};

use roce_provider::{CompletionQueue, calls::Call, transport::work::NotifyKind};

use super::{
    finding::{Finding, Kind},
    form::is_on,
    report,
    stack::Stack,
    threads::{self, Activity, Thread},
};
use crate::sync::Mutex;

/// By pointer.
static CQS: Mutex<BTreeMap<usize, Queue>> = Mutex::new(BTreeMap::new());

const IN_POLL: &str = "poll, select or epoll_wait";

struct Queue {
    channel: usize,
    descriptor: c_int,
    made: Stack,
    cq: CompletionQueue,
    /// Since it was last armed.
    is_polled: bool,
    armed: Option<Armed>,
}

struct Armed {
    at: Stack,
    by: u32,
    kind: NotifyKind,
    /// Completions may precede arming.
    may_have_missed: bool,
    /// The program has polled since, or the arming thread has posted a request.
    is_safe: bool,
    /// At the last check, without an event.
    had_completions: bool,
}

pub(crate) fn add(pointer: usize, channel: usize, descriptor: c_int, cq: &CompletionQueue) {
    if is_on() {
        let (cq, made) = (cq.clone(), Stack::here());
        let new = Queue { channel, descriptor, made, cq, is_polled: false, armed: None };
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

/// A queue with completions, and their number.
pub(super) fn holding() -> Option<(usize, usize)> {
    let cqs = CQS.lock();
    cqs.iter().map(|(cq, queue)| (*cq, queue.cq.len())).find(|(_, held)| *held > 0)
}

pub(crate) fn polled(cq: usize) {
    report::report_postponed();
    change(cq, |queue| {
        queue.is_polled = true;
        queue.armed.iter_mut().for_each(|armed| armed.is_safe = true);
    });
}

/// Records a request that completes here or causes a response.
pub(super) fn posted(cq: usize) {
    let this = threads::this();
    let is_own = |armed: &&mut Armed| armed.by == this;
    change(cq, |queue| {
        queue.armed.iter_mut().filter(is_own).for_each(|armed| armed.is_safe = true);
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
        let may_have_missed = queue.is_polled && pending > 0;
        queue.is_polled = false;
        let (is_safe, had_completions) = (false, false);
        queue.armed = Some(Armed { at, by, kind, may_have_missed, is_safe, had_completions });
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
    }
    change(cq, |queue| queue.armed = None);
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
                "ibv_get_cq_event: the queue for {} was polled, armed, and not polled again",
                queue.cq.capacity()
            )
        })
    });
}

/// Runs after a long wait without an event.
pub(crate) fn still_waits(channel: usize) {
    let _call = Call::begin();
    find(channel, |_, queue, _| {
        let number = queue.cq.len();
        (number > 0).then(|| {
            format!(
                "ibv_get_cq_event: it waits, and the queue for {} holds {number} that arrived \
                 before it was armed",
                queue.cq.capacity()
            )
        })
    });
}

/// Explains why only another thread can cause an event. `have_completed` gets queue and length.
pub(crate) fn endless(
    call: &str,
    channel: usize,
    have_completed: fn(usize, usize) -> bool,
) -> Option<String> {
    let cqs = CQS.lock();
    let own = || cqs.iter().filter(|(_, queue)| queue.channel == channel);
    let armed = own().filter(|(_, queue)| queue.armed.is_some());
    let armed: Vec<_> = armed.map(|(cq, queue)| (*cq, queue.cq.len())).collect();
    let number = own().count();
    drop(cqs);
    let are_done = || armed.iter().all(|(cq, held)| have_completed(*cq, *held));
    Some(match (number, &armed[..]) {
        (0, _) => format!("{call}: no completion queue uses the channel"),
        (_, []) => format!("{call}: the channel has {number} completion queues, none is armed"),
        _ if are_done() => format!(
            "{call}: the channel has {number} completion queues, {} are armed, and every posted \
             request has completed",
            armed.len()
        ),
        _ => return None,
    })
}

/// Like [`endless`], if all descriptors are channels without events; also returns a queue's stack.
pub(super) fn endless_for(
    descriptors: &[c_int],
    have_completed: fn(usize, usize) -> bool,
) -> Option<(String, Stack)> {
    let cqs = CQS.lock();
    let channels: Vec<_> = descriptors
        .iter()
        .map(|descriptor| {
            let mut queues = cqs.values().filter(|queue| queue.channel != 0);
            let queue = queues.find(|queue| queue.descriptor == *descriptor)?;
            (!is_readable(*descriptor)).then(|| (queue.channel, queue.made.clone()))
        })
        .collect::<Option<_>>()?;
    drop(cqs);
    let mut reasons = channels
        .into_iter()
        .map(|(channel, made)| (endless(IN_POLL, channel, have_completed), made));
    let (first, made) = reasons.next()?;
    reasons.all(|(reason, _)| reason.is_some()).then(|| Some((first?, made))).flatten()
}

/// Finds completions before arming, while a thread waits in a system call. `threads` are idle since
/// the last check.
pub(super) fn look_at_waits(threads: &[Thread]) {
    let waits: Vec<_> = threads.iter().map(|thread| (thread.id, thread.doing())).collect();
    let mut findings = Vec::new();
    for queue in CQS.lock().values_mut().filter(|queue| queue.channel != 0) {
        let (number, descriptor) = (queue.cq.len(), queue.descriptor);
        let Some(armed) = queue.armed.as_mut() else { continue };
        let has_completions = armed.kind == NotifyKind::Next
            && !armed.is_safe
            && number > 0
            && !is_readable(descriptor);
        let had_completions = mem::replace(&mut armed.had_completions, has_completions);
        // a running thread may still poll
        let is_asleep =
            waits.iter().any(|(id, doing)| *id == armed.by && *doing != Activity::GoesOn);
        if !(has_completions && had_completions && is_asleep) {
            continue;
        }
        let waits_for_it = |doing: &Activity| match doing {
            Activity::WaitsFor { descriptors, .. } => descriptors.contains(&descriptor),
            _ => false,
        };
        let Some((thread, _)) = waits.iter().find(|(_, doing)| waits_for_it(doing)) else {
            continue;
        };
        findings.push(Finding {
            kind: Kind::LostWakeUp,
            what: format!(
                "{IN_POLL}: thread {thread} waits, and the queue for {} holds {number} that \
                 arrived before it was armed",
                queue.cq.capacity()
            ),
            stacks: vec![("armed", armed.at.clone())],
        });
    }
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
            Some(Finding {
                kind: Kind::LostWakeUp,
                what: say(*cq, queue, armed)?,
                stacks: vec![("waits", Stack::here()), ("armed", armed.at.clone())],
            })
        })
        .collect();
    drop(cqs);
    findings.iter().for_each(report::emit);
}
