mod layers;

use roce_capture::ip_packet;
use roce_transport::wire::{ICRC_LEN, IcrcMatch, NetHeader, icrc, verify_icrc};
use roce_world::{Failure, SentDatagram};
use serde_json::{Value, json};

use crate::{
    rows::letter,
    spec::Spec,
    state::{Until, hex},
};

/// `Dissected` of the page's `engine.ts`.
pub(crate) fn packet(spec: &Spec, number: u64) -> Result<Value, String> {
    let mut found = None;
    let mut until = Until::new(usize::MAX, |datagram: &SentDatagram<'_>| {
        if datagram.number == number {
            found = Some(dissect(datagram));
            return Err(Failure::from("found"));
        }
        Ok(())
    });
    spec.play(&mut until).map(drop)?;
    found.ok_or_else(|| format!("there is no packet {number}"))
}

fn dissect(datagram: &SentDatagram<'_>) -> Value {
    let mut bytes = datagram.bytes.to_vec();
    if let Some(corruption) = datagram.verdict.corruption {
        corruption.apply(&mut bytes);
    }
    let mut net = *datagram.net;
    if datagram.verdict.congestion {
        net.traffic_class |= 3;
    }
    let packet = ip_packet(&net, &bytes);
    let start = packet.len() - bytes.len();
    let damaged = datagram.verdict.corruption.map(|it| start + it.offset % bytes.len().max(1));
    json!({
        "number": datagram.number,
        "from": letter(datagram.way.from),
        "to": datagram.way.to.map(letter),
        "lost": datagram.verdict.lost,
        "damaged": damaged,
        "hex": hex(&packet),
        "layers": layers::layers(&packet, start),
        "coverage": coverage(&packet, start, net.src.is_ipv4()),
        "icrc": check(&net, &bytes),
    })
}

fn check(net: &NetHeader, bytes: &[u8]) -> Value {
    let (body, received) = match bytes.split_last_chunk::<ICRC_LEN>() {
        Some((body, received)) => (body, *received),
        None => (bytes, [0; ICRC_LEN]),
    };
    json!({
        "received": hex(&received),
        "computed": hex(&icrc(net, body).to_le_bytes()),
        "right": verify_icrc(net, bytes) == Some(IcrcMatch::Exact),
    })
}

/// Per byte, in the ICRC: `c` covered, `m` masked with ones, as routers change it, `i` the ICRC.
/// Annex A17.3.3: bits that routers may change count as ones.
fn coverage(packet: &[u8], bth: usize, is_ipv4: bool) -> String {
    // traffic class, TTL, checksums, FECN and BECN
    const IPV4: &[usize] = &[1, 8, 10, 11, 26, 27];
    const IPV6: &[usize] = &[0, 1, 2, 3, 7, 46, 47];
    let masked = if is_ipv4 { IPV4 } else { IPV6 };
    let kind = |at: usize| match at {
        _ if at + ICRC_LEN >= packet.len() => 'i',
        _ if masked.contains(&at) || at == bth + 4 => 'm',
        _ => 'c',
    };
    (0..packet.len()).map(kind).collect()
}
