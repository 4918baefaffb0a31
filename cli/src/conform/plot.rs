use std::{fmt::Write, time::Duration};

use roce_conformance::{Burst, Pause, Recovery, Share};

use super::report::Played;
use crate::markup::escaped;

/// Side of the plot, and margins.
const SIDE: f64 = 320.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 12.0;
const BELOW: f64 = 46.0;
const RIGHT: f64 = 24.0;
/// Shorter times are drawn as this.
const SHORTEST: Duration = Duration::from_micros(1);

/// Pauses: measured over least. Empty unless cases require different pauses.
pub(super) fn pauses(played: &[Played]) -> String {
    let pauses: Vec<_> = played
        .iter()
        .flat_map(|it| it.outcome.pauses.iter().map(|pause| (it.case.name.as_str(), pause)))
        .collect();
    let is_varied = pauses.windows(2).any(|pair| pair[0].1.least != pair[1].1.least);
    if !is_varied {
        return String::new();
    }
    let scale = Scale::of(pauses.iter().flat_map(|(_, pause)| [pause.least, pause.measured]));
    let mut text = figure("Measured pauses over their minimum");
    scale.draw(&mut text);
    for (name, pause) in &pauses {
        let class = if pause.measured < pause.least { " class=\"early\"" } else { "" };
        let _ = writeln!(
            text,
            "<circle{class} cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}: {:?}, at least {:?}</title></circle>",
            scale.x(pause.least),
            scale.y(pause.measured),
            escaped(name),
            pause.measured,
            pause.least,
        );
    }
    let _ = writeln!(text, "</svg>\n<figcaption>{}</figcaption>\n</figure>", caption(&pauses));
    text
}

/// Bytes over time since the first packet.
pub(super) fn bursts(bursts: &[Burst]) -> String {
    let longest = bursts.iter().map(Burst::time).max().unwrap_or_default().max(SHORTEST);
    let total = |burst: &Burst| burst.packets.iter().map(|(_, bytes)| bytes).sum::<usize>();
    let most = bursts.iter().map(total).max().unwrap_or_default();
    if most == 0 {
        return String::new();
    }
    let (right, bottom, middle) = (LEFT + SIDE, TOP + SIDE, LEFT + SIDE / 2.0);
    let mut text = figure("Bytes of each burst over time");
    let _ = writeln!(text, "<path class=\"grid\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>");
    for (number, burst) in bursts.iter().enumerate() {
        let mut sum = 0;
        let mut path = format!("M{LEFT} {bottom}");
        for (time, bytes) in &burst.packets {
            sum += bytes;
            let x = LEFT + SIDE * time.as_secs_f64() / longest.as_secs_f64();
            let y = bottom - SIDE * sum as f64 / most as f64;
            let _ = write!(path, "H{x:.1}V{y:.1}");
        }
        let (dash, rate) = (4 * number, rate(burst));
        let _ = writeln!(
            text,
            "<path class=\"burst\" stroke-dasharray=\"{}\" d=\"{path}\"><title>burst {}: {rate}</title></path>",
            if number == 0 { "none".into() } else { format!("{dash} 3") },
            number + 1,
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{most} B</text>\n\
         <text x=\"{LEFT}\" y=\"{}\" text-anchor=\"middle\">0</text>\n\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"middle\">{longest:.1?}</text>\n\
         <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">time since the first packet</text>\n</svg>",
        LEFT - 6.0,
        TOP + 10.0,
        bottom + 18.0,
        bottom + 18.0,
        bottom + 38.0,
    );
    let rates = (1..).zip(bursts).map(|(number, it)| format!("{number}: {}", rate(it)));
    let rates: Vec<_> = rates.collect();
    let _ = writeln!(text, "<figcaption>Bursts, {}.</figcaption>\n</figure>", rates.join("; "));
    text
}

/// Start of a figure.
fn figure(label: &str) -> String {
    let (width, height) = (LEFT + SIDE + RIGHT, TOP + SIDE + BELOW);
    format!(
        "<figure>\n<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">\n"
    )
}

/// Excludes the first packet.
fn rate(burst: &Burst) -> String {
    let bytes: usize = burst.packets.iter().skip(1).map(|(_, bytes)| bytes).sum();
    let time = burst.time();
    let mut text = if time.is_zero() {
        "at once".into()
    } else {
        format!("{time:.1?}, {:.1} Mb/s", 8e-6 * bytes as f64 / time.as_secs_f64())
    };
    for Recovery { lost, naks, pause, again } in &burst.recoveries {
        let nak = if *naks == 0 { "without a NAK" } else { "with a NAK" };
        let _ = write!(text, "; packet {lost} lost, retransmitted after {pause:.1?} {nak}");
        let _ = write!(text, ", and {again} received packets after it");
    }
    if let Some(Share { packets, of }) = burst.share {
        let percent = 100.0 * f64::from(packets) / f64::from(of.max(1));
        let _ = write!(
            text,
            "; {packets} of the {of} packets until the first was done, {percent:.1} %"
        );
    }
    text
}

fn caption(pauses: &[(&str, &Pause)]) -> String {
    let ratio = |(_, it): &(&str, &Pause)| it.measured.as_secs_f64() / it.least.as_secs_f64();
    let mut ratios: Vec<_> = pauses.iter().map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let (first, middle, last) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    format!(
        "{} pauses: {first:.2} to {last:.2} times the minimum (the broken line), median \
         {middle:.2}. A dot below the line is too early.",
        ratios.len()
    )
}

struct Scale {
    first: u32,
    last: u32,
}

impl Scale {
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let (mut first, mut last) = (u32::MAX, 0);
        for time in times {
            let nanoseconds = time.max(SHORTEST).as_nanos();
            first = first.min(nanoseconds.ilog10());
            last = last.max((nanoseconds - 1).ilog10() + 1);
        }
        Self { first, last: last.max(first + 1) }
    }

    fn part(&self, time: Duration) -> f64 {
        let decade = (time.max(SHORTEST).as_nanos() as f64).log10();
        (decade - f64::from(self.first)) / f64::from(self.last - self.first)
    }

    fn x(&self, time: Duration) -> f64 {
        LEFT + SIDE * self.part(time)
    }

    fn y(&self, time: Duration) -> f64 {
        TOP + SIDE * (1.0 - self.part(time))
    }

    fn draw(&self, text: &mut String) {
        let (right, bottom) = (LEFT + SIDE, TOP + SIDE);
        for decade in self.first..=self.last {
            let time = Duration::from_nanos(10_u64.pow(decade));
            let (x, y) = (self.x(time), self.y(time));
            let _ = writeln!(
                text,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}M{x:.1} {TOP}V{bottom}\"/>\n\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{time:?}</text>\n\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{time:?}</text>",
                LEFT - 6.0,
                y + 4.0,
                bottom + 18.0,
            );
        }
        let middle = LEFT + SIDE / 2.0;
        let _ = writeln!(
            text,
            "<path class=\"least\" d=\"M{LEFT} {bottom}L{right} {TOP}\"/>\n\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">minimum</text>\n\
             <text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">measured</text>",
            bottom + 38.0,
            TOP + SIDE / 2.0,
        );
    }
}
