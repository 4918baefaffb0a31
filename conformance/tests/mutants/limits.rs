use std::time::Duration;

use roce_conformance::{case::RequestKind, subject::Program};

use super::{
    LENGTH, Row,
    device::{Fault, dest_qp, is_request, psn, set_psn},
    has_reth,
};

pub(super) fn limits() -> Vec<Row> {
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
            Connect(|it| it.requester.max_rd_atomic += 1),
        ),
        (
            "has half of what it may outstanding",
            "limits/posted-depth-4",
            Connect(|it| it.requester.max_rd_atomic = it.requester.max_rd_atomic.min(2)),
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
            Out(|notes, _, p| !is_request(p) || psn(p) != 0 || !notes.sent.contains(&0)),
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
                // some cases have a queue pair
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
                    // a change, for the ICRC's correction
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

fn is_for_group(packet: &[u8]) -> bool {
    dest_qp(packet) == 0x00FF_FFFF
}

pub(super) fn pauses() -> Vec<Row> {
    use Fault::Pause;
    vec![
        ("sends on in a pause", "pause/stops-requests", Pause(|pause| pause.priorities = 0)),
        (
            "stops for pauses of other priorities",
            "pause/other-priorities",
            Pause(|pause| pause.priorities |= u8::from(pause.priorities > 0)),
        ),
        ("stops for pauses of nothing", "pause/none", Pause(|pause| pause.priorities = 1)),
        (
            "does not end a pause by itself",
            "pause/runs-out",
            Pause(|pause| pause.time = pause.time.or(Some(Duration::from_secs(60)))),
        ),
        (
            "does not end a pause early",
            "pause/goes-on",
            Pause(|pause| pause.time = pause.time.map(|time| 2 * time)),
        ),
    ]
}
