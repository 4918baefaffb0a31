use roce_transport::trace::{Record, What};
use roce_world::{Direction, End, Event, Failure, Line, SentDatagram, Viewer};
use serde_json::{Value, json};

use crate::spec::Spec;

#[derive(Default)]
struct Play {
    /// Lines, numbered from 1, and texts of the scenario, with the next line's number.
    rows: Vec<Value>,
    steps: usize,
    packets: Vec<Value>,
    rates: Vec<Value>,
}

/// `Played` of the page's `engine.ts`. Times in nanoseconds, rates in Mbit/s.
pub(crate) fn play(spec: &Spec) -> Result<Value, String> {
    let mut play = Play::default();
    let (world, result) = spec.play(&mut play)?;
    let ends = world.nodes.len();
    drop(world);
    let ended = result.err().map(|error| error.to_string());
    let Play { rows, steps, packets, rates } = play;
    Ok(json!({
        "ends": ends, "rows": rows, "steps": steps, "packets": packets, "rates": rates,
        "ended": ended,
    }))
}

pub(crate) const fn letter(end: End) -> char {
    end.letter().to_ascii_lowercase()
}

pub(crate) fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Play {
    fn text(&mut self, kind: &'static str, text: &str) {
        self.rows.push(json!({
            "step": self.steps + 1, "kind": kind, "at": null, "end": null,
            "text": text, "why": "", "tone": "plain", "packet": null,
        }));
    }
}

impl Viewer for Play {
    fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.text("say", text);
        Ok(())
    }

    fn figures(&mut self, text: &str) -> Result<(), Failure> {
        self.text("figures", text);
        Ok(())
    }

    fn line(&mut self, line: Line) -> Result<(), Failure> {
        self.steps += 1;
        let (kind, end, text, why) = match line.event {
            Event::Sent(Direction { from, .. }, what, why) => ("sent", from, what, why),
            Event::Arrived(Direction { from, to }, what, why) => {
                ("arrived", to.unwrap_or(from), what, why)
            }
            Event::Seen(Direction { from, .. }, what, why) => ("seen", from, what, why),
            Event::Lost(Direction { from, .. }, what) => ("lost", from, what, String::new()),
            Event::Note(end, text) => ("note", end, text, String::new()),
        };
        self.rows.push(json!({
            "step": self.steps, "kind": kind, "at": nanos(line.at), "end": letter(end),
            "text": text, "why": why, "tone": line.tone.name(), "packet": line.datagram,
        }));
        Ok(())
    }

    fn datagram(&mut self, datagram: &SentDatagram<'_>) -> Result<(), Failure> {
        let verdict = datagram.verdict;
        self.packets.push(json!({
            "number": datagram.number,
            "from": letter(datagram.way.from), "to": datagram.way.to.map(letter),
            "bytes": datagram.bytes.len(), "delay": nanos(verdict.delay),
            "lost": verdict.lost, "doubled": verdict.copy.is_some(),
            "damaged": verdict.corruption.is_some(), "marked": verdict.congestion,
        }));
        Ok(())
    }

    fn record(&mut self, end: End, record: &Record) {
        if let What::Rate { to, .. } = record.what {
            let rate = to.map(|bits| bits as f64 / 1e6);
            let (at, qpn) = (record.at.as_nanos(), record.qpn.get());
            self.rates.push(json!({"at": at, "end": letter(end), "qpn": qpn, "rate": rate}));
        }
    }
}
