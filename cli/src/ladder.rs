//! The ladder: the ends, and the packets between them, one line an event, 80 columns.

mod lanes;

use std::{env, io::IsTerminal, time::Duration};

use roce_world::Way;
pub(crate) use roce_world::{End, Event, Tone};

/// Columns of a line.
const WIDTH: usize = 80;
/// Columns of the time.
const TIME: usize = 10;
/// Columns between the lines of the two ends.
const INNER: usize = WIDTH - TIME - 2;

/// Writes lines, in colours if the reader wants them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ladder {
    colours: bool,
    ends: usize,
}

impl Ladder {
    /// In colours if what it is written to is a terminal and `NO_COLOR` is not set.
    pub(crate) fn on(output: &impl IsTerminal) -> Self {
        let asked = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { colours: asked && output.is_terminal(), ends: 2 }
    }

    /// Without colours.
    #[cfg(any(test, target_os = "linux"))]
    pub(crate) const fn plain() -> Self {
        Self { colours: false, ends: 2 }
    }

    /// The same for another number of ends, from two to four.
    pub(crate) const fn of(self, ends: usize) -> Self {
        Self { ends, ..self }
    }

    /// The letters of the ends, above their lines.
    pub(crate) fn letters(&self) -> String {
        if self.ends == 2 {
            return self.heads("A", "B");
        }
        let line = format!("{}{}", " ".repeat(TIME), lanes::heads(self.ends));
        self.paint(line.trim_end(), Tone::Strong)
    }

    /// The names of both ends, above their lines.
    pub(crate) fn heads(&self, left: &str, right: &str) -> String {
        let gap = WIDTH.saturating_sub(TIME + columns(left) + columns(right)).max(1);
        let line = format!("{}{left}{}{right}", " ".repeat(TIME), " ".repeat(gap));
        self.paint(&line, Tone::Strong)
    }

    /// Text across all columns, in paragraphs.
    pub(crate) fn prose(&self, text: &str, tone: Tone) -> Vec<String> {
        wrap(text, WIDTH).iter().map(|line| self.paint(line, tone)).collect()
    }

    /// The lines of an event.
    pub(crate) fn event(&self, at: Duration, event: &Event, tone: Tone) -> Vec<String> {
        if self.ends == 2 {
            self.between_two(at, event, tone)
        } else {
            self.beside_lanes(at, event, tone)
        }
    }

    /// Lines with the text on the arrow.
    fn between_two(&self, at: Duration, event: &Event, tone: Tone) -> Vec<String> {
        let mut lines = Vec::new();
        let mut push = |inner: (char, String, char)| {
            let time = if lines.is_empty() { time(at) } else { String::new() };
            let (left, text, right) = inner;
            let text = self.paint(&text, tone);
            lines.push(format!("{time:>9} {left}{text}{right}").trim_end().to_owned());
        };
        match event {
            Event::Note(end, text) => {
                for line in wrap(text, INNER - 2) {
                    push(('│', placed(*end, &line), '│'));
                }
            }
            Event::Lost(_, what) => push(('│', centred(&format!("✗ {what} is lost")), '│')),
            Event::Sent(way, what, why)
            | Event::Arrived(way, what, why)
            | Event::Seen(way, what, why) => {
                let end = match (event, way.to) {
                    (Event::Arrived(..), Some(to)) => to,
                    _ => way.from,
                };
                let whole = with_reason(what, why);
                let fits = columns(&whole) + 8 <= INNER;
                let text = if fits { &whole } else { what };
                push(arrow(event, text));
                if !fits {
                    for line in wrap(why, INNER - 2) {
                        push(('│', placed(end, &line), '│'));
                    }
                }
            }
        }
        lines
    }

    /// Lines with the text on their right.
    fn beside_lanes(&self, at: Duration, event: &Event, tone: Tone) -> Vec<String> {
        let text = match event {
            Event::Note(_, text) => text.clone(),
            Event::Lost(_, what) => format!("{what} is lost"),
            Event::Sent(_, what, why)
            | Event::Arrived(_, what, why)
            | Event::Seen(_, what, why) => with_reason(what, why),
        };
        let drawn = lanes::drawn(self.ends, event);
        let empty = String::from_iter(lanes::empty(self.ends));
        let lines = wrap(&text, WIDTH - TIME - columns(&empty) - 2);
        let line = |(index, text): (usize, &String)| {
            let (time, lanes) =
                if index == 0 { (time(at), &drawn) } else { (String::new(), &empty) };
            format!("{time:>9} {lanes}  {}", self.paint(text, tone)).trim_end().to_owned()
        };
        lines.iter().enumerate().map(line).collect()
    }

    fn paint(&self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Bad => "31",
            Tone::Warned => "33",
            Tone::Faint => "2",
            Tone::Strong => "1",
        };
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A packet, and the reason for it or what became of it.
fn with_reason(what: &str, why: &str) -> String {
    if why.is_empty() { what.to_owned() } else { format!("{what} ─ {why}") }
}

/// A packet's line between the two ends.
fn arrow(event: &Event, text: &str) -> (char, String, char) {
    let text = shortened(text, INNER - 8);
    let fill = INNER - columns(&text);
    match event {
        Event::Sent(Way { from: End::A, .. }, ..) => {
            ('├', format!("─ {text} {}▶ ", "─".repeat(fill - 5)), '│')
        }
        Event::Sent(..) => ('│', format!(" ◀{} {text} ─", "─".repeat(fill - 5)), '┤'),
        Event::Arrived(Way { from: End::A, .. }, ..) => {
            let (blank, line) = halves(fill - 4);
            ('│', format!("{}{} {text} ─▶", " ".repeat(blank), "─".repeat(line)), '┤')
        }
        Event::Seen(Way { from: End::A, .. }, ..) => {
            ('├', format!("─ {text} {}▶", "─".repeat(fill - 4)), '┤')
        }
        Event::Seen(..) => ('├', format!("◀{} {text} ─", "─".repeat(fill - 4)), '┤'),
        _ => {
            let (blank, line) = halves(fill - 4);
            ('├', format!("◀─ {text} {}{}", "─".repeat(line), " ".repeat(blank)), '│')
        }
    }
}

/// A packet that arrives comes out of the middle.
const fn halves(columns: usize) -> (usize, usize) {
    (columns - columns / 3, columns / 3)
}

fn placed(end: End, text: &str) -> String {
    match end {
        End::A => format!(" {text:<width$}", width = INNER - 1),
        _ => format!("{text:>width$} ", width = INNER - 1),
    }
}

fn centred(text: &str) -> String {
    format!("{text:^INNER$}")
}

fn shortened(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Columns that a text takes: no character here is wider than one.
fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Lines of at most so many columns.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && columns(&line) + 1 + columns(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// A time in nine columns at most.
pub(crate) fn time(at: Duration) -> String {
    let nanos = at.as_nanos() as f64;
    match nanos {
        ..1e6 => format!("{:.1} µs", nanos / 1e3),
        ..1e9 => format!("{:.2} ms", nanos / 1e6),
        _ => format!("{:.3} s", nanos / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Ladder = Ladder::plain();

    #[test]
    fn every_line_has_eighty_columns_at_most() {
        let long =
            "a reason of so many words that it takes a line of its own, and then another one";
        for length in [0, 1, 20, 59, 60, 61, 68, 200] {
            let what = "x".repeat(length);
            for (from, to) in [(End::A, End::B), (End::B, End::A)] {
                let way = from.to(to);
                for event in [
                    Event::Sent(way, what.clone(), long.into()),
                    Event::Arrived(way, what.clone(), "executed".into()),
                    Event::Seen(way, what.clone(), String::new()),
                    Event::Note(from, long.into()),
                ] {
                    let lines = PLAIN.event(Duration::from_millis(1234), &event, Tone::Bad);
                    assert!(!lines.is_empty());
                    for line in lines {
                        assert_eq!(columns(&line), WIDTH, "{line}");
                    }
                    for ends in [3, 4] {
                        for line in PLAIN.of(ends).event(Duration::ZERO, &event, Tone::Bad) {
                            // a word is not broken
                            let most = if length < 40 { WIDTH } else { WIDTH + length };
                            assert!(columns(&line) <= most, "{line}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn times_have_nine_columns_at_most() {
        for nanos in [0, 1, 999, 999_949, 999_999_999, 59_000_000_000] {
            let text = time(Duration::from_nanos(nanos));
            assert!(columns(&text) <= 10, "{text}");
        }
        assert_eq!(time(Duration::from_nanos(1500)), "1.5 µs");
        assert_eq!(time(Duration::from_micros(2500)), "2.50 ms");
    }

    #[test]
    fn an_arrow_points_to_its_receiver() {
        let at = Duration::ZERO;
        let sent = Event::Sent(End::A.to(End::B), "SEND".into(), "request 1".into());
        let line = PLAIN.event(at, &sent, Tone::Plain).remove(0);
        assert!(
            line.starts_with("   0.0 µs ├─ SEND ─ request 1 ──") && line.ends_with("─▶ │"),
            "{line}"
        );
        let back = Event::Arrived(End::B.to(End::A), "ACK".into(), String::new());
        let line = PLAIN.event(at, &back, Tone::Plain).remove(0);
        assert!(line.starts_with("   0.0 µs ├◀─ ACK ──") && line.ends_with(" │"), "{line}");
    }
}
