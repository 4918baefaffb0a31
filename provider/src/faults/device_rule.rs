//! Device rules: requests that fail, and events.

use std::time::Duration;

use roce_transport::{
    addr::Qpn,
    qp::{Completing, Queue, may_be_received},
    work::WcStatus,
};

use crate::fabric::clause::{Often, Words, number, set, time};

/// Timed event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incident {
    /// Queue pair, or each, goes to ERR.
    QpFatal(Option<Qpn>),
    /// The port is down for this time; `None`: for good.
    PortDown(Option<Duration>),
    /// A GID table change is reported.
    GidChange,
    /// The device is lost.
    DeviceFatal,
}

/// Device rule.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "a rule's comment describes its fields")]
pub enum DeviceRule {
    /// Requests at a queue, of a queue pair or of any (`None`), complete so often with this status.
    Complete { queue: Queue, qpn: Option<Qpn>, often: Often, status: WcStatus },
    /// Event this time after the rule is given, or the device opened.
    At { after: Duration, incident: Incident },
    /// Connection requests are rejected.
    Reject(Often),
}

const MESSAGES: [(&str, &str); 8] = [
    ("connect", "cm-req"),
    ("accept", "cm-rep"),
    ("established", "cm-rtu"),
    ("reject", "cm-rej"),
    ("disconnect", "cm-dreq"),
    ("disconnected", "cm-drep"),
    ("resolve", "cm-sidr-req"),
    ("resolved", "cm-sidr-rep"),
];

pub(super) enum Parsed {
    Rule(DeviceRule),
    /// Equivalent packet clause.
    Packets(String),
}

impl DeviceRule {
    pub(super) const WORDS: [&str; 6] = ["complete", "qp", "port", "gid", "device", "cm"];

    pub(super) fn parse(mut words: Words<'_>) -> Result<Parsed, String> {
        let first = words.next().unwrap_or_default();
        let (incident, wanted, example) = match first {
            "complete" => return complete(words).map(Parsed::Rule),
            "cm" => return of_cm(words),
            "qp" => {
                let example = "qp 0x12 fatal after 2s";
                let qpn = match words.value(first, example)? {
                    "any" => None,
                    word => Some(Qpn::new(number(word, "qp 0x12")?)),
                };
                (Incident::QpFatal(qpn), "fatal", example)
            }
            "port" => (Incident::PortDown(None), "down", "port down at 1s for 500ms"),
            "gid" => (Incident::GidChange, "change", "gid change at 1s"),
            _ => (Incident::DeviceFatal, "fatal", "device fatal at 3s"),
        };
        expect(&mut words, wanted, example)?;
        at(words, incident, example).map(Parsed::Rule)
    }

    /// True if the rule concerns this request.
    #[must_use]
    pub fn concerns(&self, completing: &Completing) -> bool {
        let Self::Complete { queue, qpn, status, .. } = self else { return false };
        *queue == completing.queue
            && qpn.is_none_or(|qpn| qpn == completing.qpn)
            && completing.may_be(*status)
    }
}

fn expect(words: &mut Words<'_>, wanted: &str, example: &str) -> Result<(), String> {
    match words.next() {
        Some(word) if word == wanted => Ok(()),
        Some(word) => Err(format!("\"{word}\" must be \"{wanted}\", as in \"{example}\"")),
        None => Err(format!("\"{wanted}\" is missing; write for example \"{example}\"")),
    }
}

fn complete(mut words: Words<'_>) -> Result<DeviceRule, String> {
    let example = "complete send nth 5 with RETRY_EXC_ERR";
    let queue = match words.value("complete", example)? {
        "send" => Queue::Send,
        "recv" | "receive" => Queue::Receive,
        word => return Err(format!("unknown queue \"{word}\"; expected send or recv")),
    };
    let (mut often, mut qpn, mut status) = (Often::default(), None, None);
    while let Some(word) = words.next() {
        if often.take(word, &mut words)? {
            continue;
        }
        match word {
            "with" => {
                let name = words.value(word, example)?;
                set(&mut status, status_of(name, queue)?, "statuses")?;
            }
            "qp" => {
                let value = number(words.value(word, "qp 0x12")?, "qp 0x12")?;
                set(&mut qpn, Qpn::new(value), "queue pairs")?;
            }
            _ => {
                return Err(format!(
                    "unknown word \"{word}\"; expected {}, qp N, with STATUS",
                    Often::WORDS
                ));
            }
        }
    }
    let missing = || format!("no status is given; write for example \"{example}\"");
    let status = status.ok_or_else(missing)?;
    Ok(DeviceRule::Complete { queue, qpn, often, status })
}

fn status_of(name: &str, queue: Queue) -> Result<WcStatus, String> {
    fn bare(name: &str) -> &str {
        name.strip_prefix("IBV_WC_").unwrap_or(name)
    }
    let all = || WcStatus::ALL.iter().copied();
    let fits = |status: WcStatus| match queue {
        Queue::Send => status != WcStatus::LocAccessErr,
        Queue::Receive => may_be_received(status),
    };
    match all().find(|status| bare(status.name()).eq_ignore_ascii_case(bare(name))) {
        Some(status) if fits(status) => Ok(status),
        other => {
            let possible = all().filter(|status| fits(*status));
            let possible: Vec<_> = possible.map(|status| bare(status.name())).collect();
            let problem = match other {
                Some(_) => "is not a status of this queue",
                None => "is not a status",
            };
            Err(format!("\"{name}\" {problem}; expected {}", possible.join(", ")))
        }
    }
}

fn at(mut words: Words<'_>, mut incident: Incident, example: &str) -> Result<DeviceRule, String> {
    let mut after = None;
    while let Some(word) = words.next() {
        match (word, &mut incident) {
            ("at" | "after", _) => set(&mut after, time(words.value(word, example)?)?, "times")?,
            ("for", Incident::PortDown(length)) => {
                set(length, time(words.value(word, example)?)?, "times")?;
            }
            _ => {
                return Err(format!("unknown word \"{word}\"; write for example \"{example}\""));
            }
        }
    }
    Ok(DeviceRule::At { after: after.unwrap_or_default(), incident })
}

fn of_cm(mut words: Words<'_>) -> Result<Parsed, String> {
    let example = "cm reject nth 1";
    match words.value("cm", example)? {
        "reject" => {
            let mut often = Often::default();
            while let Some(word) = words.next() {
                if !often.take(word, &mut words)? {
                    return Err(format!("unknown word \"{word}\"; expected {}", Often::WORDS));
                }
            }
            Ok(Parsed::Rule(DeviceRule::Reject(often)))
        }
        "drop" => {
            let word = words.value("drop", "cm drop connect once")?;
            let kind = MESSAGES.iter().find(|(name, _)| *name == word).ok_or_else(|| {
                let names: Vec<_> = MESSAGES.iter().map(|(name, _)| *name).collect();
                format!("unknown message \"{word}\"; expected {}", names.join(", "))
            })?;
            let mut clause = format!("drop {}", kind.1);
            while let Some(word) = words.next() {
                clause += &format!(" {word}");
            }
            Ok(Parsed::Packets(clause))
        }
        word => Err(format!(
            "unknown word \"{word}\"; write for example \"{example}\" or \"cm drop connect\""
        )),
    }
}
