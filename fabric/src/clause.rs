//! Clauses of faults, word by word: for the grammar of packets' faults, and for others that stand
//! beside it in one text.

mod quantity;

use std::sync::{Arc, Mutex, PoisonError};

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use thiserror::Error;

use crate::rule::Frequency;
pub use quantity::{percentage, time};
pub(crate) use quantity::{rate, size};

/// Error in the text of a [`FaultPlan`](crate::FaultPlan) or of another rule, and what to write
/// instead.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("in the fault \"{clause}\": {problem}")]
pub struct FaultSyntaxError {
    /// The clause with the mistake.
    pub clause: String,
    /// The mistake, and what is possible.
    pub problem: String,
}

impl FaultSyntaxError {
    /// The message stays one line, whatever was written.
    #[must_use]
    pub fn new(clause: &str, problem: String) -> Self {
        Self { clause: Words::of(clause).words.join(" "), problem }
    }
}

/// The clauses of a text, without those that are empty.
pub fn clauses(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ';']).map(str::trim).filter(|clause| !clause.is_empty())
}

/// The words of a clause, one after the other.
#[derive(Debug)]
pub struct Words<'a> {
    pub(crate) words: Vec<&'a str>,
    pub(crate) at: usize,
}

impl<'a> Words<'a> {
    /// Those of a clause.
    #[must_use]
    pub fn of(clause: &'a str) -> Self {
        Self { words: clause.split_whitespace().collect(), at: 0 }
    }

    /// The next word.
    #[expect(clippy::should_implement_trait, reason = "words are looked ahead at, too")]
    pub fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied()?;
        self.at += 1;
        Some(word)
    }

    /// The next word, which stays the next one.
    #[must_use]
    pub fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    /// The word after `what`.
    ///
    /// # Errors
    /// When there is none, with an example of what could stand there.
    pub fn value(&mut self, what: &str, example: &str) -> Result<&'a str, String> {
        self.next().ok_or_else(|| {
            format!("something is missing after \"{what}\"; write for example \"{example}\"")
        })
    }
}

/// Sets what may be said once in a clause.
///
/// # Errors
/// When it has been said before.
pub fn set<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("there are two {what} in one clause; write two clauses")),
    }
}

/// A number of 24 bits, decimal or with `0x`, of which `example` shows one.
///
/// # Errors
/// When the word is none.
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

/// How often a rule hits, as its clause says it: `3%`, `every 7`, `nth 3`, `once`, `twice`,
/// `times 5`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Often {
    /// Selection among what matches; `None`: all.
    pub frequency: Option<Frequency>,
    /// The most that are hit; `None`: no limit.
    pub times: Option<u64>,
}

impl Often {
    /// Words that it takes, for messages.
    pub const WORDS: &str = "a percentage, every N, nth N, once, twice, times N";

    /// Takes this word, and those that belong to it. False: it is none of these.
    ///
    /// # Errors
    /// What is wrong with it.
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

/// Counters of a rule, and whether it hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// How often something has matched it.
    pub seen: u64,
    /// How often it has hit.
    pub hits: u64,
}

impl Counts {
    /// Something matches. True: it is hit.
    pub fn hits(&mut self, often: Often, chance: &mut Chance) -> bool {
        self.seen += 1;
        let hit = often.times.is_none_or(|times| self.hits < times)
            && match often.frequency.unwrap_or_default() {
                Frequency::Always => true,
                Frequency::Chance(probability) => happens(&mut chance.0, probability),
                Frequency::Every(n) => self.seen.is_multiple_of(n.max(1)),
                Frequency::Nth(n) => self.seen == n,
            };
        self.hits += u64::from(hit);
        hit
    }
}

/// The counters of a rule, which several places have together that each see a part of what matches
/// it: both directions of a link, and the links of a device.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Counts>>);

impl Tally {
    /// The counters now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Counts::hits`].
    pub(crate) fn hits(&self, often: Often, chance: &mut Chance) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).hits(often, chance)
    }
}

/// Chance, the same for the same seed.
#[derive(Clone, Debug)]
pub struct Chance(pub(crate) ChaCha8Rng);

impl Chance {
    /// Generator with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }
}

/// An event of this probability. A probability of 0 draws nothing, so that an unused kind of fault
/// does not disturb the sequence of the others.
pub(crate) fn happens(rng: &mut ChaCha8Rng, probability: f64) -> bool {
    probability > 0.0 && (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= probability
}
