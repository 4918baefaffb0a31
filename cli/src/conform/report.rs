use std::{io, time::Duration};

use roce::{
    Qpn,
    transport::{cm::CmMad, wire::Packet},
};
use roce_conformance::{Case, Outcome, Seen, TraceEvent, Verdict, chapters, known};
use roce_world::packet_text;
use serde_json::{Value, json};

use crate::{
    ladder::{End, Event, Ladder, Tone},
    output::outln,
};

pub(super) struct Results {
    pub(super) device: String,
    pub(super) chapters: Vec<(String, Vec<Played>)>,
}

pub(super) struct Played {
    pub(super) case: Case,
    pub(super) outcome: Outcome,
}

impl Results {
    pub(super) fn all(&self) -> impl Iterator<Item = &Played> {
        self.chapters.iter().flat_map(|(_, played)| played)
    }

    pub(super) fn worst(&self) -> Verdict {
        self.all().map(|played| played.outcome.verdict).max().unwrap_or(Verdict::Conforms)
    }

    /// `12 conform, 1 deviates`.
    pub(super) fn summary(&self) -> String {
        let counts = Verdict::ALL.into_iter().filter_map(|verdict| {
            let all = self.all().filter(|played| played.outcome.verdict == verdict);
            match (all.count(), verdict) {
                (0, _) => None,
                (count @ 2.., Verdict::Conforms) => Some(format!("{count} conform")),
                (count @ 2.., Verdict::Deviates) => Some(format!("{count} deviate")),
                (count, verdict) => Some(format!("{count} {verdict}")),
            }
        });
        counts.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn to_json(&self) -> Value {
        let cases: Vec<_> = self.all().map(Played::to_json).collect();
        json!({"device": self.device, "by": concat!("roce ", env!("CARGO_PKG_VERSION")), "cases": cases})
    }
}

impl Played {
    pub(super) fn finding(&self) -> Option<String> {
        self.outcome.finding.as_ref().map(|(line, text)| match line {
            0 => text.clone(),
            line => format!("line {line}: {text}"),
        })
    }

    fn to_json(&self) -> Value {
        let Self { case, outcome } = self;
        let packets = outcome.packets.iter().map(|seen| {
            json!({
                "at_us": seen.at.as_micros() as u64,
                "from": if seen.from_device { "device" } else { "instrument" },
                "what": text(seen),
            })
        });
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let bursts = outcome.bursts.iter().map(|burst| {
            let packets = burst.packets.iter();
            let packets =
                packets.map(|&(time, bytes)| json!({"at_us": micros(time), "bytes": bytes}));
            let recoveries = burst.recoveries.iter().map(|it| {
                json!({
                    "lost": it.lost, "naks": it.naks, "pause_us": micros(it.pause), "again": it.again,
                })
            });
            let share = burst.share.map(|it| json!({"packets": it.packets, "of": it.of}));
            json!({
                "least_us": micros(burst.least), "packets": packets.collect::<Vec<_>>(),
                "recoveries": recoveries.collect::<Vec<_>>(), "share": share,
            })
        });
        let pauses = outcome.pauses.iter().map(
            |pause| json!({"least_us": micros(pause.least), "measured_us": micros(pause.measured)}),
        );
        let others = others(case)
            .into_iter()
            .map(|(device, verdict)| (device.to_owned(), verdict.name().into()));
        json!({
            "name": case.name, "verdict": outcome.verdict.name(), "finding": self.finding(),
            "others": others.collect::<serde_json::Map<_, _>>(),
            "rule": case.rule, "cost": case.cost, "ms": outcome.time.as_millis() as u64,
            "pauses": pauses.collect::<Vec<_>>(), "bursts": bursts.collect::<Vec<_>>(),
            "packets": packets.collect::<Vec<_>>(),
        })
    }

    pub(super) fn ladder(&self, ladder: Ladder) -> Vec<String> {
        let line = |seen: &Seen| {
            let (us, device) = (End::A, End::B);
            let way = if seen.from_device { device.to(us) } else { us.to(device) };
            ladder.event(seen.at, &Event::Seen(way, text(seen), String::new()), Tone::Plain)
        };
        let heads = ladder.heads("roce conform", "device under test");
        let lines = self.outcome.packets.iter().flat_map(line);
        heads.into_iter().chain(lines).collect()
    }
}

/// Verdicts of known devices; empty for a case of another origin.
fn others(case: &Case) -> Vec<(&'static str, Verdict)> {
    let own = chapters();
    if !own.iter().flat_map(|chapter| &chapter.cases).any(|own| own.text == case.text) {
        return Vec::new();
    }
    let known = known().into_iter().map(|known| (known.device, known.verdict(&case.name).0));
    std::iter::once(("roce", Verdict::Conforms)).chain(known).collect()
}

fn text(seen: &Seen) -> String {
    let bytes = match &seen.what {
        TraceEvent::Packet { bytes, .. } => bytes,
        TraceEvent::Pause(pause) => return pause.to_string(),
    };
    match Packet::parse(bytes) {
        Ok(packet) => {
            let is_management = packet.headers.bth().dest_qp == Qpn::GSI;
            let mad = is_management.then(|| CmMad::parse(packet.payload).ok()).flatten();
            packet_text::packet(&packet.headers, packet.payload.len(), mad.as_ref())
        }
        Err(error) => format!("{} bytes: {error}", bytes.len()),
    }
}

pub(super) fn print(results: &Results) {
    let ladder = Ladder::on(&io::stdout());
    for (title, played) in &results.chapters {
        let conform = played.iter().filter(|it| it.outcome.verdict == Verdict::Conforms).count();
        outln!("{title}: {conform} of {} conform", played.len());
        for it in played.iter().filter(|it| it.outcome.verdict != Verdict::Conforms) {
            let tone = match it.outcome.verdict {
                Verdict::Harmful | Verdict::Deviates => Tone::Bad,
                Verdict::Inconclusive => Tone::Warned,
                Verdict::NotSupported | Verdict::Conforms => Tone::Faint,
            };
            outln!("");
            let head = format!("{}: {}", it.case.name, it.outcome.verdict);
            outln!("{}", ladder.prose(&head, tone).join("\n"));
            let say = |text: &str| outln!("{}", ladder.prose(text, Tone::Plain).join("\n"));
            say(&it.finding().unwrap_or_default());
            say(&format!("Rule: {}", it.case.rule));
            say(&format!("Costs: {}", it.case.cost));
            let others = others(&it.case).into_iter();
            let others = others.map(|(device, verdict)| format!("{device}: {verdict}"));
            let others = others.collect::<Vec<_>>().join("; ");
            if !others.is_empty() {
                say(&format!("Others: {others}"));
            }
            outln!("{}", it.ladder(ladder).join("\n"));
            outln!("");
        }
    }
    let time: Duration = results.all().map(|played| played.outcome.time).sum();
    outln!("{}: {}, {:.1} s", results.device, results.summary(), time.as_secs_f64());
}
