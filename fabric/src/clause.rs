//! Words of fault clauses.

mod quantity;

use std::sync::{Arc, Mutex, PoisonError};

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use thiserror::Error;

use crate::rule::Frequency;
pub use crate::rule::Often;
pub use quantity::{percentage, time};
pub(crate) use quantity::{rate, size};

/// Error in a [`FaultPlan`](crate::FaultPlan) or rule.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("in the fault \"{clause}\": {problem}")]
pub struct FaultSyntaxError {
    /// Wrong clause.
    pub clause: String,
    /// Mistake and remedy.
    pub problem: String,
}

impl FaultSyntaxError {
    /// Error in one line.
    #[must_use]
    pub fn new(clause: &str, problem: String) -> Self {
        Self { clause: Words::of(clause).words.join(" "), problem }
    }
}

/// Splits a text into clauses.
pub fn clauses(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ';']).map(str::trim).filter(|clause| !clause.is_empty())
}

/// Words of a clause.
#[derive(Debug)]
pub struct Words<'a> {
    pub(crate) words: Vec<&'a str>,
    pub(crate) at: usize,
}

impl<'a> Words<'a> {
    /// Splits a clause into words.
    #[must_use]
    pub fn of(clause: &'a str) -> Self {
        Self { words: clause.split_whitespace().collect(), at: 0 }
    }

    /// Takes the next word.
    #[expect(clippy::should_implement_trait, reason = "words are looked ahead at, too")]
    pub fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied()?;
        self.at += 1;
        Some(word)
    }

    /// The next word, not taken.
    #[must_use]
    pub fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    /// Takes the word after `what`; the error shows `example`.
    pub fn value(&mut self, what: &str, example: &str) -> Result<&'a str, String> {
        self.next()
            .ok_or_else(|| format!("\"{what}\" needs a value; write for example \"{example}\""))
    }
}

/// Sets a value once.
pub fn set<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("one clause has two {what}; write two clauses")),
    }
}

/// Parses a number below 2^24, decimal or `0x`; the error shows `example`.
pub fn number(word: &str, example: &str) -> Result<u32, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => word.parse(),
    };
    match parsed {
        Ok(number) if number < 1 << 24 => Ok(number),
        _ => Err(format!("\"{word}\" is not a number below 2^24; write for example \"{example}\"")),
    }
}

fn count(word: &str, example: &str) -> Result<u64, String> {
    match word.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("\"{word}\" is not a positive number; write for example \"{example}\"")),
    }
}

impl Often {
    /// Words for messages.
    pub const WORDS: &str = "a percentage, every N, nth N, once, twice, times N";

    /// Takes this word with its arguments; false: no frequency.
    pub fn take(&mut self, word: &str, words: &mut Words<'_>) -> Result<bool, String> {
        let Self { frequency, times } = self;
        match word {
            "every" => {
                let n = count(words.value(word, "every 7")?, "every 7")?;
                set(frequency, Frequency::Every(n), "frequencies")?;
            }
            "nth" => {
                let n = count(words.value(word, "nth 3")?, "nth 3")?;
                set(frequency, Frequency::Nth(n), "frequencies")?;
            }
            "once" => set(times, 1, "limits")?,
            "twice" => set(times, 2, "limits")?,
            "times" => set(times, count(words.value(word, "times 5")?, "times 5")?, "limits")?,
            _ if word.ends_with('%') => {
                set(frequency, Frequency::Chance(percentage(word)?), "frequencies")?;
            }
            _ if word.parse::<f64>().is_ok() => {
                return Err(format!("write \"{word}%\" for a probability, or \"every {word}\""));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Counters of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Matches.
    pub seen: u64,
    /// Hits.
    pub hits: u64,
}

impl Counts {
    /// Counts a match; true for a hit.
    pub fn hits(&mut self, often: Often, chance: &mut Chance) -> bool {
        self.seen += 1;
        let hit = often.times.is_none_or(|times| self.hits < times)
            && match often.frequency {
                None => true,
                Some(Frequency::Chance(probability)) => happens(&mut chance.0, probability),
                Some(Frequency::Every(n)) => self.seen.is_multiple_of(n.max(1)),
                Some(Frequency::Nth(n)) => self.seen == n,
            };
        self.hits += u64::from(hit);
        hit
    }
}

/// Counters of a rule that applies in several places.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Counts>>);

impl Tally {
    /// Current counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Counts::hits`].
    pub(crate) fn hits(&self, often: Often, chance: &mut Chance) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).hits(often, chance)
    }
}

/// Random numbers by seed.
#[derive(Clone, Debug)]
pub struct Chance(pub(crate) ChaCha8Rng);

impl Chance {
    /// Generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }
}

/// Draws an event; probability 0 draws nothing: other faults do not shift.
pub(crate) fn happens(rng: &mut ChaCha8Rng, probability: f64) -> bool {
    probability > 0.0 && (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= probability
}
