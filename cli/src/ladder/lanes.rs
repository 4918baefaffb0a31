//! Ladders of three or four ends: lines on the left, text beside them.

use roce_world::{Direction, End, Event};

/// Columns between ends.
const GAP: usize = 6;
/// Columns of an arrow at the network.
const STUB: usize = 3;

pub(super) fn heads(ends: usize) -> String {
    let letters = End::ALL.iter().take(ends);
    letters.map(|end| format!("{end:<GAP$}", end = end.letter())).collect::<String>()
}

pub(super) fn empty(ends: usize) -> Vec<char> {
    (0..=(ends - 1) * GAP).map(|column| if column % GAP == 0 { '│' } else { ' ' }).collect()
}

pub(super) fn drawn(ends: usize, event: &Event) -> String {
    let mut cells = empty(ends);
    match event {
        Event::Note(end, _) => cells[column(*end)] = '●',
        Event::Sent(way, ..) | Event::Seen(way, ..) => {
            for to in targets(ends, *way) {
                arrow(&mut cells, column(way.from), column(to));
            }
        }
        Event::Arrived(way, ..) => {
            for to in targets(ends, *way) {
                let to = column(to);
                let from = if column(way.from) < to { to - STUB - 1 } else { to + STUB + 1 };
                arrow(&mut cells, from, to);
                cells[from] = ' ';
                cells[to] = if from < to { '┤' } else { '├' };
            }
        }
        Event::Lost(way, _) => {
            for to in targets(ends, *way) {
                let from = column(way.from);
                let end = if from < column(to) { from + STUB } else { from - STUB };
                arrow(&mut cells, from, end);
                cells[end] = '✗';
            }
        }
    }
    cells.into_iter().collect()
}

fn column(end: End) -> usize {
    end as usize * GAP
}

/// A group's arrows lead to the outermost ends.
fn targets(ends: usize, way: Direction) -> Vec<End> {
    match way.to {
        Some(to) => vec![to],
        None => {
            let outer = [End::A, End::ALL[ends - 1]];
            outer.into_iter().filter(|end| *end != way.from).collect()
        }
    }
}

fn arrow(cells: &mut [char], from: usize, to: usize) {
    let (first, last) = (from.min(to), from.max(to));
    for cell in &mut cells[first + 1..last] {
        *cell = if *cell == '│' { '┼' } else { '─' };
    }
    let (joint, head) = if from < to { ('├', '▶') } else { ('┤', '◀') };
    cells[from] = if matches!(cells[from], '├' | '┤') { '┼' } else { joint };
    cells[if from < to { to - 1 } else { to + 1 }] = head;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_lead_from_one_line_to_another() {
        let text = String::new;
        let group = Direction { from: End::B, to: None };
        for (event, line) in [
            (Event::Sent(End::A.to(End::D), text(), text()), "├─────┼─────┼────▶│"),
            (Event::Sent(End::C.to(End::B), text(), text()), "│     │◀────┤     │"),
            (Event::Arrived(End::A.to(End::D), text(), text()), "│     │     │  ──▶┤"),
            (Event::Arrived(End::D.to(End::B), text(), text()), "│     ├◀──  │     │"),
            (Event::Lost(End::D.to(End::A), text()), "│     │     │  ✗◀─┤"),
            (Event::Note(End::C, text()), "│     │     ●     │"),
            (Event::Sent(group, text(), text()), "│◀────┼─────┼────▶│"),
        ] {
            assert_eq!(drawn(4, &event), line, "{event:?}");
        }
        assert_eq!(heads(3).trim_end(), "A     B     C");
    }
}
