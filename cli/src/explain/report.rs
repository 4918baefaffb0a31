use std::{collections::BTreeMap, io::stdout};

use roce::{
    Qpn,
    explain::{
        Address, Connection, EndPoint, EndSummary, Explained, ExplainedPacket, Explanation,
        Finding, Requester,
    },
    fabric::clause,
    transport::wire::Service,
};
use roce_world::packet_text;

use crate::{
    ladder::{End, Event, Ladder, Tone, time},
    output::outln,
};

/// Equal findings that are printed one by one.
const ALIKE: usize = 5;

/// Which packets are shown.
#[derive(clap::Args, Default)]
pub(crate) struct Filter {
    /// Only connections with this queue pair: 0x1b or 27
    #[arg(long, value_name = "NUMBER", value_parser = qpn)]
    pub(super) qp: Option<Qpn>,
    /// Only packets with these PSNs: 100..120 or 100
    #[arg(long = "psn", value_name = "A..B", value_parser = psns)]
    psns: Option<(u32, u32)>,
    /// Only retransmitted, refused or damaged packets
    #[arg(long)]
    errors: bool,
    /// Changes of the requesters' state after each packet
    ///
    /// The next PSN, the oldest one without a response, the latest MSN, of both ends.
    #[arg(long, conflicts_with = "json")]
    state: bool,
}

/// A packet, and the states that it changed: index and text of the end.
type Row<'a> = (&'a ExplainedPacket, Vec<(usize, String)>);

impl Filter {
    pub(super) fn has_connection(&self, connection: &Connection) -> bool {
        self.qp.is_none_or(|qpn| connection.ends.iter().any(|end| end.qpn == Some(qpn)))
    }

    pub(super) fn has_packet(&self, packet: &ExplainedPacket) -> bool {
        let psn = packet.headers.map(|headers| headers.bth().psn.get());
        let in_range = self.psns.is_none_or(|(first, last)| {
            psn.is_some_and(|psn| match first <= last {
                true => (first..=last).contains(&psn),
                false => psn >= first || psn <= last,
            })
        });
        in_range && (!self.errors || Tone::from(&packet.why) != Tone::Plain)
    }

    /// The connection's packets, and the number of others.
    pub(super) fn rows<'a>(&self, explained: &'a Explained, index: usize) -> (Vec<Row<'a>>, usize) {
        let of = |packet: &&ExplainedPacket| packet.connection == Some(index);
        let (shown, others): (Vec<_>, Vec<_>) =
            explained.packets.iter().filter(of).partition(|packet| self.has_packet(packet));
        let mut before: [Option<Requester>; 2] = [None; 2];
        let rows = shown.into_iter().map(|packet| {
            let changed = (0..2).filter(|&end| self.state && before[end] != packet.requesters[end]);
            let changed: Vec<_> =
                changed.map(|end| (end, state(packet.requesters[end].as_ref()))).collect();
            before = packet.requesters;
            (packet, changed)
        });
        (rows.collect(), others.len())
    }

    const fn is_none(&self) -> bool {
        self.qp.is_none() && self.psns.is_none() && !self.errors
    }
}

pub(super) fn print(explained: &Explained, filter: &Filter) {
    let ladder = Ladder::on(&stdout());
    let Explained { packets, connections, .. } = explained;
    if packets.is_empty() {
        outln!("no RoCE packets in {} frames", explained.other_frames);
    }
    for (index, connection) in connections.iter().enumerate() {
        if !filter.has_connection(connection) {
            continue;
        }
        outln!("{}", ladder.prose(&title(index, connection), Tone::Strong).join("\n"));
        let [one, other] = connection.ends.map(|end| end.to_string());
        outln!("{}", ladder.heads(&one, &other).join("\n"));
        let (rows, left_out) = filter.rows(explained, index);
        for (packet, changed) in rows {
            outln!("{}", packet_lines(&ladder, connection, packet).join("\n"));
            let at = packet.at.saturating_sub(connection.time.0);
            for (end, text) in changed {
                let end = if end == 0 { End::A } else { End::B };
                outln!("{}", ladder.event(at, &Event::Note(end, text), Tone::Faint).join("\n"));
            }
        }
        if left_out > 0 {
            outln!("{left_out} packets are left out");
        }
        outln!("");
    }
    outln!("{}", conclusion(&ladder, explained, filter).join("\n"));
}

fn state(requester: Option<&Requester>) -> String {
    let Some(requester) = requester else { return "state: unknown".into() };
    let mut text = format!("state: next psn {}", requester.next_psn.get());
    if let Some(oldest) = requester.oldest_unacked {
        text += &format!(", no response from {} on", oldest.get());
    }
    if let Some(msn) = requester.msn {
        text += &format!(", msn {}", msn.get());
    }
    text
}

pub(crate) fn conclusion(ladder: &Ladder, explained: &Explained, filter: &Filter) -> Vec<String> {
    let mut lines = ladder.prose("findings", Tone::Strong);
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    for finding in findings(explained, filter) {
        let text = finding.kind.to_string();
        let count = alike.entry(text.clone()).or_default();
        *count += 1;
        if *count > ALIKE {
            continue;
        }
        let of = finding.connection.map(|index| format!(" connection {}:", index + 1));
        let of = of.unwrap_or_default();
        lines.extend(ladder.prose(&format!("frame {}:{of} {text}", finding.frame), Tone::Bad));
    }
    for (text, count) in alike.iter().filter(|(_, count)| **count > ALIKE) {
        let more = count - ALIKE;
        lines.extend(ladder.prose(&format!("and {more} more: {text}"), Tone::Bad));
    }
    if alike.is_empty() {
        lines.push("none".into());
    }
    lines.extend(notes(explained, filter).iter().flat_map(|note| ladder.prose(note, Tone::Plain)));
    lines.push(String::new());
    lines.extend(ladder.prose("figures", Tone::Strong));
    for (index, connection) in explained.connections.iter().enumerate() {
        if filter.has_connection(connection) {
            let duration = connection.time.1.saturating_sub(connection.time.0);
            lines.push(format!("connection {} ({}):", index + 1, time(duration)));
            let figures = figures(connection);
            lines.extend(figures.iter().flat_map(|line| ladder.indented(&format!("  {line}"))));
        }
    }
    lines
}

pub(super) fn findings<'a>(
    explained: &'a Explained,
    filter: &Filter,
) -> impl Iterator<Item = &'a Finding> {
    explained.findings.iter().filter(move |finding| match finding.connection {
        Some(index) => filter.has_connection(&explained.connections[index]),
        None => filter.qp.is_none(),
    })
}

pub(super) fn notes(explained: &Explained, filter: &Filter) -> Vec<String> {
    let mut notes = Vec::new();
    let unplaced = explained.packets.iter().filter(|packet| packet.connection.is_none());
    let unplaced = unplaced.filter(|_| filter.is_none()).count();
    if unplaced > 0 {
        notes.push(format!("{unplaced} packets of no connection"));
    }
    if explained.fragments > 0 {
        notes.push(format!("{} fragments of IP packets were left out", explained.fragments));
    }
    if !explained.complete {
        notes.push("the file ends within a frame".into());
    }
    notes
}

pub(crate) fn title(index: usize, connection: &Connection) -> String {
    let service = management(connection).unwrap_or_else(|| connection.service_name());
    let mtu = connection.mtu.map(|mtu| {
        let how = match (connection.by_messages, connection.mtu_at_least) {
            (true, _) => "path MTU",
            (false, false) => "path MTU, by its packets,",
            (false, true) => "path MTU, by its packets, at least",
        };
        format!(", {how} {mtu}")
    });
    format!("connection {}: {service}{}", index + 1, mtu.unwrap_or_default())
}

/// Use of datagrams to a special queue pair. Over RoCE the GSI QP carries only CM.
fn management(connection: &Connection) -> Option<&'static str> {
    let EndPoint { address, qpn } = connection.ends[1];
    match (connection.service, qpn?, address) {
        (Service::Ud, Qpn::GSI, Address::Ip(_)) => Some("connection management"),
        (Service::Ud, Qpn::GSI, Address::Lid(_)) => Some("general services"),
        (Service::Ud, qpn, Address::Lid(_)) if qpn.get() == 0 => Some("subnet management"),
        _ => None,
    }
}

pub(crate) fn packet_lines(
    ladder: &Ladder,
    connection: &Connection,
    packet: &ExplainedPacket,
) -> Vec<String> {
    let (one, other) = (End::A, End::B);
    let way = if packet.from_second { other.to(one) } else { one.to(other) };
    let at = packet.at.saturating_sub(connection.time.0);
    ladder.event(at, &Event::Seen(way, what(packet), why(packet)), (&packet.why).into())
}

pub(super) fn what(packet: &ExplainedPacket) -> String {
    packet_text::captured(packet).unwrap_or_else(|| "?".into())
}

pub(super) fn why(packet: &ExplainedPacket) -> String {
    let mut why = packet.why.to_string();
    if packet.is_congested() {
        why.push_str(", marked (ECN)");
    }
    if packet.wrong_icrc && packet.why != Explanation::Damaged {
        why.push_str(", wrong ICRC");
    }
    if packet.truncated {
        why.push_str(", not all captured");
    }
    why
}

/// An indented line continues the last.
pub(super) fn figures(connection: &Connection) -> Vec<String> {
    let mut lines = Vec::new();
    for (from, end) in connection.ends.iter().enumerate() {
        let summary = &connection.summaries[from];
        let EndSummary { packets, bytes, repeated, .. } = summary;
        let rate = connection.throughput(from).map(|bits| format!(", {:.1} Mbit/s", bits / 1e6));
        let rate = rate.unwrap_or_default();
        let s = if *packets == 1 { "" } else { "s" };
        lines.push(format!(
            "{end} sent {packets} packet{s}, {bytes} B{rate}; {repeated} retransmitted"
        ));
        let counted = [
            ("NAK", "s", summary.sequence_naks),
            ("RNR NAK", "s", summary.rnr_naks),
            ("CNP", "s", summary.cnps),
            ("marked", "", summary.marked),
            ("damaged", "", summary.damaged),
        ];
        let counted: Vec<_> = counted
            .into_iter()
            .filter(|(.., count)| *count > 0)
            .map(|(name, s, count)| format!("{count} {name}{}", if count == 1 { "" } else { s }))
            .collect();
        if !counted.is_empty() {
            lines.push(format!("  {}", counted.join(", ")));
        }
        if let Some(times) = summary.round_trips {
            let [least, median, most] = [times.least, times.median, times.most].map(time);
            lines.push(format!(
                "  round trips: {least} to {most}, median {median}, of {}",
                times.count
            ));
        }
    }
    lines
}

fn number(text: &str) -> Result<u32, String> {
    clause::number(text, "")
        .map_err(|_| format!("{text:?} is not a 24-bit number; write for example 27 or 0x1b"))
}

fn qpn(text: &str) -> Result<Qpn, String> {
    number(text).map(Qpn::new)
}

fn psns(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    Ok((number(first)?, number(last)?))
}
