use roce_capture::explain::{Connection, Explained};
use roce_transport::wire::Service;
use roce_world::{Tone, packet_text};
use serde::Serialize;

use crate::rows::nanos;

#[derive(Serialize)]
pub(crate) struct CaptureFile {
    connections: Vec<Flow>,
    findings: Vec<Finding>,
    packets: usize,
    other_frames: usize,
    complete: bool,
}

#[derive(Serialize)]
struct Flow {
    service: &'static str,
    mtu: Option<u32>,
    ends: [String; 2],
    /// Packets, bytes, retransmitted packets.
    figures: [(u64, u64, u64); 2],
    rows: Vec<Seen>,
}

#[derive(Serialize)]
struct Seen {
    frame: usize,
    /// Nanoseconds since the flow's first packet.
    at: u64,
    end: &'static str,
    text: String,
    why: String,
    tone: &'static str,
}

#[derive(Serialize)]
struct Finding {
    frame: usize,
    /// From 0.
    connection: Option<usize>,
    text: String,
}

pub(crate) fn file(bytes: &[u8]) -> Result<CaptureFile, String> {
    let explained = Explained::of_file(bytes).map_err(|error| error.to_string())?;
    let connections = explained.connections.iter().enumerate();
    let findings = explained.findings.iter().map(|finding| Finding {
        frame: finding.frame,
        connection: finding.connection,
        text: finding.kind.to_string(),
    });
    Ok(CaptureFile {
        connections: connections.map(|(index, it)| flow(&explained, index, it)).collect(),
        findings: findings.collect(),
        packets: explained.packets.len(),
        other_frames: explained.other_frames,
        complete: explained.complete,
    })
}

fn flow(explained: &Explained, index: usize, connection: &Connection) -> Flow {
    let packets = explained.packets.iter().filter(|packet| packet.connection == Some(index));
    let rows = packets.map(|packet| {
        let text = packet.headers.as_ref().map_or_else(
            || "?".into(),
            |headers| packet_text::packet(headers, packet.payload, packet.message.as_deref()),
        );
        Seen {
            frame: packet.frame,
            at: nanos(packet.at.saturating_sub(connection.time.0)),
            end: if packet.from_second { "b" } else { "a" },
            text,
            why: packet.why.to_string(),
            tone: Tone::from(&packet.why).name(),
        }
    });
    Flow {
        service: service(connection),
        mtu: connection.mtu,
        ends: connection.ends.map(|end| end.to_string()),
        figures: [0, 1].map(|end| {
            let summary = &connection.summaries[end];
            (summary.packets, summary.bytes, summary.repeated)
        }),
        rows: rows.collect(),
    }
}

const fn service(connection: &Connection) -> &'static str {
    match connection.service {
        Service::Rc => "reliable connection",
        Service::Uc => "unreliable connection",
        Service::Xrc => "extended reliable connection",
        Service::Ud => "datagrams",
        Service::Cnp => "congestion notifications",
    }
}
