//! Comma-separated words of `ROCE_CHECK` and `roce run --check`.
//!
//! | word | meaning |
//! |---|---|
//! | `text` (or `1`), `json`, `sarif` | form of findings; text by default |
//! | `reorder` | late placement in any order, see [`LateConfig::placement`] |
//! | `delay` | late completions and events, see [`LateConfig::completion`] |
//! | `seed=NUMBER` | seed of both, up to 2^64 - 1, decimal or `0x…`; random by default |
//! | `file=NAME` | file of findings, instead of stderr; `%p` is the process ID |

use std::{fmt, path::PathBuf, str::FromStr, sync::LazyLock, time::Duration};

use roce_transport::work::LateConfig;
use thiserror::Error;

use crate::variables::parse_seed;

/// Checks of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checks {
    /// Form of findings.
    pub form: CheckForm,
    /// Late placement in any order.
    pub reorder: bool,
    /// Delays completions and events.
    pub delay: bool,
    /// Seed of both; random by default.
    pub seed: Option<u64>,
    /// File of findings, instead of stderr.
    pub file: Option<PathBuf>,
}

/// Form of findings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckForm {
    /// Lines of text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// One SARIF 2.1.0 document at the end.
    Sarif,
}

/// Invalid word.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CheckSyntaxError {
    /// Unknown word.
    #[error(
        "unknown word {0:?}; expected text, json, sarif, reorder, delay, seed=NUMBER or file=NAME, \
         separated by commas"
    )]
    Word(String),
    /// Invalid seed.
    #[error("seed={0} is not a number from 0 to 2^64 - 1; write for example seed=42 or seed=0x2a")]
    Seed(String),
    /// Seed without a use.
    #[error("seed= has no effect alone; add reorder or delay")]
    SeedOfNothing,
    /// `file=` without a name.
    #[error("file= has no name; write file=NAME")]
    NoName,
}

/// Default seed.
static CHOSEN: LazyLock<u64> = LazyLock::new(|| {
    let mut bytes = [0; 4]; // easy to type
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes).into()
});

impl Checks {
    /// True if anything is late.
    #[must_use]
    pub const fn are_late(&self) -> bool {
        self.reorder || self.delay
    }

    /// Given seed, or the process's.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| *CHOSEN)
    }

    /// Late placement and completion.
    #[must_use]
    pub fn late(&self) -> LateConfig {
        let at_most = |is_late, time| if is_late { time } else { Duration::ZERO };
        LateConfig {
            seed: if self.are_late() { self.seed() } else { 0 },
            placement: at_most(self.reorder, LateConfig::PLACEMENT),
            completion: at_most(self.delay, LateConfig::COMPLETION),
        }
    }
}

impl FromStr for Checks {
    type Err = CheckSyntaxError;

    fn from_str(text: &str) -> Result<Self, CheckSyntaxError> {
        let mut checks = Self::default();
        for word in text.split(',').map(str::trim) {
            match word.split_once('=').unwrap_or((word, "")) {
                ("text" | "1", "") => checks.form = CheckForm::Text,
                ("json", "") => checks.form = CheckForm::Json,
                ("sarif", "") => checks.form = CheckForm::Sarif,
                ("reorder", "") => checks.reorder = true,
                ("delay", "") => checks.delay = true,
                ("seed", number) => {
                    let seed = parse_seed(number).filter(|_| !number.is_empty());
                    checks.seed =
                        Some(seed.ok_or_else(|| CheckSyntaxError::Seed(number.to_owned()))?);
                }
                ("file", "") => return Err(CheckSyntaxError::NoName),
                ("file", name) => checks.file = Some(name.into()),
                _ => return Err(CheckSyntaxError::Word(word.to_owned())),
            }
        }
        match checks.seed {
            Some(_) if !checks.are_late() => Err(CheckSyntaxError::SeedOfNothing),
            _ => Ok(checks),
        }
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.form {
            CheckForm::Text => "text",
            CheckForm::Json => "json",
            CheckForm::Sarif => "sarif",
        })?;
        for (is_asked, word) in [(self.reorder, ",reorder"), (self.delay, ",delay")] {
            f.write_str(if is_asked { word } else { "" })?;
        }
        if let Some(seed) = self.seed {
            write!(f, ",seed={seed}")?;
        }
        if let Some(file) = &self.file {
            write!(f, ",file={}", file.display())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_combined_in_any_order() {
        for (text, written) in [
            ("1", "text"),
            ("json", "json"),
            ("reorder", "text,reorder"),
            ("seed=0x10, delay ,sarif", "sarif,delay,seed=16"),
            ("json,reorder,delay,seed=7,file=a b.json", "json,reorder,delay,seed=7,file=a b.json"),
        ] {
            let checks: Checks = text.parse().unwrap();
            assert_eq!(checks.to_string(), written);
            assert_eq!(written.parse(), Ok(checks));
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (text, said) in [
            ("jsn", "unknown word \"jsn\"; expected text, json, sarif, reorder, delay"),
            ("json,", "unknown word \"\"; expected"),
            ("json=1", "unknown word \"json=1\"; expected"),
            ("reorder,seed=x", "seed=x is not a number"),
            ("reorder,seed", "seed= is not a number"),
            ("seed=7", "seed= has no effect alone; add reorder or delay"),
            ("file=", "file= has no name; write file=NAME"),
        ] {
            let error = text.parse::<Checks>().unwrap_err().to_string();
            assert!(error.starts_with(said) && error.lines().count() == 1, "{text}: {error}");
        }
    }

    #[test]
    fn a_process_has_one_seed() {
        let checks: Checks = "reorder".parse().unwrap();
        let (first, again) = (checks.late(), checks.late());
        assert_eq!(first, again);
        assert!(!first.placement.is_zero() && first.completion.is_zero());
        assert_eq!("text".parse::<Checks>().unwrap().late(), LateConfig::default());
        assert_eq!("delay,seed=9".parse::<Checks>().unwrap().late().seed, 9);
    }
}
