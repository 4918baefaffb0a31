//! Packets as short texts.

use roce_capture::explain::ExplainedPacket;
use roce_transport::{
    cm::{CmMad, Message, PortSpace},
    wire::{Ext, Headers, Operation, Service, Syndrome},
};

/// Name, PSN and other fields of a packet, or its CM message.
#[must_use]
pub fn packet(headers: &Headers, payload: usize, message: Option<&CmMad>) -> String {
    if let Some(mad) = message {
        return format!("CM {}{}", mad.message.name(), cm_fields(&mad.message));
    }
    let bth = headers.bth();
    let psn = bth.psn.get();
    let name = bth.opcode.to_string();
    let service = bth.opcode.service();
    let name = name.split_once(' ').filter(|_| service != Service::Cnp).map_or(&*name, |it| it.1);
    match (bth.opcode.operation(), headers.ext()) {
        (Operation::Acknowledge, Ext::Aeth(aeth)) => {
            format!("{} psn {psn} msn {}{}", aeth.syndrome, aeth.msn.get(), credits(aeth.syndrome))
        }
        (Operation::ReadRequest, Ext::Reth(reth)) => {
            format!("{name} psn {psn} for {} B", reth.dma_length)
        }
        (_, ext) if service != Service::Cnp => {
            let bytes = if payload > 0 { format!(" {payload} B") } else { String::new() };
            let msn = match ext.aeth() {
                Some(aeth) if !matches!(aeth.syndrome, Syndrome::Ack { .. }) => {
                    format!(" {}", aeth.syndrome)
                }
                Some(aeth) => format!(" msn {}{}", aeth.msn.get(), credits(aeth.syndrome)),
                None => String::new(),
            };
            format!("{name} psn {psn}{bytes}{msn}")
        }
        _ => "CNP".into(),
    }
}

/// The same for a captured packet; `None`: its headers are invalid.
#[must_use]
pub fn captured(packet: &ExplainedPacket) -> Option<String> {
    let headers = packet.headers.as_ref()?;
    Some(self::packet(headers, packet.payload, packet.message.as_deref()))
}

fn credits(syndrome: Syndrome) -> String {
    match syndrome.granted() {
        Some(1) => ", 1 credit".into(),
        Some(count) => format!(", {count} credits"),
        None => String::new(),
    }
}

fn cm_fields(message: &Message) -> String {
    match message {
        Message::Req(req) => match PortSpace::of(req.service_id) {
            Some((_, port)) => format!(" for port {port}, qp {}", req.local_qpn),
            None => format!(" for {}, qp {}", req.service_id, req.local_qpn),
        },
        Message::Rep(rep) => format!(", qp {}", rep.local_qpn),
        Message::Rej(rej) => format!(": {}", rej.reason),
        Message::SidrReq(req) => format!(" for {}", req.service_id),
        Message::SidrRep(rep) => format!(": status {}, qp {}", rep.status, rep.qpn),
        Message::Apr(apr) => format!(": status {}", apr.status),
        Message::Rtu(_)
        | Message::Dreq(_)
        | Message::Drep(_)
        | Message::Lap(_)
        | Message::Mra(_) => String::new(),
    }
}
