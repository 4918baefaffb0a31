//! Textual faults, with every example of docs/guide/faults.md.

use std::{fs, path::Path, time::Duration};

use roce_fabric::{FaultPlan, Network};
use roce_transport::{
    addr::Mtu,
    event::{Disposition, DropReason, Refusal},
    qp::State,
    wire::{Immediate, Operation as Op, Syndrome},
    work::{Data, RecvWr, SendOp, SendWr, WcStatus},
};

use crate::common::{AFTER_ONE_LOSS, End, Options, Outcome, Pair, Side, all_ok, pattern};

const MTU: usize = 256;
const COUNT: u64 = 40;

fn pair(plan: &str, seed: u64) -> (Pair, End, End) {
    let mut pair = Pair::with_network(Network::with_plan(plan.parse().unwrap(), seed));
    pair.allow_all(AFTER_ONE_LOSS);
    if plan.contains("corrupt") {
        pair.allow_all(DropReason::ALL); // any check may fail first
    }
    let (a, b) = pair.connect(Options { mtu: Mtu::B256, min_rnr_timer: 1, ..Options::default() });
    (pair, a, b)
}

/// Exchanges three-packet SENDs, WRITEs with immediate and READs.
#[track_caller]
fn exchange(plan: &str, seed: u64) -> Pair {
    let (mut pair, a, b) = pair(plan, seed);
    let len = 3 * MTU;
    let (near, far) = (pair.a.buffer(COUNT as usize * len), pair.b.buffer(COUNT as usize * len));
    let is_read = |id: u64| id % 4 == 3;
    for id in 0..COUNT {
        let at = id as usize * len;
        let wr = match id % 4 {
            0 | 1 => SendWr::send(id, near.sge(at, len)),
            2 => SendWr {
                op: SendOp::Write { remote: far.remote(at), immediate: Some(Immediate([0; 4])) },
                ..SendWr::write(id, far.remote(at), near.sge(at, len))
            },
            _ => SendWr::read(id, far.remote(at), near.sge(at, len)),
        };
        if !is_read(id) {
            pair.post_recv(&b, &RecvWr::new(id, [far.sge(at, len)]));
        }
        let source = if is_read(id) { &far } else { &near };
        source.put(at, &pattern(id as u8, len));
        pair.post_send(&a, &wr);
    }
    pair.run();
    let ended = |outcomes: Vec<Outcome>| {
        outcomes.into_iter().map(|(id, result)| (id, result.is_ok())).collect::<Vec<_>>()
    };
    assert_eq!(
        ended(a.send_outcomes()),
        (0..COUNT).map(|id| (id, true)).collect::<Vec<_>>(),
        "{plan}"
    );
    let received = (0..COUNT).filter(|&id| !is_read(id)).map(|id| (id, true));
    assert_eq!(ended(b.recv_outcomes()), received.collect::<Vec<_>>(), "{plan}");
    for id in 0..COUNT {
        let target = if is_read(id) { &near } else { &far };
        assert_eq!(
            target.part(id as usize * len, len),
            pattern(id as u8, len),
            "{plan}: message {id}"
        );
    }
    pair
}

struct Done {
    sent: usize,
    lost: usize,
    copied: usize,
    damaged: usize,
    marked: usize,
    not_ready: usize,
    late: usize,
}

fn done(pair: &Pair) -> Done {
    let records = &pair.trace.records;
    let count = |is: fn(&roce_fabric::Verdict) -> bool| {
        records.iter().filter(|record| is(&record.verdict)).count()
    };
    Done {
        sent: records.len(),
        lost: count(|verdict| verdict.lost),
        copied: count(|verdict| verdict.copy.is_some()),
        damaged: count(|verdict| verdict.corruption.is_some()),
        marked: count(|verdict| verdict.congestion),
        not_ready: count(|verdict| verdict.not_ready),
        late: count(|verdict| !verdict.delay.is_zero()),
    }
}

#[test]
fn every_action_happens_as_often_as_it_should_and_nothing_else_does() {
    type Which = fn(&Done) -> usize;
    let actions: [(&str, Which); 7] = [
        ("drop", |done| done.lost),
        ("duplicate", |done| done.copied),
        ("corrupt", |done| done.damaged),
        ("ecn", |done| done.marked),
        ("rnr", |done| done.not_ready),
        ("reorder", |done| done.late),
        ("delay 50us", |done| done.late),
    ];
    for (action, which) in actions {
        for (how, wanted) in [("once", 1), ("times 3", 3), ("nth 2", 1)] {
            let plan = format!("{action} {how}");
            let done = done(&exchange(&plan, 1));
            let Done { lost, copied, damaged, marked, not_ready, late, .. } = done;
            assert_eq!(
                (which(&done), lost + copied + damaged + marked + not_ready + late),
                (wanted, wanted),
                "{plan}"
            );
        }
        let plan = format!("{action} 10%");
        let done = done(&exchange(&plan, 1));
        let of = if action == "rnr" { COUNT as usize } else { done.sent };
        assert!((1..of / 3).contains(&which(&done)), "{plan}: {} of {of}", which(&done));
    }
}

#[test]
fn the_same_seed_does_the_same() {
    let plan = "drop 2%; corrupt 1%; rnr 20%; delay 100us 5% rx; duplicate 2%";
    let story = |seed| {
        let pair = exchange(plan, seed);
        pair.trace
            .records
            .iter()
            .map(|record| (record.time, record.psn(), record.verdict))
            .collect::<Vec<_>>()
    };
    assert_eq!(story(7), story(7));
    assert_ne!(story(7), story(8));
}

#[test]
fn rnr_finds_whatever_needs_a_receive_request() {
    let immediate = Some(Immediate([1, 2, 3, 4]));
    for len in [0, 100, MTU, 5 * MTU] {
        for kind in 0..3 {
            let (mut pair, a, b) = pair("rnr once", 0);
            let (near, far) = (pair.a.buffer(len.max(1)), pair.b.buffer(len.max(1)));
            near.put(0, &pattern(3, len));
            let data = || if len == 0 { Data::empty() } else { near.sge(0, len).into() };
            let op = match kind {
                0 => SendOp::Send { immediate: None },
                1 => SendOp::Send { immediate },
                _ => SendOp::Write { remote: far.remote(0), immediate },
            };
            let sges = if kind == 2 { vec![] } else { vec![far.sge(0, len)] };
            pair.post_recv(&b, &RecvWr::new(1, sges));
            pair.post_send(&a, &SendWr { op, ..SendWr::send(1, data()) });
            pair.run();
            assert_eq!(a.send_outcomes(), all_ok([1], 0), "{len} {kind}");
            assert_eq!(b.recv_outcomes(), all_ok([1], len as u32), "{len} {kind}");
            assert_eq!(far.part(0, len), pattern(3, len));
            assert_eq!(
                (
                    pair.b.adapter.counters().rnr_naks_sent,
                    pair.a.adapter.counters().rnr_naks_received
                ),
                (1, 1)
            );
            assert_eq!(pair.a.adapter.counters().timeouts, 0);
            let refused =
                Disposition::Refused(Syndrome::RnrNak { timer: 1 }, Refusal::NoReceiveRequest);
            let hit = pair.trace.from(Side::A).find(|record| record.verdict.not_ready).unwrap();
            assert_eq!(hit.arrivals[0].1, refused);
        }
    }
}

#[test]
fn rnr_finds_a_send_that_invalidates() {
    let (mut pair, a, b) = pair("rnr once send", 0);
    pair.post_recv(&b, &RecvWr::new(1, []));
    let far = pair.b.buffer(8);
    pair.post_send(&a, &SendWr::send_invalidate(1, far.remote(0).rkey, Data::empty()));
    pair.run();
    assert_eq!(pair.b.adapter.counters().rnr_naks_sent, 1);
    // executed on retry: the region denies it
    assert!(
        pair.trace.records.iter().any(
            |record| record.arrivals.len() == 1 && record.operation() == Op::SendOnlyInvalidate
        )
    );
    assert_eq!(b.recv_outcomes().len(), 1);
}

#[test]
fn rnr_leaves_alone_what_needs_no_receive_request() {
    let (mut pair, a, _) = pair("rnr 100%", 0);
    let (near, far) = (pair.a.buffer(5 * MTU), pair.b.buffer(5 * MTU));
    let result = pair.a.buffer(8);
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.post_send(&a, &SendWr::read(2, far.remote(0), near.all()));
    pair.post_send(&a, &SendWr::fetch_add(3, far.remote(0), 1, result.all()));
    pair.run();
    assert_eq!(a.send_outcomes().iter().filter(|(_, result)| result.is_ok()).count(), 3);
    assert_eq!((pair.b.adapter.counters().rnr_naks_sent, done(&pair).not_ready), (0, 0));

    // UD and UC have no RNR NAK
    let mut pair = Pair::with_network(Network::with_plan("rnr 100%".parse().unwrap(), 0));
    let (a, b) = pair.datagrams(Options::default());
    let buffer = pair.b.buffer(64);
    pair.post_recv(&b, &RecvWr::new(1, [buffer.all()]));
    let to = pair.b.destination(b.qpn);
    pair.post_send(
        &a,
        &SendWr { op: SendOp::SendTo { to, immediate: None }, ..SendWr::send(1, Data::empty()) },
    );
    let (a, c) = pair.connect_unreliably(Options::default());
    pair.post_recv(&c, &RecvWr::new(2, []));
    pair.post_send(&a, &SendWr::send(2, Data::empty()));
    pair.run();
    assert_eq!((b.received().len(), c.received().len(), done(&pair).not_ready), (1, 1, 0));
}

#[test]
fn a_receiver_that_is_never_ready_uses_up_the_retries() {
    let plan: FaultPlan = "rnr 100%".parse().unwrap();
    let mut pair = Pair::with_network(Network::with_plan(plan, 0));
    let (a, b) = pair.connect(Options { rnr_retry: 3, ..Options::default() });
    pair.post_recv(&b, &RecvWr::new(1, []));
    pair.post_send(&a, &SendWr::send(1, Data::empty()));
    pair.run();
    assert_eq!(
        (a.send_outcomes(), b.recv_outcomes()),
        (vec![(1, Err(WcStatus::RnrRetryExcErr))], vec![])
    );
    assert_eq!((pair.trace.count(Side::A, Op::SendOnly), pair.state(&b)), (4, State::Rts));
    // the receive request remains
    pair.network.faults_mut().clear_rules();
    let (c, d) = pair.connect(Options::default());
    pair.post_recv(&d, &RecvWr::new(2, []));
    pair.post_send(&c, &SendWr::send(2, Data::empty()));
    pair.run();
    assert_eq!((d.recv_outcomes(), b.recv_outcomes()), (all_ok([2], 0), vec![]));
}

#[test]
fn rnr_obeys_selectors() {
    let (mut pair, a, b) = pair("rnr psn 0x102..0x103", 0);
    for id in 0..6 {
        pair.post_recv(&b, &RecvWr::new(id, []));
        pair.post_send(&a, &SendWr::send(id, Data::empty()));
    }
    pair.run_for(Duration::from_millis(1));
    assert_eq!(a.send_outcomes(), all_ok(0..2, 0));
    assert!(
        pair.trace
            .from(Side::A)
            .filter(|record| record.verdict.not_ready)
            .all(|record| (0x102..=0x103).contains(&record.psn()))
    );
    assert!(pair.b.adapter.counters().rnr_naks_sent > 1);
}

fn examples_of(page: &str) -> Vec<&str> {
    let mut column = None;
    let mut examples = Vec::new();
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if cells.len() < 3 {
            column = None;
        } else if let Some(column) = column {
            examples.extend(cells.get::<usize>(column).and_then(|it| it.split('`').nth(1)));
        } else {
            column = cells.iter().position(|it| *it == "example");
        }
    }
    examples
}

#[test]
fn the_guides_examples_work() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/faults.md");
    let page = fs::read_to_string(page).unwrap();
    let (page, _) = page.split_once("\n## Calls that fail\n").unwrap();
    let (_, page) = page.split_once("\n## Packets\n").unwrap();
    let examples = examples_of(page);
    assert!(examples.len() > 15, "{examples:?}");
    for example in examples {
        let plan: FaultPlan = example.parse().unwrap();
        assert_ne!(plan, FaultPlan::default(), "{example}");
        if plan.rules.iter().any(|rule| {
            rule.matcher.src.is_some()
                || rule.matcher.dst.is_some()
                || rule.matcher.dest_qp.is_some()
        }) {
            continue; // names other addresses and queue pairs
        }
        let done = done(&exchange(example, 3));
        let hits =
            done.lost + done.copied + done.damaged + done.marked + done.not_ready + done.late;
        assert!(hits > 0, "{example} does nothing in {} packets", done.sent);
    }
}
