//! No request is lost, corked or not. The machine decides what is corked.

use std::iter;

use super::*;

const COUNT: usize = 32;
const BYTES: usize = 64;
const ROUNDS: usize = 100;
const RECEIVED: u64 = u64::MAX;

fn pair() -> (Side, Side) {
    let side = || {
        let options = OpenOptions { sockets_only: true, ..OpenOptions::default() };
        Side::on(loopback(options))
    };
    let (a, b) = (side(), side());
    connect(&a, &b);
    (a, b)
}

/// One WRITE per call, of either kind. Returns the number corked, and whether the last was.
fn post(a: &Side, b: &Side, round: usize) -> (u64, bool) {
    let corked = || a.context.link_counters().corked;
    let before = corked();
    let mut last = before;
    a.memory.write_at(0, &noise(COUNT * BYTES, round as u32)).unwrap();
    assert!(a.cq.poll_one().is_none()); // a polling program
    for at in 0..COUNT {
        let place = at * BYTES..(at + 1) * BYTES;
        let write = SendWr::write(at as u64, b.memory.remote(place.start), a.memory.sge(place));
        last = corked();
        match round % 2 {
            0 => a.qp.post_send(&[write]).unwrap(),
            _ => a.qp.post_send_all(&[write]).unwrap(),
        }
    }
    (corked() - before, corked() > last)
}

fn has_arrived(b: &Side, round: usize) -> bool {
    b.memory.to_vec(0..COUNT * BYTES).unwrap() == noise(COUNT * BYTES, round as u32)
}

#[test]
fn what_was_corked_leaves_in_fewer_runs() {
    let (a, b) = pair();
    for round in 0..ROUNDS {
        leave_together(&a, &b, round);
    }
}

/// True if at least half were corked.
fn leave_together(a: &Side, b: &Side, round: usize) -> bool {
    let before = a.context.link_counters().sent_runs;
    let (corked, _) = post(a, b, round);
    for at in 0..COUNT {
        assert_eq!(a.next().wr_id, at as u64);
    }
    assert!(has_arrived(b, round));
    let runs = a.context.link_counters().sent_runs - before;
    let is_most = corked as usize >= COUNT / 2;
    assert!(!is_most || runs <= COUNT as u64 - corked / 2, "{runs} runs, {corked} corked");
    is_most
}

#[test]
fn requests_leave_without_a_poll() {
    let (a, b) = pair();
    for round in 0..ROUNDS {
        post(&a, &b, round);
        wait_for_arrival(&a, &b, round);
        for at in 0..COUNT {
            assert_eq!(a.next().wr_id, at as u64);
        }
    }
}

fn wait_for_arrival(a: &Side, b: &Side, round: usize) {
    let start = Instant::now();
    while !has_arrived(b, round) {
        assert!(start.elapsed() < PATIENCE, "{:?}", a.context.link_counters());
        let _ = b.cq.poll_one();
    }
}

fn send(from: &Side, to: &Side, id: u64) {
    to.qp.post_recv(&[RecvWr::new(RECEIVED, [to.memory.sge(0..BYTES)])]).unwrap();
    from.qp.post_send(&[SendWr::send(id, from.memory.sge(0..BYTES))]).unwrap();
    while to.next().wr_id != RECEIVED {} // its own sends have completed, too
}

fn runs_of_responses(a: &Side, b: &Side, messages: u64) -> u64 {
    let runs = || [a, b].map(|side| side.context.link_counters().sent_runs).iter().sum::<u64>();
    let before = runs();
    for _ in 0..messages {
        send(a, b, 1);
        send(b, a, 1);
    }
    runs() - before
}

/// The program replies often, then stops calling: the timer flushes.
#[test]
fn an_acknowledgement_leaves_without_a_response() {
    let (a, b) = pair();
    for id in 0..ROUNDS as u64 {
        for _ in 0..20 {
            send(&a, &b, id);
            send(&b, &a, id);
        }
        send(&a, &b, ROUNDS as u64 + id);
        while a.next().wr_id != ROUNDS as u64 + id {}
    }
}

/// As on hardware, which does not cork.
#[test]
fn requests_leave_before_their_queue_pair_goes() {
    for round in 0..ROUNDS {
        let (a, b) = pair();
        // Shows that sending takes a call.
        post(&a, &b, 2 * round);
        for at in 0..COUNT {
            assert_eq!(a.next().wr_id, at as u64);
        }
        post(&a, &b, 2 * round + 1);
        let Side { context, qp, .. } = a;
        drop(qp);
        let start = Instant::now();
        while !has_arrived(&b, 2 * round + 1) {
            assert!(start.elapsed() < PATIENCE, "{:?}", context.link_counters());
            let _ = b.cq.poll_one();
        }
    }
}

/// The acknowledgement that awaited a reply leaves first.
#[test]
fn an_acknowledgement_leaves_before_its_queue_pair_goes() {
    for _ in 0..ROUNDS {
        let (a, b) = pair();
        for id in 0..20 {
            send(&a, &b, id);
            send(&b, &a, id);
        }
        send(&a, &b, 20);
        drop(b.qp);
        let last = iter::repeat_with(|| a.next()).find(|wc| wc.wr_id == 20);
        assert!(last.unwrap().result.is_ok());
    }
}

#[test]
#[ignore = "its bounds are those of a quiet machine"]
fn most_rounds_are_corked() {
    const MESSAGES: u64 = 20;
    let (a, b) = pair();
    let rounds = 10 * ROUNDS;
    for kind in 0..2 {
        let together = (0..rounds).filter(|round| leave_together(&a, &b, 2 * round + kind)).count();
        assert!(together > rounds / 2, "kind {kind}: {together} of {rounds}");
    }
    let together = (0..rounds)
        .filter(|_| runs_of_responses(&a, &b, MESSAGES) < 2 * MESSAGES + MESSAGES / 2)
        .count();
    assert!(together > rounds / 2, "answers: {together} of {rounds}");
}
