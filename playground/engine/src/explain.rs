use roce_capture::explain::{Connection, Explained};
use roce_world::{Tone, packet_text};
use serde_json::{Value, json};

use crate::rows::nanos;

/// `CaptureFile` of the page's `engine.ts`.
pub(crate) fn file(bytes: &[u8]) -> Result<Value, String> {
    let explained = Explained::of_file(bytes).map_err(|error| error.to_string())?;
    let connections = explained.connections.iter().enumerate();
    let connections = connections.map(|(index, it)| flow(&explained, index, it));
    let findings = explained.findings.iter().map(|it| {
        // connections count from 0
        json!({"frame": it.frame, "connection": it.connection, "text": it.kind.to_string()})
    });
    Ok(json!({
        "connections": connections.collect::<Value>(),
        "findings": findings.collect::<Value>(),
        "packets": explained.packets.len(),
        "other_frames": explained.other_frames,
        "complete": explained.complete,
    }))
}

/// Figures: packets, bytes, retransmitted packets. Times: nanoseconds since the first packet.
fn flow(explained: &Explained, index: usize, connection: &Connection) -> Value {
    let packets = explained.packets.iter().filter(|packet| packet.connection == Some(index));
    let rows = packets.map(|packet| {
        json!({
            "frame": packet.frame,
            "at": nanos(packet.at.saturating_sub(connection.time.0)),
            "end": if packet.from_second { "b" } else { "a" },
            "text": packet_text::captured(packet).unwrap_or_else(|| "?".into()),
            "why": packet.why.to_string(),
            "tone": Tone::from(&packet.why).name(),
        })
    });
    json!({
        "service": connection.service_name(),
        "mtu": connection.mtu,
        "ends": connection.ends.map(|end| end.to_string()),
        "figures": connection.summaries.each_ref().map(|it| (it.packets, it.bytes, it.repeated)),
        "rows": rows.collect::<Value>(),
    })
}
