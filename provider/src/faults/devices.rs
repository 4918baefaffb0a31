//! Device rules of this process.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
};

use roce_transport::{
    addr::Qpn,
    cm::RequestFaults,
    qp::{Completing, CompletionFaults},
    time::Instant,
    work::WcStatus,
};

use super::device_rule::{DeviceRule, Incident};
use crate::{
    fabric::clause::{Chance, Counts},
    sync::Mutex,
};

/// Incremented with every change.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static RULES: Mutex<Option<Rules>> = Mutex::new(None);

struct Rules {
    all: Vec<(u64, String, DeviceRule, Counts)>,
    chance: Chance,
}

fn with<R>(act: impl FnOnce(&mut Rules) -> R) -> R {
    let mut rules = RULES.lock();
    act(rules.get_or_insert_with(|| Rules { all: Vec::new(), chance: Chance::new(0) }))
}

/// Seeds probabilistic rules.
pub fn set_seed(seed: u64) {
    with(|rules| rules.chance = Chance::new(seed.rotate_left(16)));
}

/// Adds a rule under its number.
pub fn add(number: u64, text: String, rule: DeviceRule) {
    with(|rules| rules.all.push((number, text, rule, Counts::default())));
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

/// Removes rules that `keep` rejects.
pub fn retain(keep: impl Fn(u64) -> bool) {
    with(|rules| rules.all.retain(|(number, ..)| keep(*number)));
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

/// Rules with numbers and counters.
#[must_use]
pub fn list() -> Vec<(u64, String, Option<Counts>)> {
    with(|rules| {
        let all = rules.all.iter();
        all.map(|(number, text, _, counts)| (*number, text.clone(), Some(*counts))).collect()
    })
}

#[derive(Debug)]
pub(crate) struct FaultInjector;

impl CompletionFaults for FaultInjector {
    fn judge(&mut self, completing: &Completing) -> Option<WcStatus> {
        with(|Rules { all, chance }| {
            let mut concerned = all.iter_mut().filter(|(_, _, rule, _)| rule.concerns(completing));
            concerned.find_map(|(_, _, rule, counts)| {
                let DeviceRule::Complete { often, status, .. } = *rule else { return None };
                counts.hits(often, chance).then_some(status)
            })
        })
    }
}

impl RequestFaults for FaultInjector {
    fn rejects(&mut self) -> bool {
        with(|Rules { all, chance }| {
            all.iter_mut().any(|(_, _, rule, counts)| match *rule {
                DeviceRule::Reject(often) => counts.hits(often, chance),
                _ => false,
            })
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Start or stop asking the [`FaultInjector`].
    Enable(bool),
    /// Move a queue pair, or each, to ERR.
    QpFatal(Option<Qpn>),
    /// Take the port down, or up.
    Port(bool),
    GidChange,
    DeviceFatal,
}

#[derive(Debug, Default)]
pub(crate) struct Schedule {
    generation: u64,
    known: BTreeSet<u64>,
    /// Pending actions with their rule's number, the earliest last.
    waiting: Vec<(Instant, u64, Due)>,
    is_needed: bool,
}

impl Schedule {
    /// Due action under the present rules.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Due> {
        let generation = GENERATION.load(Ordering::Relaxed);
        if self.generation != generation {
            self.generation = generation;
            self.follow(now);
            let is_timed = |rule: &DeviceRule| matches!(rule, DeviceRule::At { .. });
            let is_needed = with(|rules| rules.all.iter().any(|(_, _, rule, _)| !is_timed(rule)));
            if std::mem::replace(&mut self.is_needed, is_needed) != is_needed {
                return Some(Due::Enable(is_needed));
            }
        }
        let (_, number, due) = self.waiting.pop_if(|(at, ..)| *at <= now)?;
        with(|rules| {
            if let Some((.., counts)) = rules.all.iter_mut().find(|(of, ..)| *of == number)
                && due != Due::Port(true)
            {
                counts.seen += 1;
                counts.hits += 1;
            }
        });
        Some(due)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.last().map(|(at, ..)| *at)
    }

    fn follow(&mut self, now: Instant) {
        let rules: Vec<(u64, DeviceRule)> =
            with(|rules| rules.all.iter().map(|(number, _, rule, _)| (*number, *rule)).collect());
        let numbers: BTreeSet<u64> = rules.iter().map(|(number, _)| *number).collect();
        // A removed rule's port comes back up.
        for (at, number, due) in &mut self.waiting {
            if *due == Due::Port(true) && !numbers.contains(number) {
                *at = now;
            }
        }
        self.waiting.retain(|(_, number, due)| *due == Due::Port(true) || numbers.contains(number));
        for (number, rule) in rules {
            let DeviceRule::At { after, incident } = rule else { continue };
            if !self.known.insert(number) {
                continue;
            }
            let at = now.plus(after);
            let due = match incident {
                Incident::QpFatal(qpn) => Due::QpFatal(qpn),
                Incident::PortDown(length) => {
                    // down until the rule is removed
                    let back =
                        length.map_or(Instant::from_nanos(u64::MAX), |length| at.plus(length));
                    self.waiting.push((back, number, Due::Port(true)));
                    Due::Port(false)
                }
                Incident::GidChange => Due::GidChange,
                Incident::DeviceFatal => Due::DeviceFatal,
            };
            self.waiting.push((at, number, due));
        }
        // at equal times, the first rule first
        self.waiting.sort_by_key(|(at, number, due)| {
            std::cmp::Reverse((*at, *number, *due == Due::Port(true)))
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO.plus(Duration::from_millis(milliseconds))
    }

    fn rule(text: &str) -> DeviceRule {
        let rules: crate::faults::FaultRules = text.parse().unwrap();
        rules.devices[0].1
    }

    /// One test: rules are process-wide.
    #[test]
    fn incidents_come_at_their_times() {
        add(1, String::new(), rule("qp 0x12 fatal after 2s"));
        add(2, String::new(), rule("port down at 1s for 500ms"));
        add(3, String::new(), rule("gid change"));
        let mut schedule = Schedule::default();
        let mut poll = |milliseconds| schedule.poll(at(milliseconds));
        assert_eq!(poll(0), Some(Due::GidChange));
        assert_eq!([poll(0), poll(999)], [None; 2]);
        assert_eq!([poll(1000), poll(1499)], [Some(Due::Port(false)), None]);
        assert_eq!([poll(1500), poll(1999)], [Some(Due::Port(true)), None]);
        assert_eq!([poll(2000), poll(9999)], [Some(Due::QpFatal(Some(Qpn::new(0x12)))), None]);
        // comes back with the rule's removal
        add(4, String::new(), rule("port down"));
        assert_eq!([poll(10_000), poll(90_000)], [Some(Due::Port(false)), None]);
        assert_eq!(list().iter().map(|(.., counts)| counts.unwrap().hits).sum::<u64>(), 4);
        retain(|number| number != 4);
        assert_eq!([poll(90_001), poll(90_001)], [Some(Due::Port(true)), None]);
        // Earlier time on other devices has no effect.
        add(5, String::new(), rule("complete send nth 2 with RETRY_EXC_ERR"));
        add(6, String::new(), rule("device fatal at 3s"));
        assert_eq!([poll(100_000), poll(102_999)], [Some(Due::Enable(true)), None]);
        assert_eq!(schedule.deadline(), Some(at(103_000)));
        assert_eq!(schedule.poll(at(103_000)), Some(Due::DeviceFatal));
        retain(|_| false);
        assert_eq!(schedule.poll(at(103_000)), Some(Due::Enable(false)));
        assert_eq!(schedule.deadline(), None);
    }
}
