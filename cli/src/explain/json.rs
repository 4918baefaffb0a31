use roce::explain::{
    Connection, EndPoint, EndSummary, Explained, ExplainedPacket, Explanation, Network,
};
use roce::transport::{
    addr::RoceVersion,
    psn::{Msn, Psn},
};
use serde_json::{Value, json};

use super::report::Filter;
use roce_world::packet_text;

use crate::{failure::Failure, output::outln};

pub(super) fn print(explained: &Explained, filter: &Filter) -> Result<(), Failure> {
    let shown = |index: Option<usize>| match index {
        Some(index) => filter.has_connection(&explained.connections[index]),
        None => filter.qp.is_none(),
    };
    let packets = explained.packets.iter();
    let packets = packets.filter(|it| shown(it.connection) && filter.has_packet(it)).map(packet);
    let findings = explained.findings.iter().filter(|it| shown(it.connection)).map(|finding| {
        json!({
            "frame": finding.frame,
            "connection": finding.connection.map(|index| index + 1),
            "kind": finding.kind.name(),
            "text": finding.kind.to_string(),
        })
    });
    let connections = explained.connections.iter().enumerate();
    let connections = connections
        .filter(|(_, it)| filter.has_connection(it))
        .map(|(index, it)| connection(index, it));
    let document = json!({
        "connections": connections.collect::<Value>(),
        "packets": packets.collect::<Value>(),
        "findings": findings.collect::<Value>(),
        "other_frames": explained.other_frames,
        "fragments": explained.fragments,
        "complete": explained.complete,
    });
    outln!("{}", serde_json::to_string_pretty(&document)?);
    Ok(())
}

fn packet(packet: &ExplainedPacket) -> Value {
    let bth = packet.headers.as_ref().map(|headers| headers.bth());
    let aeth = packet.headers.and_then(|headers| headers.ext().aeth());
    let causes = match packet.why {
        Explanation::Retransmit(causes) => {
            causes.iter().map(|cause| Value::from(cause.to_string())).collect()
        }
        _ => Value::Null,
    };
    json!({
        "frame": packet.frame,
        "time_ns": u64::try_from(packet.at.as_nanos()).unwrap_or(u64::MAX),
        "connection": packet.connection.map(|index| index + 1),
        "src": packet.net.src().to_string(),
        "dst": packet.net.dst().to_string(),
        "dest_qp": bth.map(|bth| bth.dest_qp.get()),
        "opcode": bth.map(|bth| bth.opcode.to_string()),
        "psn": bth.map(|bth| bth.psn.get()),
        "length": packet.payload,
        "syndrome": aeth.map(|aeth| aeth.syndrome.to_string()),
        "credits": aeth.and_then(|aeth| aeth.syndrome.granted()),
        "msn": aeth.map(|aeth| aeth.msn.get()),
        "text": packet_text::captured(packet),
        "why": packet.why.to_string(),
        "causes": causes,
        "marked": packet.is_congested(),
        "truncated": packet.truncated,
        "wrong_icrc": packet.wrong_icrc,
        "requesters": packet.requesters.map(|requester| requester.map(|requester| json!({
            "next_psn": requester.next_psn.get(),
            "oldest_unacked": requester.oldest_unacked.map(Psn::get),
            "msn": requester.msn.map(Msn::get),
        }))),
        "roce_version": match packet.net {
            Network::Roce(net) if net.frame.version() == RoceVersion::V1 => Some(1),
            Network::Roce(_) => Some(2),
            Network::InfiniBand { .. } => None,
        },
    })
}

fn connection(index: usize, connection: &Connection) -> Value {
    let ends = (0..2).map(|from| {
        let EndPoint { address, qpn } = connection.ends[from];
        let summary: &EndSummary = &connection.summaries[from];
        json!({
            "address": address.to_string(),
            "qp": qpn.map(roce::Qpn::get),
            "packets": summary.packets,
            "bytes": summary.bytes,
            "bits_per_second": connection.throughput(from),
            "requests": summary.requests,
            "repeated": summary.repeated,
            "sequence_naks": summary.sequence_naks,
            "rnr_naks": summary.rnr_naks,
            "cnps": summary.cnps,
            "marked": summary.marked,
            "damaged": summary.damaged,
            "round_trips_ns": summary.round_trips.map(|times| json!({
                "least": times.least.as_nanos() as u64,
                "median": times.median.as_nanos() as u64,
                "most": times.most.as_nanos() as u64,
                "count": times.count,
            })),
        })
    });
    json!({
        "connection": index + 1,
        "service": format!("{:?}", connection.service).to_uppercase(),
        "mtu": connection.mtu,
        "mtu_at_least": connection.mtu_at_least,
        "by_messages": connection.by_messages,
        "one_of": connection.one_of,
        "ends": ends.collect::<Value>(),
    })
}
