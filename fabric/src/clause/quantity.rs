use std::time::Duration;

/// Parses a time, such as `50us`.
pub fn time(word: &str) -> Result<Duration, String> {
    let seconds =
        quantity(word, &[("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)]);
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
        format!("\"{word}\" is not a time; write for example \"50us\", \"2ms\" or \"1s\"")
    })
}

/// Bits per second, such as `10gbit`.
pub(crate) fn rate(word: &str) -> Result<u64, String> {
    let units = [("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
    whole(word, &units).ok_or_else(|| {
        format!("\"{word}\" is not a rate; write for example \"10gbit\", \"100mbit\" or \"64kbit\"")
    })
}

/// Bytes, such as `64kb`.
pub(crate) fn size(word: &str) -> Result<u64, String> {
    let units = [("b", 1.0), ("kb", 1024.0), ("mb", 1024.0 * 1024.0)];
    whole(word, &units).ok_or_else(|| {
        format!("\"{word}\" is not a size; write for example \"64kb\", \"1mb\" or \"212992b\"")
    })
}

/// Parses a probability, such as `3%`.
pub fn percentage(word: &str) -> Result<f64, String> {
    match word.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok()) {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("\"{word}\" must be a percentage from 0% to 100%")),
    }
}

fn whole(word: &str, units: &[(&str, f64)]) -> Option<u64> {
    let value = quantity(word, units)?;
    (1.0..=1e15).contains(&value).then_some(value as u64)
}

fn quantity(word: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = word.trim_end_matches(char::is_alphabetic);
    let (_, factor) = units.iter().find(|(unit, _)| *unit == &word[digits.len()..])?;
    Some(digits.parse::<f64>().ok()? * factor)
}
