use std::{error::Error, path::Path};

use plotters::{coord::Shift, prelude::*};

use super::{
    figures::{Kind, Table},
    page::bytes,
};

const SIZE: (u32, u32) = (960, 2700);
const COLOURS: [RGBColor; 12] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0xe3, 0x77, 0xc2),
    RGBColor(0x7f, 0x7f, 0x7f),
    RGBColor(0xbc, 0xbd, 0x22),
    RGBColor(0x17, 0xbe, 0xcf),
    RGBColor(0x39, 0x3b, 0x79),
    RGBColor(0xad, 0x49, 0x4a),
];

const DASH: [u32; 2] = [6, 4];

pub(crate) fn draw(file: &Path, tables: &[Table]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let places = root.split_evenly((tables.len(), 1));
    for (table, place) in tables.iter().zip(&places) {
        chart(table, place)?;
    }
    root.present()?;
    Ok(())
}

fn chart(table: &Table, place: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>> {
    let series: Vec<(&str, Vec<(f64, f64)>)> = table
        .names
        .iter()
        .map(|name| {
            let point = |&size: &usize| Some((size as f64, table.cell(name, size)?.median));
            (*name, table.sizes.iter().filter_map(point).collect())
        })
        .collect();
    let all = || series.iter().flat_map(|(_, points)| points);
    let (low, high) = all()
        .fold((f64::MAX, f64::MIN), |(low, high), &(_, value)| (low.min(value), high.max(value)));
    let (Some(&first), Some(&last)) = (table.sizes.first(), table.sizes.last()) else {
        return Ok(());
    };
    let (title, x, y) = match table.kind {
        Kind::Throughput => ("Throughput", "bytes of a message", "GB/s"),
        Kind::Latency => ("Latency, one way", "bytes of a message", "µs"),
        Kind::QueuePairs => ("Throughput with many queue pairs", "queue pairs", "GB/s"),
        Kind::Messages => ("Messages with many queue pairs", "queue pairs", "million a second"),
        Kind::Shards => ("Messages of two threads", "queue pairs", "million a second"),
        Kind::EventLoop => ("Event loops", "connections", "thousand round trips a second"),
    };
    // A decade without a power of ten in range has no labels.
    let base = if high < 10.0 * low { 2.0 } else { 10.0 };
    let mut chart = ChartBuilder::on(place)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .margin_right(300)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (first as f64..last as f64).log_scale().base(2.0),
            (low * 0.8..high * 1.25).log_scale().base(base),
        )?;
    let size = |&at: &f64| {
        if table.kind.is_by_size() { bytes(at as usize) } else { format!("{at:.0}") }
    };
    chart
        .configure_mesh()
        .light_line_style(RGBColor(0xee, 0xee, 0xee))
        .x_desc(x)
        .y_desc(y)
        .x_label_formatter(&size)
        .y_label_formatter(&|value| format!("{}", (value * 1000.0).round() / 1000.0))
        .draw()?;
    for (at, (name, points)) in series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let style = colour.stroke_width(2);
        let points = || points.iter().copied();
        let dash = if at < COLOURS.len() { None } else { Some(DASH) };
        match dash {
            None => chart.draw_series(LineSeries::new(points(), style))?,
            Some([dash, gap]) => {
                chart.draw_series(DashedLineSeries::new(points(), dash, gap, style))?
            }
        };
        chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
        let (right, line) = (SIZE.0 as i32 - 290, 60 + 22 * at as i32);
        let strokes: &[_] = if dash.is_none() { &[(0, 24)] } else { &[(0, 8), (16, 24)] };
        for (start, end) in strokes {
            let ends = vec![(right + start, line), (right + end, line)];
            place.draw(&PathElement::new(ends, style))?;
        }
        place.draw_text(
            name,
            &("sans-serif", 13).into_font().color(&BLACK),
            (right + 32, line - 6),
        )?;
    }
    Ok(())
}
