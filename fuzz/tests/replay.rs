//! As many random inputs as time allows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;
use roce_fuzz::{
    ancillary::ancillary,
    capture::capture,
    explain::explain,
    faults::{Reach, faults},
    flows::flows,
    frames::frames,
    mad::mad,
    packets::packets,
    parse::parse,
    verbs::{Depth, verbs},
};
use roce_transport::{
    event::Counter,
    wire::{Opcode, Packet},
};

use crate::common::{bytes, each_seed, replay};

#[test]
fn parse_replays_its_corpus() {
    replay("parse", parse);
}

#[test]
fn packets_replays_its_corpus() {
    replay("packets", |bytes| {
        packets(bytes);
    });
}

#[test]
fn verbs_replays_its_corpus() {
    replay("verbs", |bytes| {
        verbs(bytes);
    });
}

#[test]
fn mad_replays_its_corpus() {
    replay("mad", |bytes| {
        mad(bytes);
    });
}

#[test]
fn explain_replays_its_corpus() {
    replay("explain", explain);
}

/// Kernel captures with changed bytes or truncated.
#[test]
fn explain_holds_for_damaged_captures() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transport/tests/captures");
    let files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    each_seed(600, |rng| {
        let mut any = |most: usize| rng.next_u32() as usize % most;
        let mut file = files[any(files.len())].clone();
        file.truncate(1 + any(file.len()).min(20_000));
        for _ in 0..any(20) {
            let at = any(file.len());
            file[at] = any(256) as u8;
        }
        explain(&file);
    });
    each_seed(2000, |rng| explain(&bytes(rng, 0..600)));
}

#[test]
fn faults_replays_its_corpus() {
    replay("faults", |bytes| {
        faults(bytes);
    });
}

#[test]
fn faults_holds_for_random_text() {
    let mut total = Reach::default();
    let mut add = |Reach { understood, calls, sent }| {
        total.understood += understood;
        total.calls += calls;
        total.sent += sent;
    };
    each_seed(1000, |rng| add(faults(&bytes(rng, 0..200))));
    each_seed(3000, |rng| add(faults(&plan(rng))));
    assert!(total.understood > 3_000 && total.calls > 300 && total.sent > 20_000, "{total:?}");
}

/// Clauses with some random words, and datagrams.
fn plan(rng: &mut ChaCha8Rng) -> Vec<u8> {
    const CLAUSES: [&str; 23] = [
        "fail create_cq nth 2 ENOMEM",
        "slow qp every 3 by 10ms",
        "hang poll_cq 1%",
        "drop 1%",
        "duplicate 50%",
        "reorder 100%",
        "corrupt 50%",
        "ecn 0%",
        "delay 2ms",
        "delay 9e9s",
        "jitter 18446744073s",
        "rnr nth 2",
        "pass cnp",
        "rate 1gbit shared",
        "rate 1bit",
        "rate 1kbit, queue 1kb, mark 100b..300b 10%",
        "receiver 1s 2kb",
        "drop psn 16777215..7 twice",
        "corrupt byte 12 to 10.0.0.2",
        "delay 1e10s write last every 2",
        "duplicate ack times 5",
        "mark from ::1 tx",
        "drop read-response qp 0x12 rx",
    ];
    const WORDS: [&str; 20] = [
        "1%",
        "every",
        "3",
        "nth",
        "once",
        "psn",
        "5..9",
        "tx",
        "to",
        "::1",
        "send",
        "first",
        "byte",
        "1s",
        "1bit",
        "20kb..60kb",
        "shared",
        "nan%",
        "µs",
        "1e300s",
    ];
    let mut any = |most: usize| rng.next_u32() as usize % most;
    let mut text = String::new();
    for _ in 0..=any(4) {
        text += CLAUSES[any(CLAUSES.len())];
        while any(6) == 0 {
            text.push(' ');
            text += WORDS[any(WORDS.len())];
        }
        text += ", ";
    }
    let mut plan = text.into_bytes();
    plan.push(0);
    for _ in 0..any(20) {
        let opcode = [4, 6, 7, 8, 10, 12, 16, 17, 0x81, any(256)][any(10)] as u8;
        plan.extend([16, opcode, 0x40, 0xFF, 0xFF, 0, 0, 0, 0x12, 0x80, 0, 0, any(12) as u8]);
        plan.extend([0, 0, 0, any(4) as u8]);
        if any(3) == 0 {
            plan.push(128 + any(128) as u8);
        }
    }
    plan
}

#[test]
fn flows_replays_its_corpus() {
    replay("flows", |bytes| {
        flows(bytes);
    });
}

/// Specs of known kinds, correctly sized or not.
#[test]
fn flows_holds_for_random_bytes() {
    let (mut read, mut possible) = (0, 0);
    each_seed(5000, |rng| {
        let mut any = |most: u32| rng.next_u32() % most;
        let specs = any(5);
        let mut attr = vec![0; 20];
        attr[4] = if any(4) == 0 { any(5) as u8 } else { 0 };
        (attr[12], attr[13]) = (specs as u8, u8::from(any(50) > 0));
        attr[16] = (any(3) as u8) * 2;
        for _ in 0..specs {
            let kinds = [
                (0x20, 40),
                (0x30, 24),
                (0x31, 88),
                (0x32, 32),
                (0x40, 16),
                (0x41, 16),
                (0x1000, 12),
                (0x1001, 8),
            ];
            let (kind, size) = kinds[any(8) as usize];
            let size = if any(20) == 0 { any(120) as u16 } else { size };
            let start = attr.len();
            attr.extend(u32::to_ne_bytes(kind));
            attr.extend(size.to_ne_bytes());
            attr.resize(start + usize::from(size).max(6), 0);
            if kind != 0x32 {
                attr[start + 6..].fill_with(|| any(256) as u8);
            }
        }
        let length = if any(10) == 0 { any(attr.len() as u32) as usize } else { attr.len() };
        if let Some(can_be) = flows(&attr[..length]) {
            read += 1;
            possible += u32::from(can_be);
        }
    });
    assert!(read > 100 && possible > 10 && possible < read, "{read} {possible}");
}

#[test]
fn frames_replays_its_corpus() {
    replay("frames", |bytes| {
        frames(bytes);
    });
}

/// Packets are handed over, neighbours resolve both ways.
#[test]
fn frames_holds_for_random_scripts() {
    let (mut received, mut resolved, mut answered, mut unanswered, mut moved) = (0, 0, 0, 0, 0);
    let (mut conflicts, mut fragments, mut stacks) = (0, 0, 0);
    let (mut leases, mut lost, mut bad) = (0, 0, 0);
    each_seed(3000, |rng| {
        let seen = frames(&frame_script(rng));
        received += seen.received;
        resolved += seen.counters.resolved;
        answered += seen.counters.answered;
        unanswered += seen.counters.unanswered;
        moved += seen.counters.moved;
        conflicts += seen.counters.conflicts;
        fragments += seen.counters.fragments;
        stacks += seen.counters.vlan_stack;
        leases += seen.counters.dhcp_leases;
        lost += seen.counters.dhcp_lost;
        bad += seen.counters.dhcp_bad;
    });
    let all = [received, resolved, answered, unanswered, moved, conflicts, fragments, stacks];
    assert!(
        all.iter().chain(&[leases, lost, bad]).all(|&count| count > 0),
        "{all:?} {leases} {lost} {bad}"
    );
}

/// Time for addresses, then datagrams both ways, some damaged, and some random frames.
fn frame_script(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut any = |most: u32| (rng.next_u32() % most) as u8;
    let setting = any(32);
    let mut script = vec![setting, 2, any(16)];
    if setting >= 16 {
        // an offer, and mostly what it promises
        script.extend([4, 0, 9, 0, 60, 0, 4, any(3), 9, 0, 60, any(4), 3, 4, 10, 0]);
        script.extend([2, 10]);
    }
    for _ in 0..any(60) {
        match any(10) {
            0..=4 => {
                let changes = any(4) * any(2);
                script.extend([1, if any(8) > 0 { 2 + any(2) } else { any(255) }, changes]);
                (0..changes).for_each(|_| script.extend([12 + any(36), any(255)]));
            }
            5 if setting >= 16 => {
                script.extend([4, any(3), 9, 0, any(255), any(8)]);
                (0..any(8)).for_each(|_| script.push(any(255)));
                script.extend([2, any(255)]);
            }
            5..=7 => script.extend([3, if any(8) > 0 { 4 + any(2) } else { any(255) }]),
            8 => {
                let most = if any(4) == 0 { 255 } else { 12 };
                script.extend([2, any(most)]);
            }
            _ => {
                script.extend([0, 40, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
                script.extend([[8, 0], [0x86, 0xDD], [0x81, 0], [8, 6]][usize::from(any(4))]);
                (0..26).for_each(|_| script.push(any(255)));
            }
        }
    }
    script
}

#[test]
fn ancillary_replays_its_corpus() {
    replay("ancillary", |bytes| {
        ancillary(bytes);
    });
}

#[test]
fn ancillary_holds_for_random_bytes() {
    let mut items = 0;
    each_seed(5000, |rng| items += ancillary(&bytes(rng, 0..120)));
    assert!(items > 10_000, "{items}");
}

#[test]
fn capture_replays_its_corpus() {
    replay("capture", |bytes| {
        capture(bytes);
    });
}

#[test]
fn capture_holds_for_random_datagrams() {
    let mut written = 0;
    each_seed(300, |rng| written += capture(&bytes(rng, 0..2000)));
    assert!(written > 1_000, "{written}");
}

#[test]
fn mad_holds_for_random_bytes() {
    let mut taken = 0;
    each_seed(1500, |rng| taken += mad(&bytes(rng, 0..800)));
    each_seed(700, |rng| taken += mad(&conversation(rng)));
    assert!(taken > 3_000, "{taken}");
}

/// Messages of few exchanges, mostly whole, and commands between.
fn conversation(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut any = || rng.next_u32() as u8;
    let mut script = Vec::new();
    for _ in 0..20 + any() % 60 {
        match any() % 8 {
            0..=3 => {
                let words = any() % 58;
                script.extend([
                    0,
                    if any() < 192 { any() & 6 } else { any() },
                    any(),
                    any() & 3,
                    any() & 3,
                    words,
                ]);
                script.extend((0..words).flat_map(|_| [any(), any(), any(), any()]));
            }
            4 => script.extend([7, any(), any(), any()]),
            5 => script.extend([8, any(), any()]),
            6 => script.extend([10, any()]),
            _ => script.extend([11, any(), any(), any() & 0x3F]),
        }
    }
    script
}

#[test]
fn parse_holds_for_random_bytes() {
    each_seed(20_000, |rng| {
        let mut bytes = bytes(rng, 0..300);
        parse(&bytes);
        // most random bytes have a wrong opcode or version
        if let [first, second, ..] = &mut bytes[..] {
            *first &= 0x7F;
            *second &= 0xF0;
            parse(&bytes);
        }
    });
}

#[test]
fn packets_holds_for_random_bytes() {
    each_seed(300, |rng| {
        packets(&bytes(rng, 0..1000));
    });
}

/// Scripts must get past the adapter's first checks.
#[test]
fn packets_holds_for_random_scripts() {
    let mut totals = BTreeMap::<&str, u64>::new();
    each_seed(200, |rng| {
        for Counter { name, value: count, .. } in packets(&script(rng)).iter() {
            *totals.entry(name).or_default() += count;
        }
    });
    assert!(totals["received_packets"] > 10_000, "{totals:#?}");
    for name in DEEP {
        assert!(totals[name] > 0, "no packet gets as far as {name}: {totals:#?}");
    }
}

/// `parse` reads every header.
#[test]
fn the_corpus_of_parse_has_every_opcode() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/parse");
    let files =
        fs::read_dir(directory).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let found: BTreeSet<u8> = files
        .filter_map(|bytes| Some(Packet::parse(&bytes).ok()?.headers.bth().opcode.to_wire()))
        .collect();
    let all: BTreeSet<u8> = (0..=255).filter(|&byte| Opcode::from_wire(byte).is_some()).collect();
    assert_eq!(all.difference(&found).collect::<Vec<_>>(), Vec::<&u8>::new());
}

/// Raised only by packets that fit earlier ones.
const DEEP: [&str; 13] = [
    "retransmitted_packets",
    "timeouts",
    "sequence_naks_sent",
    "sequence_naks_received",
    "rnr_naks_sent",
    "rnr_naks_received",
    "duplicate_requests",
    "icrc_solved",
    "multicast_packets",
    "out_of_sequence",
    "replay_missing",
    "reserved_syndrome",
    "unexpected_response",
];

/// Two queue pairs, and mostly expected packets.
fn script(rng: &mut ChaCha8Rng) -> Vec<u8> {
    /// Single-packet requests and their responses, which depend least on earlier packets.
    const OPCODES: [u8; 13] =
        [0x04, 0x05, 0x0A, 0x0B, 0x0C, 0x13, 0x14, 0x10, 0x11, 0x12, 0x17, 0x1C, 0x1D];
    /// Members that can send or receive, including mutually connected ones.
    const ABLE: [u8; 19] = [2, 3, 4, 6, 11, 12, 15, 16, 18, 19, 20, 21, 22, 23, 26, 27, 31, 33, 34];
    let mut any = || rng.next_u32() as u8;
    let focus = match any() & 3 {
        0 | 1 => [7, 8],
        // connections of XRC and of the SRQ, and datagram queue pairs
        2 => [[18, 19], [20, 21], [33, 34], [11, 12]][usize::from(any()) % 4],
        _ => [any() % 35, ABLE[usize::from(any()) % ABLE.len()]],
    };
    let mut script = vec![any()];
    for _ in 0..100 + u32::from(any()) {
        let to = focus[usize::from(any() & 1)];
        match any() % 20 {
            0..=5 => {
                let control = if any().is_multiple_of(8) { any() } else { any() & 0x40 };
                // sometimes beyond the end, mostly of a window
                let key = match any() % 12 {
                    0 => any(),
                    1 => any() & 0x03 | 0xC0,
                    _ => any() & 0x41,
                };
                let words = 3 + any() % 12;
                let to = if any() < 32 { to | 0x80 } else { to };
                let opcode =
                    if any() < 64 { any() } else { OPCODES[usize::from(any()) % OPCODES.len()] };
                // an acknowledgement ends with its AETH
                let words = if opcode == 0x11 { 4 } else { words };
                script.extend([0, control, any(), to, any(), key, words, opcode]);
                script.extend((1..words * 4).map(|_| any()));
            }
            6..=9 => script.extend([5, any(), any(), any()]),
            10..=11 => script.push(7 + any() % 3),
            12..=13 => script.extend([10, to, any(), any(), any(), any()]),
            // bind a window
            14 => script.extend([10, to, 0x80, any(), any(), any()]),
            15 => script.extend([12, to, any(), any()]),
            16 => script.extend([13, any()]),
            17 => script.extend([14, to, any()]),
            // up again
            18 => script.extend([14, focus[0], 7, 14, focus[1], 7]),
            _ => script.extend([15, any()]),
        }
    }
    script
}

#[test]
fn verbs_holds_for_random_bytes() {
    each_seed(500, |rng| {
        verbs(&bytes(rng, 0..1500));
    });
}

#[test]
fn verbs_holds_for_random_programs() {
    let mut total = Depth::default();
    each_seed(300, |rng| {
        let Depth { accepted, refused, succeeded, failed } = verbs(&program(rng));
        total.accepted += accepted;
        total.refused += refused;
        total.succeeded += succeeded;
        total.failed += failed;
    });
    assert!(
        total.accepted > 50_000
            && total.refused > 5_000
            && total.succeeded > 500
            && total.failed > 1_000,
        "{total:?}"
    );
}

/// Some objects, a connection, then anything, mostly compatible.
fn program(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut any = || rng.next_u32() as u8;
    let mut program = Vec::new();
    for side in [0, 0x80] {
        // the second region is sometimes read-only
        let rights = [0, 0x80, 0x84, any()][usize::from(any() & 3)];
        program.extend([
            side,
            0,
            side | 2,
            0,
            0,
            0,
            side | 2,
            0,
            rights,
            0,
            side | 7,
            0,
            side | 5,
            any(),
            side | 9,
            0,
            8,
            3,
        ]);
        for _ in 0..2 {
            // mostly reliable connections, with or without SRQ
            let kind = if any() < 192 { any() & 0x34 } else { any() };
            program.extend([side | 11, 0, kind, 0, 0x1F]);
        }
    }
    program.extend([15, 0, 0, 0, any() & 0x3F, 15, 0, 1, 1, any() & 0x3F]);
    for _ in 0..100 + u32::from(any()) {
        let side = any() & 0x80;
        match any() % 16 {
            0..=4 => {
                let bytes = if any() < 240 { 0xC0 | any() & 0x2F } else { any() };
                let target = if any() < 240 { any() & 1 } else { any() };
                program.extend([
                    side | 18,
                    any() & 1,
                    any(),
                    bytes,
                    target,
                    any() | 2,
                    any() & 0x7F,
                    any() & 15,
                    any(),
                ]);
            }
            5..=7 => {
                let bytes = if any() < 240 { 0xA0 | any() & 1 } else { any() };
                program.extend([side | 23, any() & 1, bytes, any()]);
            }
            8..=9 => program.extend([31, 0]),
            10..=11 => program.extend([side | 28, any()]),
            12 if any() < 128 => program.extend([side | 26, any(), any(), any(), any()]),
            12 => program.extend([25, any()]),
            13..=14 => {
                let both = any() & 1;
                program.extend([15, any(), both, both, any()]);
            }
            _ => program.extend([side | any() & 0x1F, any(), any(), any(), any()]),
        }
    }
    program
}
