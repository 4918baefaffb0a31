use super::{Fault, Row};

/// Behind BTH and DETH.
const MAD: usize = 20;
const MESSAGE: usize = MAD + 24;
const LENGTH: usize = MAD + 256 + 4;

fn attribute(p: &[u8]) -> Option<u16> {
    let is_message = p[0] == 0x64 && p.len() >= LENGTH;
    is_message.then(|| u16::from_be_bytes([p[MAD + 16], p[MAD + 17]]))
}

const REQ: Option<u16> = Some(0x10);
const MRA: Option<u16> = Some(0x11);
const REJ: Option<u16> = Some(0x12);
const REP: Option<u16> = Some(0x13);
const RTU: Option<u16> = Some(0x14);
const DREQ: Option<u16> = Some(0x15);
const DREP: Option<u16> = Some(0x16);
const SIDR_REP: Option<u16> = Some(0x18);

fn word(p: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|byte| p[at + byte]))
}

fn local_id(p: &[u8]) -> u32 {
    word(p, MESSAGE)
}

pub(super) fn responses() -> Vec<Row> {
    use Fault::{In, Out};
    vec![
        ("does not reply", "cm/request", Out(|_, _, p| attribute(p) != REP)),
        (
            "replies in another transaction",
            "cm/request",
            Out(|_, _, p| {
                p[MAD + 8] ^= u8::from(attribute(p) == REP);
                true
            }),
        ),
        (
            "has no communication ID",
            "cm/request",
            Out(|_, _, p| {
                if attribute(p) == REP {
                    p[MESSAGE..MESSAGE + 4].fill(0);
                }
                true
            }),
        ),
        (
            "has one queue pair for all",
            "cm/two",
            Out(|_, _, p| {
                if attribute(p) == REP {
                    p[MESSAGE + 12..MESSAGE + 15].copy_from_slice(&[0, 0, 0x42]);
                }
                true
            }),
        ),
        (
            "has another reason",
            "cm/no-listener",
            Out(|_, _, p| {
                if attribute(p) == REJ && p[MESSAGE + 11] == 8 {
                    p[MESSAGE + 11] = 5;
                }
                true
            }),
        ),
        (
            "replies once",
            "cm/reply-repeated",
            Out(|notes, _, p| attribute(p) != REP || notes.sent.insert(local_id(p))),
        ),
        (
            "replies otherwise the second time",
            "cm/request-repeated",
            Out(|notes, _, p| {
                if attribute(p) == REP && !notes.sent.insert(local_id(p)) {
                    p[MESSAGE + 23] ^= 1;
                }
                true
            }),
        ),
        ("does not know the MRA", "cm/reply-acknowledged", In(|_, _, p| attribute(p) != MRA)),
        (
            "waits for the RTU",
            "cm/ready-lost",
            In(|notes, _, p| {
                if attribute(p) == RTU {
                    notes.sent.insert(u32::MAX);
                }
                p[0] == 0x64 || notes.sent.contains(&u32::MAX)
            }),
        ),
        (
            "takes a second RTU for the end",
            "cm/ready-repeated",
            In(|notes, _, p| {
                if attribute(p) == RTU && !notes.sent.insert(u32::MAX) {
                    notes.sent.insert(u32::MAX - 1);
                }
                p[0] == 0x64 || !notes.sent.contains(&(u32::MAX - 1))
            }),
        ),
        ("keeps what was rejected", "cm/reply-rejected", In(|_, _, p| attribute(p) != REJ)),
        ("does not confirm the end", "cm/end", Out(|_, _, p| attribute(p) != DREP)),
        (
            "confirms the end once",
            "cm/end-repeated",
            Out(|notes, _, p| attribute(p) != DREP || notes.sent.insert(u32::MAX)),
        ),
        (
            "does not end what it does not know",
            "cm/end-unknown",
            In(|notes, _, p| {
                if attribute(p) == REQ {
                    notes.sent.insert(u32::MAX);
                }
                attribute(p) != DREQ || notes.sent.contains(&u32::MAX)
            }),
        ),
        (
            "says nothing to what is stale",
            "cm/stale",
            Out(|_, _, p| attribute(p) != REJ || p[MESSAGE + 11] != 10),
        ),
        (
            "says nothing to who looks for datagrams",
            "cm/datagram-service",
            Out(|_, _, p| attribute(p) != SIDR_REP),
        ),
        (
            "takes a hundred requests for one",
            "cm/half-open",
            In(|notes, _, p| {
                if attribute(p) == REQ {
                    notes.received.insert(local_id(p));
                }
                attribute(p) != REQ || notes.received.len() < 5
            }),
        ),
    ]
}

pub(super) fn checks() -> Vec<Row> {
    use Fault::In;
    vec![
        (
            "connects any transport",
            "cm/transport-1",
            In(|_, _, p| {
                if attribute(p) == REQ {
                    p[MESSAGE + 43] &= !6;
                }
                true
            }),
        ),
        (
            "connects with any path MTU",
            "cm/path-mtu-0",
            In(|_, _, p| {
                if attribute(p) == REQ {
                    p[MESSAGE + 50] = p[MESSAGE + 50] & 0x0F | 0x30;
                }
                true
            }),
        ),
        (
            "takes what is for other addresses",
            "cm/other-address",
            In(|_, _, p| {
                if attribute(p) == REQ {
                    p[MESSAGE + 52 + 20 + 15] = 2;
                }
                true
            }),
        ),
        (
            "takes any version of IP",
            "cm/ip-version-5",
            In(|_, _, p| {
                if attribute(p) == REQ {
                    p[MESSAGE + 140 + 1] = 0x40;
                }
                true
            }),
        ),
        (
            "takes messages with any Q_Key",
            "cm/key-own",
            In(|_, _, p| {
                if attribute(p) == REQ {
                    p[12..16].copy_from_slice(&[0x80, 1, 0, 0]);
                }
                true
            }),
        ),
        (
            "knows no version of the frame",
            "cm/frame-base-version-2",
            In(|_, _, p| {
                if attribute(p).is_some() {
                    p[MAD] = 1;
                }
                true
            }),
        ),
        (
            "knows no classes",
            "cm/frame-class-0x33",
            In(|_, _, p| {
                if attribute(p).is_some() {
                    p[MAD + 1] = 7;
                }
                true
            }),
        ),
        (
            "knows no version of the class",
            "cm/frame-class-version-1",
            In(|_, _, p| {
                if attribute(p).is_some() {
                    p[MAD + 2] = 2;
                }
                true
            }),
        ),
        (
            "knows no methods",
            "cm/frame-method-0x83",
            In(|_, _, p| {
                if attribute(p).is_some() {
                    p[MAD + 3] = 3;
                }
                true
            }),
        ),
        (
            "fills up what is short",
            "cm/length-shorter",
            In(|_, _, p| {
                if p[0] == 0x64 && p.len() < LENGTH {
                    let end = p.len() - 4;
                    p.splice(end..end, vec![0; LENGTH - end - 4]);
                }
                true
            }),
        ),
        (
            "stops at what is long",
            "cm/length-longer",
            In(|notes, _, p| {
                if p[0] == 0x64 && p.len() > LENGTH {
                    notes.sent.insert(u32::MAX);
                }
                p[0] != 0x64 || !notes.sent.contains(&u32::MAX)
            }),
        ),
    ]
}

pub(super) fn packets() -> Vec<Row> {
    use Fault::{In, Out, Trusting};
    vec![
        ("believes every ICRC of who connects", "connected/icrc-wrong-icrc", Trusting),
        (
            "has no partitions for who connects",
            "connected/partition",
            In(|_, _, p| {
                if p[0] != 0x64 {
                    p[2..4].fill(0xFF);
                }
                true
            }),
        ),
        (
            "has another word for a wrong key",
            "connected/unknown-key-write",
            Out(|_, _, p| {
                if p[0] == 0x11 && p[12] == 0x62 {
                    p[12] = 0x61;
                }
                true
            }),
        ),
        (
            "says nothing to a READ that it refuses",
            "connected/unknown-key-read",
            Out(|_, _, p| p[0] != 0x11 || p[12] != 0x62),
        ),
        (
            "says nothing of a gap to who connects",
            "connected/gap",
            Out(|_, _, p| p[0] != 0x11 || p[12] != 0x60),
        ),
        (
            "says nothing to what has no beginning",
            "connected/middle-without-first-write-middle",
            In(|_, _, p| ![0x01, 0x02, 0x07, 0x08].contains(&p[0])),
        ),
        ("wants a key for nothing", "connected/read-nothing", In(|_, _, p| p[0] != 0x0C)),
        (
            "gives up at a forged acknowledgement",
            "connected/acknowledgement-of-nothing",
            In(|notes, _, p| {
                if p[0] == 0x11 {
                    notes.sent.insert(u32::MAX);
                }
                !notes.sent.contains(&u32::MAX)
            }),
        ),
    ]
}
