use roce_transport::{cm::About, wire::Operation};

use crate::{
    case::{Field, Key, Message, NAK_SEQUENCE, Packet, PacketKind},
    words::{Words, number, signed},
};

fn operation_name(operation: Operation) -> String {
    match operation {
        Operation::CmpSwap => "compare-swap".into(),
        Operation::FetchAdd => "fetch-add".into(),
        _ => {
            let name = operation.name().to_ascii_lowercase();
            name.replace("rdma ", "").replace("with ", "").replace(' ', "-")
        }
    }
}

/// Fields of CM messages alone.
const MESSAGE: &str = "id own-qp port transport path-mtu response-timeout cm-retries wrong-gid \
                       ip-version wrong-peer-id wrong-peer-qp about service-timeout reason status \
                       same base-version class class-version method attribute";
/// Fields of every packet; CM messages have these and their own.
const COMMON: &str = "psn opcode version pkey qp qkey wrong-icrc swapped-icrc cut extra tclass \
                      hop-limit source-port";
/// Fields that `expect` lacks.
const SENT: &str = "version pad reserved key wrong-icrc swapped-icrc cut extra dirty-padding \
                    hop-limit source-port group own-qp port transport path-mtu response-timeout \
                    cm-retries wrong-gid ip-version wrong-peer-id wrong-peer-qp service-timeout \
                    base-version class class-version method attribute";

pub(super) fn packet(words: &mut Words<'_>, sent: bool) -> Result<Packet, String> {
    let name = words.next("a packet")?;
    let acknowledgement = match name {
        "ack" => Some(Field::Positive),
        "nak" => Some(Field::Refused),
        "rnr" => Some(Field::NotReady),
        "nak-sequence" => Some(Field::Syndrome(NAK_SEQUENCE)),
        "nak-invalid" => Some(Field::Syndrome(0x61)),
        "nak-access" => Some(Field::Syndrome(0x62)),
        "nak-operation" => Some(Field::Syndrome(0x63)),
        _ => None,
    };
    let operation = if acknowledgement.is_some() {
        PacketKind::Operation(Operation::Acknowledge)
    } else if name == "cnp" {
        PacketKind::Cnp
    } else if let Some(&(message, _)) = Message::ALL.iter().find(|it| it.1 == name) {
        PacketKind::Message(message)
    } else {
        let found = Operation::ALL.iter().find(|&&it| operation_name(it) == name);
        PacketKind::Operation(*found.ok_or_else(|| {
            format!(
                "unknown packet {name}; expected cnp, ack, nak-sequence, rnr, send-only, \
                 write-first, read-request, …"
            )
        })?)
    };
    let mut fields = Vec::from_iter(acknowledgement);
    while let Some(&word) = words.0.first() {
        let field = field(words)?;
        let is_in = |names: &str| names.split(' ').any(|name| name == word);
        let is_message = matches!(operation, PacketKind::Message(_));
        let is_of_message = is_in(MESSAGE);
        if is_message && !is_of_message && !is_in(COMMON) {
            return Err(format!("the CM message {name} lacks this field"));
        }
        if !is_message && is_of_message {
            return Err(format!("{name} lacks this field; only CM messages have it"));
        }
        if !sent && is_in(SENT) {
            return Err("expect lacks this field; only send has it".into());
        }
        fields.push(field);
    }
    Ok(Packet { operation, fields })
}

fn field(words: &mut Words<'_>) -> Result<Field, String> {
    let name = words.next("a field")?;
    if let Some(field) = Field::read(name, words)? {
        return Ok(field);
    }
    Ok(match name {
        "psn" => Field::Psn(signed(words.next("psn")?, "psn")?),
        "ack-req" => Field::AckReq(true),
        "no-ack-req" => Field::AckReq(false),
        "solicited" => Field::Solicited(true),
        "unsolicited" => Field::Solicited(false),
        "migrated" => Field::MigReq(words.number::<u8>(name)? != 0),
        "fecn" => Field::Fecn(true),
        "becn" => Field::Becn(true),
        "data" => Field::Data { bytes: words.number(name)?, seed: words.or("seed", 1)? },
        "to" => {
            let word = words.next("a place, such as target+64,")?;
            let split = word.find(['+', '-']).unwrap_or(word.len());
            let (region, offset) = word.split_at(split);
            let offset = if offset.is_empty() { 0 } else { signed(offset, "an offset")? };
            Field::Target { region: region.to_owned(), offset }
        }
        "key" => Field::Key(match words.next(name)? {
            "wrong" => Key::Wrong,
            "old" => Key::Old,
            word => Key::Exact(number(word, name)?),
        }),
        "timer" => Field::Syndrome(0x20 | words.number::<u8>(name)? & 0x1F),
        "credits" => Field::Syndrome(words.number::<u8>(name)? & 0x1F),
        "add" => Field::Swap(words.number(name)?),
        "about" => match words.next(name)? {
            "req" => Field::About(About::Req),
            "rep" => Field::About(About::Rep),
            other => return Err(format!("unknown message {other}; expected req or rep")),
        },
        _ => return Err(format!("unknown packet field {name}")),
    })
}
