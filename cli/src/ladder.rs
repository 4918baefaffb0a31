//! Ladders: one line per event, in up to 80 columns.

mod lanes;

#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::{env, io::IsTerminal, time::Duration};

use roce_world::Direction;
pub(crate) use roce_world::{End, Event, Tone};

/// Default and least width.
const WIDTH: usize = 80;
const NARROW: usize = 50;
const TIME: usize = 10;

#[cfg(target_os = "linux")]
pub(crate) trait Output: IsTerminal + AsFd {}
#[cfg(target_os = "linux")]
impl<T: IsTerminal + AsFd> Output for T {}
#[cfg(not(target_os = "linux"))]
pub(crate) trait Output: IsTerminal {}
#[cfg(not(target_os = "linux"))]
impl<T: IsTerminal> Output for T {}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ladder {
    colours: bool,
    ends: usize,
    width: usize,
}

impl Ladder {
    /// `NO_COLOR` disables colours, `COLUMNS` overrides the terminal's width.
    pub(crate) fn on(output: &impl Output) -> Self {
        let asked = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let colours = asked && output.is_terminal();
        let said = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let width = said.or_else(|| terminal_columns(output)).unwrap_or(WIDTH);
        Self { colours, ends: 2, width: width.clamp(NARROW, WIDTH) }
    }

    #[cfg(any(test, target_os = "linux"))]
    pub(crate) const fn plain() -> Self {
        Self { colours: false, ends: 2, width: WIDTH }
    }

    pub(crate) const fn of(self, ends: usize) -> Self {
        Self { ends, ..self }
    }

    pub(crate) fn letters(&self) -> String {
        let line = match self.ends {
            2 => format!("{}A{:>rest$}", " ".repeat(TIME), "B", rest = self.width - TIME - 1),
            ends => format!("{}{}", " ".repeat(TIME), lanes::heads(ends)),
        };
        self.paint(line.trim_end(), Tone::Strong)
    }

    pub(crate) fn heads(&self, left: &str, right: &str) -> Vec<String> {
        let room = self.width - TIME;
        let before = " ".repeat(TIME);
        let lines = match room.checked_sub(columns(left) + columns(right)) {
            Some(gap @ 1..) => vec![format!("{before}{left}{}{right}", " ".repeat(gap))],
            _ => vec![format!("{before}{left}"), format!("{before}{right:>room$}")],
        };
        lines.iter().map(|line| self.paint(line, Tone::Strong)).collect()
    }

    pub(crate) fn prose(&self, text: &str, tone: Tone) -> Vec<String> {
        wrap(text, self.width).iter().map(|line| self.paint(line, tone)).collect()
    }

    /// Continuation lines are indented further.
    pub(crate) fn indented(&self, line: &str) -> Vec<String> {
        if columns(line) <= self.width {
            return vec![line.to_owned()];
        }
        let indent = line.len() - line.trim_start().len();
        let before = |number| " ".repeat(indent + if number > 0 { 4 } else { 0 });
        let lines = wrap(line, self.width - indent - 4);
        lines.iter().enumerate().map(|(number, text)| before(number) + text).collect()
    }

    pub(crate) fn event(&self, at: Duration, event: &Event, tone: Tone) -> Vec<String> {
        if self.ends == 2 {
            self.between_two(at, event, tone)
        } else {
            self.beside_lanes(at, event, tone)
        }
    }

    fn between_two(&self, at: Duration, event: &Event, tone: Tone) -> Vec<String> {
        // columns between the ends
        let inner = self.width - TIME - 2;
        let beside = |text: String| ('│', text, '│');
        let rows: Vec<_> = match event {
            Event::Note(end, text) => {
                let lines = wrap(text, inner - 2);
                lines.iter().map(|line| beside(placed(*end, line, inner))).collect()
            }
            Event::Lost(_, what) => {
                let text = format!("✗ {what} is lost");
                vec![beside(format!("{text:^inner$}"))]
            }
            Event::Sent(way, what, why)
            | Event::Arrived(way, what, why)
            | Event::Seen(way, what, why) => {
                let end = match (event, way.to) {
                    (Event::Arrived(..), Some(to)) => to,
                    _ => way.from,
                };
                let mut lines = vec![with_reason(what, why)];
                if columns(&lines[0]) + 8 > inner {
                    lines = wrap(what, inner - 8);
                    lines.extend(wrap(why, inner - 2).into_iter().filter(|line| !line.is_empty()));
                }
                let row = |(number, line): (usize, &String)| match number {
                    0 => arrow(event, line, inner),
                    _ => beside(placed(end, line, inner)),
                };
                lines.iter().enumerate().map(row).collect()
            }
        };
        let line = |(number, (left, text, right)): (usize, (char, String, char))| {
            let time = if number == 0 { time(at) } else { String::new() };
            let text = self.paint(&text, tone);
            format!("{time:>9} {left}{text}{right}").trim_end().to_owned()
        };
        rows.into_iter().enumerate().map(line).collect()
    }

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
        let lines = wrap(&text, self.width - TIME - columns(&empty) - 2);
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

fn terminal_columns(output: &impl Output) -> Option<usize> {
    #[cfg(target_os = "linux")]
    if output.is_terminal()
        && let Ok(size) = rustix::termios::tcgetwinsize(output)
        && size.ws_col > 0
    {
        return Some(size.ws_col.into());
    }
    let _ = output;
    None
}

fn with_reason(what: &str, why: &str) -> String {
    if why.is_empty() { what.to_owned() } else { format!("{what} ─ {why}") }
}

fn arrow(event: &Event, text: &str, inner: usize) -> (char, String, char) {
    let text = shortened(text, inner - 8);
    let fill = inner - columns(&text);
    match event {
        Event::Sent(Direction { from: End::A, .. }, ..) => {
            ('├', format!("─ {text} {}▶ ", "─".repeat(fill - 5)), '│')
        }
        Event::Sent(..) => ('│', format!(" ◀{} {text} ─", "─".repeat(fill - 5)), '┤'),
        Event::Arrived(Direction { from: End::A, .. }, ..) => {
            let (blank, line) = halves(fill - 4);
            ('│', format!("{}{} {text} ─▶", " ".repeat(blank), "─".repeat(line)), '┤')
        }
        Event::Seen(Direction { from: End::A, .. }, ..) => {
            ('├', format!("─ {text} {}▶", "─".repeat(fill - 4)), '┤')
        }
        Event::Seen(..) => ('├', format!("◀{} {text} ─", "─".repeat(fill - 4)), '┤'),
        _ => {
            let (blank, line) = halves(fill - 4);
            ('├', format!("◀─ {text} {}{}", "─".repeat(line), " ".repeat(blank)), '│')
        }
    }
}

/// An arriving packet starts in the middle.
const fn halves(columns: usize) -> (usize, usize) {
    (columns - columns / 3, columns / 3)
}

fn placed(end: End, text: &str, inner: usize) -> String {
    match end {
        End::A => format!(" {text:<width$}", width = inner - 1),
        _ => format!("{text:>width$} ", width = inner - 1),
    }
}

fn shortened(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Each character here has one column.
fn columns(text: &str) -> usize {
    text.chars().count()
}

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

/// At most nine columns.
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
    fn every_line_has_the_columns_that_there_are() {
        let long =
            "a reason of so many words that it takes a line of its own, and then another one";
        for (width, length) in [0, 1, 20, 30, 39, 40, 59, 60, 61, 68, 200]
            .into_iter()
            .flat_map(|length| [(80, length), (60, length), (50, length)])
        {
            let ladder = Ladder { width, ..PLAIN };
            let what = "x".repeat(length);
            for (from, to) in [(End::A, End::B), (End::B, End::A)] {
                let way = from.to(to);
                for event in [
                    Event::Sent(way, what.clone(), long.into()),
                    Event::Arrived(way, what.clone(), "executed".into()),
                    Event::Seen(way, what.clone(), String::new()),
                    Event::Note(from, long.into()),
                ] {
                    let lines = ladder.event(Duration::from_millis(1234), &event, Tone::Bad);
                    assert!(!lines.is_empty());
                    for line in lines {
                        assert_eq!(columns(&line), width, "{line}");
                    }
                    for ends in [3, 4] {
                        for line in ladder.of(ends).event(Duration::ZERO, &event, Tone::Bad) {
                            // words stay whole
                            let most = if length < 20 { width } else { width + length };
                            assert!(columns(&line) <= most, "{line}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_goes_on_in_another_line() {
        let narrow = Ladder { width: 60, ..PLAIN };
        let [one, other] = ["10.9.0.1 qp 0x663e41", "10.9.0.2 qp 0x6f33f2"];
        assert_eq!(narrow.heads(one, other).concat().len(), 60);
        let long = "fe80::5054:ff:fe77:3 qp 0x000013";
        let lines = narrow.heads(long, long);
        assert_eq!(lines, [format!("{:>42}", long), format!("{long:>60}")]);
        let figures = "  10.9.0.1 qp 0x663e41 sent 6 packets, 6000 B, 12.0 Mbit/s; 0 again";
        assert_eq!(PLAIN.indented(figures), [figures]);
        assert_eq!(
            narrow.indented(figures),
            ["  10.9.0.1 qp 0x663e41 sent 6 packets, 6000 B, 12.0", "      Mbit/s; 0 again"]
        );
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
