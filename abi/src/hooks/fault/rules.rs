//! Fault rules, from the environment and at runtime (`ROCE_CONTROL`).

use std::{
    io, process,
    sync::atomic::{AtomicU32, Ordering},
};

use roce_provider::{
    attend_rules,
    calls::Call,
    control::{self, Listening},
    environment::{self, CALLS, FAULT, FAULT_SEED},
    fabric::clause::Counts,
    faults::{CallEffect, CallFaults, CallId, FaultRules, devices, live},
    report,
};

use super::counts;
use crate::sync::Mutex;

static RULES: Mutex<Option<Rules>> = Mutex::new(None);
/// Process that listens; a forked child listens itself.
static LISTENS: AtomicU32 = AtomicU32::new(0);

struct Rules {
    calls: CallFaults,
    next: u64,
    listening: Option<Listening>,
}

/// Opening a device reports the errors.
fn from_environment() -> FaultRules {
    let text = environment::value(FAULT).and_then(|text| text.into_string().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// True if devices must be ready for later rules.
fn has_live_rules() -> bool {
    control::is_wanted() || !from_environment().devices.is_empty()
}

/// True if calls are counted, or rules exist or may come.
pub(super) fn at_load() -> bool {
    let mut given = from_environment();
    if given.calls.is_empty() && !has_live_rules() && environment::value(CALLS).is_none() {
        return false;
    }
    counts::begin();
    let seed = environment::value(FAULT_SEED).and_then(|seed| seed.into_string().ok());
    let seed = seed.and_then(|seed| environment::parse_seed(seed.trim())).unwrap_or(0);
    let mut rules = Rules { calls: CallFaults::new(seed), next: 1, listening: None };
    devices::set_seed(seed);
    if has_live_rules() {
        live::enable();
    } else {
        given.packet_clauses.clear(); // links have them
    }
    if let Err(problem) = rules.add(given) {
        report::line(problem);
    }
    *RULES.lock() = Some(rules);
    listen();
    true
}

fn listen() {
    let own = process::id();
    if !control::is_wanted() || LISTENS.swap(own, Ordering::SeqCst) == own {
        return;
    }
    let started = control::start(answer);
    if let Err(error) = &started {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another process listens on it".to_owned(),
            _ => error.to_string(),
        };
        report::line(format_args!("ROCE_CONTROL: rules cannot be added later: {why}"));
    }
    let before = RULES
        .lock()
        .as_mut()
        .and_then(|rules| std::mem::replace(&mut rules.listening, started.ok()));
    drop(before);
}

pub(super) fn at_end() {
    let listening = RULES.lock().as_mut().and_then(|rules| rules.listening.take());
    drop(listening);
}

fn answer(command: &str) -> Result<Vec<String>, String> {
    let _call = Call::begin();
    let answer = obey(command);
    attend_rules(); // unlocked: calls take the rules' lock
    answer
}

fn obey(command: &str) -> Result<Vec<String>, String> {
    let mut rules = RULES.lock();
    let rules = rules.as_mut().ok_or("the process ends")?;
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        [] => Err("the command is empty; write a rule, list, or clear".to_owned()),
        ["list"] => Ok(rules.list()),
        ["clear"] => {
            rules.retain(|_| false);
            Ok(Vec::new())
        }
        ["clear", number] => {
            let number = number
                .parse::<u64>()
                .ok()
                .filter(|number| rules.all().iter().any(|(known, ..)| known == number))
                .ok_or_else(|| format!("rule {number} does not exist; list shows the rules"))?;
            rules.retain(|other| other != number);
            Ok(Vec::new())
        }
        _ => {
            let given = command.parse::<FaultRules>().map_err(|error| error.to_string())?;
            let first = rules.next;
            rules.add(given)?;
            Ok((first..rules.next).map(|number| number.to_string()).collect())
        }
    }
}

impl Rules {
    /// Adds all rules or none.
    fn add(&mut self, given: FaultRules) -> Result<(), String> {
        let FaultRules { calls, packet_clauses, devices: of_devices, .. } = given;
        let mut next = self.next;
        let mut numbered = || {
            next += 1;
            next - 1
        };
        let clauses: Vec<_> =
            packet_clauses.into_iter().map(|clause| (numbered(), clause)).collect();
        if !clauses.is_empty() {
            live::add(clauses).map_err(|error| error.to_string())?;
        }
        for (text, rule) in calls {
            self.calls.add(numbered(), text, rule);
        }
        for (text, rule) in of_devices {
            devices::add(numbered(), text, rule);
        }
        self.next = next;
        Ok(())
    }

    fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.calls.retain(&keep);
        live::retain(&keep);
        devices::retain(keep);
    }

    fn all(&self) -> Vec<(u64, String, Option<Counts>)> {
        [self.calls.list(), live::list(), devices::list()].concat()
    }

    /// Lists number, hits and matches; `-` without counters.
    fn list(&self) -> Vec<String> {
        let mut all = self.all();
        all.sort_by_key(|(number, ..)| *number);
        all.into_iter()
            .map(|(number, text, counts)| match counts {
                Some(counts) => format!("{number} {} of {} {text}", counts.hits, counts.seen),
                None => format!("{number} - {text}"),
            })
            .collect()
    }
}

pub(super) fn decide(call: CallId) -> Option<(u64, CallEffect)> {
    listen();
    let decided = RULES.lock().as_mut()?.calls.decide(call);
    counts::count(call, matches!(decided, Some((_, CallEffect::Fail(_)))));
    decided
}

pub(super) fn text(number: u64) -> String {
    let rules = RULES.lock();
    rules.as_ref().and_then(|rules| rules.calls.text(number)).unwrap_or_default().to_owned()
}

pub(super) fn has(number: u64) -> bool {
    let rules = RULES.lock();
    rules.as_ref().is_some_and(|rules| rules.calls.text(number).is_some())
}
