use super::{Row, device::Fault};

pub(super) fn wire() -> Vec<Row> {
    use Fault::{In, Out, Raw};
    vec![
        ("does not check the ICRC", "wire/wrong-icrc", Fault::Trusting),
        (
            "takes any version",
            "wire/version-1",
            In(|_, _, p| {
                p[1] &= 0xF0;
                true
            }),
        ),
        (
            "takes any partition",
            "wire/partition-0x1234",
            In(|_, _, p| {
                p[2..4].fill(0xFF);
                true
            }),
        ),
        ("takes no limited member", "wire/partition-limited", In(|_, _, p| p[2] != 0x7F)),
        (
            "takes opcodes of other services",
            "wire/other-service-uc",
            In(|_, _, p| {
                if p[0] & 0x1F == 0x0A {
                    p[0] = 0x0A;
                }
                true
            }),
        ),
        ("wants MigReq", "wire/migrated-0", In(|_, _, p| p[1] & 0x40 != 0)),
        ("does not know MigReq", "wire/migrated-1", In(|_, _, p| p[1] & 0x40 == 0)),
        ("looks at reserved bits of byte 4", "wire/reserved-bits", In(|_, _, p| p[4] & 0x3F == 0)),
        ("looks at reserved bits of byte 8", "wire/reserved-bits", In(|_, _, p| p[8] & 0x7F == 0)),
        ("drops what has FECN", "wire/congestion-bits", In(|_, _, p| p[4] & 0x80 == 0)),
        (
            "has the traffic class in the ICRC",
            "wire/traffic-class-0x02",
            In(|_, net, _| net.traffic_class == 0),
        ),
        (
            "takes packets for any queue pair",
            "wire/unknown-queue-pair-0xabcdef",
            In(|notes, _, p| {
                p[5..8].copy_from_slice(&notes.qpn.to_be_bytes()[1..]);
                true
            }),
        ),
        (
            "has padding of ones",
            "wire/read-padding-1",
            Out(|_, _, p| {
                let (pad, end) = (usize::from(p[1] >> 4 & 3), p.len() - 4);
                p[end - pad..end].fill(0xFF);
                true
            }),
        ),
        (
            "leaves padding out of the ICRC",
            "wire/read-padding-3",
            Raw(|_, _, p| {
                let end = p.len();
                p[end - 1] ^= u8::from(p[1] & 0x30 != 0);
                true
            }),
        ),
        (
            "sends the ICRC the other way round",
            "wire/alive",
            Raw(|_, _, p| {
                let end = p.len();
                p[end - 4..].reverse();
                true
            }),
        ),
        (
            "sends another partition",
            "wire/alive",
            Out(|_, _, p| {
                p[2] = 0x12;
                true
            }),
        ),
        (
            "sends reserved bits",
            "wire/alive",
            Out(|_, _, p| {
                p[8] |= 1;
                true
            }),
        ),
        ("drops payloads that need padding", "wire/padding-1", In(|_, _, p| p[1] & 0x30 == 0)),
    ]
}
