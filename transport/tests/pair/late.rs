//! Late, reordered placement, completions and events: only guarantees hold (9.5, o9-20).

use std::time::Duration;

use roce_fabric::Network;
use roce_transport::{
    addr::Mtu,
    event::{DropReason, Event},
    wire::Immediate,
    work::{LateConfig, NotifyKind, RecvWr, SendFlags, SendOp, SendWr},
};

use crate::common::{End, Node, Options, Pair, Side, UDP_SEGMENT, all_ok, pattern};

fn reorder(seed: u64) -> LateConfig {
    LateConfig { seed, placement: LateConfig::PLACEMENT, completion: Duration::ZERO }
}

fn delay(seed: u64) -> LateConfig {
    LateConfig { seed, placement: Duration::ZERO, completion: LateConfig::COMPLETION }
}

fn both(seed: u64) -> LateConfig {
    LateConfig { completion: LateConfig::COMPLETION, ..reorder(seed) }
}

fn pair_over(late: LateConfig, network: Network) -> Pair {
    let mut pair = Pair::with_network(network);
    for (node, seed) in [(&mut pair.a, 0xA), (&mut pair.b, 0xB)] {
        let mut config = Node::config(seed);
        config.late = late;
        *node = Node::with_config(config, node.ip, UDP_SEGMENT);
    }
    pair
}

fn pair(late: LateConfig) -> (Pair, End, End) {
    let mut pair = pair_over(late, Network::new(Pair::conditions(), 0));
    let (a, b) = pair.connect(Options { mtu: Mtu::B256, ..Options::default() });
    (pair, a, b)
}

/// Observes 10 ms in steps.
fn watch(pair: &mut Pair, mut look: impl FnMut(&mut Pair)) {
    for _ in 0..2000 {
        pair.run_for(Duration::from_micros(5));
        look(pair);
    }
}

#[test]
fn bytes_of_a_write_are_placed_in_any_order_and_before_its_completion() {
    let (mut seen_out_of_order, mut stories) = (0, Vec::new());
    for seed in 0..20 {
        let (mut pair, a, _) = pair(reorder(seed));
        let (near, far) = (pair.a.buffer(600), pair.b.buffer(600));
        near.put(0, &[7; 600]);
        pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
        let (mut story, mut completed) = (Vec::new(), None);
        watch(&mut pair, |pair| {
            let placed: Vec<bool> = far.part(0, 600).iter().map(|byte| *byte != 0).collect();
            if completed.is_none() && !a.sent().is_empty() {
                completed = Some((pair.now, placed.iter().all(|is_placed| *is_placed)));
            }
            if story.last() != Some(&placed) {
                story.push(placed);
            }
        });
        assert!(completed.unwrap().1, "seed {seed}: completed before all of it was placed");
        assert_eq!(far.part(0, 600), near.part(0, 600));
        let is_ahead = |placed: &Vec<bool>| {
            let first = placed.iter().position(|is_placed| !is_placed);
            first.is_some_and(|first| placed[first..].iter().any(|is_placed| *is_placed))
        };
        seen_out_of_order += u32::from(story.iter().any(is_ahead));
        stories.push(story);
    }
    assert_eq!(seen_out_of_order, 20);
    assert!(stories.windows(2).all(|two| two[0] != two[1]), "each seed has an order of its own");
}

#[test]
fn the_same_seed_places_in_the_same_order() {
    let story = |seed| {
        let (mut pair, a, _) = pair(both(seed));
        let (near, far) = (pair.a.buffer(600).fill(1), pair.b.buffer(600));
        pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
        let mut story = Vec::new();
        watch(&mut pair, |pair| story.push((pair.now, far.part(0, 600), a.send_cq.len())));
        story
    };
    assert!(story(3) == story(3) && story(3) != story(4));
}

#[test]
fn a_receive_completion_comes_behind_all_that_was_written_before_it() {
    for seed in 0..30 {
        let (mut pair, a, b) = pair(both(seed));
        let (near, far) = (pair.a.buffer(2000).fill(1), pair.b.buffer(2000));
        for id in 0..3 {
            pair.post_recv(&b, &RecvWr::new(id, [far.sge(1200 + 100 * id as usize, 100)]));
        }
        pair.post_send(&a, &SendWr::write(1, far.remote(0), near.sge(0, 600)));
        pair.post_send(&a, &SendWr::send(2, near.sge(1200, 100)));
        let with_immediate = SendWr {
            op: SendOp::Write { remote: far.remote(600), immediate: Some(Immediate([0; 4])) },
            ..SendWr::write(3, far.remote(600), near.sge(600, 600))
        };
        pair.post_send(&a, &with_immediate);
        pair.post_send(&a, &SendWr::send(4, near.sge(1400, 100)));
        let mut received = 0;
        watch(&mut pair, |_| {
            received += b.received().len();
            let whole: &[(usize, usize)] = match received {
                0 => &[],
                1 => &[(0, 600), (1200, 100)],
                2 => &[(0, 1200), (1200, 100)],
                _ => &[(0, 1300), (1400, 100)],
            };
            for (at, length) in whole {
                assert_eq!(far.part(*at, *length), near.part(*at, *length), "seed {seed}");
            }
        });
        assert_eq!(received, 3);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notice {
    Send,
    WriteWithImmediate,
    /// Polled in memory.
    Flag,
}

/// Queue pairs are unordered.
#[test]
fn a_notice_of_another_queue_pair_may_come_before_what_was_written() {
    let overtakes = |notice: Notice, seed: u64| {
        let (mut pair, data, _) = pair(reorder(seed));
        let (notifier, noticed) = pair.connect(Options { mtu: Mtu::B256, ..Options::default() });
        let (near, far) = (pair.a.buffer(1000), pair.b.buffer(1000));
        (1..=20).any(|round| {
            near.put(0, &[round; 1000]);
            if notice != Notice::Flag {
                pair.post_recv(&noticed, &RecvWr::new(1, [far.sge(904, 8)]));
            }
            let write = SendWr::write(2, far.remote(904), near.sge(904, 8));
            let wr = match notice {
                Notice::Send => SendWr::send(2, near.sge(904, 8)),
                Notice::WriteWithImmediate => write.with_immediate([0; 4]),
                Notice::Flag => write,
            };
            pair.post_send(&data, &SendWr::write(1, far.remote(0), near.sge(0, 800)));
            pair.post_send(&notifier, &wr);
            let mut is_early = false;
            watch(&mut pair, |_| {
                let is_there = far.part(0, 800) == near.part(0, 800);
                let is_noticed = match notice {
                    Notice::Flag => far.part(904, 8) == near.part(904, 8),
                    _ => !noticed.received().is_empty(),
                };
                is_early |= is_noticed && !is_there;
            });
            assert_eq!((data.sent().len(), notifier.sent().len()), (1, 1));
            is_early
        })
    };
    for notice in [Notice::Send, Notice::WriteWithImmediate, Notice::Flag] {
        let seeds = (0..10).filter(|seed| overtakes(notice, *seed)).count();
        assert!(seeds >= 9, "{notice:?}: {seeds} of 10 seeds");
    }
}

#[test]
fn reads_and_atomics_find_what_was_written_before_them() {
    for seed in 0..30 {
        let (mut pair, a, _) = pair(reorder(seed));
        let (near, far) = (pair.a.buffer(2048).fill(1), pair.b.buffer(1024));
        let first = u64::from_ne_bytes(near.part(8, 8).try_into().unwrap());
        pair.post_send(&a, &SendWr::write(1, far.remote(0), near.sge(0, 800)));
        pair.post_send(&a, &SendWr::fetch_add(2, far.remote(8), 1, near.sge(2040, 8)));
        pair.post_send(&a, &SendWr::read(3, far.remote(16), near.sge(1024, 700)));
        // overlaps the READ, whose response has the old data
        pair.post_send(&a, &SendWr::write(4, far.remote(100), near.sge(0, 100)));
        pair.run();
        assert_eq!(a.sent().len(), 4);
        assert_eq!(near.part(2040, 8), first.to_ne_bytes(), "seed {seed}");
        assert_eq!(near.part(1024, 700), near.part(16, 700), "seed {seed}");
        assert_eq!(far.part(100, 100), near.part(0, 100), "seed {seed}");
    }
}

#[test]
fn what_a_read_brings_is_there_with_its_completion_and_behind_a_fence() {
    let mut seen_half = 0;
    for seed in 0..30 {
        let (mut pair, a, b) = pair(reorder(seed));
        let (near, far) = (pair.a.buffer(800), pair.b.buffer(1600).fill(1));
        pair.post_send(&a, &SendWr::read(1, far.remote(0), near.all()));
        if seed < 10 {
            pair.post_recv(&b, &RecvWr::new(1, [far.sge(800, 800)]));
            let flags = SendFlags::SIGNALED | SendFlags::FENCE;
            pair.post_send(&a, &SendWr { flags, ..SendWr::send(2, near.all()) });
        }
        let mut is_complete = false;
        watch(&mut pair, |_| {
            is_complete |= !a.sent().is_empty();
            let placed = near.part(0, 800).iter().filter(|byte| **byte != 0).count();
            assert!(!is_complete || near.part(0, 800) == far.part(0, 800), "seed {seed}");
            seen_half += u32::from(placed > 0 && near.part(0, 800) != far.part(0, 800));
        });
        assert!(is_complete);
        if seed < 10 {
            assert_eq!(far.part(800, 800), far.part(0, 800), "seed {seed}: the fence");
        }
    }
    assert!(seen_half > 30);
}

#[test]
fn the_later_of_two_writes_to_one_place_stays() {
    for seed in 0..30 {
        let (mut pair, a, _) = pair(reorder(seed));
        let (near, far) = (pair.a.buffer(1024), pair.b.buffer(512));
        near.put(0, &pattern(1, 512));
        near.put(512, &pattern(2, 512));
        pair.post_send(&a, &SendWr::write(1, far.remote(0), near.sge(0, 512)));
        pair.post_send(&a, &SendWr::write(2, far.remote(0), near.sge(512, 512)));
        pair.run();
        assert_eq!(far.part(0, 512), pattern(2, 512), "seed {seed}");
    }
}

#[test]
fn nothing_is_placed_when_its_key_or_its_queue_pair_is_gone() {
    for destroy in [false, true] {
        let (mut pair, a, b) = pair(reorder(5));
        let (near, far) = (pair.a.buffer(512).fill(1), pair.b.buffer(512));
        pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
        pair.run_for(Duration::from_micros(50));
        assert_ne!(far.part(0, 512), near.part(0, 512), "all of it is there already");
        match destroy {
            true => pair.b.adapter.destroy_qp(b.qpn).unwrap(),
            false => pair.b.adapter.deregister(&far.region).unwrap(),
        }
        // it arrived earlier; now the program owns the memory
        assert_eq!(far.part(0, 512), near.part(0, 512));
        far.put(0, &[9; 512]);
        pair.allow_all(&[DropReason::UnknownQp]);
        pair.run_for(Duration::from_millis(2));
        assert_eq!(far.part(0, 512), [9; 512]);
    }
}

#[test]
fn completions_come_late_and_in_order_and_events_behind_them() {
    let mut latest = Duration::ZERO;
    for seed in 0..10 {
        let (mut pair, a, b) = pair(delay(seed));
        let (near, far) = (pair.a.buffer(64).fill(1), pair.b.buffer(64 * 8));
        for id in 0..8 {
            pair.post_recv(&b, &RecvWr::new(id, [far.sge(64 * id as usize, 64)]));
        }
        b.recv_cq.req_notify(NotifyKind::Next);
        let start = pair.now;
        for id in 0..8 {
            pair.post_send(&a, &SendWr::send(id, near.all()));
        }
        let (mut told, mut ids, mut placed) = (None, Vec::new(), None);
        watch(&mut pair, |pair| {
            let now = pair.now;
            if far.part(64 * 7, 64) == near.part(0, 64) {
                placed.get_or_insert(now);
            }
            let is_event = |event: &Event| *event == Event::Completion(b.recv_cq.id());
            if pair.events(Side::B).iter().any(is_event) {
                assert!(!b.recv_cq.is_empty(), "seed {seed}: an event without a completion");
                told.get_or_insert(now);
            }
            if told.is_some() {
                ids.extend(b.received().iter().map(|wc| wc.wr_id));
            }
        });
        assert_eq!(ids, (0..8).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(a.send_outcomes(), all_ok(0..8, 0));
        latest = latest.max(told.unwrap().since(start));
        assert!(placed.unwrap().since(start) < Duration::from_micros(100), "bytes are not late");
    }
    assert!(latest > LateConfig::COMPLETION / 2, "{latest:?}");
}

#[test]
fn completions_of_a_queue_pair_that_is_gone_do_not_come() {
    let (mut pair, a, _) = pair(delay(1));
    let (near, far) = (pair.a.buffer(64), pair.b.buffer(64));
    for id in 0..20 {
        pair.post_send(&a, &SendWr::write(id, far.remote(0), near.all()));
    }
    pair.run_for(Duration::from_micros(100));
    pair.a.adapter.discard_completions(a.qpn);
    pair.a.adapter.destroy_qp(a.qpn).unwrap();
    pair.a.adapter.destroy_cq(a.send_cq.id()).unwrap();
    pair.run_for(Duration::from_millis(10));
    assert!(a.sent().is_empty() && a.send_cq.is_empty());
}

#[test]
fn an_exchange_over_a_rough_network_ends_as_it_would() {
    for seed in 0..20 {
        let plan = "drop 2%; duplicate 2%; delay 100us 5%";
        let mut pair = pair_over(both(seed), Network::with_plan(plan.parse().unwrap(), seed));
        pair.allow_all(DropReason::ALL);
        let (a, b) = pair.connect(Options { mtu: Mtu::B256, ..Options::default() });
        let (near, far) = (pair.a.buffer(40 * 700), pair.b.buffer(40 * 700));
        for id in 0..40_u64 {
            let at = id as usize * 700;
            let source = if id % 4 == 3 { &far } else { &near };
            source.put(at, &pattern(id as u8, 700));
            let wr = match id % 4 {
                0 => SendWr::write(id, far.remote(at), near.sge(at, 700)),
                3 => SendWr::read(id, far.remote(at), near.sge(at, 700)),
                _ => {
                    pair.post_recv(&b, &RecvWr::new(id, [far.sge(at, 700)]));
                    SendWr::send(id, near.sge(at, 700))
                }
            };
            pair.post_send(&a, &wr);
        }
        pair.run();
        let ids: Vec<_> =
            a.send_outcomes().iter().map(|(id, result)| (*id, result.is_ok())).collect();
        assert_eq!(ids, (0..40).map(|id| (id, true)).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(b.received().len(), 20);
        for id in 0..40_usize {
            let target = if id % 4 == 3 { &near } else { &far };
            assert_eq!(target.part(id * 700, 700), pattern(id as u8, 700), "seed {seed}: {id}");
        }
    }
}

#[test]
fn datagrams_and_unreliable_connections_are_late_as_well() {
    for seed in 0..10 {
        let mut pair = pair_over(both(seed), Network::new(Pair::conditions(), 0));
        let (a, b) = pair.connect_unreliably(Options { mtu: Mtu::B256, ..Options::default() });
        let (near, far) = (pair.a.buffer(1200).fill(1), pair.b.buffer(1200));
        pair.post_recv(&b, &RecvWr::new(1, [far.sge(600, 600)]));
        pair.post_send(&a, &SendWr::write(1, far.remote(0), near.sge(0, 600)));
        pair.post_send(&a, &SendWr::send(2, near.sge(600, 600)));
        let mut is_received = false;
        watch(&mut pair, |_| {
            is_received |= !b.received().is_empty();
            assert!(!is_received || far.part(0, 1200) == near.part(0, 1200), "seed {seed}");
        });
        assert!(is_received && pair.state(&a) == pair.state(&b));
    }
}
