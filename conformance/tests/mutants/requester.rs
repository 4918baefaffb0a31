use roce_conformance::{case::PEER_ADDRESS, subject::Program};

use super::{
    ADDRESS, LENGTH, Row, address,
    device::{Fault, dest_qp, is_request, psn, set_psn, syndrome},
};

pub(super) fn requester() -> Vec<Row> {
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
            Out(|notes, _, p| !is_request(p) || !notes.sent.contains(&psn(p))),
        ),
        (
            "repeats with new PSNs",
            "retry/timeout-10",
            Out(|notes, _, p| {
                if is_request(p) && notes.sent.contains(&psn(p)) {
                    let next = psn(p) + 1;
                    set_psn(p, next);
                }
                true
            }),
        ),
        ("waits too long", "retry/timeout-8", Connect(|it| it.requester.timeout += 3)),
        (
            "waits too short",
            "retry/patience-16",
            Connect(|it| it.requester.timeout = it.requester.timeout.saturating_sub(3)),
        ),
        (
            "repeats once too often",
            "retry/no-answer-2",
            Connect(|it| {
                it.requester.retry_cnt = (it.requester.retry_cnt + 1).min(7);
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
        (
            "gives up at the first RNR NAK",
            "rnr/retries-2",
            Connect(|it| it.requester.rnr_retry = 0),
        ),
        (
            "knows no RNR retries without limit",
            "rnr/retries-7",
            Connect(|it| {
                it.requester.rnr_retry = it.requester.rnr_retry.min(5);
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
                !is_request(p) || !is_second || !notes.sent.contains(&psn(p))
            }),
        ),
        (
            "forgets the third message behind a gap",
            "recovery/next-message",
            Out(|notes, _, p| {
                let is_third = psn(p) >= notes.sq_psn + 8;
                !is_request(p) || !is_third || !notes.sent.contains(&psn(p))
            }),
        ),
        (
            "repeats no last packet",
            "recovery/last-packet",
            Out(|notes, _, p| p[0] != 0x08 || !notes.sent.contains(&psn(p))),
        ),
        (
            "repeats no message of one packet",
            "recovery/the-only-packet",
            Out(|notes, _, p| p[0] != 0x04 || !notes.sent.contains(&psn(p))),
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
            "waits for credits without asking for them",
            "retry/without-credits",
            Out(|notes, _, p| p[0] != 0x04 || psn(p) == notes.sq_psn),
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
            Connect(|it| it.requester.max_rd_atomic = it.requester.max_rd_atomic.max(2)),
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
                    // as a NAK
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

pub(super) fn recovery() -> Vec<Row> {
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
            Out(|notes, _, p| p[0] != 0x0C || !notes.sent.contains(&psn(p))),
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
                    notes.received.insert(before + 1);
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
