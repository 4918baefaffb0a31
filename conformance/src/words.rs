use std::{str::FromStr, time::Duration};

use roce_transport::time::{ack_timeout, rnr_timer};

pub(crate) struct Words<'a>(pub(crate) Vec<&'a str>);

impl<'a> Words<'a> {
    pub(crate) fn next(&mut self, what: &str) -> Result<&'a str, String> {
        if self.0.is_empty() { Err(format!("{what} is missing")) } else { Ok(self.0.remove(0)) }
    }

    pub(crate) fn number<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T, String> {
        number(self.next(what)?, what)
    }

    pub(crate) fn eat(&mut self, word: &str) -> bool {
        let found = self.0.first() == Some(&word);
        if found {
            self.0.remove(0);
        }
        found
    }

    pub(crate) fn named(&mut self, name: &str) -> Result<Option<&'a str>, String> {
        let Some(at) = self.0.iter().position(|&word| word == name) else { return Ok(None) };
        if at + 1 == self.0.len() {
            return Err(format!("{name} has no value"));
        }
        self.0.remove(at);
        Ok(Some(self.0.remove(at)))
    }

    pub(crate) fn maybe<T: TryFrom<u64>>(&mut self, name: &str) -> Result<Option<T>, String> {
        self.named(name)?.map(|word| number(word, name)).transpose()
    }

    pub(crate) fn or<T: TryFrom<u64>>(&mut self, name: &str, default: T) -> Result<T, String> {
        Ok(self.maybe(name)?.unwrap_or(default))
    }

    pub(crate) fn needed<T: TryFrom<u64>>(&mut self, name: &str) -> Result<T, String> {
        self.maybe(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    pub(crate) fn time_or(&mut self, name: &str, default: Duration) -> Result<Duration, String> {
        self.named(name)?.map_or(Ok(default), duration)
    }

    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let found = self.0.iter().position(|&word| word == name);
        found.map(|at| self.0.remove(at)).is_some()
    }
}

pub(crate) fn number<T: TryFrom<u64>>(word: &str, what: &str) -> Result<T, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed
        .ok()
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("{what} {word} is not a number; write for example 16 or 0x10"))
}

pub(crate) fn signed<T: FromStr>(word: &str, what: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{what} {word} is not a number; write for example 3 or -1"))
}

/// `5ms`, `rnr-timer-12` or `ack-timeout-14`.
pub(crate) fn duration(word: &str) -> Result<Duration, String> {
    let wrong = || format!("{word} is not a time; write for example 20us, 5ms, 2s or rnr-timer-12");
    let code = |digits: &str| digits.parse::<u8>().ok().filter(|&code| code < 32);
    if let Some(digits) = word.strip_prefix("rnr-timer-") {
        return Ok(rnr_timer(code(digits).ok_or_else(wrong)?));
    }
    if let Some(digits) = word.strip_prefix("ack-timeout-") {
        return code(digits).and_then(ack_timeout).ok_or_else(wrong);
    }
    for (unit, micros) in [("us", 1), ("ms", 1_000), ("s", 1_000_000)] {
        if let Some(count) = word.strip_suffix(unit).and_then(|digits| digits.parse::<u32>().ok()) {
            return Ok(Duration::from_micros(u64::from(count) * micros));
        }
    }
    Err(wrong())
}
