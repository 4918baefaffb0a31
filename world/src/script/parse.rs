use std::{collections::BTreeMap, ops::RangeInclusive, str::FromStr, time::Duration};

use roce_fabric::{
    FaultPlan,
    clause::{Words, time},
};
use roce_transport::{addr::Mtu, mem::RKey, qp::QpType, work::SendFlags};

use crate::{
    line::End,
    node::Options,
    post::Request,
    script::{Script, ScriptError, Step},
    settings::{Fate, PostKind},
};

const MOST_CONNECTIONS: usize = 8;
const BYTES: RangeInclusive<u64> = 0..=1 << 16;
const MOST_TIME: Duration = Duration::from_secs(1000);
const WRONG_KEY: RKey = RKey(0xBAD);

const STATEMENTS: &str =
    "A …, B …, C …, D …, connect, network, wait, lose, hold, double, damage, pass, say";
const OF_AN_END: &str = "post, receive, set";
const OPERATIONS: &str = "send, write, read, fetch-add, compare-swap";

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut reader = Reader {
            script: Self { ends: 2, network: None, fates: BTreeMap::new(), steps: Vec::new() },
            connections: 0,
            queue_pairs: [0; End::ALL.len()],
        };
        for (index, line) in text.lines().enumerate() {
            let error = |problem| ScriptError { line: index + 1, problem };
            if index == Self::MOST_LINES {
                return Err(error(format!("a script ends after {} lines", Self::MOST_LINES)));
            }
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                reader.statement(line).map_err(error)?;
            }
        }
        Ok(reader.script)
    }
}

struct Reader {
    script: Script,
    connections: usize,
    /// Per end.
    queue_pairs: [usize; End::ALL.len()],
}

impl Reader {
    fn statement(&mut self, line: &str) -> Result<(), String> {
        let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let mut words = Words::of(rest);
        if let Some(end) = End::of_letter(verb) {
            let step = self.of_an_end(end, &mut words)?;
            self.there_is(end);
            self.script.steps.push(step);
            return Ok(());
        }
        let script = &mut self.script;
        match verb {
            "say" if !rest.trim().is_empty() => {
                script.steps.push(Step::Say(rest.trim().to_owned()));
            }
            "say" => return Err(missing("say", "a text")),
            "network" => {
                if script.network.is_some() {
                    return Err("there are two lines of the network; write one, with commas".into());
                }
                script.network = Some(network(rest)?);
            }
            "connect" => {
                if self.connections == MOST_CONNECTIONS {
                    return Err(format!("a script connects {MOST_CONNECTIONS} times at most"));
                }
                self.connections += 1;
                let (ends, service, options) = connect(&mut words)?;
                for end in ends {
                    self.there_is(end);
                    self.queue_pairs[end as usize] += 1;
                }
                self.script.steps.push(Step::Connect(ends, service, options));
            }
            "wait" => {
                let time = words.next().map(duration).transpose()?;
                no_more(&words, "wait", "a time, such as 50us, or nothing")?;
                script.steps.push(Step::Wait(time));
            }
            "lose" | "hold" | "double" | "damage" | "pass" => {
                let (number, fate) = fate(verb, &mut words)?;
                if script.fates.insert(number, fate).is_some() {
                    return Err(format!(
                        "packet {number} has a fate already; write one line for it"
                    ));
                }
            }
            _ => return Err(unknown("statement", verb, STATEMENTS)),
        }
        Ok(())
    }

    fn there_is(&mut self, end: End) {
        self.script.ends = self.script.ends.max(end as usize + 1);
    }

    fn of_an_end(&self, end: End, words: &mut Words<'_>) -> Result<Step, String> {
        let verb = words.next().ok_or_else(|| missing(&end.to_string(), OF_AN_END))?;
        let queue_pairs = self.queue_pairs[end as usize];
        match verb {
            "post" | "receive" if queue_pairs == 0 => {
                let ends = if end > End::B { format!(" A {end}") } else { String::new() };
                Err(format!("{end} has no queue pair yet; connect first: connect rc{ends}"))
            }
            "post" => Ok(Step::Post(end, post(words, queue_pairs)?)),
            "receive" => {
                let wr_id = whole(words, verb, "an id")?;
                let mut fields = Fields::read(words, "receive", "bytes N, at N, qp N")?;
                Ok(Step::Post(end, fields.request(wr_id, PostKind::Receive, queue_pairs)?))
            }
            "set" => {
                let offset =
                    range(whole(words, verb, "an offset in bytes")?, "the offset", places())?;
                keyword(words, "set", "word of set", "to N")?;
                let value = whole(words, "to", "a number")?;
                no_more(words, "set", "nothing")?;
                Ok(Step::Set(end, offset, value))
            }
            _ => Err(unknown("statement of an end", verb, OF_AN_END)),
        }
    }
}

const fn places() -> RangeInclusive<u64> {
    0..=Script::MEMORY as u64 - 8
}

fn post(words: &mut Words<'_>, queue_pairs: usize) -> Result<Request, String> {
    let operation = words.next().ok_or_else(|| missing("post", OPERATIONS))?;
    let possible = match operation {
        "send" => "bytes N, at N, qp N, immediate N, solicited, fence, unsignaled",
        "write" => "bytes N, at N, qp N, immediate N, solicited, fence, unsignaled, wrong-key",
        "read" => "bytes N, at N, qp N, fence, unsignaled",
        "fetch-add" => "add N, at N, qp N, fence, unsignaled",
        "compare-swap" => "compare N, swap N, at N, qp N, fence, unsignaled",
        _ => return Err(unknown("operation", operation, OPERATIONS)),
    };
    let wr_id = whole(words, operation, "an id")?;
    let mut fields = Fields::read(words, operation, possible)?;
    let kind = match operation {
        "send" => PostKind::Send,
        "write" if fields.flag("wrong-key") => PostKind::WriteWithKey(WRONG_KEY),
        "write" => PostKind::Write,
        "read" => PostKind::Read,
        "fetch-add" => PostKind::FetchAdd(fields.needed("add")?),
        _ => PostKind::CompareSwap(fields.needed("compare")?, fields.needed("swap")?),
    };
    fields.request(wr_id, kind, queue_pairs)
}

fn connect(words: &mut Words<'_>) -> Result<([End; 2], QpType, Options), String> {
    const SERVICES: &str = "rc, uc, ud";
    let service = match words.next().ok_or_else(|| missing("connect", SERVICES))? {
        "rc" => QpType::Rc,
        "uc" => QpType::Uc,
        "ud" => QpType::Ud,
        word => return Err(unknown("service", word, SERVICES)),
    };
    let ends = match words.peek().and_then(End::of_letter) {
        Some(first) => {
            words.next();
            [first, other_end(first, words)?]
        }
        None => [End::A, End::B],
    };
    let possible = "mtu N, timeout N, retries N, rnr-timer N, depth N";
    let mut fields = Fields::read(words, "connect", possible)?;
    let mut options = Options::default();
    if let Some(bytes) = fields.number("mtu", 0..=u64::from(u32::MAX))? {
        let mtu = u32::try_from(bytes).ok().and_then(Mtu::from_bytes);
        options.mtu =
            mtu.ok_or_else(|| format!("an MTU is 256, 512, 1024, 2048 or 4096, and not {bytes}"))?;
    }
    let Options { timeout, retry_cnt, min_rnr_timer, depth, .. } = &mut options;
    for (slot, name, most) in
        [(timeout, "timeout", 31), (retry_cnt, "retries", 7), (min_rnr_timer, "rnr-timer", 31)]
    {
        if let Some(value) = fields.number(name, 0..=most)? {
            *slot = value as u8;
        }
    }
    if let Some(value) = fields.number("depth", 1..=256)? {
        *depth = value as u32;
    }
    Ok((ends, service, options))
}

fn other_end(first: End, words: &mut Words<'_>) -> Result<End, String> {
    let others = End::ALL.iter().filter(|end| **end != first);
    let possible = others.map(End::to_string).collect::<Vec<_>>().join(", ");
    let word = words.next().ok_or_else(|| missing(&first.to_string(), &possible))?;
    let end = End::of_letter(word).filter(|end| *end != first);
    end.ok_or_else(|| unknown(&format!("adapter that {first} connects to"), word, &possible))
}

/// Adds the default delay if `text` has none.
fn network(text: &str) -> Result<String, String> {
    let plan: FaultPlan =
        text.parse().map_err(|error: roce_fabric::FaultSyntaxError| error.to_string())?;
    if text.trim().is_empty() {
        let possible = "delay 20us, drop 2%, rate 1gbit and the like, with commas";
        return Err(missing("network", possible));
    }
    let delay = if plan.conditions.delay.is_zero() { "delay 5us, " } else { "" };
    Ok(format!("{delay}{text}"))
}

fn fate(verb: &str, words: &mut Words<'_>) -> Result<(u64, Fate), String> {
    keyword(words, verb, "word here", "packet N")?;
    let number = whole(words, "packet", "its number, counted from 0")?;
    let fate = match verb {
        "lose" => Fate::Lose,
        "double" => Fate::Double,
        "pass" => Fate::Pass,
        "hold" => {
            keyword(words, verb, "word here", "for TIME")?;
            let time = words.next().ok_or_else(|| missing("for", "a time, such as 50us"))?;
            Fate::Hold(duration(time)?)
        }
        _ => {
            keyword(words, verb, "word here", "byte N")?;
            Fate::Damage(range(whole(words, "byte", "its index")?, "byte", BYTES)? as usize)
        }
    };
    no_more(words, verb, "nothing")?;
    Ok((number, fate))
}

struct Fields<'a> {
    what: &'a str,
    values: BTreeMap<&'a str, u64>,
}

impl<'a> Fields<'a> {
    /// `possible`: names; a trailing N marks a name with a number.
    fn read(words: &mut Words<'a>, what: &'a str, possible: &str) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        while let Some(name) = words.next() {
            let form = possible.split(", ").find(|form| form.split(' ').next() == Some(name));
            let form = form.ok_or_else(|| unknown(&format!("word of {what}"), name, possible))?;
            let value = if form.ends_with(" N") { whole(words, name, "a number")? } else { 1 };
            if values.insert(name, value).is_some() {
                return Err(format!("{what} has {name} twice; write it once"));
            }
        }
        Ok(Self { what, values })
    }

    fn number(&mut self, name: &str, allowed: RangeInclusive<u64>) -> Result<Option<u64>, String> {
        self.values.remove(name).map(|value| range(value, name, allowed)).transpose()
    }

    fn needed(&mut self, name: &str) -> Result<u64, String> {
        self.values.remove(name).ok_or_else(|| missing(self.what, &format!("{name} N")))
    }

    fn flag(&mut self, name: &str) -> bool {
        self.values.remove(name).is_some()
    }

    /// The first queue pair is 1, as in A1 and B1.
    fn request(&mut self, wr_id: u64, kind: PostKind, pairs: usize) -> Result<Request, String> {
        let mut flags = SendFlags::SIGNALED;
        flags.set(SendFlags::SIGNALED, !self.flag("unsignaled"));
        flags.set(SendFlags::FENCE, self.flag("fence"));
        flags.set(SendFlags::SOLICITED, self.flag("solicited"));
        let word = matches!(kind, PostKind::FetchAdd(_) | PostKind::CompareSwap(..));
        let length = self.number("bytes", BYTES)?.unwrap_or(if word { 8 } else { 64 });
        Ok(Request {
            wr_id,
            queue_pair: self.number("qp", 1..=pairs as u64)?.unwrap_or(1) as usize - 1,
            kind,
            length: length as u32,
            offset: self.number("at", 0..=Script::MEMORY as u64)?.unwrap_or(0),
            immediate: self.number("immediate", 0..=u64::from(u32::MAX))?.map(|it| it as u32),
            flags,
        })
    }
}

/// Takes the first word of `form`.
fn keyword(words: &mut Words<'_>, behind: &str, kind: &str, form: &str) -> Result<(), String> {
    let word = words.next().ok_or_else(|| missing(behind, form))?;
    if form.split(' ').next() == Some(word) { Ok(()) } else { Err(unknown(kind, word, form)) }
}

fn whole(words: &mut Words<'_>, behind: &str, what: &str) -> Result<u64, String> {
    let word = words.next().ok_or_else(|| missing(behind, what))?;
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| {
        format!("\"{word}\" is not {what}; write for example 16 or 0x10 after {behind}")
    })
}

fn range(value: u64, what: &str, allowed: RangeInclusive<u64>) -> Result<u64, String> {
    if allowed.contains(&value) {
        return Ok(value);
    }
    let (least, most) = allowed.into_inner();
    Err(format!("{what} {value} is out of range; expected {least} to {most}"))
}

fn duration(word: &str) -> Result<Duration, String> {
    match time(word)? {
        long if long > MOST_TIME => Err(format!("the time {word} is too long; at most 1000s")),
        time => Ok(time),
    }
}

fn no_more(words: &Words<'_>, verb: &str, possible: &str) -> Result<(), String> {
    words.peek().map_or(Ok(()), |word| Err(unknown(&format!("word of {verb}"), word, possible)))
}

fn unknown(kind: &str, word: &str, possible: &str) -> String {
    format!("unknown {kind}: \"{word}\"; expected {possible}")
}

fn missing(behind: &str, possible: &str) -> String {
    format!("{behind} needs more; expected {possible}")
}
