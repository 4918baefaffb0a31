use alloc::{
    collections::{BTreeMap, VecDeque},
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::net::IpAddr;

use super::{Caller, Explain, Reason, history::History};
use crate::{
    bounded,
    event::{Disposition, DropReason, Refusal},
    ids::Qpn,
    qp::{Failure, State, Timer},
    time::Instant,
    trace::{Call, CallError, PacketRecord, Record, What},
    wire::{Ext, Syndrome},
    work::{Cause, WcError, WcStatus},
};

/// Latest records in a finding.
pub const KEPT: usize = 16;
/// Destroyed queue pairs whose late packets are ignored.
const GONE: usize = 256;
/// Local destinations checked once.
const ADDRESSED: usize = 64;
/// Unknown queue pairs already reported.
const UNKNOWN_QPS: usize = 16;

/// A failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Time.
    pub at: Instant,
    /// Queue pair; `None`: another object's call.
    pub qpn: Option<Qpn>,
    /// Call, request or packet.
    pub what: String,
    /// `what` is a call of the program.
    pub is_call: bool,
    /// Of the request's post.
    pub caller: Option<Caller>,
    /// Completion status.
    pub status: Option<WcStatus>,
    /// Reason.
    pub reason: Reason,
    /// The peer's response, or its absence.
    pub peer: Option<String>,
    /// Address of a silent peer.
    pub silent: Option<IpAddr>,
    /// Latest records, oldest first, at most [`KEPT`].
    pub latest: Vec<Record>,
}

impl Finding {
    /// Cause that requires no receiver at the [silent](Self::silent) address.
    pub const NOBODY: &str = "nobody_there";

    /// Finding without a queue pair.
    #[must_use]
    pub fn new(at: Instant, what: String, reason: Reason) -> Self {
        Self {
            at,
            qpn: None,
            what,
            is_call: false,
            caller: None,
            status: None,
            reason,
            peer: None,
            silent: None,
            latest: Vec::new(),
        }
    }

    /// Finding of a call without a queue pair.
    #[must_use]
    pub fn of_call(at: Instant, call: String, reason: Reason) -> Self {
        Self { is_call: true, ..Self::new(at, call, reason) }
    }
}

/// Bounded histories of queue pairs, which find failures in records.
#[derive(Debug, Default)]
pub struct Histories {
    /// With the latest records, oldest first.
    qps: BTreeMap<Qpn, (History, VecDeque<Record>)>,
    gone: VecDeque<Qpn>,
    unknown_qps: VecDeque<Qpn>,
    addressed: VecDeque<IpAddr>,
}

impl Histories {
    /// Takes the next record; returns its failure. `caller` gives that of a post.
    pub fn observe(
        &mut self,
        record: &Record,
        caller: impl FnOnce() -> Option<Caller>,
    ) -> Option<Finding> {
        let Record { at, qpn, what } = record;
        if let What::Call { call: Call::CreateQp(qp_type), result: Ok(()) } = what {
            self.qps.insert(*qpn, (History::new(*qp_type), VecDeque::new()));
        }
        let Some((history, latest)) = self.qps.get_mut(qpn) else {
            return self.record_other(record);
        };
        bounded::push(latest, record.clone(), KEPT);
        history.observe(*at, what, caller);
        let finding = match what {
            What::Call { call: Call::DestroyQp, result: Ok(()) } => {
                self.forget(*qpn);
                return None;
            }
            What::Call { call, result: Err(error) } => {
                of_call(*at, call, *error, Some(history.state))
            }
            What::Call { call: Call::PostSend { .. }, result: Ok(()) } => late(*at, history, what),
            What::State { to: State::Err | State::Sqe, failure, .. } => {
                failed(*at, history, *failure)
            }
            What::Arrived { packet, disposition: Disposition::Dropped(reason) } => {
                let is_new = reason.shows_a_mistake() && history.report_once(*reason);
                is_new.then(|| dropped(*at, packet, *reason))
            }
            What::Arrived {
                disposition: Disposition::NakReceived(Syndrome::RnrNak { .. }),
                ..
            } => waits_for_receiver(*at, history),
            What::Arrived {
                packet,
                disposition: Disposition::Refused(Syndrome::RnrNak { .. }, refusal),
            } => lacks_receive(*at, history, packet, *refusal),
            // reliable services report by their responses
            What::Sent { .. } if !history.qp_type.is_reliable() => {
                unreachable(*at, history, &mut self.addressed)
            }
            What::Timer(Timer::Acknowledge(_)) if history.heard_nothing() => {
                unreachable(*at, history, &mut self.addressed)
            }
            _ => None,
        };
        finding.map(|finding| Finding {
            qpn: Some(*qpn),
            latest: latest.iter().cloned().collect(),
            ..finding
        })
    }

    /// Latest records of a queue pair, oldest first.
    pub fn latest(&self, qpn: Qpn) -> impl Iterator<Item = &Record> {
        self.qps.get(&qpn).into_iter().flat_map(|(_, latest)| latest)
    }

    fn record_other(&mut self, Record { at, qpn, what }: &Record) -> Option<Finding> {
        if let Some((from, reason)) = unmatched_drop(what) {
            for (history, _) in self.qps.values_mut() {
                history.record_unmatched_drop(from, reason);
            }
        }
        match what {
            What::Call { call, result: Err(error) } => of_call(*at, call, *error, None),
            What::Arrived { packet, disposition: Disposition::Dropped(DropReason::UnknownQp) } => {
                let is_new = !packet.headers.bth().opcode.operation().is_response()
                    && !self.gone.contains(qpn)
                    && !self.unknown_qps.contains(qpn);
                is_new.then(|| {
                    bounded::push(&mut self.unknown_qps, *qpn, UNKNOWN_QPS);
                    dropped(*at, packet, DropReason::UnknownQp)
                })
            }
            _ => None,
        }
    }

    fn forget(&mut self, qpn: Qpn) {
        self.qps.remove(&qpn);
        bounded::push(&mut self.gone, qpn, GONE);
    }
}

/// Sender and reason of a malformed packet, or of a response to an unknown queue pair.
fn unmatched_drop(what: &What) -> Option<(IpAddr, DropReason)> {
    match what {
        What::Malformed { net, reason, .. } => Some((net.src, *reason)),
        What::Arrived { packet, disposition: Disposition::Dropped(reason) }
            if packet.headers.bth().opcode.operation().is_response() =>
        {
            Some((packet.net.src, *reason))
        }
        _ => None,
    }
}

/// A local destination that may have no receiver.
fn unreachable(at: Instant, history: &History, asked: &mut VecDeque<IpAddr>) -> Option<Finding> {
    let (address, qpn) = history.peer.filter(|(address, _)| address.is_loopback())?;
    if asked.contains(&address) {
        return None;
    }
    bounded::push(asked, address, ADDRESSED);
    let rule = format!(
        "no program of this user receives at {address}, the destination of queue pair {qpn}"
    );
    let advice = "check the peer's GID and that its program runs. 127.0.0.0/8 reaches only this \
                  host: for another host, both sides use the device of an interface (`roce run -d \
                  eth0`, or the program's option) and its GID";
    let reason = Reason::new(Finding::NOBODY, &rule, advice);
    let finding = Finding::new(at, "packets for a peer".to_string(), reason);
    Some(Finding { silent: Some(address), ..finding })
}

/// Connection management explains its own refusals.
fn of_call(at: Instant, call: &Call, error: CallError, state: Option<State>) -> Option<Finding> {
    if matches!(error, CallError::Connection(_)) {
        return None;
    }
    let what = match (call, state) {
        (Call::Modify(_) | Call::Update, Some(state)) => format!("ibv_{call}, from {state}"),
        (Call::Accept { .. } | Call::Connect { .. } | Call::Establish(_), _) => {
            format!("rdma_{call}")
        }
        _ => format!("ibv_{call}"),
    };
    Some(Finding::of_call(at, what, error.explain()))
}

/// A request posted in ERR.
fn late(at: Instant, history: &mut History, what: &What) -> Option<Finding> {
    let (since, failure) = history.failure.filter(|_| history.state == State::Err)?;
    if core::mem::replace(&mut history.flush_reported, true) {
        return None;
    }
    let What::Call { call, .. } = what else { return None };
    let status = WcStatus::WrFlushErr;
    let rule = format!(
        "the queue pair has been in ERR for {:?}, since {}: requests posted now are flushed",
        at.since(since),
        cause_of(failure)
    );
    let mut reason = Reason { rule, ..status.explain() };
    if failure == Failure::Asked {
        reason.advice = "expected while the program drains its queues; else post before ERR, or \
                         move the queue pair to RESET and connect it again"
            .into();
    }
    let finding = Finding::of_call(at, format!("ibv_{call}"), reason);
    Some(Finding { status: Some(status), ..finding })
}

fn cause_of(failure: Failure) -> String {
    match failure {
        Failure::Asked => "ibv_modify_qp to ERR, or the close of its connection".to_string(),
        other => other.to_string(),
    }
}

/// Transition to ERR or SQE.
fn failed(at: Instant, history: &History, failure: Failure) -> Option<Finding> {
    let completed = history.failed_at(at);
    let goes_into_err = |cause, advice: &'static str| {
        let reason = Reason::new(cause, &failure, advice);
        Some(Finding::new(at, "the queue pair goes into ERR".to_string(), reason))
    };
    match failure {
        Failure::Asked => None, // the program knows
        Failure::Request(error) => {
            let wr_id = completed.map(|(wr_id, _)| wr_id);
            let what = wr_id.map_or_else(|| "a request".to_string(), |id| history.request(id));
            let caller = wr_id.and_then(|id| history.sends.caller(id));
            Some(Finding { caller, ..of_request(at, history, what, error) })
        }
        Failure::Refused(syndrome, refusal) => {
            let what = match completed {
                Some((wr_id, _)) => format!("receive request {wr_id}"),
                None => format!("a request of the peer, refused with {syndrome}"),
            };
            let peer = history.arrived.as_ref().map(|packet| format!("sent {packet}"));
            let status = completed.map(|(_, error)| error.status);
            let caller = completed.and_then(|(wr_id, _)| history.receives.posts.caller(wr_id));
            let finding = Finding::new(at, what, refusal.explain());
            Some(Finding { status, caller, peer, ..finding })
        }
        Failure::Receive => {
            let (wr_id, error) = completed?;
            let finding = Finding::new(at, format!("receive request {wr_id}"), error.explain());
            let peer = history.arrived.as_ref().map(|packet| format!("sent {packet}"));
            let caller = history.receives.posts.caller(wr_id);
            Some(Finding { status: Some(error.status), caller, peer, ..finding })
        }
        Failure::CqOverrun(_) => goes_into_err(
            "cq_overrun",
            "make the completion queue with cqe for every request that can be posted to its queue \
             pairs (≥ the sum of their max_send_wr and max_recv_wr), or poll before you post more",
        ),
        Failure::Injected => goes_into_err(
            "fault",
            "the rule comes from ROCE_FAULT, `roce run --fault` or `roce fault`",
        ),
        Failure::Device => goes_into_err(
            "device_fatal",
            "reading the device's sockets fails: close the device and open it again",
        ),
    }
}

fn of_request(at: Instant, history: &History, what: String, error: WcError) -> Finding {
    let mut reason = error.explain();
    let (mut peer, mut silent) = (None, None);
    match error.cause {
        Cause::NoResponse { tries } => {
            peer = Some(history.responses(at));
            let is_silent = error.status == WcStatus::RetryExcErr;
            silent = history.peer.filter(|_| is_silent).map(|(address, _)| address);
            let tries_of_it = if tries == 1 { "1 try".into() } else { format!("{tries} tries") };
            reason.rule = format!("given up after {tries_of_it}");
            if is_silent {
                explain_silence(&mut reason, history, tries);
            } else if tries == 1 {
                reason.rule += ": rnr_retry is 0";
            }
        }
        Cause::Responder(syndrome) => peer = Some(format!("sent {syndrome}")),
        Cause::Flushed
        | Cause::Access(_)
        | Cause::TooLong { .. }
        | Cause::TooShort { .. }
        | Cause::Bind(_)
        | Cause::NotAWord { .. }
        | Cause::NoReadsAllowed
        | Cause::ResponseMismatch
        | Cause::Refused(_)
        | Cause::NoRoute
        | Cause::ForeignAddressHandle
        | Cause::WrongOperation
        | Cause::Injected => {}
    }
    let finding = Finding::new(at, what, reason);
    Finding { status: Some(error.status), peer, silent, ..finding }
}

fn explain_silence(reason: &mut Reason, history: &History, tries: u8) {
    if tries == 1 {
        reason.rule += ": retry_cnt is 0";
    }
    if history.has_psn_mismatch() {
        reason.cause = "wrong_psn";
        reason.rule += ": the peer uses other PSNs";
        reason.advice = DropReason::ResponseOutsideWindow.explain().advice;
    } else if let Some(obstacle) = history.obstacle() {
        reason.rule += ": the peer's responses were dropped";
        reason.advice = obstacle.advice_for_responses();
    } else if tries == 1 {
        reason.advice = format!(
            "retry_cnt (retry_count of rdma_connect) is 0: one lost packet ends the connection; \
             set it to 7; or {}",
            reason.advice
        )
        .into();
    } else if !history.heard_nothing() {
        reason.advice =
            "the peer responded earlier: its program ended, its queue pair is destroyed or in ERR \
             or RESET, or the network failed or drops more packets than timeout and retry_cnt \
             allow"
                .into();
    }
}

/// The peer refuses a request for long.
fn waits_for_receiver(at: Instant, history: &mut History) -> Option<Finding> {
    let (time, naks) = history.waits_for_receiver(at)?;
    let rule = format!("the peer has had no receive request for {time:.1?}: {naks} RNR NAKs");
    let reason = Reason { rule, ..WcStatus::RnrRetryExcErr.explain() };
    let (what, caller) = history.oldest_request();
    Some(Finding { caller, ..Finding::new(at, what, reason) })
}

/// A request of the peer is refused for long.
fn lacks_receive(
    at: Instant,
    history: &mut History,
    packet: &PacketRecord,
    refusal: Refusal,
) -> Option<Finding> {
    let (time, naks) = history.lacks_receive(at)?;
    let mut reason = refusal.explain();
    reason.rule = format!("{refusal} for {time:.1?}: {naks} RNR NAKs");
    if history.receives.discarded > 0 {
        reason.rule +=
            &format!("; RESET has discarded {} receive requests", history.receives.discarded);
    }
    reason.advice = format!(
        "{}; the limit of a shared receive queue is for one event: arm it again after each \
         IBV_EVENT_SRQ_LIMIT_REACHED",
        reason.advice
    )
    .into();
    let finding = Finding::new(at, "a request of the peer".to_string(), reason);
    Some(Finding { peer: Some(format!("sent {packet}")), ..finding })
}

/// A dropped packet that nothing else reports.
fn dropped(at: Instant, packet: &PacketRecord, reason: DropReason) -> Finding {
    let mut explained = reason.explain();
    match (reason, packet.headers.ext()) {
        (DropReason::QKey, Ext::Deth(deth) | Ext::DethImm(deth, _)) => {
            explained.rule = format!("{}: the packet has {:#010x}", explained.rule, deth.qkey.0);
        }
        (DropReason::PKey, _) => {
            let pkey = packet.headers.bth().pkey;
            explained.rule = format!("{}: the packet has {:#06x}", explained.rule, pkey.0);
        }
        _ => {}
    }
    let what = format!("a packet from {} was dropped", packet.net.src);
    let finding = Finding::new(at, what, explained);
    Finding {
        peer: Some(format!("sent {packet}")),
        qpn: Some(packet.headers.bth().dest_qp),
        ..finding
    }
}
