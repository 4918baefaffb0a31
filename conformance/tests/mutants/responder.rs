use roce_conformance::subject::Program;
use roce_transport::mem::Access;

use super::{
    ADDRESS, KEY, LENGTH, Row, address,
    device::{Fault, is_request, psn, set_psn, syndrome},
    has_reth,
};

pub(super) fn responder() -> Vec<Row> {
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
                if p[0] == 0x12 && notes.sent.contains(&psn(p)) {
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
                if notes.sent.contains(&psn(p)) && psn(p) != notes.rq_psn && p[0] == 0x0D {
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
            Connect(|it| it.responder.max_dest_rd_atomic = it.responder.max_dest_rd_atomic.max(1)),
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
            Out(|notes, _, p| p[0] != 0x81 || notes.sent.insert(u32::MAX)),
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
