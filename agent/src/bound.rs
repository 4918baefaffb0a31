//! The client is not trusted with the host.

use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, de};

/// Per line.
pub(crate) const COMMANDS: usize = 1024;
pub(crate) const OBJECTS: usize = 4096;
/// All regions together.
pub(crate) const MEMORY: usize = 256 << 20;
/// Region length, and offsets.
const LENGTH: u64 = 64 << 20;
/// Entries of a queue, and completions of a poll.
const COUNT: u64 = 1 << 16;
/// Per request.
const INLINE: u64 = 4096;
const NAME: usize = 64;
/// Seconds per line.
const WAIT: u64 = 30;

pub(crate) type Length = AtMost<LENGTH>;
pub(crate) type Count = AtMost<COUNT>;
pub(crate) type InlineLength = AtMost<INLINE>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct AtMost<const MOST: u64>(u64);

impl<const MOST: u64> AtMost<MOST> {
    pub(crate) const fn get(self) -> usize {
        self.0 as usize
    }
}

impl<'de, const MOST: u64> Deserialize<'de> for AtMost<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let asked = u64::deserialize(deserializer)?;
        if asked > MOST {
            return Err(de::Error::custom(format!("{asked} is too large; at most {MOST}")));
        }
        Ok(Self(asked))
    }
}

pub(crate) struct Name(pub(crate) String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name.len() > NAME {
            let text = format!("the name has {} bytes; at most {NAME}", name.len());
            return Err(de::Error::custom(text));
        }
        Ok(Self(name))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeout(pub(crate) Duration);

impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let asked = f64::deserialize(deserializer)?;
        if !(0.0..=WAIT as f64).contains(&asked) {
            let text = format!("the timeout {asked} s is out of range; expected 0 to {WAIT} s");
            return Err(de::Error::custom(text));
        }
        Ok(Self(Duration::from_secs_f64(asked)))
    }
}

/// Bounds the waits of a line.
pub(crate) struct Waiting<'a> {
    end: Instant,
    is_gone: &'a dyn Fn() -> bool,
}

impl<'a> Waiting<'a> {
    pub(crate) fn begin(is_gone: &'a dyn Fn() -> bool) -> Self {
        Self { end: Instant::now() + Duration::from_secs(WAIT), is_gone }
    }

    pub(crate) fn until(&self, timeout: Timeout) -> Instant {
        self.end.min(Instant::now() + timeout.0)
    }

    pub(crate) fn is_gone(&self) -> bool {
        (self.is_gone)()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused<T: for<'de> Deserialize<'de>>(value: serde_json::Value) -> String {
        serde_json::from_value::<T>(value).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_has_no_bound_is_refused_with_the_bound() {
        let huge = 9_000_000_000_000_000_000_u64;
        for (refused, wanted) in [
            (refused::<Length>(json!(64 << 20)), String::new()),
            (refused::<Length>(json!(huge)), format!("{huge} is too large; at most 67108864")),
            (refused::<Count>(json!(65_537)), "65537 is too large; at most 65536".into()),
            (refused::<InlineLength>(json!(4097)), "4097 is too large; at most 4096".into()),
            (refused::<Timeout>(json!(30)), String::new()),
            (
                refused::<Timeout>(json!(-1)),
                "the timeout -1 s is out of range; expected 0 to 30 s".into(),
            ),
            (
                refused::<Timeout>(json!(1e9)),
                "the timeout 1000000000 s is out of range; expected 0 to 30 s".into(),
            ),
            (refused::<Name>(json!("x".repeat(65))), "the name has 65 bytes; at most 64".into()),
        ] {
            assert_eq!(refused, wanted);
        }
    }
}
