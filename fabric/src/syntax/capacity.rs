use crate::{
    Bottleneck, Conditions, Marking, Receiver,
    clause::{Words, percentage, rate, set, size, time},
};

#[derive(Default)]
pub(super) struct Port<'a> {
    rate: Option<(u64, bool)>,
    queue: Option<u64>,
    marking: Option<Marking>,
    /// Clause that needs a rate.
    needs_rate: Option<&'a str>,
}

/// True for clauses of ports and buffers, marks by queue included.
pub(super) fn concerns(words: &Words<'_>) -> bool {
    match words.words.first() {
        Some(&("rate" | "queue" | "receiver")) => true,
        // excludes PSN ranges
        Some(&("ecn" | "mark")) => {
            words.words.windows(2).any(|pair| pair[0] != "psn" && pair[1].contains(".."))
        }
        _ => false,
    }
}

impl<'a> Port<'a> {
    pub(super) fn add(
        &mut self,
        conditions: &mut Conditions,
        clause: &'a str,
        mut words: Words<'_>,
    ) -> Result<(), String> {
        let verb = words.next().unwrap_or_default();
        match verb {
            "rate" => {
                let bits = rate(words.value(verb, "rate 1gbit")?)?;
                let shared = match words.next() {
                    None => false,
                    Some("shared") => true,
                    Some(word) => return Err(unknown(word, "rate 1gbit\" or \"rate 1gbit shared")),
                };
                self.rate = Some((bits, shared));
                end(words, "rate 1gbit shared")
            }
            "queue" => {
                self.queue = Some(size(words.value(verb, "queue 64kb")?)?);
                self.needs_rate = Some(clause);
                end(words, "queue 64kb")
            }
            "receiver" => {
                let mut receiver = Receiver::new(time(words.value(verb, "receiver 2us 208kb")?)?);
                if let Some(word) = words.next() {
                    receiver.buffer = size(word)?;
                }
                conditions.receiver = Some(receiver);
                end(words, "receiver 2us 208kb")
            }
            _ => {
                self.marking = Some(marking(words)?);
                self.needs_rate = Some(clause);
                Ok(())
            }
        }
    }

    /// Bottleneck, or a clause that lacks a rate.
    pub(super) fn bottleneck(self) -> Result<Option<Bottleneck>, (&'a str, String)> {
        let Self { rate, queue, marking, needs_rate } = self;
        match (rate, needs_rate) {
            (Some((rate, shared)), _) => {
                Ok(Some(Bottleneck { rate, shared, queue: queue.unwrap_or(u64::MAX), marking }))
            }
            (None, Some(clause)) => {
                Err((clause, "a queue needs a rate; add for example \"rate 1gbit\"".to_owned()))
            }
            (None, None) => Ok(None),
        }
    }
}

fn marking(mut words: Words<'_>) -> Result<Marking, String> {
    const EXAMPLE: &str = "ecn 20kb..60kb 10%";
    let (mut thresholds, mut most) = (None, None);
    while let Some(word) = words.next() {
        if let Some((min, max)) = word.split_once("..") {
            let (min, max) = (size(min)?, size(max.trim_start_matches('='))?);
            if min > max {
                return Err(format!(
                    "the range \"{word}\" ends before it begins; write for example \"{EXAMPLE}\""
                ));
            }
            set(&mut thresholds, (min, max), "ranges")?;
        } else if word.ends_with('%') {
            set(&mut most, percentage(word)?, "percentages")?;
        } else {
            return Err(unknown(word, EXAMPLE));
        }
    }
    let (min, max) = thresholds.ok_or_else(|| format!("write for example \"{EXAMPLE}\""))?;
    Ok(Marking { min, max, most: most.unwrap_or(1.0) })
}

fn end(mut words: Words<'_>, example: &str) -> Result<(), String> {
    words.next().map_or(Ok(()), |word| Err(unknown(word, example)))
}

fn unknown(word: &str, example: &str) -> String {
    format!("\"{word}\" is invalid: this action is for every datagram; write only \"{example}\"")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Bottleneck, Conditions, FaultPlan, Marking, Receiver, Rule};

    fn conditions(text: &str) -> Conditions {
        let plan: FaultPlan = text.parse().unwrap();
        assert_eq!(plan.rules, []);
        plan.conditions
    }

    #[test]
    fn capacities() {
        let bottleneck = |text| conditions(text).bottleneck.unwrap();
        let base = Bottleneck::new(1_000_000_000);
        assert_eq!(bottleneck("rate 1gbit"), base);
        assert_eq!(bottleneck("rate 1gbit shared"), Bottleneck { shared: true, ..base });
        assert_eq!(bottleneck("rate 2.5mbit").rate, 2_500_000);
        assert_eq!(bottleneck("queue 64kb; rate 1gbit"), Bottleneck { queue: 65_536, ..base });
        let marking = Some(Marking { min: 20 << 10, max: 60 << 10, most: 0.1 });
        let expected = Bottleneck { queue: 1 << 20, marking, ..base };
        assert_eq!(bottleneck("rate 1gbit, queue 1mb, ecn 20kb..60kb 10%"), expected);
        assert_eq!(bottleneck("rate 1gbit, queue 1mb, mark 10% 20kb..=60kb"), expected);
        assert_eq!(bottleneck("rate 1gbit, ecn 100b..100b").marking.unwrap().most, 1.0);
        let receiver = |text| conditions(text).receiver.unwrap();
        let time = Duration::from_micros(2);
        assert_eq!(receiver("receiver 2us"), Receiver { time, buffer: 212_992 });
        assert_eq!(receiver("receiver 2us 64kb"), Receiver { time, buffer: 65_536 });
        // independent of random marks
        let both = conditions("ecn 1%, rate 1gbit, ecn 20kb..60kb 10%");
        assert_eq!((both.ecn, both.bottleneck.unwrap().marking), (0.01, marking));
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, hint) in [
            ("rate", "rate 1gbit"),
            ("rate 1", "\"10gbit\""),
            ("rate 1gb", "\"10gbit\""),
            ("rate 0bit", "not a rate"),
            ("rate nanbit", "not a rate"),
            ("rate 1gbit ack", "every datagram"),
            ("rate 1gbit shared shared", "every datagram"),
            ("queue 64kb", "add for example \"rate 1gbit\""),
            ("queue 64", "\"64kb\""),
            ("queue -1kb", "not a size"),
            ("queue 64kb tx", "every datagram"),
            ("ecn 20kb..60kb", "add for example \"rate 1gbit\""),
            ("ecn 60kb..20kb 10%", "ends before it begins"),
            ("ecn 20..60 10%", "not a size"),
            ("ecn 20kb..60kb 10% write", "every datagram"),
            ("ecn 20kb..60kb 101%", "0% to 100%"),
            ("ecn 20kb..60kb 20kb..60kb", "two ranges"),
            ("receiver", "receiver 2us 208kb"),
            ("receiver 64kb", "not a time"),
            ("receiver 2us 64", "not a size"),
            ("receiver 2us 64kb rx", "every datagram"),
        ] {
            let error = text.parse::<FaultPlan>().unwrap_err().to_string();
            assert!(
                error.contains(hint) && error.contains(text) && error.lines().count() == 1,
                "{text}: {error}"
            );
        }
        let error = "rate 1gbit".parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains("every datagram"), "{error}");
        let error = "queue 64kb, drop 1%".parse::<FaultPlan>().unwrap_err();
        assert_eq!(error.clause, "queue 64kb");
    }
}
