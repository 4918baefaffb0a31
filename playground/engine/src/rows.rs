use roce_transport::trace::{Record, What};
use roce_world::{Direction, End, Event, Failure, Line, SentDatagram, Viewer};
use serde::Serialize;

use crate::spec::Spec;

#[derive(Serialize, Default)]
pub(crate) struct Play {
    ends: usize,
    rows: Vec<Row>,
    steps: usize,
    packets: Vec<PacketRow>,
    rates: Vec<RateRow>,
    ended: Option<String>,
}

/// A line, or a text of the scenario.
#[derive(Serialize)]
struct Row {
    /// Line number from 1; of a text, the next line's.
    step: usize,
    kind: &'static str,
    /// Nanoseconds from the start.
    at: Option<u64>,
    /// The sender of a packet that leaves or is lost.
    end: Option<&'static str>,
    text: String,
    why: String,
    tone: &'static str,
    packet: Option<u64>,
}

#[derive(Serialize)]
struct PacketRow {
    number: u64,
    from: &'static str,
    /// `None`: a group.
    to: Option<&'static str>,
    bytes: usize,
    lost: bool,
    doubled: bool,
    damaged: bool,
    marked: bool,
    /// Nanoseconds.
    delay: u64,
}

#[derive(Serialize)]
struct RateRow {
    at: u64,
    end: &'static str,
    qpn: u32,
    /// Mbit/s; `None`: no limit.
    rate: Option<f64>,
}

pub(crate) fn play(spec: &Spec) -> Result<Play, String> {
    let mut play = Play::default();
    let (world, result) = spec.play(&mut play)?;
    let ends = world.nodes().len();
    drop(world);
    play.ends = ends;
    play.ended = result.err().map(|error| error.to_string());
    Ok(play)
}

pub(crate) const fn letter(end: End) -> &'static str {
    match end {
        End::A => "a",
        End::B => "b",
        End::C => "c",
        End::D => "d",
    }
}

pub(crate) fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Play {
    fn text(&mut self, kind: &'static str, text: &str) {
        self.rows.push(Row {
            step: self.steps + 1,
            kind,
            at: None,
            end: None,
            text: text.to_owned(),
            why: String::new(),
            tone: "plain",
            packet: None,
        });
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
        self.rows.push(Row {
            step: self.steps,
            kind,
            at: Some(nanos(line.at)),
            end: Some(letter(end)),
            text,
            why,
            tone: line.tone.name(),
            packet: line.datagram,
        });
        Ok(())
    }

    fn datagram(&mut self, datagram: &SentDatagram<'_>) -> Result<(), Failure> {
        let verdict = datagram.verdict;
        self.packets.push(PacketRow {
            number: datagram.number,
            from: letter(datagram.way.from),
            to: datagram.way.to.map(letter),
            bytes: datagram.bytes.len(),
            lost: verdict.lost,
            doubled: verdict.copy.is_some(),
            damaged: verdict.corruption.is_some(),
            marked: verdict.congestion,
            delay: nanos(verdict.delay),
        });
        Ok(())
    }

    fn record(&mut self, end: End, record: &Record) {
        if let What::Rate { to, .. } = record.what {
            self.rates.push(RateRow {
                at: record.at.as_nanos(),
                end: letter(end),
                qpn: record.qpn.get(),
                rate: to.map(|bits| bits as f64 / 1e6),
            });
        }
    }
}
