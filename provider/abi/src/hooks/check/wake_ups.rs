//! Completion queues that are armed for an event, and programs that wait for one which may not
//! come.

use std::{
    collections::BTreeMap,
    thread::{self, ThreadId},
};

use roce_provider::{CompletionQueue, calls::Call, transport::work::NotifyKind};

use super::{
    finding::{Finding, Kind},
    form::is_on,
    report,
    stack::Stack,
};
use crate::sync::Mutex;

/// By the program's pointers.
static CQS: Mutex<BTreeMap<usize, Queue>> = Mutex::new(BTreeMap::new());

struct Queue {
    channel: usize,
    cq: CompletionQueue,
    /// The program has looked since it was armed the last time.
    is_polled: bool,
    armed: Option<Armed>,
}

struct Armed {
    at: Stack,
    by: ThreadId,
    kind: NotifyKind,
    /// Completions may have come after the last look and before this.
    may_have_missed: bool,
    /// The program has looked since, or posted something that brings a completion.
    is_safe: bool,
}

/// Notes a new completion queue.
pub(crate) fn add(cq: usize, channel: usize, queue: &CompletionQueue) {
    if is_on() {
        let new = Queue { channel, cq: queue.clone(), is_polled: false, armed: None };
        CQS.lock().insert(cq, new);
    }
}

/// Forgets one.
pub(crate) fn remove(cq: usize) {
    if !is_on() {
        return;
    }
    let removed = CQS.lock().remove(&cq);
    drop(removed);
}

/// Notes that the program has polled, and tells what was found under locks.
pub(crate) fn polled(cq: usize) {
    report::tell_postponed();
    change(cq, |queue| {
        queue.is_polled = true;
        queue.armed.iter_mut().for_each(|armed| armed.is_safe = true);
    });
}

/// Notes that the program has posted a request that completes here, or is answered.
pub(super) fn posted(cq: usize) {
    change(cq, |queue| queue.armed.iter_mut().for_each(|armed| armed.is_safe = true));
}

/// Notes that the program has armed a queue, while `pending` requests might complete.
pub(crate) fn armed(cq: usize, kind: NotifyKind, pending: usize) {
    let (at, by) = (Stack::here(), thread::current().id());
    let mut mute = None;
    change(cq, |queue| {
        if queue.channel == 0 {
            mute = Some((queue.cq.capacity(), at.clone()));
        }
        let may_have_missed = queue.is_polled && pending > 0;
        queue.is_polled = false;
        queue.armed = Some(Armed { at, by, kind, may_have_missed, is_safe: false });
    });
    if let Some((capacity, at)) = mute {
        report::tell(&Finding {
            kind: Kind::ArmedWithoutChannel,
            what: format!("ibv_req_notify_cq: the queue for {capacity} was made without a channel"),
            stacks: vec![("armed", at)],
        });
    }
}

/// Notes an event that the program has taken.
pub(crate) fn woken(cq: usize) {
    if !is_on() {
        return;
    }
    let _call = Call::begin();
    change(cq, |queue| queue.armed = None);
}

/// To be called before the program waits for an event of a channel. Another thread than the one
/// that has armed a queue may be about to look.
pub(crate) fn before_wait(channel: usize) {
    let _call = Call::begin();
    let this = thread::current().id();
    find(channel, |queue, armed| {
        (armed.by == this && armed.may_have_missed && !armed.is_safe).then(|| {
            format!(
                "ibv_get_cq_event: the queue for {} was polled, armed, and not polled again",
                queue.cq.capacity()
            )
        })
    });
}

/// To be called when it has waited for a while, and no event has come.
pub(crate) fn still_waits(channel: usize) {
    let _call = Call::begin();
    find(channel, |queue, _| {
        let number = queue.cq.len();
        (number > 0).then(|| {
            format!(
                "ibv_get_cq_event: it waits, and the queue for {} holds {number} that came before it \
                 was armed",
                queue.cq.capacity()
            )
        })
    });
}

/// Why no event of a channel comes that the program's only thread waits for.
/// `have_completed`: all requests of a queue, if it holds so many completions.
pub(crate) fn endless(
    channel: usize,
    have_completed: impl Fn(usize, usize) -> bool,
) -> Option<String> {
    let cqs = CQS.lock();
    let own = || cqs.iter().filter(|(_, queue)| queue.channel == channel);
    let armed = own().filter(|(_, queue)| queue.armed.is_some());
    let armed: Vec<_> = armed.map(|(cq, queue)| (*cq, queue.cq.len())).collect();
    let number = own().count();
    drop(cqs);
    let are_done = || armed.iter().all(|(cq, held)| have_completed(*cq, *held));
    Some(match (number, &armed[..]) {
        (0, _) => "ibv_get_cq_event: no completion queue has the channel".to_owned(),
        (_, []) => {
            format!("ibv_get_cq_event: the channel has {number} completion queues, none is armed")
        }
        _ if are_done() => format!(
            "ibv_get_cq_event: the channel has {number} completion queues, {} are armed, and nothing \
             is posted that has not completed",
            armed.len()
        ),
        _ => return None,
    })
}

fn change(cq: usize, change: impl FnOnce(&mut Queue)) {
    if let Some(queue) = CQS.lock().get_mut(&cq) {
        change(queue);
    }
}

/// Tells of queues of a channel that are armed for any completion, if there is something to say.
fn find(channel: usize, say: impl Fn(&Queue, &Armed) -> Option<String>) {
    let cqs = CQS.lock();
    let findings: Vec<_> = cqs
        .values()
        .filter(|queue| queue.channel == channel)
        .filter_map(|queue| {
            let armed = queue.armed.as_ref().filter(|armed| armed.kind == NotifyKind::Next)?;
            Some(Finding {
                kind: Kind::LostWakeUp,
                what: say(queue, armed)?,
                stacks: vec![("waits", Stack::here()), ("armed", armed.at.clone())],
            })
        })
        .collect();
    drop(cqs);
    findings.iter().for_each(report::tell);
}
