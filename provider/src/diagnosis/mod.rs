//! Explanations of failures on stderr.
//!
//! A device's [`Diagnosis`] has a [sink](roce_transport::trace::Sink) of its record, which queues
//! failures under the engine's lock. A thread that released the lock reports them. A failed call's
//! own thread reports that call.

mod explanation;
mod limit;

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc, LazyLock, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use roce_transport::{
    event::Event,
    explain::{Explain, Finding, Histories, Reason},
    ids::Qpn,
    trace::{Record, Sink, Trace},
};

pub use explanation::ExplainFormat;

use crate::{
    calls::Call,
    clock,
    report::{self, at_exit},
    sync::Mutex,
    variables,
};
use limit::Limit;

const WAITING: usize = 64;
/// Longest wait for a running report at exit.
const AT_EXIT: Duration = Duration::from_millis(200);

/// Each report is made once.
static REPORTED: LazyLock<Mutex<Limit>> = LazyLock::new(|| Mutex::new(Limit::default()));
static REPORTING: AtomicU32 = AtomicU32::new(0);
/// Devices that explain, for the report at exit.
static DEVICES: Mutex<Vec<Weak<Found>>> = Mutex::new(Vec::new());

/// Form that the environment requests, read once.
pub(crate) fn format() -> Option<ExplainFormat> {
    static FORMAT: LazyLock<Option<ExplainFormat>> = LazyLock::new(|| {
        let value = variables::value(variables::EXPLAIN).filter(|value| value != "0")?;
        Some(if value == "json" { ExplainFormat::Json } else { ExplainFormat::Text })
    });
    *FORMAT
}

/// Explains a failed C call without a device, if the environment requests it.
pub fn explain_call(call: &str, reason: impl FnOnce() -> Reason) {
    if let Some(format) = format() {
        report_call(format, call, reason());
    }
}

/// Facts about a silent peer; `None`: nobody has the address.
pub(crate) type AboutPeer = fn(IpAddr) -> Option<Vec<String>>;

/// Error names of a profile's adapter.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Errnos {
    /// Object beyond the limit.
    pub(crate) objects: Option<&'static str>,
    /// Object that the adapter lacks.
    pub(crate) missing: Option<&'static str>,
    /// Size beyond the limit.
    pub(crate) sizes: Option<&'static str>,
}

impl Errnos {
    fn of(&self, cause: &str) -> Option<&'static str> {
        match cause {
            "too_many_objects" | "too_many_regions" | "device_memory_used_up" => self.objects,
            "no_such_objects" => self.missing,
            "object_size" => self.sizes,
            _ => None,
        }
    }
}

pub(crate) struct Diagnosis {
    pub(crate) found: Arc<Found>,
    errnos: Errnos,
}

/// Failures of a device.
pub(crate) struct Found {
    format: ExplainFormat,
    device: String,
    about_peer: AboutPeer,
    /// A forked child reports none of the parent's failures.
    process: u32,
    state: Mutex<State>,
    any: AtomicBool,
}

#[derive(Default)]
struct State {
    histories: Histories,
    /// Findings to report, with their threads.
    waiting: VecDeque<(Finding, ThreadId)>,
}

impl State {
    /// Has this thread report all findings.
    fn take_over(&mut self) {
        let this = thread::current().id();
        self.waiting.iter_mut().for_each(|(_, thread)| *thread = this);
    }
}

/// Called under the engine's lock.
struct Finder {
    found: Arc<Found>,
    other: Option<Box<dyn Sink>>,
}

impl Sink for Finder {
    fn record(&mut self, record: Record) {
        let mut state = self.found.state.lock();
        if let Some(finding) = state.histories.observe(&record, report::caller) {
            self.found.add(&mut state, finding);
        }
        drop(state);
        if let Some(other) = &mut self.other {
            other.record(record);
        }
    }
}

impl Found {
    fn new(format: ExplainFormat, device: &str, about_peer: AboutPeer) -> Self {
        Self {
            format,
            device: device.to_owned(),
            about_peer,
            process: std::process::id(),
            state: Mutex::default(),
            any: AtomicBool::new(false),
        }
    }

    /// Adds a failure event, under the engine's lock.
    pub(crate) fn add_event(&self, event: Event) {
        let finding = Finding::new(clock::now(), event.to_string(), event.explain());
        self.add(&mut self.state.lock(), finding);
    }

    fn add(&self, state: &mut State, finding: Finding) {
        if state.waiting.len() < WAITING {
            state.waiting.push_back((finding, thread::current().id()));
            self.any.store(true, Ordering::SeqCst);
        }
    }

    /// Next finding for this thread.
    fn next(&self) -> Option<Finding> {
        let mut state = self.state.lock();
        let this = thread::current().id();
        // another thread's call is on that thread's stack
        let is_own = |(finding, thread): &(Finding, _)| !finding.is_call || *thread == this;
        let next = state.waiting.iter().position(is_own);
        let next = next.and_then(|next| state.waiting.remove(next));
        if state.waiting.is_empty() {
            self.any.store(false, Ordering::SeqCst);
        }
        next.map(|(finding, _)| finding)
    }
}

impl Diagnosis {
    /// Adds a sink to `trace`, beside an existing sink.
    pub(crate) fn new(
        format: ExplainFormat,
        device: &str,
        about_peer: AboutPeer,
        errnos: Errnos,
        trace: &mut Trace,
    ) -> Self {
        let found = Arc::new(Found::new(format, device, about_peer));
        trace.sink = Some(Box::new(Finder { found: found.clone(), other: trace.sink.take() }));
        let _call = Call::begin();
        at_exit(report_rest);
        let mut devices = DEVICES.lock();
        devices.retain(|found| found.strong_count() > 0);
        devices.push(Arc::downgrade(&found));
        Self { found, errnos }
    }

    /// Reports the findings, without a contended lock. An empty queue costs one load.
    pub(crate) fn report(&self, link_error: impl Fn() -> Option<String>) {
        if self.found.any.load(Ordering::Relaxed) {
            report(&self.found, &link_error);
        }
    }

    /// Reports the findings of all threads, at the device's end.
    pub(crate) fn report_rest(&self, link_error: impl Fn() -> Option<String>) {
        self.found.state.lock().take_over();
        self.report(link_error);
    }

    /// Reports a call that failed before the adapter.
    pub(crate) fn report_call(&self, qpn: Option<Qpn>, call: &str, reason: Reason) {
        let reason = match self.errnos.of(reason.cause) {
            Some(errno) => reason.with_errno(errno),
            None => reason,
        };
        let mut finding = Finding::of_call(clock::now(), call.to_owned(), reason);
        let _call = Call::begin(); // no fork under the lock
        finding.qpn = qpn;
        finding.latest = qpn.map_or_else(Vec::new, |qpn| {
            self.found.state.lock().histories.latest(qpn).cloned().collect()
        });
        write(self.found.format, Some(&self.found.device), &finding, &[]);
    }
}

pub(crate) fn report_call(format: ExplainFormat, call: &str, reason: Reason) {
    let _call = Call::begin();
    write(format, None, &Finding::of_call(clock::now(), call.to_owned(), reason), &[]);
}

#[cold]
fn report(found: &Found, link_error: &dyn Fn() -> Option<String>) {
    if found.process != std::process::id() {
        return;
    }
    let _call = Call::begin(); // no fork or cancellation under locks
    REPORTING.fetch_add(1, Ordering::SeqCst);
    while let Some(finding) = found.next() {
        let mut others = Vec::new();
        if let Some(address) = finding.silent {
            match ((found.about_peer)(address), finding.reason.cause) {
                (Some(_), Finding::NOBODY) => continue,
                (Some(known), _) => others = known,
                (None, Finding::NOBODY) => {}
                (None, _) => others.push(format!("no program of this user has {address} open")),
            }
            others.extend(link_error().map(|error| format!("the link could not send: {error}")));
        }
        write(found.format, Some(&found.device), &finding, &others);
    }
    REPORTING.fetch_sub(1, Ordering::SeqCst);
}

fn write(format: ExplainFormat, device: Option<&str>, finding: &Finding, others: &[String]) {
    let Some(left_out) = REPORTED.lock().admit(device, finding, clock::now()) else { return };
    // a call is reported by its own thread
    let caller = if finding.is_call { report::caller() } else { finding.caller };
    let caller = caller.and_then(report::name);
    let report = explanation::report(device, finding, others, caller, left_out);
    report::write(&report.in_form(format == ExplainFormat::Json));
}

extern "C" fn report_rest() {
    let start = clock::now();
    let devices = DEVICES.try_lock().map(|devices| devices.clone()).unwrap_or_default();
    for found in devices.iter().filter_map(Weak::upgrade) {
        let Some(mut state) = found.state.try_lock() else { continue };
        state.take_over();
        drop(state);
        report(&found, &|| None);
    }
    while REPORTING.load(Ordering::SeqCst) > 0 && clock::now().since(start) < AT_EXIT {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_is_reported_by_its_thread() {
        let found = Found::new(ExplainFormat::Text, "test", |_| None);
        let finding = |name: &'static str| {
            let reason = Reason::new("cause", &"rule", "advice");
            Finding::of_call(clock::now(), name.to_owned(), reason)
        };
        let add = |finding| found.add(&mut found.state.lock(), finding);
        let next = || found.next().map(|finding| finding.what);
        add(finding("call"));
        add(Finding { is_call: false, ..finding("request") });
        thread::scope(|scope| {
            let others = scope.spawn(|| (next(), next())).join().unwrap();
            assert_eq!(others, (Some("request".to_owned()), None));
        });
        assert!(found.any.load(Ordering::SeqCst));
        assert_eq!((next(), next()), (Some("call".to_owned()), None));
        assert!(!found.any.load(Ordering::SeqCst));
    }
}
