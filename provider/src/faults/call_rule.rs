//! Call rules.

use std::time::Duration;

use libc::c_int;

use super::calls::CallId;
use crate::{
    errnos,
    fabric::clause::{Chance, Counts, Often, Words, set, time},
};

/// Effect on a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallEffect {
    /// Failure with this error or the default, without effect.
    Fail(Option<c_int>),
    /// Delay; `None`: until the rule is removed.
    Wait(Option<Duration>),
}

/// Call rule; the first hit decides.
#[derive(Clone, PartialEq, Debug)]
pub struct CallRule {
    calls: Vec<CallId>,
    often: Often,
    effect: CallEffect,
}

impl CallRule {
    pub(super) const WORDS: [&str; 3] = ["fail", "slow", "hang"];

    pub(super) fn parse(mut words: Words<'_>) -> Result<Self, String> {
        let verb = words.next().unwrap_or_default();
        let (example, more) = match verb {
            "fail" => ("fail create_cq nth 2 ENOMEM", "the name of an error (ENOMEM)"),
            "slow" => ("slow modify_qp every 3 by 10ms", "by TIME"),
            _ => ("hang poll_cq 20ms 1%", "a time (20ms)"),
        };
        let word = words.value(verb, example)?;
        let calls = CallId::named(word);
        if calls.is_empty() {
            return Err(format!("unknown call \"{word}\"; expected {}", CallId::similar(word)));
        }
        let (mut often, mut errno, mut length) = (Often::default(), None, None);
        while let Some(word) = words.next() {
            if often.take(word, &mut words)? {
                continue;
            }
            match (verb, word) {
                ("slow", "by") => set(&mut length, time(words.value("by", "by 10ms")?)?, "times")?,
                ("hang", _) if word.starts_with(|c: char| c.is_ascii_digit()) => {
                    set(&mut length, time(word)?, "times")?;
                }
                ("fail", _) if word.starts_with(['E', 'e']) => {
                    let number = errnos::number(word).ok_or_else(|| {
                        format!(
                            "unknown error \"{word}\"; expected EINVAL, ENOMEM, \
                             EAGAIN, EIO, EBUSY, EPERM and others of errno(3)"
                        )
                    })?;
                    set(&mut errno, number, "errors")?;
                }
                _ => {
                    return Err(format!(
                        "unknown word \"{word}\"; expected {}, {more}",
                        Often::WORDS
                    ));
                }
            }
        }
        let effect = match verb {
            "fail" => CallEffect::Fail(errno),
            "slow" if length.is_none() => {
                return Err(format!("no time is given; write for example \"{example}\""));
            }
            _ => CallEffect::Wait(length),
        };
        Ok(Self { calls, often, effect })
    }
}

/// Call rules with counters.
#[derive(Debug)]
pub struct CallFaults {
    rules: Vec<(u64, String, CallRule, Counts)>,
    chance: Chance,
}

impl CallFaults {
    /// Creates an empty set.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { rules: Vec::new(), chance: Chance::new(!seed.rotate_left(32)) }
    }

    /// Appends a rule under this number.
    pub fn add(&mut self, number: u64, text: String, rule: CallRule) {
        self.rules.push((number, text, rule, Counts::default()));
    }

    /// Removes rules that `keep` rejects.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.rules.retain(|(number, ..)| keep(*number));
    }

    /// Rules with numbers and counters.
    #[must_use]
    pub fn list(&self) -> Vec<(u64, String, Option<Counts>)> {
        let all = self.rules.iter();
        all.map(|(number, text, _, counts)| (*number, text.clone(), Some(*counts))).collect()
    }

    /// A rule's text.
    #[must_use]
    pub fn text(&self, number: u64) -> Option<&str> {
        self.rules.iter().find(|(of, ..)| *of == number).map(|(_, text, ..)| &**text)
    }

    /// Effect on a call, and its rule.
    pub fn decide(&mut self, call: CallId) -> Option<(u64, CallEffect)> {
        let Self { rules, chance } = self;
        let mut concerned = rules.iter_mut().filter(|(_, _, rule, _)| rule.calls.contains(&call));
        concerned.find_map(|(number, _, rule, counts)| {
            counts.hits(rule.often, chance).then_some((*number, rule.effect))
        })
    }
}

/// Error number and name of a failing call.
#[must_use]
pub fn error_of(call: CallId, errno: Option<c_int>) -> (c_int, &'static str) {
    let number = errno.unwrap_or(call.failing().errno);
    (number, errnos::name(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Effects on `number` calls in turn.
    fn play(rules: &[&str], call: &str, number: usize) -> String {
        let mut faults = CallFaults::new(1);
        for (number, rule) in rules.iter().enumerate() {
            let parsed = CallRule::parse(Words::of(rule)).unwrap();
            faults.add(number as u64, (*rule).to_owned(), parsed);
        }
        let call = CallId::of(call).unwrap();
        (0..number)
            .map(|_| match faults.decide(call) {
                None => '.',
                Some((_, CallEffect::Fail(_))) => 'x',
                Some((_, CallEffect::Wait(_))) => 'w',
            })
            .collect()
    }

    #[test]
    fn the_first_rule_that_hits_decides() {
        assert_eq!(play(&["fail create_cq nth 2 ENOMEM"], "ibv_create_cq", 4), ".x..");
        assert_eq!(play(&["fail create_cq"], "ibv_create_qp", 2), "..");
        assert_eq!(play(&["fail post_send once EINVAL"], "ibv_post_send", 3), "x..");
        assert_eq!(play(&["slow qp every 3 by 10ms"], "ibv_modify_qp", 7), "..w..w.");
        assert_eq!(play(&["hang poll_cq 20ms twice", "fail any"], "ibv_poll_cq", 4), "wwxx");
        let by_chance = play(&["fail reg_mr 10% EAGAIN"], "ibv_reg_mr", 1000);
        let hits = by_chance.matches('x').count();
        assert!((60..140).contains(&hits), "{hits}");
        assert_eq!(play(&["fail reg_mr 10% EAGAIN"], "ibv_reg_mr", 1000), by_chance, "by the seed");
    }

    #[test]
    fn errors_are_the_calls_own_unless_the_rule_names_one() {
        let cq = CallId::of("ibv_create_cq").unwrap();
        assert_eq!(error_of(cq, None), (libc::ENOMEM, "ENOMEM"));
        let rule = CallRule::parse(Words::of("fail create_cq eperm")).unwrap();
        assert_eq!(rule.effect, CallEffect::Fail(Some(libc::EPERM)));
        assert_eq!(error_of(cq, Some(libc::EPERM)), (libc::EPERM, "EPERM"));
    }
}
