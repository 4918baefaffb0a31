//! Page without scripts or external resources.

use std::{collections::BTreeSet, fmt::Write};

use roce::explain::{Connection, Explained, ExplainedPacket};

use super::report::{self, Filter};
use crate::{
    ladder::{Tone, time},
    markup::escaped,
    output::outln,
};

const HEAD: &str = include_str!("head.html");
/// Checkbox of `--errors`.
const SWITCH: &str = "<p><label><input type=\"checkbox\" id=\"errors\"> only retransmitted, \
     refused, late or damaged packets</label></p>\n";

pub(super) fn print(name: &str, explained: &Explained, filter: &Filter) {
    outln!("{}", page(name, explained, filter).trim_end());
}

fn page(name: &str, explained: &Explained, filter: &Filter) -> String {
    let Explained { packets, connections, .. } = explained;
    let name = escaped(name);
    let mut page = HEAD.replace("{title}", &name);
    page += &format!("<main>\n<h1>{name}</h1>\n");
    if packets.is_empty() {
        paragraph(&mut page, &format!("no RoCE packets in {} frames", explained.other_frames));
    }
    findings(&mut page, explained, filter);
    page += SWITCH;
    let shown = connections.iter().enumerate().filter(|(_, it)| filter.has_connection(it));
    for (index, connection) in shown {
        section(&mut page, explained, filter, index, connection);
    }
    for note in report::notes(explained, filter) {
        paragraph(&mut page, &note);
    }
    page + "</main>\n</body>\n</html>\n"
}

fn findings(page: &mut String, explained: &Explained, filter: &Filter) {
    *page += "<section aria-labelledby=\"findings\">\n<h2 id=\"findings\">Findings</h2>\n";
    let findings: Vec<_> = report::findings(explained, filter).collect();
    if findings.is_empty() {
        paragraph(page, "none");
    } else {
        let drawn = explained.packets.iter();
        let drawn = drawn.filter(|it| it.connection.is_some() && filter.has_packet(it));
        let drawn: BTreeSet<_> = drawn.map(|packet| packet.frame).collect();
        *page += "<ul>\n";
        for finding in findings {
            let text = escaped(&finding.kind.to_string());
            let frame = finding.frame;
            let at = match finding.connection {
                Some(index) => format!(", connection {}", index + 1),
                None => String::new(),
            };
            let place = match drawn.contains(&frame) {
                true => format!("<a href=\"#f{frame}\">frame {frame}</a>"),
                false => format!("frame {frame}"),
            };
            let _ = writeln!(page, "<li class=\"bad\">{place}{at}: {text}</li>");
        }
        *page += "</ul>\n";
    }
    *page += "</section>\n";
}

fn section(
    page: &mut String,
    explained: &Explained,
    filter: &Filter,
    index: usize,
    connection: &Connection,
) {
    let number = index + 1;
    let title = escaped(&report::title(index, connection));
    let _ = writeln!(
        page,
        "<section aria-labelledby=\"c{number}\">\n<h2 id=\"c{number}\">{title}</h2>"
    );
    let figures = escaped(&report::figures(connection).join("\n"));
    let _ = writeln!(page, "<pre class=\"figures\">{figures}</pre>\n<table>");
    *page += "<thead><tr><th scope=\"col\">frame</th><th scope=\"col\">time</th>";
    let [one, other] = connection.ends.map(|end| escaped(&end.to_string()));
    let _ = writeln!(
        page,
        "<th scope=\"col\" class=\"ends\"><span>{one}</span><span>{other}</span></th></tr></thead>\n<tbody>"
    );
    let (rows, left_out) = filter.rows(explained, index);
    rows.iter().for_each(|(packet, changed)| row(page, connection, packet, changed));
    *page += "</tbody>\n</table>\n";
    if left_out > 0 {
        paragraph(page, &format!("{left_out} packets are left out"));
    }
    *page += "</section>\n";
}

/// `changed`: ends and their new states.
fn row(
    page: &mut String,
    connection: &Connection,
    packet: &ExplainedPacket,
    changed: &[(usize, String)],
) {
    let tone = Tone::from(&packet.why).name();
    // for screen readers
    let (side, from) = if packet.from_second { ("second", 1) } else { ("first", 0) };
    let sender = escaped(&connection.ends[from].to_string());
    let at = time(packet.at.saturating_sub(connection.time.0));
    let (what, why) = (escaped(&report::what(packet)), escaped(&report::why(packet)));
    let frame = packet.frame;
    let _ = write!(
        page,
        "<tr id=\"f{frame}\" class=\"{tone} {side}\"><td>{frame}</td><td>{at}</td>\
         <td><span class=\"hidden\">from {sender}: </span><b>{what}</b> <i>{why}</i>"
    );
    for (end, text) in changed {
        let end = escaped(&connection.ends[*end].to_string());
        let _ = write!(page, "<br><small>{end}: {}</small>", escaped(text));
    }
    *page += "</td></tr>\n";
}

fn paragraph(page: &mut String, text: &str) {
    let _ = writeln!(page, "<p>{}</p>", escaped(text));
}
