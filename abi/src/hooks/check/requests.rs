//! Posted requests whose completions are not yet polled.

use std::{
    collections::{BTreeMap, VecDeque},
    process,
    sync::{Arc, MutexGuard, atomic::Ordering},
    time::{Duration, Instant},
};

use roce_provider::{
    QueuePair,
    faults::CallId,
    transport::{
        addr::Qpn,
        qp::{QpInfo, State},
        work::{Sge, Wc, WcOpcode},
    },
};
use smallvec::SmallVec;

use super::{
    Finding, Kind, Stack, is_on,
    order::{self, Order},
    report,
    request::Request,
    threads, waits, wake_ups,
    watch::{self, Role, Subject, WatchId},
};
use crate::sync::Mutex;

/// In-flight requests above which signaling each is excessive.
const DEEP: usize = 16;
/// Signaled requests in a row until the advice.
const IN_A_ROW: u32 = 1000;
/// Time of empty polls until the cause is checked.
const EMPTY_POLLS: Duration = Duration::from_millis(500);
/// As many empty polls: the program does little else.
const POLLS: u32 = 1000;

pub(crate) type QpKey = (usize, u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    Send(QpKey),
    Receive(QpKey),
    /// Address of `ibv_srq`.
    Shared(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionMemory {
    /// First address in requests.
    pub(crate) iova: u64,
    pub(crate) address: usize,
    pub(crate) length: usize,
    pub(crate) is_pinned: bool,
}

pub(crate) struct NewQp {
    pub(crate) qp: QueuePair,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    pub(crate) srq: Option<usize>,
    pub(crate) max_send: usize,
}

static REQUESTS: Mutex<Requests> = Mutex::new(Requests {
    qps: BTreeMap::new(),
    shared: BTreeMap::new(),
    cqs: BTreeMap::new(),
    regions: BTreeMap::new(),
});

struct Requests {
    qps: BTreeMap<QpKey, Qp>,
    shared: BTreeMap<usize, Shared>,
    cqs: BTreeMap<usize, Completions>,
    /// With the registering process.
    regions: BTreeMap<(usize, u32), (RegionMemory, u32)>,
}

struct Qp {
    new: NewQp,
    sends: VecDeque<Posted>,
    receives: VecDeque<Posted>,
    /// Signaled sends in a row with others in flight.
    signaled: u32,
    /// All later requests fail.
    has_failed: bool,
    /// Completion counters replace polling.
    is_counted: bool,
}

struct Shared {
    device: usize,
    /// XRC only; its queue pairs are unknown here.
    cq: Option<usize>,
    list: VecDeque<Posted>,
}

struct Posted {
    subject: Arc<Subject>,
    is_signaled: bool,
    order: Order,
    /// With each watch's offset in the message.
    watches: SmallVec<[(WatchId, usize); 2]>,
    lkeys: SmallVec<[u32; 2]>,
    ah: usize,
}

struct Completions {
    capacity: usize,
    /// Requests to complete here.
    pending: usize,
    /// Full queue pairs refused a send since the last poll.
    refused: Vec<QpKey>,
    made: Stack,
    reset: Option<Reset>,
    empty: Option<Empty>,
}

/// Empty polls since the last post or completion.
struct Empty {
    since: Instant,
    polls: u32,
}

struct Reset {
    at: Stack,
    number: usize,
}

/// `None` without checks.
fn locked() -> Option<MutexGuard<'static, Requests>> {
    is_on().then(|| REQUESTS.lock())
}

pub(crate) fn size_cq(cq: usize, capacity: usize) {
    let Some(mut requests) = locked() else { return };
    let made = Stack::here();
    let refused = Vec::new();
    let new = Completions { capacity, pending: 0, refused, made, reset: None, empty: None };
    requests.cqs.entry(cq).or_insert(new).capacity = capacity;
}

pub(crate) fn remove_cq(cq: usize) {
    if let Some(mut requests) = locked() {
        requests.cqs.remove(&cq);
    }
}

/// Requests that can still complete.
pub(crate) fn pending(cq: usize) -> usize {
    let requests = REQUESTS.lock();
    let may_complete = |qp: &&Qp| {
        !matches!(qp.new.qp.query().state, State::Reset | State::Init)
            && (qp.new.send_cq == cq || qp.new.recv_cq == cq)
    };
    match requests.qps.values().any(|qp| may_complete(&qp)) {
        true => requests.load(cq),
        false => 0,
    }
}

/// Unpolled sends and receives; `None`: unknown.
pub(crate) fn outstanding(cq: usize) -> Option<(usize, usize)> {
    let requests = REQUESTS.lock();
    let (mut sends, mut receives) = (0, requests.shared_load(cq));
    for qp in requests.qps.values() {
        let NewQp { send_cq, recv_cq, .. } = qp.new;
        if qp.is_counted && (send_cq == cq || recv_cq == cq) {
            return None;
        }
        sends += if send_cq == cq { qp.sends.len() } else { 0 };
        receives += if recv_cq == cq { qp.receives.len() } else { 0 };
    }
    Some((sends, receives))
}

pub(crate) fn add_qp(key: QpKey, new: impl FnOnce() -> NewQp) {
    let Some(mut requests) = locked() else { return };
    let (new, (sends, receives)) = (new(), Default::default());
    let new = Qp { new, sends, receives, signaled: 0, has_failed: false, is_counted: false };
    requests.qps.insert(key, new);
}

pub(crate) fn remove_qp(key: QpKey) {
    let Some(mut requests) = locked() else { return };
    requests.clear(key);
    let removed = requests.qps.remove(&key);
    drop(requests);
    drop(removed);
}

/// Completions of the queue pair become unknown.
pub(crate) fn count_qp(key: QpKey) {
    if let Some(qp) = locked().as_mut().and_then(|requests| requests.qps.get_mut(&key)) {
        qp.is_counted = true;
    }
}

pub(crate) fn reset_qp(key: QpKey) {
    let Some(mut requests) = locked() else { return };
    for (cq, number) in requests.clear(key).into_iter().filter(|(_, number)| *number > 0) {
        let Some(completions) = requests.cqs.get_mut(&cq) else { continue };
        let reset = completions.reset.get_or_insert_with(|| Reset { at: Stack::here(), number: 0 });
        reset.number += number;
    }
}

/// Reports why polls stay empty.
pub(crate) fn found_empty(cq: usize) {
    let mut requests = REQUESTS.lock();
    let load = requests.load(cq);
    let Some(completions) = requests.cqs.get_mut(&cq) else { return };
    completions.refused.clear();
    if load > 0 {
        return;
    }
    let new = || Empty { since: Instant::now(), polls: 0 };
    let empty = completions.empty.get_or_insert_with(new);
    empty.polls += 1;
    if !empty.polls.is_multiple_of(POLLS) || empty.since.elapsed() < EMPTY_POLLS {
        return;
    }
    completions.empty = None;
    let found = requests.why_empty(cq);
    drop(requests);
    let is_sure = |found: &&Finding| match found.kind {
        Kind::ResetDiscarded => waits::nobody_acts(threads::this()),
        _ => threads::is_alone(), // another thread may poll the other queue
    };
    found.iter().filter(is_sure).for_each(report::emit);
}

/// `cq` is for XRC only.
pub(crate) fn add_shared(device: usize, srq: usize, cq: Option<usize>) {
    if let Some(mut requests) = locked() {
        requests.shared.insert(srq, Shared { device, cq, list: VecDeque::new() });
    }
}

pub(crate) fn remove_shared(srq: usize) {
    let removed = locked().and_then(|mut requests| requests.shared.remove(&srq));
    removed.into_iter().flat_map(|shared| shared.list).for_each(Posted::forget);
}

pub(crate) fn add_region(device: usize, lkey: u32, memory: RegionMemory) {
    if let Some(mut requests) = locked() {
        requests.regions.insert((device, lkey), (memory, process::id()));
    }
}

/// Call before deregistering, which may fail the request.
pub(crate) fn user_of_region(device: usize, lkey: u32) -> Option<Arc<Subject>> {
    locked()?.user_of(device, lkey)
}

pub(crate) fn remove_region(device: usize, lkey: u32) {
    if let Some(mut requests) = locked() {
        requests.regions.remove(&(device, lkey));
    }
}

pub(crate) fn region_gone(call: CallId, lkey: u32, user: Option<Arc<Subject>>) {
    if let Some(subject) = user {
        let what = format!("{} of lkey {lkey:#x}, which {} uses", call.name(), subject.text());
        let posted = ("posted", subject.posted.clone());
        report::emit(&Finding::here(Kind::RegionInUse, "called", what, [posted]));
    }
}

/// Reports a send that surely still needs the address handle.
pub(crate) fn remove_ah(ah: usize) {
    let Some(requests) = locked() else { return };
    let user = requests.qps.values().find_map(|qp| {
        let last = qp.sends.iter().rposition(|posted| posted.is_signaled)?;
        let user = qp.sends.range(..=last).find(|posted| posted.ah == ah)?;
        qp.is_able().then(|| user.subject.clone())
    });
    drop(requests);
    if let Some(subject) = user {
        let what = format!("ibv_destroy_ah of an address handle that {} uses", subject.text());
        let posted = ("posted", subject.posted.clone());
        report::emit(&Finding::here(Kind::AddressHandleInUse, "destroyed", what, [posted]));
    }
}

pub(super) fn regions() -> Vec<RegionMemory> {
    let requests = REQUESTS.lock();
    let own = requests.regions.values().filter(|(_, process)| *process == process::id());
    own.map(|(memory, _)| *memory).collect()
}

/// L_Key, memory and process. Does not wait.
pub(super) fn region_with(address: usize) -> Option<(u32, RegionMemory, u32)> {
    let requests = REQUESTS.try_lock()?;
    let has = |memory: &RegionMemory| address.wrapping_sub(memory.address) < memory.length;
    let found = requests.regions.iter().find(|(_, (memory, _))| has(memory));
    found.map(|((_, lkey), (memory, process))| (*lkey, *memory, *process))
}

/// Queue pair, and its peer in this process.
pub(super) fn connected(qpn: Qpn) -> Option<(QpInfo, QpInfo)> {
    let requests = REQUESTS.lock();
    let all = || requests.qps.values().map(|qp| qp.new.qp.query());
    let this = all().find(|info| info.qpn == qpn)?;
    let is_peer = |info: &QpInfo| info.qpn == this.dest_qpn && info.dest_qpn == this.qpn;
    let peer = all().find(is_peer)?;
    Some((this, peer))
}

/// `post` takes at most the given number of requests, all of a batch or none. Returns the number
/// posted, and its result.
pub(crate) fn post<R>(
    queue: Queue,
    call: &'static str,
    (list, is_batch): (Vec<Request>, bool),
    post: impl FnOnce(usize) -> (usize, R),
) -> R {
    let posted_at = Stack::here();
    let mut requests = REQUESTS.lock();
    let mut prepared = Vec::with_capacity(list.len());
    for request in list {
        let (posted, overlap) = requests.prepare(queue, call, request, &posted_at);
        let unordered = requests.unordered(queue, &posted, &prepared);
        prepared.push((posted, overlap.into_iter().chain(unordered)));
    }
    let room = requests.room(queue, prepared.len(), is_batch);
    let (number, result) = post(room);
    let mut findings = Vec::new();
    for (index, (posted, found)) in prepared.into_iter().enumerate() {
        if index < number {
            findings.extend(found);
            requests.push(queue, posted, &mut findings);
        } else {
            posted.forget();
        }
    }
    drop(requests);
    findings.iter().for_each(report::emit);
    report::report_postponed();
    result
}

/// Call before the program sees the completion.
pub(crate) fn completed(device: usize, cq: usize, wc: &Wc) {
    if wc.result.is_err() {
        report::FAILED.fetch_add(1, Ordering::Relaxed);
    }
    let mut findings = Vec::new();
    let mut requests = REQUESTS.lock();
    requests.complete((device, wc.qpn.get()), cq, wc, &mut findings);
    if let Some(completions) = requests.cqs.get_mut(&cq) {
        completions.refused.clear();
        completions.empty = None;
    }
    drop(requests);
    findings.iter().for_each(report::emit);
}

impl Requests {
    fn why_empty(&self, cq: usize) -> Option<Finding> {
        let Completions { capacity, made, reset, .. } = self.cqs.get(&cq)?;
        let (kind, why, stacks) = if let Some(Reset { at, number }) = reset {
            let why = format!("RESET has discarded {number} requests");
            (Kind::ResetDiscarded, why, vec![("reset", at.clone())])
        } else if let Some((other, held)) = wake_ups::holding() {
            // a queue that is also polled is empty
            let Completions { capacity, made: other, .. } = self.cqs.get(&other)?;
            let why = format!("the queue for {capacity} holds {held}");
            let stacks = vec![("made", made.clone()), ("the other queue was made", other.clone())];
            (Kind::EndlessWait, why, stacks)
        } else {
            let mut qps = self.qps.values().filter(|qp| qp.new.send_cq == cq);
            let unsignaled = &qps.find_map(|qp| qp.sends.back())?.subject;
            let why = format!("{} is unsignaled", unsignaled.text());
            (Kind::EndlessPoll, why, vec![("posted", unsignaled.posted.clone())])
        };
        let what = format!(
            "the queue for {capacity} is polled, and no posted request completes in it: {why}"
        );
        Some(Finding::here(kind, "polled", what, stacks))
    }

    fn prepare(
        &self,
        queue: Queue,
        call: &'static str,
        request: Request,
        posted: &Stack,
    ) -> (Posted, Option<Finding>) {
        let Request { wr_id, name, mut role, sges, is_signaled, mut order, ah } = request;
        if let Queue::Send(key) | Queue::Receive(key) = queue
            && self.qps.get(&key).is_some_and(|qp| qp.is_counted)
        {
            role = None;
            order = Order::default();
        }
        let (device, number) = match queue {
            Queue::Send(key) | Queue::Receive(key) => (Some(key.0), ("qp", key.1 as usize)),
            Queue::Shared(srq) => (self.shared.get(&srq).map(|shared| shared.device), ("srq", srq)),
        };
        let posted = posted.clone();
        let subject = Arc::new(Subject { queue: number, call, wr_id, name, posted });
        let (mut watches, mut overlap, mut end) = (SmallVec::new(), None, 0);
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let Some(role) = role else { break };
            let before = end;
            end += sge.length as usize;
            let region = device.and_then(|device| self.regions.get(&(device, sge.lkey.0)));
            let Some(address) = region.and_then(|(region, _)| region.at(sge)) else { continue };
            if role == Role::Send {
                order.source.push(address..address + sge.length as usize);
            }
            let (id, other) = watch::add(address, sge.length as usize, role, &subject);
            watches.push((id, before));
            overlap = overlap.or(other.map(|other| {
                let (length, those) = (sge.length, other.text());
                let what = format!("its {length} bytes at {address:#x} overlap those of {those}");
                let other = ("the other request", other.posted.clone());
                subject.finding(Kind::ReceiveOverlap, &what, [other])
            }));
        }
        if order.is_inline {
            let range = |sge: &Sge| {
                sge.address as usize..sge.address.wrapping_add(sge.length.into()) as usize
            };
            order.source.extend(sges.iter().map(range));
        }
        let lkeys = role.map(|_| sges.iter().map(|sge| sge.lkey.0).collect()).unwrap_or_default();
        (Posted { subject, is_signaled, order, watches, lkeys, ah }, overlap)
    }

    fn unordered<F>(&self, queue: Queue, new: &Posted, list: &[(Posted, F)]) -> Option<Finding> {
        let Queue::Send(key) = queue else { return None };
        let before = self.qps.get(&key)?.sends.iter().chain(list.iter().map(|(posted, _)| posted));
        let before = before.map(|posted| (&posted.subject, &posted.order));
        order::check(&new.subject, &new.order, before)
    }

    /// Requests that an adapter takes: its slots are free after a poll. All if the program posts
    /// again without one, which [`Self::push`] reports.
    fn room(&mut self, queue: Queue, number: usize, is_batch: bool) -> usize {
        let Queue::Send(key) = queue else { return usize::MAX };
        let Some(qp) = self.qps.get(&key) else { return usize::MAX };
        let Some(cq) = self.cqs.get_mut(&qp.new.send_cq) else { return usize::MAX };
        let room = qp.new.max_send.saturating_sub(qp.sends.len());
        let frees_slots = qp.sends.iter().any(|posted| posted.is_signaled);
        let is_again = cq.refused.contains(&key);
        if number <= room || !frees_slots || is_again || qp.has_failed || qp.is_counted {
            return usize::MAX;
        }
        cq.refused.push(key);
        if is_batch { 0 } else { room }
    }

    fn push(&mut self, queue: Queue, posted: Posted, findings: &mut Vec<Finding>) {
        let (subject, is_counted) = (posted.subject.clone(), posted.is_signaled);
        let mut cqs = SmallVec::<[usize; 1]>::new();
        match queue {
            Queue::Send(key) => {
                let Some(qp) = self.qps.get_mut(&key).filter(|qp| !qp.is_counted) else {
                    return posted.forget();
                };
                findings.extend(qp.is_full().map(|kind| {
                    let (number, most) = (qp.sends.len(), qp.new.max_send);
                    let what = format!("{number} sends are posted, max_send_wr is {most}");
                    subject.finding(kind, &what, None)
                }));
                findings.extend(qp.signals_each(&posted));
                qp.sends.push_back(posted);
                cqs.push(qp.new.send_cq);
                // the peer may respond
                [qp.new.send_cq, qp.new.recv_cq].into_iter().for_each(wake_ups::posted);
            }
            Queue::Receive(key) => {
                let Some(qp) = self.qps.get_mut(&key).filter(|qp| !qp.is_counted) else {
                    return posted.forget();
                };
                qp.receives.push_back(posted);
                cqs.push(qp.new.recv_cq);
                wake_ups::posted(qp.new.recv_cq);
            }
            Queue::Shared(srq) => {
                let Some(shared) = self.shared.get_mut(&srq) else { return posted.forget() };
                shared.list.push_back(posted);
                cqs.extend(shared.cq);
                let receivers = self.qps.values().filter(|qp| qp.new.srq == Some(srq));
                cqs.extend(receivers.map(|qp| qp.new.recv_cq));
                cqs.dedup();
            }
        }
        for cq in cqs.into_iter().filter(|_| is_counted) {
            let Some(completions) = self.cqs.get_mut(&cq) else { continue };
            completions.pending += usize::from(!matches!(queue, Queue::Shared(_)));
            (completions.reset, completions.empty) = (None, None);
            let (capacity, made) = (completions.capacity, completions.made.clone());
            let own = completions.pending;
            let load = self.load(cq);
            if load > capacity {
                // peers may use credits
                let is_sure = own > capacity;
                let kind = if is_sure { Kind::CqOverrun } else { Kind::SharedQueueOverrun };
                let what = format!("{load} requests complete in a queue for {capacity}");
                findings.push(subject.finding(kind, &what, [("the queue was made", made)]));
            }
        }
    }

    fn load(&self, cq: usize) -> usize {
        let own = self.cqs.get(&cq).map_or(0, |completions| completions.pending);
        own + self.shared_load(cq)
    }

    fn shared_load(&self, cq: usize) -> usize {
        let feeds = |srq: &usize, shared: &Shared| {
            let mut qps = self.qps.values();
            shared.cq == Some(cq) || qps.any(|qp| qp.new.srq == Some(*srq) && qp.new.recv_cq == cq)
        };
        let shared = self.shared.iter().filter(|(_, shared)| !shared.list.is_empty());
        shared
            .filter(|(srq, shared)| feeds(srq, shared))
            .map(|(_, shared)| shared.list.len())
            .sum::<usize>()
    }

    fn complete(&mut self, key: QpKey, cq: usize, wc: &Wc, findings: &mut Vec<Finding>) {
        let Some(qp) = self.qps.get_mut(&key) else {
            return self.complete_xrc(cq, wc, findings);
        };
        let is_receive = match &wc.result {
            Ok(ok) => matches!(ok.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm),
            Err(_) => qp.has_received(cq, wc.wr_id),
        };
        qp.has_failed |= wc.result.is_err();
        let filled = filled(wc);
        let queue = match (is_receive, qp.new.srq) {
            (true, Some(srq)) => {
                if let Some(shared) = self.shared.get_mut(&srq) {
                    complete_shared(&mut shared.list, wc.wr_id, filled, findings);
                }
                return;
            }
            (true, None) => &mut qp.receives,
            (false, _) => &mut qp.sends,
        };
        // a queue completes in order
        let is_this = |posted: &Posted| {
            posted.subject.wr_id == wc.wr_id && (posted.is_signaled || filled.is_none())
        };
        let Some(at) = queue.iter().position(is_this) else { return };
        let mut counted = 0;
        for posted in queue.drain(..=at) {
            counted += usize::from(posted.is_signaled);
            posted.finish(filled, findings);
        }
        self.discount(cq, counted);
    }

    /// Completes an XRC target's request in one of this queue's SRQs.
    fn complete_xrc(&mut self, cq: usize, wc: &Wc, findings: &mut Vec<Finding>) {
        let of_queue = self.shared.values_mut().filter(|shared| shared.cq == Some(cq));
        let is_it = |posted: &Posted| posted.subject.wr_id == wc.wr_id;
        let mut having: Vec<_> = of_queue.filter(|shared| shared.list.iter().any(is_it)).collect();
        match &mut having[..] {
            [] => {}
            [shared] => complete_shared(&mut shared.list, wc.wr_id, filled(wc), findings),
            // ambiguous
            several => {
                for posted in
                    several.iter().flat_map(|shared| &shared.list).filter(|posted| is_it(posted))
                {
                    posted.watches.iter().for_each(|(id, _)| watch::doubt(*id));
                }
                complete_shared(&mut several[0].list, wc.wr_id, None, findings);
            }
        }
    }

    fn discount(&mut self, cq: usize, number: usize) {
        if let Some(completions) = self.cqs.get_mut(&cq) {
            completions.pending = completions.pending.saturating_sub(number);
        }
    }

    /// Forgets all requests; returns the completion queues, and how many would complete there.
    fn clear(&mut self, key: QpKey) -> [(usize, usize); 2] {
        let Some(qp) = self.qps.get_mut(&key) else { return Default::default() };
        qp.has_failed = false;
        let (sends, receives) = (std::mem::take(&mut qp.sends), std::mem::take(&mut qp.receives));
        let NewQp { send_cq, recv_cq, .. } = qp.new;
        [(send_cq, sends), (recv_cq, receives)].map(|(cq, list)| {
            let number = list.iter().filter(|posted| posted.is_signaled).count();
            self.discount(cq, number);
            list.into_iter().for_each(Posted::forget);
            (cq, number)
        })
    }

    /// A request that needs the region, of a working queue pair.
    fn user_of(&self, device: usize, lkey: u32) -> Option<Arc<Subject>> {
        let needs = |posted: &&Posted| posted.lkeys.contains(&lkey);
        let qps = self.qps.iter().filter(|((of, _), _)| *of == device);
        qps.into_iter().find_map(|(_, qp)| {
            let shared = qp.new.srq.and_then(|srq| self.shared.get(&srq));
            let posted = qp
                .sends
                .iter()
                .chain(&qp.receives)
                .chain(shared.into_iter().flat_map(|shared| &shared.list));
            let user = posted.into_iter().find(needs)?;
            qp.is_able().then(|| user.subject.clone())
        })
    }
}

impl Qp {
    /// True if requests can still execute.
    fn is_able(&self) -> bool {
        !self.has_failed && !matches!(self.new.qp.query().state, State::Reset | State::Err)
    }

    fn is_full(&self) -> Option<Kind> {
        if self.has_failed || self.sends.len() < self.new.max_send {
            return None;
        }
        let any_signaled = self.sends.iter().any(|posted| posted.is_signaled);
        Some(if any_signaled { Kind::SendQueueFull } else { Kind::NothingSignaled })
    }

    fn signals_each(&mut self, posted: &Posted) -> Option<Finding> {
        let is_deep = self.sends.len() >= DEEP;
        self.signaled = match posted.is_signaled {
            true => self.signaled + u32::from(is_deep),
            false => 0,
        };
        (is_deep && self.signaled == IN_A_ROW).then(|| {
            let (before, number) = (IN_A_ROW - 1, self.sends.len());
            let what = format!(
                "it and the {before} requests before it are signaled, {number} of them in flight"
            );
            posted.subject.finding(Kind::EachSignaled, &what, None)
        })
    }

    /// True if a receive failed, as far as known.
    fn has_received(&self, cq: usize, wr_id: u64) -> bool {
        let NewQp { send_cq, recv_cq, srq, .. } = &self.new;
        if send_cq != recv_cq {
            return cq == *recv_cq;
        }
        let is_it = |posted: &Posted| posted.subject.wr_id == wr_id;
        let sent = self.sends.iter().any(is_it);
        match self.receives.front() {
            Some(first) if is_it(first) => !sent || !self.sends.front().is_some_and(is_it),
            _ => !sent && (srq.is_some() || self.receives.iter().any(is_it)),
        }
    }
}

/// Bytes that a completed request filled; `None`: failed.
fn filled(wc: &Wc) -> Option<usize> {
    let ok = wc.result.as_ref().ok()?;
    Some(match ok.opcode {
        WcOpcode::Recv => ok.byte_len as usize,
        WcOpcode::RecvRdmaWithImm => 0, // a WRITE fills no receive buffer
        _ => usize::MAX,
    })
}

/// Completes in any order. An ambiguous `wr_id` ends the comparison.
fn complete_shared(
    shared: &mut VecDeque<Posted>,
    wr_id: u64,
    filled: Option<usize>,
    findings: &mut Vec<Finding>,
) {
    let is_it = |posted: &&Posted| posted.subject.wr_id == wr_id;
    let is_known = shared.iter().filter(is_it).nth(1).is_none();
    if !is_known {
        let watches = shared.iter().filter(is_it).flat_map(|posted| &posted.watches);
        watches.for_each(|(id, _)| watch::doubt(*id));
    }
    let at = shared.iter().position(|posted| posted.subject.wr_id == wr_id);
    if let Some(posted) = at.and_then(|at| shared.remove(at)) {
        posted.finish(filled.filter(|_| is_known), findings);
    }
}

impl Posted {
    fn finish(self, filled: Option<usize>, findings: &mut Vec<Finding>) {
        for (id, before) in self.watches {
            match filled {
                Some(filled) => findings.extend(watch::finish(id, filled.saturating_sub(before))),
                None => watch::forget(id),
            }
        }
    }

    fn forget(self) {
        self.watches.into_iter().for_each(|(id, _)| watch::forget(id));
    }
}

impl RegionMemory {
    /// Process address; `None` if outside.
    fn at(&self, sge: &Sge) -> Option<usize> {
        let offset = usize::try_from(sge.address.checked_sub(self.iova)?).ok()?;
        let end = offset.checked_add(sge.length as usize)?;
        (end <= self.length).then(|| self.address.wrapping_add(offset))
    }
}
