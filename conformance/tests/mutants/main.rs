//! Wrong devices, each with one rule broken: the case that is for the rule finds it.

mod connecting;
mod device;

use std::collections::BTreeSet;

use roce_conformance::{
    Case, Runner, Simulated, Subject, Verdict,
    case::{PEER_ADDRESS, RequestKind},
    chapters,
    subject::Program,
};
use roce_transport::mem::Access;

use device::{Fault, Mutant, dest_qp, is_request, psn, set_psn, syndrome};

/// A mutant: its name, the case that must find it, and what is wrong.
type Row = (&'static str, &'static str, Fault);

/// Address, key and length of a packet with a RETH, in this order.
const ADDRESS: std::ops::Range<usize> = 12..20;
const KEY: std::ops::Range<usize> = 20..24;
const LENGTH: std::ops::Range<usize> = 24..28;

fn has_reth(packet: &[u8]) -> bool {
    [0x06, 0x0A, 0x0B, 0x0C].contains(&packet[0]) && packet.len() >= 32
}

fn address(packet: &[u8]) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|at| packet[ADDRESS.start + at]))
}

fn wire() -> Vec<Row> {
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
        ("looks at reserved bits", "wire/reserved-bits", In(|_, _, p| p[8] & 0x7F == 0)),
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

fn responder() -> Vec<Row> {
    use Fault::{Besides, Complete, Connect, In, Memory, Out, Register, State};
    vec![
        ("never acknowledges", "wire/alive", Out(|_, _, p| syndrome(p).is_none_or(|s| s > 31))),
        (
            "has always MSN 0",
            "wire/alive",
            Out(|_, _, p| {
                if !is_request(p) && p[0] != 0x0E {
                    p[13..16].fill(0);
                }
                true
            }),
        ),
        (
            "counts packets in the MSN",
            "order/msn-counts-messages",
            Out(|notes, _, p| {
                if syndrome(p).is_some_and(|s| s < 32) {
                    let msn = psn(p).wrapping_sub(notes.rq_psn).wrapping_add(1);
                    p[13..16].copy_from_slice(&msn.to_be_bytes()[1..]);
                }
                true
            }),
        ),
        ("sends no sequence NAK", "order/gap", Out(|_, _, p| syndrome(p) != Some(0x60))),
        (
            "names the wrong PSN in it",
            "order/gap",
            Out(|_, _, p| {
                if syndrome(p) == Some(0x60) {
                    let next = psn(p) + 1;
                    set_psn(p, next);
                }
                true
            }),
        ),
        (
            "sends one for each packet",
            "order/one-nak",
            Besides(|notes, p| {
                let nak = notes.naks.last()?;
                (is_request(p) && psn(p) > psn(&nak.bytes)).then(|| nak.clone())
            }),
        ),
        (
            "sends one in its life",
            "order/nak-again",
            Out(|notes, _, p| syndrome(p) != Some(0x60) || notes.naks.is_empty()),
        ),
        (
            "carries out what is behind a gap",
            "order/gap-is-not-executed",
            Memory(|notes, p, device| {
                if p[0] == 0x0A && psn(p) > notes.next {
                    device.fill("target", 0, 16, 1).unwrap();
                }
            }),
        ),
        (
            "carries out atomics behind a gap",
            "order/gap-before-atomic-fetch-add",
            Memory(|notes, p, device| {
                if p[0] == 0x14 && psn(p) > notes.next {
                    device.set_word("target", 0, 1).unwrap();
                }
            }),
        ),
        (
            "takes a long gap for duplicates",
            "order/gap-of-65536",
            In(|notes, _, p| {
                if is_request(p) && psn(p).wrapping_sub(notes.rq_psn) & 0x00FF_FFFF >= 0x8000 {
                    set_psn(p, notes.rq_psn - 1);
                }
                true
            }),
        ),
        (
            "does not wrap",
            "order/wrap-send",
            In(|notes, _, p| {
                !is_request(p) || psn(p) >= notes.rq_psn || notes.rq_psn < 0x00FF_0000
            }),
        ),
        (
            "carries out duplicate WRITEs",
            "order/duplicate-write",
            Memory(|notes, p, device| {
                if p[0] == 0x0A && notes.again(p) {
                    device.fill("target", 0, 16, 1).unwrap();
                }
            }),
        ),
        (
            "carries out duplicate atomics",
            "atomic/again-fetch-add",
            Memory(|notes, p, device| {
                if p[0] == 0x14 && notes.again(p) {
                    device.set_word("target", 0, 15).unwrap();
                }
            }),
        ),
        (
            "answers a duplicate atomic with what is there now",
            "atomic/again-after-change",
            Out(|notes, _, p| {
                if p[0] == 0x12 && notes.left.contains(&psn(p)) {
                    p[16..24].copy_from_slice(&1000_u64.to_be_bytes());
                }
                true
            }),
        ),
        (
            "remembers one atomic",
            "atomic/again-0-of-4",
            In(|notes, _, p| p[0] != 0x14 || !notes.again(p) || psn(p) + 1 == notes.next),
        ),
        (
            "does not answer duplicates",
            "order/duplicate-of-old",
            In(|notes, _, p| !is_request(p) || !notes.again(p)),
        ),
        (
            "answers duplicates only if they ask",
            "order/duplicate-without-ack-req",
            In(|notes, _, p| !is_request(p) || !notes.again(p) || p[8] & 0x80 != 0),
        ),
        (
            "does not answer a READ again",
            "read/again",
            In(|notes, _, p| p[0] != 0x0C || !notes.again(p)),
        ),
        (
            "answers the rest of a READ from its middle",
            "read/again-from-inside",
            Out(|notes, _, p| {
                if notes.left.contains(&psn(p)) && psn(p) != notes.rq_psn && p[0] == 0x0D {
                    p[0] = 0x0E;
                    p.drain(12..16);
                }
                true
            }),
        ),
        (
            "calls the first response the only one",
            "read/responses",
            Out(|_, _, p| {
                if p[0] == 0x0D {
                    p[0] = 0x10;
                }
                true
            }),
        ),
        (
            "asks for acknowledgements of responses",
            "read/responses",
            Out(|_, _, p| {
                if p[0] == 0x0D {
                    p[8] |= 0x80;
                }
                true
            }),
        ),
        (
            "calls an invalid request an access",
            "order/begins-with-send-middle",
            Out(|_, _, p| {
                if syndrome(p) == Some(0x61) {
                    p[12] = 0x62;
                }
                true
            }),
        ),
        (
            "calls an access an invalid request",
            "access/unknown-key-write-only",
            Out(|_, _, p| {
                if syndrome(p) == Some(0x62) {
                    p[12] = 0x61;
                }
                true
            }),
        ),
        (
            "calls a SEND that is too long its own failure",
            "send/too-long",
            Out(|_, _, p| {
                if syndrome(p) == Some(0x61) {
                    p[12] = 0x63;
                }
                true
            }),
        ),
        (
            "refuses without a word",
            "access/unknown-key-write-only",
            Out(|_, _, p| syndrome(p) != Some(0x62)),
        ),
        ("does not stop after a NAK", "access/unknown-key-read-request", State("RTS")),
        (
            "takes any key",
            "access/unknown-key-write-only",
            In(|notes, _, p| {
                if let Some(target) = notes.regions.get("target").filter(|_| has_reth(p)) {
                    p[KEY].copy_from_slice(&target.rkey.to_be_bytes());
                }
                true
            }),
        ),
        (
            "does not look at a key's last bit",
            "access/other-key-bits-write-only",
            In(|notes, _, p| {
                let key = notes.regions["target"].rkey.to_be_bytes();
                if has_reth(p) && p[KEY][..3] == key[..3] {
                    p[KEY][3] = key[3];
                }
                true
            }),
        ),
        (
            "is wrong by one at a region's end",
            "access/past-end-write-only",
            In(|notes, _, p| {
                if let Some(small) = notes.regions.get("small").filter(|_| has_reth(p)) {
                    let last = small.address + 4080;
                    let address = address(p).min(last);
                    p[ADDRESS].copy_from_slice(&address.to_be_bytes());
                }
                true
            }),
        ),
        (
            "is wrong by one at a region's start",
            "access/before-start-read-request",
            In(|notes, _, p| {
                if let Some(small) = notes.regions.get("small").filter(|_| has_reth(p)) {
                    let address = address(p).max(small.address);
                    p[ADDRESS].copy_from_slice(&address.to_be_bytes());
                }
                true
            }),
        ),
        (
            "wants room behind a region's end",
            "access/last-bytes",
            In(|notes, _, p| {
                let small = notes.regions.get("small");
                !has_reth(p) || small.is_none_or(|small| address(p) != small.address + 4080)
            }),
        ),
        (
            "checks the first packet of a WRITE only",
            "access/long-write-past-end",
            In(|notes, _, p| {
                if p[0] == 0x06 && notes.regions.contains_key("small") {
                    p[LENGTH].copy_from_slice(&256_u32.to_be_bytes());
                    p[0] = 0x0A;
                }
                true
            }),
        ),
        (
            "does not look at a region's rights",
            "access/region-without-write-write-only",
            Register(|_| Access::all() - Access::FLUSH_PERSISTENT - Access::FLUSH_GLOBAL),
        ),
        (
            "does not look at a queue pair's rights",
            "access/queue-pair-without-write-write-only",
            Connect(|it| {
                it.rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
            }),
        ),
        (
            "takes READs beyond what was agreed on",
            "read/none-allowed",
            Connect(|it| it.max_dest_rd_atomic = it.max_dest_rd_atomic.max(1)),
        ),
        (
            "takes atomics at any address",
            "atomic/not-aligned-1",
            In(|_, _, p| {
                if p[0] == 0x14 {
                    p[ADDRESS.end - 1] &= 0xF8;
                }
                true
            }),
        ),
        (
            "swaps what is unequal",
            "atomic/compare-swap-unequal",
            In(|_, _, p| {
                if p[0] == 0x13 {
                    p[32..40].copy_from_slice(&5_u64.to_be_bytes());
                }
                true
            }),
        ),
        (
            "does not look at the RETH's length",
            "write/length-15-of-16",
            In(|_, _, p| {
                if p[0] == 0x0A && has_reth(p) {
                    let payload = p.len() - 32 - usize::from(p[1] >> 4 & 3);
                    p[LENGTH].copy_from_slice(&(payload as u32).to_be_bytes());
                }
                true
            }),
        ),
        (
            "checks the key of nothing",
            "write/zero-length-key",
            In(|_, _, p| {
                !(p[0] == 0x0A && has_reth(p) && p[LENGTH] == [0; 4] && p[KEY][1] & 0x7F != 0)
            }),
        ),
        (
            "has one RNR timer",
            "rnr/no-receive-timer-3",
            Out(|_, _, p| {
                if syndrome(p).is_some_and(|s| s >> 5 == 1) {
                    p[12] = 0x20 | 12;
                }
                true
            }),
        ),
        (
            "drops what it is not ready for",
            "rnr/later",
            Out(|_, _, p| syndrome(p).is_none_or(|s| s >> 5 != 1)),
        ),
        (
            "sends an RNR NAK only if asked",
            "rnr/unasked",
            In(|_, _, p| p[0] != 0x04 || p[8] & 0x80 != 0),
        ),
        (
            "sends an RNR NAK once",
            "rnr/each-time",
            Out(|notes, _, p| syndrome(p).is_none_or(|s| s >> 5 != 1) || notes.naks.is_empty()),
        ),
        (
            "sends a sequence NAK behind an RNR NAK",
            "rnr/behind",
            Besides(|notes, p| {
                let nak = notes.naks.last().filter(|nak| nak.bytes[12] >> 5 == 1)?;
                (is_request(p) && psn(p) > psn(&nak.bytes)).then(|| nak.clone())
            }),
        ),
        (
            "turns immediate data round",
            "send/immediate",
            In(|_, _, p| {
                if p[0] == 0x05 {
                    p[12..16].reverse();
                }
                true
            }),
        ),
        (
            "forgets immediate data",
            "write/immediate",
            Complete(|wc| {
                wc.immediate = None;
                true
            }),
        ),
        (
            "counts a byte too much",
            "send/only-4",
            Complete(|wc| {
                wc.bytes += 1;
                true
            }),
        ),
        ("does not flush", "retry/flushes-receives", Complete(|wc| wc.status != "WR_FLUSH_ERR")),
        (
            "does not count the network header",
            "ud/length",
            Complete(|wc| {
                wc.bytes = wc.bytes.saturating_sub(40);
                true
            }),
        ),
        (
            "does not look at the Q_Key",
            "ud/queue-key-0",
            In(|_, _, p| {
                if p[0] == 0x64 {
                    p[12..16].fill(0x11);
                }
                true
            }),
        ),
        (
            "wants datagrams in order",
            "ud/any-psn",
            In(|notes, _, p| p[0] != 0x64 || psn(p) == notes.next),
        ),
        (
            "joins what is left of an unreliable message",
            "uc/gap-within-message",
            In(|notes, _, p| {
                if p[0] == 0x22 {
                    set_psn(p, notes.next);
                }
                true
            }),
        ),
        (
            "waits for lost unreliable messages",
            "uc/gap-between-messages",
            In(|notes, _, p| p[0] != 0x24 || psn(p) == notes.next),
        ),
        ("sends no CNP", "congestion/notifies", Out(|_, _, p| p[0] != 0x81)),
        (
            "sends one CNP",
            "congestion/notifies-again",
            Out(|notes, _, p| p[0] != 0x81 || notes.left.insert(u32::MAX)),
        ),
        ("takes no notice of CNPs", "congestion/slows-down", In(|_, _, p| p[0] != 0x81)),
        (
            "sends CNPs without BECN",
            "congestion/notifies",
            Out(|_, _, p| {
                if p[0] == 0x81 {
                    p[4] = 0;
                }
                true
            }),
        ),
    ]
}

fn requester() -> Vec<Row> {
    use Fault::{Complete, Connect, In, Out};
    vec![
        (
            "does not ask for acknowledgements",
            "send/posted-1",
            Out(|_, _, p| {
                if is_request(p) {
                    p[8] &= 0x7F;
                }
                true
            }),
        ),
        (
            "asks for a solicited event with each packet",
            "send/posted-solicited",
            Out(|_, _, p| {
                if p[0] == 0x00 {
                    p[1] |= 0x80;
                }
                true
            }),
        ),
        (
            "never asks for a solicited event",
            "send/posted-solicited",
            Out(|_, _, p| {
                p[1] &= 0x7F;
                true
            }),
        ),
        (
            "has the first packet's length in the RETH",
            "write/posted-many",
            Out(|_, _, p| {
                if p[0] == 0x06 {
                    p[LENGTH].copy_from_slice(&256_u32.to_be_bytes());
                }
                true
            }),
        ),
        (
            "turns the immediate data that it sends round",
            "send/posted-immediate",
            Out(|_, _, p| {
                if p[0] == 0x05 {
                    p[12..16].reverse();
                }
                true
            }),
        ),
        (
            "confuses the operands of COMPARE & SWAP",
            "atomic/posted-compare-swap",
            Out(|_, _, p| {
                if p[0] == 0x13 {
                    let swap: [u8; 8] = std::array::from_fn(|at| p[24 + at]);
                    p.copy_within(32..40, 24);
                    p[32..40].copy_from_slice(&swap);
                }
                true
            }),
        ),
        (
            "has a payload with a READ",
            "read/posted-256",
            Out(|_, _, p| {
                if p[0] == 0x0C {
                    p.extend([0; 4]);
                }
                true
            }),
        ),
        (
            "does not repeat",
            "retry/timeout-8",
            Out(|notes, _, p| !is_request(p) || !notes.left.contains(&psn(p))),
        ),
        (
            "repeats with new PSNs",
            "retry/timeout-10",
            Out(|notes, _, p| {
                if is_request(p) && notes.left.contains(&psn(p)) {
                    let next = psn(p) + 1;
                    set_psn(p, next);
                }
                true
            }),
        ),
        ("waits too long", "retry/timeout-8", Connect(|it| it.timeout += 3)),
        ("waits too short", "retry/patience-16", Connect(|it| it.timeout -= 3)),
        (
            "repeats once too often",
            "retry/no-answer-2",
            Connect(|it| {
                it.retry_cnt = (it.retry_cnt + 1).min(7);
            }),
        ),
        (
            "takes any RNR timer for the shortest",
            "rnr/pause-timer-12",
            In(|_, _, p| {
                if syndrome(p).is_some_and(|s| s >> 5 == 1) {
                    p[12] = 0x21;
                }
                true
            }),
        ),
        ("gives up at the first RNR NAK", "rnr/retries-2", Connect(|it| it.rnr_retry = 0)),
        (
            "knows no RNR retries without limit",
            "rnr/retries-7",
            Connect(|it| {
                it.rnr_retry = it.rnr_retry.min(5);
            }),
        ),
        ("does not go back", "retry/goes-back", In(|_, _, p| syndrome(p) != Some(0x60))),
        (
            "goes back to the packet behind the gap",
            "recovery/after-a-nak-1",
            In(|_, _, p| {
                if syndrome(p) == Some(0x60) {
                    let next = psn(p) + 1;
                    set_psn(p, next);
                }
                true
            }),
        ),
        (
            "repeats its first message only",
            "recovery/twice",
            Out(|notes, _, p| {
                let is_second = psn(p) >= notes.sq_psn + 16;
                !is_request(p) || !is_second || !notes.left.contains(&psn(p))
            }),
        ),
        (
            "forgets the third message behind a gap",
            "recovery/next-message",
            Out(|notes, _, p| {
                let is_third = psn(p) >= notes.sq_psn + 8;
                !is_request(p) || !is_third || !notes.left.contains(&psn(p))
            }),
        ),
        (
            "repeats no last packet",
            "recovery/last-packet",
            Out(|notes, _, p| p[0] != 0x08 || !notes.left.contains(&psn(p))),
        ),
        (
            "repeats no message of one packet",
            "recovery/the-only-packet",
            Out(|notes, _, p| p[0] != 0x04 || !notes.left.contains(&psn(p))),
        ),
        (
            "goes back too far",
            "retry/goes-back",
            In(|notes, _, p| {
                if syndrome(p) == Some(0x60) {
                    set_psn(p, notes.sq_psn);
                }
                true
            }),
        ),
        (
            "completes what it has not sent",
            "retry/of-the-future-1",
            In(|notes, _, p| {
                if syndrome(p).is_some_and(|s| s < 32) && psn(p) > notes.sq_psn {
                    set_psn(p, notes.sq_psn);
                }
                true
            }),
        ),
        (
            "completes a message in its middle",
            "retry/part-of-a-message",
            In(|notes, _, p| {
                if syndrome(p).is_some_and(|s| s < 32) && p[15] == 0 {
                    set_psn(p, notes.sq_psn + 2);
                }
                true
            }),
        ),
        (
            "takes acknowledgements with credits for others",
            "retry/credits-0",
            In(|_, _, p| syndrome(p).is_none_or(|s| s >= 31)),
        ),
        (
            "calls a refused access an operational error",
            "retry/refused-access",
            Complete(|wc| {
                if wc.status == "REM_ACCESS_ERR" {
                    wc.status = "REM_OP_ERR".into();
                }
                true
            }),
        ),
        (
            "does not complete what is acknowledged together",
            "retry/completes-in-order",
            Complete(|wc| wc.id != 2),
        ),
        (
            "has more READs outstanding than it may",
            "read/depth",
            Connect(|it| it.max_rd_atomic = it.max_rd_atomic.max(2)),
        ),
        (
            "does not pass READ data on",
            "read/posted-256",
            In(|_, _, p| {
                if p[0] == 0x10 {
                    let end = p.len() - 4;
                    p[16..end].fill(0);
                }
                true
            }),
        ),
        (
            "stops at a CNP",
            "congestion/notification-is-harmless",
            In(|_, _, p| {
                if p[0] == 0x81 {
                    // as if it were a refusal
                    p[0] = 0x11;
                    p.truncate(20);
                    p[12..16].copy_from_slice(&[0x61, 0, 0, 0]);
                    p[9..12].copy_from_slice(&[0, 1, 0]);
                }
                true
            }),
        ),
    ]
}

/// READs of which responses are lost, and several queue pairs.
fn recovery() -> Vec<Row> {
    use Fault::{Complete, In, Memory, Out, Starves};
    vec![
        ("starves a queue pair", "fairness/writes-of-2", Starves),
        (
            "stops all queue pairs when one fails",
            "fairness/one-fails",
            Out(|notes, _, p| notes.naks.is_empty() || dest_qp(p) != notes.second.unwrap_or(0)),
        ),
        (
            "sends nothing for others while one waits",
            "fairness/one-waits",
            Out(|notes, _, p| p[0] != 0x04 || dest_qp(p) != notes.second.unwrap_or(0)),
        ),
        (
            "slows down another queue pair",
            "fairness/one-slows-down",
            In(|notes, _, p| {
                if p[0] == 0x81 {
                    let qpn = notes.last_qpn.to_be_bytes();
                    p[5..8].copy_from_slice(&qpn[1..]);
                }
                true
            }),
        ),
        (
            "asks for what is behind a lost response",
            "recovery/read-7",
            Out(|notes, _, p| {
                if p[0] == 0x0C && psn(p) == notes.sq_psn + 7 {
                    let (next, behind) = (psn(p) + 1, address(p) + 1024);
                    set_psn(p, next);
                    p[ADDRESS].copy_from_slice(&behind.to_be_bytes());
                    p[LENGTH].copy_from_slice(&8192_u32.to_be_bytes());
                }
                true
            }),
        ),
        (
            "asks for the rest of a READ from the READ's address",
            "recovery/read-1",
            Out(|notes, _, p| {
                if p[0] == 0x0C && psn(p) > notes.sq_psn {
                    p[ADDRESS].copy_from_slice(&PEER_ADDRESS.to_be_bytes());
                }
                true
            }),
        ),
        (
            "asks for the rest of a READ with the READ's length",
            "recovery/read-14",
            Out(|notes, _, p| {
                if p[0] == 0x0C && psn(p) > notes.sq_psn {
                    p[LENGTH].copy_from_slice(&16_384_u32.to_be_bytes());
                }
                true
            }),
        ),
        (
            "does not repeat a READ for its third response",
            "recovery/read-several",
            Out(|notes, _, p| p[0] != 0x0C || psn(p) != notes.sq_psn + 2),
        ),
        (
            "does not repeat a READ for its last response",
            "recovery/read-last",
            Out(|notes, _, p| p[0] != 0x0C || psn(p) != notes.sq_psn + 3),
        ),
        (
            "does not repeat a READ of one response",
            "recovery/read-only",
            Out(|notes, _, p| p[0] != 0x0C || !notes.left.contains(&psn(p))),
        ),
        (
            "repeats half of a READ",
            "recovery/read-tail",
            Out(|notes, _, p| p[0] != 0x0C || psn(p) != notes.sq_psn + 4),
        ),
        (
            "takes a response for the next one",
            "recovery/read-swapped-5",
            In(|notes, _, p| {
                if p[0] == 0x0E && psn(p) == notes.sq_psn + 6 && !notes.again(p) {
                    let before = psn(p) - 1;
                    set_psn(p, before);
                    notes.come.insert(before + 1);
                }
                true
            }),
        ),
        (
            "completes the second READ before the first",
            "recovery/read-of-several",
            Complete(|wc| {
                if let (1, 4096) | (2, 8192) = (wc.id, wc.bytes) {
                    wc.id = 3 - wc.id;
                }
                true
            }),
        ),
        (
            "takes late responses",
            "recovery/read-late",
            Memory(|notes, p, device| {
                if p[0] == 0x0E && notes.naks.is_empty() && psn(p) == notes.sq_psn + 3 {
                    device.fill("source", 3072, 1024, 3077).unwrap();
                }
            }),
        ),
    ]
}

/// The limits, and multicast.
fn limits() -> Vec<Row> {
    use Fault::{Complete, Connect, In, Join, Out, Post, Word};
    vec![
        (
            "takes messages of any length",
            "limits/longest-write-first",
            In(|notes, _, p| {
                let target = notes.regions.get("target").filter(|_| has_reth(p));
                if target.is_some() && p[LENGTH][0] >= 0x80 {
                    p[LENGTH].copy_from_slice(&1024_u32.to_be_bytes());
                }
                true
            }),
        ),
        (
            "takes half of the READs that were agreed on",
            "limits/reads-16",
            In(|notes, _, p| p[0] != 0x0C || psn(p) < notes.rq_psn + 16),
        ),
        (
            "remembers fifteen atomics",
            "limits/atomics-16",
            In(|notes, _, p| {
                let is_old = psn(p) + 15 < notes.next && notes.next > notes.rq_psn + 15;
                p[0] != 0x14 || !notes.again(p) || !is_old
            }),
        ),
        (
            "has one more outstanding than it may",
            "limits/posted-depth-2",
            Connect(|it| it.max_rd_atomic += 1),
        ),
        (
            "has half of what it may outstanding",
            "limits/posted-depth-4",
            Connect(|it| it.max_rd_atomic = it.max_rd_atomic.min(2)),
        ),
        (
            "takes the pieces of a request in the other order",
            "limits/pieces-4",
            Post(|request| {
                if request.pieces > 1 && request.pieces < 16 && request.kind == RequestKind::Write {
                    request.pieces = 1;
                }
            }),
        ),
        (
            "takes long lists for one piece",
            "limits/pieces-16",
            Post(|request| {
                if request.pieces == 16 {
                    request.pieces = 1;
                }
            }),
        ),
        (
            "puts what it reads into one piece",
            "limits/pieces-of-read-30",
            Post(|request| {
                if request.kind == RequestKind::Read {
                    request.pieces = 1;
                }
            }),
        ),
        (
            "cuts data that is inline",
            "limits/inline-256",
            Post(|request| {
                if request.inline {
                    request.bytes = request.bytes.min(64);
                }
            }),
        ),
        (
            "has no packets of 4096 bytes",
            "limits/posted-mtu-4096",
            Connect(|it| it.mtu = it.mtu.min(2048)),
        ),
        (
            "completes the eighth receive request with the ninth message",
            "limits/receives-8",
            Complete(|wc| wc.bytes != 8),
        ),
        (
            "does not wrap what it sends",
            "limits/wraps-in-a-message",
            Out(|notes, _, p| {
                !is_request(p) || psn(p) >= notes.sq_psn || notes.sq_psn < 0x00FF_0000
            }),
        ),
        (
            "repeats nothing of PSN 0",
            "limits/wraps-in-a-loss-64",
            Out(|notes, _, p| !is_request(p) || psn(p) != 0 || !notes.left.contains(&0)),
        ),
        (
            "asks for no response of PSN 0",
            "limits/wraps-in-a-read-64",
            Out(|_, _, p| p[0] != 0x0C || psn(p) != 0),
        ),
        (
            "answers with PSNs that do not wrap",
            "limits/wraps-in-an-answer",
            Out(|notes, _, p| {
                if (0x0D..=0x0F).contains(&p[0]) && psn(p) < 2 && notes.rq_psn > 0x00FF_0000 {
                    set_psn(p, 0x0080_0000);
                }
                true
            }),
        ),
        ("drops what is for groups", "multicast/arrives-16", In(|_, _, p| !is_for_group(p))),
        (
            "joins other groups besides",
            "multicast/not-joined",
            Join(|device, groups, pair| {
                device.choose(pair);
                groups.iter().try_for_each(|&group| device.join(group))
            }),
        ),
        (
            "joins with all queue pairs",
            "multicast/other-queue-pair",
            Join(|device, groups, pair| {
                device.choose(0);
                let joined = device.join(groups[0]);
                device.choose(1);
                // some cases have one
                let _ = device.join(groups[0]);
                device.choose(pair);
                joined
            }),
        ),
        (
            "has one queue pair in a group",
            "multicast/several",
            Join(|device, groups, pair| {
                device.choose(pair);
                if pair == 0 { device.join(groups[0]) } else { Ok(()) }
            }),
        ),
        (
            "passes groups on while all are ready",
            "multicast/several-one-not-ready",
            Join(|device, groups, pair| {
                device.choose(pair);
                if pair == 0 { Ok(()) } else { device.join(groups[0]) }
            }),
        ),
        (
            "has a joined queue pair for groups alone",
            "multicast/unicast-too",
            In(|_, _, p| p[0] != 0x64 || is_for_group(p)),
        ),
        (
            "does not look at the Q_Key of groups",
            "multicast/queue-key",
            In(|_, _, p| {
                if is_for_group(p) {
                    p[12..16].fill(0x11);
                }
                true
            }),
        ),
        (
            "does not look at the partition of groups",
            "multicast/partition",
            In(|_, _, p| {
                if is_for_group(p) {
                    p[2..4].fill(0xFF);
                }
                true
            }),
        ),
        (
            "believes the ICRC of groups",
            "multicast/wrong-icrc",
            In(|_, _, p| {
                if is_for_group(p) {
                    // changed, so that its ICRC is made right
                    p[1] ^= 0x40;
                }
                true
            }),
        ),
        (
            "has no immediate data for groups",
            "multicast/immediate",
            In(|_, _, p| p[0] != 0x65 || !is_for_group(p)),
        ),
        (
            "does not say which group a datagram is for",
            "multicast/header",
            Word(|place, value| if place == 32 { value ^ 1 << 40 } else { value }),
        ),
    ]
}

/// True for a datagram to the queue pair of groups.
fn is_for_group(packet: &[u8]) -> bool {
    dest_qp(packet) == 0x00FF_FFFF
}

/// Memory windows and shared receive queues.
fn windows() -> Vec<Row> {
    use Fault::{Bind, Connect, In, KeepsWindows, Register};
    vec![
        // as the kernel's rxe does
        (
            "checks the region's bounds in a window",
            "window/past-end-type-2-write-only",
            Bind(|bind| bind.bytes = 2048),
        ),
        (
            "begins a window at the region's start",
            "window/before-start-type-1-read-request",
            In(|notes, _, p| {
                let window = notes.regions.get("w");
                if let Some(window) = window.filter(|w| has_reth(p) && address(p) < w.address) {
                    p[ADDRESS].copy_from_slice(&window.address.to_be_bytes());
                }
                true
            }),
        ),
        (
            "gives windows the rights of their region",
            "window/without-write-type-1",
            Bind(|bind| bind.rights |= Access::REMOTE_WRITE),
        ),
        (
            "lets windows open their region",
            "window/opens-nothing-else-type-2",
            Register(|rights| {
                if rights.contains(Access::MW_BIND) {
                    rights | Access::REMOTE_WRITE
                } else {
                    rights
                }
            }),
        ),
        (
            "flushes shared requests when a queue pair stops",
            "shared/stays",
            Connect(|connection| connection.shared = false),
        ),
        ("has no windows of type 1", "window/moved", Bind(|bind| bind.is_type_2 = true)),
        ("has no windows of type 2", "window/bound-twice", Bind(|bind| bind.is_type_2 = false)),
        ("invalidates nothing", "window/invalidated", KeepsWindows),
        (
            "takes a SEND with Invalidate for a SEND",
            "window/invalidated-by-peer",
            In(|_, _, p| {
                if p[0] == 0x17 {
                    p[0] = 0x04;
                    p.drain(12..16);
                }
                true
            }),
        ),
        (
            "binds any region",
            "window/region-without-right",
            Register(|rights| rights | Access::MW_BIND),
        ),
        (
            "lets windows write where their owner may not",
            "window/needs-local-write",
            Register(|rights| rights | Access::LOCAL_WRITE),
        ),
    ]
}

/// FLUSH and atomic WRITE.
fn placement() -> Vec<Row> {
    use Fault::{In, Memory, Out, Raw, Register};
    vec![
        ("does not know FLUSH", "flush/range", In(|_, _, p| p[0] != 0x1C)),
        ("does not know atomic WRITE", "flush/write", In(|_, _, p| p[0] != 0x1D)),
        (
            // as the kernel's rxe does
            "has another ICRC in a FLUSH",
            "flush/posted",
            Raw(|_, _, p| {
                let end = p.len();
                p[end - 1] ^= u8::from(p[0] == 0x1C);
                true
            }),
        ),
        ("answers a FLUSH once", "flush/again", In(|notes, _, p| p[0] != 0x1C || !notes.again(p))),
        (
            // as the kernel's rxe does
            "repeats a FLUSH with another address",
            "flush/posted-again",
            Out(|notes, _, p| {
                if p[0] == 0x1C && notes.left.contains(&psn(p)) {
                    p[16..24].fill(0);
                }
                true
            }),
        ),
        (
            "lets everyone flush",
            "flush/region-without-flush",
            Register(|rights| rights | Access::FLUSH_GLOBAL),
        ),
        (
            "promises what it cannot keep",
            "flush/other-placement",
            In(|_, _, p| {
                if p[0] == 0x1C {
                    p[15] = p[15] & 0xF0 | 1;
                }
                true
            }),
        ),
        (
            "looks at the range of a FLUSH of all",
            "flush/whole-region",
            In(|_, _, p| {
                if p[0] == 0x1C {
                    p[15] &= 0x0F;
                }
                true
            }),
        ),
        (
            "carries an atomic WRITE out again",
            "flush/write-again",
            Memory(|notes, p, device| {
                if p[0] == 0x1D && notes.again(p) {
                    let _ = device.set_word("target", 0, 7);
                }
            }),
        ),
        (
            "aligns the address of an atomic WRITE",
            "flush/write-not-aligned",
            In(|_, _, p| {
                if p[0] == 0x1D {
                    p[19] &= 0xF8;
                }
                true
            }),
        ),
    ]
}

fn all() -> impl Iterator<Item = Row> {
    let connecting = [connecting::answers(), connecting::checks(), connecting::packets()];
    let all = [wire(), responder(), requester(), recovery(), limits(), windows(), placement()];
    all.into_iter().chain(connecting).flatten()
}

fn cases() -> Vec<Case> {
    chapters().into_iter().flat_map(|chapter| chapter.cases).collect()
}

/// Names of the cases that do not conform.
fn found<S: Subject>(subject: &mut S, cases: &[Case]) -> BTreeSet<String> {
    let mut runner = Runner::new(subject);
    let wrong = cases.iter().filter(|case| {
        let outcome = runner.run(case);
        // without a connection most cases say nothing
        let is_possible = outcome.verdict != Verdict::Inconclusive;
        assert!(is_possible || case.is_by_cm(), "{}: {outcome:?}", case.name);
        is_possible && outcome.verdict != Verdict::Conforms
    });
    wrong.map(|case| case.name.clone()).collect()
}

#[test]
fn each_mutant_is_found_by_the_case_that_is_for_it() {
    // what a mutant knows of its queue pair it knows from an agent, or need not know
    let (without_agent, with_agent): (Vec<_>, _) = cases().into_iter().partition(Case::is_by_cm);
    let mut text = String::new();
    for (name, by, fault) in all() {
        let is_by_cm = without_agent.iter().any(|case| case.name == by);
        let cases = if is_by_cm { &without_agent } else { &with_agent };
        let found = found(&mut Mutant::new(&fault), cases);
        if !found.contains(by) {
            text += &format!("a device that {name} is not found by {by}, but by {found:?}\n");
        }
        println!("{name}: {} cases", found.len());
    }
    assert!(text.is_empty(), "\n{text}");
}

#[test]
fn there_are_sixty() {
    let names: BTreeSet<_> = all().map(|(name, ..)| name).collect();
    assert!(names.len() >= 60, "{}", names.len());
}

/// What the mutants are made of breaks nothing by itself.
#[test]
fn a_mutant_without_a_fault_conforms() {
    let fault = Fault::Complete(|_| true);
    assert_eq!(found(&mut Mutant::new(&fault), &cases()), BTreeSet::new());
    assert_eq!(found(&mut Simulated::default(), &cases()), BTreeSet::new());
}
