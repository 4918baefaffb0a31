use roce_transport::{
    cm::CmMad,
    wire::{Extension, ICRC_LEN, Opcode, Packet, Syndrome},
};
use serde_json::{Value, json};

type Meaning = fn(u64) -> String;

type Form = (&'static str, usize, Meaning);

const NONE: Meaning = |_| String::new();
const DECIMAL: Meaning = |value| value.to_string();
const ADDRESS: Meaning = |value| std::net::Ipv4Addr::from(value as u32).to_string();

const IPV4: &[Form] = &[
    ("Version", 4, NONE),
    ("Header length", 4, |words| format!("{} bytes", words * 4)),
    ("DSCP", 6, NONE),
    ("ECN", 2, |value| {
        ["not ECN-capable", "ECT(1)", "ECT(0)", "congestion experienced"][value as usize & 3].into()
    }),
    ("Total length", 16, |bytes| format!("{bytes} bytes")),
    ("Identification", 16, DECIMAL),
    ("Flags", 3, |value| {
        if value & 2 == 0 { "may be fragmented" } else { "do not fragment" }.into()
    }),
    ("Fragment offset", 13, NONE),
    ("Time to live", 8, DECIMAL),
    ("Protocol", 8, |value| if value == 17 { "UDP".into() } else { String::new() }),
    ("Header checksum", 16, NONE),
    ("Source address", 32, ADDRESS),
    ("Destination address", 32, ADDRESS),
];

const UDP: &[Form] =
    &[
        ("Source port", 16, |port| format!("{port}, chosen by the sender")),
        ("Destination port", 16, |port| {
            if port == 4791 { "4791: RoCEv2".into() } else { port.to_string() }
        }),
        ("Length", 16, |bytes| format!("{bytes} bytes")),
        ("Checksum", 16, |value| if value == 0 { "none".into() } else { String::new() }),
    ];

const BTH: &[Form] = &[
    ("Opcode", 8, |value| {
        Opcode::from_wire(value as u8).map_or_else(|| "unknown".into(), |it| it.to_string())
    }),
    ("Solicited event", 1, |value| {
        if value == 1 { "wakes a receiver that waits for such" } else { "" }.into()
    }),
    ("MigReq", 1, NONE),
    ("Pad count", 2, |value| format!("{value} bytes behind the payload")),
    ("Transport version", 4, NONE),
    ("P_Key", 16, |value| if value == 0xFFFF { "the default partition" } else { "" }.into()),
    ("FECN", 1, NONE),
    ("BECN", 1, NONE),
    ("Reserved", 6, NONE),
    ("Destination QP", 24, |qpn| {
        if qpn == 1 { "QP1: connection management".into() } else { format!("queue pair {qpn:#x}") }
    }),
    ("AckReq", 1, |value| if value == 1 { "asks for an acknowledgement" } else { "" }.into()),
    ("Reserved", 7, NONE),
    ("PSN", 24, DECIMAL),
];

const RETH: &[Form] = &[
    ("Virtual address", 64, |_| "of the responder's memory".into()),
    ("R_Key", 32, NONE),
    ("DMA length", 32, |bytes| format!("{bytes} bytes, of the whole message")),
];

const AETH: &[Form] = &[
    ("Syndrome", 8, |value| Syndrome::from_wire(value as u8).to_string()),
    ("MSN", 24, |value| format!("{value} messages are complete at the responder")),
];

const ATOMIC: &[Form] = &[
    ("Virtual address", 64, |_| "of the responder's word".into()),
    ("R_Key", 32, NONE),
    ("Swap or add data", 64, DECIMAL),
    ("Compare data", 64, DECIMAL),
];

const ATOMIC_ACK: &[Form] = &[("Original remote data", 64, |_| "the word before".into())];
const IMM: &[Form] = &[("Immediate data", 32, NONE)];
const IETH: &[Form] = &[("R_Key", 32, |_| "to be invalidated".into())];
const DETH: &[Form] = &[
    ("Q_Key", 32, NONE),
    ("Reserved", 8, NONE),
    ("Source QP", 24, |qpn| format!("queue pair {qpn:#x}")),
];
const FETH: &[Form] =
    &[("Reserved", 26, NONE), ("Selectivity level", 2, NONE), ("Placement type", 4, NONE)];
const XRCETH: &[Form] =
    &[("Reserved", 8, NONE), ("XRCSRQ", 24, |_| "the shared receive queue".into())];
const ICRC: &[Form] = &[("Invariant CRC", 32, NONE)];

/// The BTH of an IPv4 packet starts at `bth`.
pub(super) fn layers(packet: &[u8], bth: usize) -> Vec<Value> {
    let mut parts = Parts { packet, at: 0, layers: Vec::new() };
    parts.header("IPv4", 20, IPV4);
    parts.header("UDP", 8, UDP);
    let body = &packet[bth..];
    let Some(opcode) = body.first().and_then(|byte| Opcode::from_wire(*byte)) else {
        parts.rest("no packet of the transport", packet.len());
        return parts.layers;
    };
    parts.header("BTH", 12, BTH);
    if opcode.has_xrceth() {
        parts.header("XRCETH", 4, XRCETH);
    }
    for (name, length, form) in extended(opcode.extension()) {
        parts.header(name, *length, form);
    }
    let end = packet.len().saturating_sub(ICRC_LEN);
    let pad = usize::from(body.get(1).map_or(0, |byte| byte >> 4 & 3));
    let payload = end.saturating_sub(pad);
    let message = Packet::parse(body).ok().and_then(|it| CmMad::parse(it.payload).ok());
    let name =
        if message.is_some() { "Payload: a message of connection management" } else { "Payload" };
    parts.rest(name, payload);
    parts.rest("Padding", end);
    parts.header("ICRC", ICRC_LEN, ICRC);
    parts.layers
}

type Header = (&'static str, usize, &'static [Form]);

const fn extended(extension: Extension) -> &'static [Header] {
    match extension {
        Extension::None => &[],
        Extension::Imm => &[("ImmDt", 4, IMM)],
        Extension::Ieth => &[("IETH", 4, IETH)],
        Extension::Reth => &[("RETH", 16, RETH)],
        Extension::RethImm => &[("RETH", 16, RETH), ("ImmDt", 4, IMM)],
        Extension::Aeth => &[("AETH", 4, AETH)],
        Extension::AethAtomicAck => &[("AETH", 4, AETH), ("AtomicAckETH", 8, ATOMIC_ACK)],
        Extension::Atomic => &[("AtomicETH", 28, ATOMIC)],
        Extension::FethReth => &[("FETH", 4, FETH), ("RETH", 16, RETH)],
        Extension::Deth => &[("DETH", 8, DETH)],
        Extension::DethImm => &[("DETH", 8, DETH), ("ImmDt", 4, IMM)],
    }
}

struct Parts<'a> {
    packet: &'a [u8],
    /// Bytes in layers.
    at: usize,
    layers: Vec<Value>,
}

impl Parts<'_> {
    /// Skips a header that is cut.
    fn header(&mut self, name: &str, length: usize, forms: &[Form]) {
        if self.at + length > self.packet.len() {
            return;
        }
        let mut bit = self.at * 8;
        let fields = forms.iter().map(|&(name, bits, meaning)| {
            let (at, value) = (bit, self.bits(bit, bits));
            bit += bits;
            let (value, meaning) = (shown(value, bits), meaning(value));
            json!({"name": name, "bit": at, "bits": bits, "value": value, "meaning": meaning})
        });
        let fields = fields.collect::<Value>();
        self.put(name, length, &fields);
    }

    /// Bytes without fields, up to `end`.
    fn rest(&mut self, name: &str, end: usize) {
        if end > self.at {
            self.put(name, end - self.at, &json!([]));
        }
    }

    fn put(&mut self, name: &str, length: usize, fields: &Value) {
        let start = self.at;
        self.layers.push(json!({"name": name, "start": start, "length": length, "fields": fields}));
        self.at += length;
    }

    /// Most significant first.
    fn bits(&self, from: usize, count: usize) -> u64 {
        let bit = |at: usize| u64::from(self.packet[at / 8] >> (7 - at % 8) & 1);
        (from..from + count).fold(0, |value, at| value << 1 | bit(at))
    }
}

/// Small fields in binary, others in hexadecimal.
fn shown(value: u64, bits: usize) -> String {
    if bits < 8 {
        format!("{value:0bits$b}")
    } else {
        format!("0x{value:0width$x}", width = bits.div_ceil(4))
    }
}
