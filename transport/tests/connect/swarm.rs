//! Many connections under faults, by seed.

use std::{collections::BTreeMap, time::Duration};

use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};
use roce_fabric::Network;
use roce_transport::{
    cm::{ConnEvent, ConnId, RejectReason},
    event::DropReason,
};

use super::{SERVICE, Talk, configure};
use crate::common::{Pair, Side};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct History {
    begun: bool,
    established: bool,
    /// At most once.
    ended: bool,
    left_time_wait: bool,
    destroyed: bool,
}

type Book = BTreeMap<ConnId, History>;

fn chance(rng: &mut ChaCha12Rng, percent: u32) -> bool {
    rng.next_u32() % 100 < percent
}

fn serve(talk: &mut Talk, side: Side, book: &mut Book, rng: &mut ChaCha12Rng, seed: u64) {
    for event in talk.take(side) {
        let now = talk.pair.now;
        match event {
            ConnEvent::Request { conn, .. } => {
                assert_eq!(
                    book.insert(conn, History { begun: true, ..History::default() }),
                    None,
                    "seed {seed}"
                );
                match rng.next_u32() % 10 {
                    0 => talk
                        .pair
                        .b
                        .adapter
                        .cm_reject(now, conn, RejectReason::CONSUMER, b"")
                        .unwrap(),
                    1 => {
                        talk.destroy(side, conn);
                        book.get_mut(&conn).unwrap().destroyed = true;
                    }
                    2 => continue,
                    _ => {
                        talk.accept(conn);
                    }
                }
            }
            ConnEvent::Established { conn, .. } => {
                let history = book.get_mut(&conn).unwrap();
                assert!(!history.established && !history.ended, "seed {seed}: {history:?}");
                history.established = true;
                match rng.next_u32() % 4 {
                    0 => talk.disconnect(side, conn),
                    1 => {
                        talk.destroy(side, conn);
                        book.get_mut(&conn).unwrap().destroyed = true;
                    }
                    _ => {}
                }
            }
            ConnEvent::Rejected { conn, .. }
            | ConnEvent::Unreachable(conn)
            | ConnEvent::ConnectError(conn) => {
                let history = book.get_mut(&conn).unwrap();
                assert!(!history.ended, "seed {seed}: {history:?}");
                history.ended = true;
            }
            ConnEvent::Disconnected(conn) => {
                let history = book.get_mut(&conn).unwrap();
                assert!(!history.ended, "seed {seed}: {history:?}");
                history.ended = true;
                let _ = talk.pair.node(side).adapter.cm_disconnect(now, conn, b"");
            }
            ConnEvent::TimeWaitExit(conn) => {
                let history = book.get_mut(&conn).unwrap();
                assert!(history.ended && !history.left_time_wait, "seed {seed}: {history:?}");
                history.left_time_wait = true;
            }
            event => panic!("seed {seed}: {event:?}"),
        }
    }
}

fn conversation(seed: u64) {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut conditions = Pair::conditions();
    if chance(&mut rng, 80) {
        conditions.loss = f64::from(rng.next_u32() % 30) / 100.0;
        conditions.duplication = f64::from(rng.next_u32() % 30) / 100.0;
        conditions.reordering = f64::from(rng.next_u32() % 30) / 100.0;
        conditions.corruption = f64::from(rng.next_u32() % 10) / 100.0;
        conditions.jitter = Duration::from_millis(u64::from(rng.next_u32() % 3000));
    }
    // heavy loss: a lost RTU takes many retransmissions of the REP
    let loses = conditions.loss + conditions.corruption > 0.02;
    let mut pair = Pair::with_network(Network::new(conditions, seed));
    for node in [&mut pair.a, &mut pair.b] {
        configure(node, |cm| {
            if loses {
                cm.unproven_messages = 17;
            }
        });
    }
    let mut talk = Talk::with(pair);
    talk.pair.allow_all(DropReason::ALL);
    let (mut callers, mut callees) = (Book::new(), Book::new());
    for _ in 0..1 + rng.next_u32() % 4 {
        let end = talk.qp(Side::A);
        let conn = talk.call_with(&end, SERVICE, b"").unwrap();
        callers.insert(conn, History { begun: true, ..History::default() });
    }
    for _ in 0..400 {
        talk.pair.run_for(Duration::from_millis(250));
        serve(&mut talk, Side::A, &mut callers, &mut rng, seed);
        serve(&mut talk, Side::B, &mut callees, &mut rng, seed);
        if chance(&mut rng, 2) {
            let established = |book: &Book| {
                book.iter()
                    .find(|(_, history)| history.established && !history.ended)
                    .map(|(conn, _)| *conn)
            };
            let side = if chance(&mut rng, 50) { Side::A } else { Side::B };
            if let Some(conn) = established(if side == Side::A { &callers } else { &callees }) {
                let now = talk.pair.now;
                let _ = talk.pair.node(side).adapter.cm_disconnect(now, conn, b"");
            }
        }
    }
    // without faults, both sides agree
    talk.pair.network.faults_mut().set_conditions(Pair::conditions());
    for _ in 0..300 {
        talk.pair.run_for(Duration::from_millis(500));
        serve(&mut talk, Side::A, &mut callers, &mut rng, seed);
        serve(&mut talk, Side::B, &mut callees, &mut rng, seed);
    }
    let alive = |book: &Book| {
        book.values()
            .filter(|history| history.established && !history.ended && !history.destroyed)
            .count()
    };
    assert_eq!(alive(&callers), alive(&callees), "seed {seed}: {callers:?} {callees:?}");
    for conn in callers
        .iter()
        .filter(|(_, history)| history.ended && !history.destroyed)
        .map(|(conn, _)| *conn)
    {
        assert_eq!(talk.pair.a.adapter.cm().state(conn), None, "seed {seed}");
    }
    for (side, book) in [(Side::A, &mut callers), (Side::B, &mut callees)] {
        for (&conn, history) in book.iter_mut().filter(|(_, history)| !history.destroyed) {
            talk.destroy(side, conn);
            history.destroyed = true;
        }
    }
    for _ in 0..3 {
        talk.pair.run();
        for (side, book) in [(Side::A, &mut callers), (Side::B, &mut callees)] {
            for event in talk.take(side) {
                let ConnEvent::Request { conn, .. } = event else {
                    panic!("seed {seed}: after its end: {event:?}")
                };
                book.insert(conn, History { destroyed: true, ..History::default() });
                talk.destroy(side, conn);
            }
        }
    }
    talk.assert_gone();
    // each request ended in an event, unless destroyed
    for (conn, history) in &callers {
        assert!(
            history.established || history.ended || history.destroyed,
            "seed {seed}: {conn:?} {history:?}"
        );
    }
    let connected = |book: &Book| book.values().filter(|history| history.established).count();
    assert!(connected(&callees) <= connected(&callers), "seed {seed}: {callers:?} {callees:?}");
}

#[test]
fn many_conversations() {
    let seeds =
        std::env::var("ROCE_SWARM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1000);
    for seed in 0..seeds {
        conversation(seed);
    }
}
