mod capacity;

use std::{net::IpAddr, str::FromStr, time::Duration};

use roce_transport::{addr::Qpn, wire::PacketPosition};

use super::{
    clause::{FaultSyntaxError, Often, Words, clauses, number, set, time},
    faults::{Conditions, FaultPlan},
    rule::{Action, Corruption, Direction, Frequency, Kind, Matcher, Rule},
};

macro_rules! verbs {
    ($($($word:literal)|+ => $verb:ident;)*) => {
        /// First word of a clause.
        #[derive(Clone, Copy, PartialEq, Eq)]
        enum Verb { $($verb,)* }

        impl Verb {
            fn of(word: &str) -> Option<Self> {
                Some(match word { $($($word)|+ => Self::$verb,)* _ => return None })
            }
        }

        impl FaultPlan {
            /// First words of clauses.
            pub const WORDS: &[&str] = &[$($($word,)+)* "rate", "queue", "receiver"];
        }
    };
}

verbs! {
    "drop" | "lose" => Drop;
    "duplicate" | "dup" => Duplicate;
    "reorder" => Reorder;
    "corrupt" => Corrupt;
    "mark" | "ecn" => Mark;
    "delay" => Delay;
    "jitter" => Jitter;
    "rnr" => NotReady;
    "pass" => Pass;
}

impl FromStr for FaultPlan {
    type Err = FaultSyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut plan, mut port) = (Self::default(), capacity::Port::default());
        for clause in clauses(text) {
            let words = Words::of(clause);
            if capacity::concerns(&words) {
                port.add(&mut plan.conditions, clause, words)
            } else {
                add(&mut plan, words)
            }
            .map_err(|problem| FaultSyntaxError::new(clause, problem))?;
        }
        let bottleneck = port.bottleneck();
        plan.conditions.bottleneck =
            bottleneck.map_err(|(clause, problem)| FaultSyntaxError::new(clause, problem))?;
        Ok(plan)
    }
}

impl FromStr for Rule {
    type Err = FaultSyntaxError;

    /// Parses one clause as a rule, never as a condition.
    fn from_str(clause: &str) -> Result<Self, Self::Err> {
        parse(Words::of(clause))
            .and_then(Clause::into_rule)
            .map_err(|problem| FaultSyntaxError::new(clause, problem))
    }
}

struct Clause {
    verb: Verb,
    time: Duration,
    corruption: Option<Corruption>,
    matcher: Matcher,
    often: Often,
    direction: Option<Direction>,
}

fn add(plan: &mut FaultPlan, words: Words<'_>) -> Result<(), String> {
    let clause = parse(words)?;
    let Clause { matcher, often, corruption, direction, .. } = &clause;
    let general = *matcher == Matcher::default()
        && often.times.is_none()
        && corruption.is_none()
        && direction.is_none();
    let conditions = &mut plan.conditions;
    match (clause.verb, general, clause.often.frequency) {
        (Verb::Drop, true, Some(Frequency::Chance(p))) => conditions.loss = p,
        (Verb::Duplicate, true, Some(Frequency::Chance(p))) => conditions.duplication = p,
        (Verb::Reorder, true, Some(Frequency::Chance(p))) => conditions.reordering = p,
        (Verb::Corrupt, true, Some(Frequency::Chance(p))) => conditions.corruption = p,
        (Verb::Mark, true, Some(Frequency::Chance(p))) => conditions.ecn = p,
        (Verb::Delay, true, None) => conditions.delay = clause.time,
        (Verb::Jitter, true, None) => conditions.jitter = clause.time,
        (Verb::Jitter, ..) => {
            return Err("jitter is for every datagram; write only \"jitter 50us\"".to_owned());
        }
        _ => plan.rules.push(clause.into_rule()?),
    }
    Ok(())
}

impl Clause {
    fn into_rule(self) -> Result<Rule, String> {
        let action = match self.verb {
            Verb::Pass => Action::Pass,
            Verb::Drop => Action::Drop,
            Verb::Duplicate => Action::Duplicate,
            Verb::Reorder => Action::Delay(Conditions::default().reorder_by),
            Verb::Corrupt => Action::Corrupt(self.corruption),
            Verb::Mark => Action::Mark,
            Verb::Delay => Action::Delay(self.time),
            Verb::NotReady => Action::NotReady,
            Verb::Jitter => {
                return Err("jitter is for every datagram; omit the condition".to_owned());
            }
        };
        let Self { matcher, often, direction, .. } = self;
        if (action, direction) == (Action::NotReady, Some(Direction::Sent)) {
            return Err("\"tx\" is invalid: rnr concerns received packets; omit it".to_owned());
        }
        Ok(Rule { matcher, often, action, direction })
    }
}

fn parse(mut words: Words<'_>) -> Result<Clause, String> {
    if capacity::concerns(&words) {
        return Err(format!("{} is for every datagram, and no rule", words.words[0]));
    }
    let word = words.next().unwrap_or_default();
    let verb = Verb::of(word).ok_or_else(|| {
        format!(
            "unknown action \"{word}\"; expected drop, duplicate, reorder, corrupt, mark (or ecn), delay, jitter, rnr, pass, rate, queue or receiver"
        )
    })?;
    let mut clause = Clause {
        verb,
        time: Duration::ZERO,
        corruption: None,
        matcher: Matcher::default(),
        often: Often::default(),
        direction: None,
    };
    if matches!(verb, Verb::Delay | Verb::Jitter) {
        clause.time = time(words.value("delay", "delay 2ms")?)?;
    }
    while let Some(word) = words.next() {
        option(&mut clause, word, &mut words)?;
    }
    if !matches!(verb, Verb::Pass | Verb::Delay | Verb::Jitter) && words.at == 1 {
        return Err(format!(
            "no condition; say which datagrams, as \
             in \"{0} 3%\", \"{0} every 7\", \"{0} once\" or \"{0} {1}\"",
            words.words[0],
            if verb == Verb::NotReady { "send" } else { "ack" },
        ));
    }
    Ok(clause)
}

fn option(clause: &mut Clause, word: &str, words: &mut Words<'_>) -> Result<(), String> {
    if clause.often.take(word, words)? {
        return Ok(());
    }
    let Clause { matcher, corruption, direction, .. } = clause;
    if let Some(kind) = kind(word) {
        return set(&mut matcher.kind, kind, "kinds of packet");
    }
    if let Some(place) = place(word) {
        return set(&mut matcher.place, place, "places");
    }
    match word {
        "psn" => {
            let range = words.value(word, "psn 5..9")?;
            let (first, last) = range.split_once("..").unwrap_or((range, range));
            let range =
                number(first, "psn 5..9")?..=number(last.trim_start_matches('='), "psn 5..9")?;
            set(&mut matcher.psn, range, "PSN ranges")
        }
        "qp" => set(
            &mut matcher.dest_qp,
            Qpn::new(number(words.value(word, "qp 0x12")?, "qp 0x12")?),
            "queue pairs",
        ),
        "to" => set(&mut matcher.dst, address(words.value(word, "to 10.0.0.2")?)?, "destinations"),
        "from" => set(&mut matcher.src, address(words.value(word, "from 10.0.0.1")?)?, "sources"),
        "byte" if clause.verb == Verb::Corrupt => {
            let offset = number(words.value(word, "byte 12")?, "byte 12")? as usize;
            set(corruption, Corruption { offset, mask: 0xFF }, "bytes")
        }
        "tx" => set(direction, Direction::Sent, "directions"),
        "rx" => set(direction, Direction::Received, "directions"),
        _ => Err(format!(
            "unknown word \"{word}\"; expected {}, psn A..B, qp N, tx, rx, from IP, to IP, \
             request, response, send, write, read, read-response, ack, nak, rnr-nak, cnp, cm-req, \
             cm-rep, cm-rtu, cm-rej, cm-dreq, cm-drep, cm-sidr-req, cm-sidr-rep, first, middle, last, \
             only",
            Often::WORDS
        )),
    }
}

fn kind(word: &str) -> Option<Kind> {
    Some(match word {
        "request" => Kind::Request,
        "response" => Kind::Response,
        "send" => Kind::Send,
        "write" => Kind::Write,
        "read" => Kind::ReadRequest,
        "read-response" => Kind::ReadResponse,
        "ack" => Kind::Ack,
        "nak" => Kind::Nak,
        "rnr-nak" => Kind::RnrNak,
        "cnp" => Kind::Cnp,
        "cm-req" => Kind::Connecting(0x10),
        "cm-rej" => Kind::Connecting(0x12),
        "cm-rep" => Kind::Connecting(0x13),
        "cm-rtu" => Kind::Connecting(0x14),
        "cm-dreq" => Kind::Connecting(0x15),
        "cm-drep" => Kind::Connecting(0x16),
        "cm-sidr-req" => Kind::Connecting(0x17),
        "cm-sidr-rep" => Kind::Connecting(0x18),
        _ => return None,
    })
}

fn place(word: &str) -> Option<PacketPosition> {
    Some(match word {
        "first" => PacketPosition::First,
        "middle" => PacketPosition::Middle,
        "last" => PacketPosition::Last,
        "only" => PacketPosition::Only,
        _ => return None,
    })
}

fn address(word: &str) -> Result<IpAddr, String> {
    word.parse().map_err(|_| format!("\"{word}\" is not an IP address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_conditions() {
        let plan: FaultPlan =
            "drop 3%, duplicate 1%; reorder 5%, corrupt 0.1%, ecn 2%, delay 2ms, jitter 50us"
                .parse()
                .unwrap();
        let expected = Conditions {
            loss: 0.03,
            duplication: 0.01,
            reordering: 0.05,
            corruption: 0.001,
            ecn: 0.02,
            delay: Duration::from_millis(2),
            jitter: Duration::from_micros(50),
            ..Conditions::default()
        };
        assert_eq!(plan, FaultPlan { conditions: expected, rules: vec![] });
        assert_eq!("".parse(), Ok(FaultPlan::default()));
    }

    #[test]
    fn rules() {
        let rule: Rule =
            "delay 5ms write last psn 0x10..0x1F qp 7 from ::1 to 10.0.0.1 50% times 3 rx"
                .parse()
                .unwrap();
        let matcher = Matcher {
            kind: Some(Kind::Write),
            place: Some(PacketPosition::Last),
            dest_qp: Some(Qpn::new(7)),
            psn: Some(16..=31),
            src: Some("::1".parse().unwrap()),
            dst: Some("10.0.0.1".parse().unwrap()),
        };
        let action = Action::Delay(Duration::from_millis(5));
        let often = Often { frequency: Some(Frequency::Chance(0.5)), times: Some(3) };
        let direction = Some(Direction::Received);
        assert_eq!(rule, Rule { matcher, often, action, direction });
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, hint) in [
            ("drop", "say which datagrams"),
            ("drop 3", "write \"3%\""),
            ("drop 300%", "0% to 100%"),
            ("explode 3%", "expected drop"),
            ("delay", "delay 2ms"),
            ("delay 2", "\"2ms\""),
            ("delay -2ms", "\"2ms\""),
            ("drop psn", "psn 5..9"),
            ("drop psn x", "psn 5..9"),
            ("drop qp 0x1000000", "below 2^24"),
            ("drop every 0", "positive"),
            ("drop ack nak", "two kinds"),
            ("drop to somewhere", "not an IP address"),
            ("drop sometimes", "expected "),
            ("jitter 5us ack", "every datagram"),
            ("rnr", "\"rnr 3%\""),
            ("rnr 10% tx", "omit it"),
            ("drop 1% tx rx", "two directions"),
            ("drop ack udp", "unknown word \"udp\"; expected a percentage"),
            ("drop nan%", "0% to 100%"),
        ] {
            let error = text.parse::<FaultPlan>().unwrap_err().to_string();
            assert!(
                error.contains(hint) && error.contains(text) && error.lines().count() == 1,
                "{text}: {error}"
            );
        }
        let error = "drop 1%, ex\nplode  3%".parse::<FaultPlan>().unwrap_err().to_string();
        assert!(
            error.starts_with("in the fault \"ex plode 3%\": unknown action \"ex\"; expected drop"),
            "{error}"
        );
    }
}
