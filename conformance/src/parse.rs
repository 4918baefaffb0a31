//! Parser of cases (`docs/guide/cases.md`): one statement a line, words separated by blanks.

mod packet;

use std::time::Duration;

use roce_transport::{
    mem::Access,
    qp::{QpType, RequesterAttr, ResponderAttr},
};
use thiserror::Error;

use crate::{
    case::{
        Bind, Case, Chapter, Completes, Connection, ExpectedBurst, MemoryLocation, Pattern,
        PauseFrames, Queue, Request, RequestKind, Responses, Shares, Step,
    },
    outcome::Verdict,
    run::PATIENCE,
    words::{Words, duration, number},
};
use packet::packet;

/// First error in a chapter.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{file}:{line}: {text}")]
pub struct CaseError {
    /// File name.
    pub file: String,
    /// Line.
    pub line: usize,
    /// Error and correction.
    pub text: String,
}

impl Chapter {
    /// Reads a file's cases; `name` lacks the extension.
    pub fn parse(name: &str, text: &str) -> Result<Self, CaseError> {
        let at = |line: usize, text: String| CaseError { file: format!("{name}.case"), line, text };
        let mut lines = text.lines().enumerate().filter_map(|(at, line)| {
            let line = line.split('#').next().unwrap_or_default().trim_end();
            (!line.is_empty()).then_some((at + 1, line))
        });
        let (line, first) = lines.next().unwrap_or((1, ""));
        let untitled = || at(line, "no chapter; start the file with: chapter TITLE".into());
        let title = first.strip_prefix("chapter ").ok_or_else(untitled)?.to_owned();
        let mut blocks: Vec<Block<'_>> = Vec::new();
        for (number, line) in lines {
            match (line.strip_prefix("case "), blocks.last_mut()) {
                (Some(case), _) => blocks.push((number, case.trim(), Vec::new())),
                (None, Some((_, _, body))) if line.starts_with(' ') => body.push((number, line)),
                _ => {
                    return Err(at(number, "expected: case NAME; its lines are indented".into()));
                }
            }
        }
        let mut cases = Vec::new();
        for (number, case, body) in blocks {
            let expanded = expanded(name, case, &body);
            cases.extend(expanded.map_err(|(line, text)| at(line.unwrap_or(number), text))?);
        }
        Ok(Self { name: name.to_owned(), title, cases })
    }
}

const LONGEST: Duration = Duration::from_secs(10);

const MOST_PAIRS: u32 = 16;

/// A case's line number, name, and numbered lines.
type Block<'a> = (usize, &'a str, Vec<(usize, &'a str)>);

/// Line number, if not the first, and error.
type Fault = (Option<usize>, String);

/// One case per value of its variables.
fn expanded(chapter: &str, name: &str, body: &[(usize, &str)]) -> Result<Vec<Case>, Fault> {
    let is_for = |line: &str| line.trim_start().starts_with("for ");
    let Some(&(number, line)) = body.iter().find(|(_, line)| is_for(line)) else {
        let body = body.iter().map(|&(at, line)| (at, line.to_owned()));
        return Ok(vec![case(chapter, name, body)?]);
    };
    let values = values(line).map_err(|text| (Some(number), text))?;
    let each = values.into_iter().map(|values| {
        let fill = |text: &str| {
            values.iter().fold(text.to_owned(), |text, (variable, value)| {
                text.replace(&format!("{{{variable}}}"), value)
            })
        };
        if fill(name) == name {
            return Err((None, "the name lacks the variable of `for`; add it, such as {n}".into()));
        }
        let body = body.iter().filter(|(_, line)| !is_for(line));
        case(chapter, &fill(name), body.map(|&(at, line)| (at, fill(line))))
    });
    each.collect()
}

/// Values of `for a b in 1:x 2:y` or `for n in 0..31`, a list per case.
fn values(line: &str) -> Result<Vec<Vec<(String, String)>>, String> {
    let usage = || "write: for NAME in VALUES, or for A B in 1:x 2:y, or for N in 0..31".to_owned();
    let (variables, values) = line.trim()["for ".len()..].split_once(" in ").ok_or_else(usage)?;
    let variables: Vec<_> = variables.split_whitespace().collect();
    let mut all = Vec::new();
    for value in values.split_whitespace() {
        if let Some((first, last)) = value.split_once("..") {
            let [first, last] = [first, last].map(str::parse::<u32>);
            let (Ok(first), Ok(last)) = (first, last) else { return Err(usage()) };
            all.extend((first..=last).map(|value| vec![value.to_string()]));
        } else {
            all.push(value.split(':').map(str::to_owned).collect());
        }
    }
    if all.is_empty() || all.iter().any(|values| values.len() != variables.len()) {
        return Err(usage());
    }
    let named = |values: Vec<String>| {
        variables.iter().map(|&variable| variable.to_owned()).zip(values).collect()
    };
    Ok(all.into_iter().map(named).collect())
}

fn case(
    chapter: &str,
    name: &str,
    body: impl Iterator<Item = (usize, String)>,
) -> Result<Case, Fault> {
    let mut case = Case {
        name: format!("{chapter}/{name}"),
        rule: String::new(),
        cost: String::new(),
        severity: Verdict::Deviates,
        steps: Vec::new(),
        text: format!("case {name}\n"),
    };
    for (number, line) in body {
        case.text += &line;
        case.text.push('\n');
        let line = line.trim();
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let prose = |text: &mut String| {
            text.push_str(if text.is_empty() { "" } else { " " });
            text.push_str(rest.trim());
        };
        match verb {
            "rule" => prose(&mut case.rule),
            "cost" => prose(&mut case.cost),
            "optional" => case.severity = Verdict::NotSupported,
            "harmful" => case.severity = Verdict::Harmful,
            _ => {
                for rest in each_of_range(rest) {
                    let mut words = Words(rest.split_whitespace().collect());
                    let step = step(verb, &mut words).and_then(|step| match words.0.first() {
                        Some(word) => Err(format!("{verb} does not take {word}")),
                        None => Ok(step),
                    });
                    case.steps.push((number, step.map_err(|text| (Some(number), text))?));
                }
            }
        }
    }
    for (text, word) in [(&case.rule, "rule"), (&case.cost, "cost")] {
        if text.is_empty() {
            return Err((None, format!("the case has no line `{word}`")));
        }
    }
    if !matches!(case.steps.first(), Some((_, Step::Connect(_)))) && !case.is_by_cm() {
        let steps = "connect rc, uc, ud or cm, or a message to a program that listens: send req";
        return Err((None, format!("invalid first step; expected {steps}")));
    }
    if case.is_by_cm()
        && let Some((number, _)) = case.steps.iter().find(|(_, step)| step.needs_agent())
    {
        let text = "invalid step after `connect` by messages; expected send, again, expect or wait";
        return Err((Some(*number), text.into()));
    }
    if !case.steps.iter().any(|(_, step)| step.needs_life()) {
        return Err((None, "the case expects nothing; add expect or completes".into()));
    }
    Ok(case)
}

/// Expands a range, such as `2..5`, to one line per number.
fn each_of_range(line: &str) -> Vec<String> {
    let range = |word: &str| {
        let (first, last) = word.split_once("..")?;
        Some((first.parse::<u16>().ok()?, last.parse::<u16>().ok()?))
    };
    let mut words = line.split_whitespace();
    let found = words.find_map(|word| Some((word, range(word)?)));
    match found {
        Some((word, (first, last))) => {
            (first..=last).map(|number| line.replacen(word, &number.to_string(), 1)).collect()
        }
        None => vec![line.to_owned()],
    }
}

fn step(verb: &str, words: &mut Words<'_>) -> Result<Step, String> {
    Ok(match verb {
        "connect" => Step::Connect(connection(words)?),
        "region" => Step::Region {
            name: words.next("a name")?.to_owned(),
            bytes: words.needed("bytes")?,
            rights: rights(words.named("rights")?.ok_or("rights is missing")?)?,
        },
        "receive" => Step::Receive { id: words.number("an id")?, bytes: words.needed("bytes")? },
        "post" => Step::Post(request(words)?),
        "bind" => Step::Bind(bind(words)?),
        "invalidate" => Step::Invalidate {
            id: words.number("an id")?,
            window: words.next("a window")?.to_owned(),
        },
        "join" => Step::Join(words.number("the number of a group")?),
        "supported" => Step::Supported,
        "send" => Step::Send(packet(words, true)?),
        "again" => Step::Again {
            count: if words.0.is_empty() { 1 } else { words.number("how often")? },
            every: words.time_or("every", Duration::ZERO)?,
        },
        "pause" => Step::Pause(pause(words)?),
        "on" => {
            let number = words.number::<u32>("the number of a queue pair")?;
            let pair = number.checked_sub(1).ok_or("queue pairs are counted from 1")?;
            Step::At { pair: Some(pair), step: Box::new(inner(words)?) }
        }
        "each" => Step::At { pair: None, step: Box::new(inner(words)?) },
        "share" => Step::Share(Shares {
            packets: words.number("how many packets")?,
            least: words.or("least", 1)?,
            within: words.time_or("within", LONGEST)?,
        }),
        "answer" => Step::Response(responses(words)?),
        "burst" => {
            let burst = ExpectedBurst {
                loses: words.maybe("loses")?,
                lasts: words.time_or("lasts", Duration::ZERO)?,
                within: words.time_or("within", LONGEST)?,
                slower: words.or("slower", 0)?,
                again: words.named("every")?.map(duration).transpose()?,
                packets: words.number("how many packets")?,
            };
            if burst.loses.is_some_and(|lost| lost >= burst.packets) {
                return Err(format!(
                    "loses has the place of one of the {} packets, counted from 0",
                    burst.packets
                ));
            }
            Step::Burst(burst)
        }
        "expect" if words.eat("nothing") => {
            let time = duration(words.named("for")?.ok_or("write: expect nothing for TIME")?)?;
            let but = words.eat("but").then(|| packet(words, false)).transpose()?;
            Step::Silence { time, but }
        }
        "expect" => {
            let after = words.time_or("after", Duration::ZERO)?;
            let within = words.time_or("within", after + PATIENCE)?;
            Step::Expect { packet: packet(words, false)?, after, within }
        }
        "completes" => completes(words)?,
        "fill" => Step::Fill(pattern(words)?),
        "memory" => Step::Memory(pattern(words)?),
        "header" => Step::Header(place(words)?),
        "set" => Step::SetWord(place(words)?, words.needed("to")?),
        "word" => Step::Word(place(words)?, words.needed("is")?),
        "state" => Step::State(words.next("a state")?.to_owned()),
        "wait" => Step::Wait(duration(words.next("a time")?)?),
        _ => {
            return Err(format!(
                "unknown statement {verb}; expected rule, cost, harmful, optional, for, connect, \
                 region, bind, invalidate, join, receive, post, on, each, send, again, pause, expect, burst, share, answer, \
                 completes, fill, memory, header, set, word, state, wait, supported"
            ));
        }
    })
}

fn pause(words: &mut Words<'_>) -> Result<PauseFrames, String> {
    const USAGE: &str = "write: pause PRIORITIES for TIME, or pause PRIORITIES once; priorities are all, none, \
                         or numbers from 0 to 7 with commas";
    let priorities = match words.next("which priorities")? {
        "all" => u8::MAX,
        "none" => 0,
        named => named.split(',').try_fold(0, |all, word| match word.parse::<u8>() {
            Ok(priority @ 0..8) => Ok(all | 1 << priority),
            _ => Err(USAGE),
        })?,
    };
    let time = words.named("for")?.map(duration).transpose()?;
    if time.is_some() == words.eat("once") {
        return Err(USAGE.into());
    }
    Ok(PauseFrames { priorities, time })
}

fn inner(words: &mut Words<'_>) -> Result<Step, String> {
    let verb = words.next("a step")?;
    match step(verb, words)? {
        Step::Connect(_) | Step::Share(_) | Step::At { .. } => {
            Err(format!("{verb} is not for one queue pair"))
        }
        step => Ok(step),
    }
}

fn responses(words: &mut Words<'_>) -> Result<Responses, String> {
    let places = |word: &str| word.split(',').map(|word| number(word, "loses")).collect();
    let responses = Responses {
        loses: words.named("loses")?.map_or(Ok(Vec::new()), places)?,
        swaps: words.maybe("swaps")?,
        seed: words.or("seed", 1)?,
        within: words.time_or("within", LONGEST)?,
        packets: words.number("how many responses")?,
    };
    let packets = responses.packets;
    if responses.loses.iter().chain(&responses.swaps).any(|&place| place >= packets) {
        return Err(format!("loses and swaps have places of the {packets} responses, from 0"));
    }
    if responses.swaps.is_some_and(|place| place + 1 == packets) {
        return Err("the last response has no successor to swap with".into());
    }
    Ok(responses)
}

fn connection(words: &mut Words<'_>) -> Result<Connection, String> {
    let service = words.next("a service")?;
    let qp_type = match service {
        "rc" => QpType::Rc,
        "uc" => QpType::Uc,
        "ud" => QpType::Ud,
        "cm" => {
            return Ok(Connection {
                mtu: words.or("mtu", 1024)?,
                sq_psn: words.or("sends", 0x100)?,
                by_cm: true,
                ..connection(&mut Words(vec!["rc"]))?
            });
        }
        other => return Err(format!("unknown service {other}; expected rc, uc, ud or cm")),
    };
    let pairs = words.or("pairs", 1)?;
    if !(1..=MOST_PAIRS).contains(&pairs) {
        return Err(format!("pairs is the number of queue pairs, from 1 to {MOST_PAIRS}"));
    }
    Ok(Connection {
        pairs,
        by_cm: false,
        qp_type,
        mtu: words.or("mtu", 1024)?,
        rq_psn: words.or("expects", 0x200)?,
        sq_psn: words.or("sends", 0x100)?,
        rights: rights(words.named("rights")?.unwrap_or(match qp_type {
            QpType::Rc => "write,read,atomic",
            QpType::Uc => "write",
            _ => "none",
        }))?,
        responder: ResponderAttr {
            max_dest_rd_atomic: words.or("responder-depth", 4)?,
            min_rnr_timer: words.or("rnr-timer", 12)?,
        },
        requester: RequesterAttr {
            max_rd_atomic: words.or("initiator-depth", 4)?,
            timeout: words.or("timeout", 18)?,
            retry_cnt: words.or("retries", 7)?,
            rnr_retry: words.or("rnr-retries", 7)?,
        },
        qkey: words.or("qkey", 0x1111_1111)?,
        max_send_sge: words.or("pieces", 4)?,
        max_inline_data: words.or("inline", 64)?,
        shared: words.flag("shared"),
    })
}

fn rights(word: &str) -> Result<Access, String> {
    let one = |name| match name {
        "none" => Ok(Access::empty()),
        "local" => Ok(Access::LOCAL_WRITE),
        "write" => Ok(Access::REMOTE_WRITE | Access::LOCAL_WRITE),
        "read" => Ok(Access::REMOTE_READ),
        "atomic" => Ok(Access::REMOTE_ATOMIC | Access::LOCAL_WRITE),
        "flush" => Ok(Access::FLUSH_GLOBAL),
        "bind" => Ok(Access::MW_BIND),
        _ => Err(format!(
            "unknown access right {name}; expected none, local, write, read, atomic, flush, bind, \
             separated by commas"
        )),
    };
    word.split(',').map(one).collect()
}

fn request(words: &mut Words<'_>) -> Result<Request, String> {
    let kind = words.next("an operation")?;
    let id = words.number("an id")?;
    let (kind, bytes) = match kind {
        "send" => (RequestKind::Send, 0),
        "write" => (RequestKind::Write, 0),
        "read" => (RequestKind::Read, 0),
        "compare-swap" => {
            let (compare, swap) = (words.needed("compare")?, words.needed("swap")?);
            (RequestKind::CompareSwap { compare, swap }, 8)
        }
        "fetch-add" => (RequestKind::FetchAdd { add: words.needed("add")? }, 8),
        "atomic-write" => (RequestKind::AtomicWrite, 8),
        "flush" => (RequestKind::Flush, 0),
        other => {
            return Err(format!(
                "unknown operation {other}; expected send, write, read, compare-swap, fetch-add, \
                 atomic-write or flush"
            ));
        }
    };
    let (bytes, pieces): (u32, u32) = (words.or("bytes", bytes)?, words.or("pieces", 1)?);
    if pieces == 0 || !bytes.is_multiple_of(pieces) {
        return Err(format!("{bytes} bytes are not {pieces} pieces of one length"));
    }
    Ok(Request {
        id,
        kind,
        bytes,
        pieces,
        inline: words.flag("inline"),
        immediate: words.maybe("immediate")?,
        solicited: words.flag("solicited"),
        fence: words.flag("fence"),
        wrong_key: words.flag("wrong-key"),
    })
}

fn bind(words: &mut Words<'_>) -> Result<Bind, String> {
    let (id, window) = (words.number("an id")?, words.next("a window")?.to_owned());
    let is_type_2 = match words.needed::<u8>("type")? {
        1 => false,
        2 => true,
        other => return Err(format!("unknown window type {other}; expected 1 or 2")),
    };
    let usage = "write: bind ID NAME type 2 of REGION+64 bytes N rights read";
    let mut of = Words(vec![words.named("of")?.ok_or(usage)?]);
    // Only a region needs the local right.
    let rights = rights(words.named("rights")?.ok_or(usage)?)? - Access::LOCAL_WRITE;
    Ok(Bind {
        id,
        window,
        is_type_2,
        place: place(&mut of)?,
        bytes: words.needed("bytes")?,
        rights,
    })
}

fn completes(words: &mut Words<'_>) -> Result<Step, String> {
    let queue = match words.next("a queue")? {
        "send" => Queue::Send,
        "receive" => Queue::Receive,
        other => return Err(format!("unknown queue {other}; expected send or receive")),
    };
    if words.eat("nothing") {
        let time = words.named("for")?.ok_or("write: completes receive nothing for TIME")?;
        return Ok(Step::NothingCompletes(queue, duration(time)?));
    }
    let id = words.number("an id")?;
    let statuses = words.next("a status")?;
    Ok(Step::Completes(Completes {
        queue,
        id,
        statuses: statuses
            .split(',')
            .map(|status| status.to_ascii_uppercase().replace('-', "_"))
            .collect(),
        bytes: words.maybe("bytes")?,
        immediate: words.maybe("immediate")?,
        within: words.time_or("within", PATIENCE)?,
    }))
}

fn place(words: &mut Words<'_>) -> Result<MemoryLocation, String> {
    let word = words.next("a place, such as target+64,")?;
    let (region, offset) = word.split_once('+').unwrap_or((word, "0"));
    Ok(MemoryLocation { region: region.to_owned(), offset: number(offset, "an offset")? })
}

fn pattern(words: &mut Words<'_>) -> Result<Pattern, String> {
    Ok(Pattern { place: place(words)?, bytes: words.needed("bytes")?, seed: words.or("seed", 1)? })
}
