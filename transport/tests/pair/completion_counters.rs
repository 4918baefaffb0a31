use std::sync::Arc;

use roce_transport::{
    event::DropReason,
    qp::{CountError, QpType, State},
    work::{CompletionCounter, Counted, CountedOps as Ops, Data, RecvWr, SendFlags, SendWr},
};

use crate::common::{AFTER_ONE_LOSS, End, Options, Pair, Side};

const UNSIGNALED: SendFlags = SendFlags::empty();

fn connect(pair: &mut Pair, counters: [&[(Ops, &Arc<CompletionCounter>)]; 2]) -> (End, End) {
    let options = Options::default();
    let a = pair.a.qp(Side::A, QpType::Rc, &options);
    let b = pair.b.qp(Side::B, QpType::Rc, &options);
    for (node, end, counters) in [(&mut pair.a, &a, counters[0]), (&mut pair.b, &b, counters[1])] {
        for &(ops, counter) in counters {
            node.adapter.count_completions(end.qpn, ops, counter.clone()).unwrap();
        }
    }
    pair.a.connect(a.qpn, pair.b.ip, b.qpn, options.b_psn, options.a_psn, &options);
    pair.b.connect(b.qpn, pair.a.ip, a.qpn, options.a_psn, options.b_psn, &options);
    (a, b)
}

fn new(counted: Counted) -> Arc<CompletionCounter> {
    Arc::new(CompletionCounter::new(counted))
}

fn read(counters: &[Arc<CompletionCounter>]) -> Vec<(u64, u64)> {
    counters.iter().map(|counter| (counter.completed(), counter.failed())).collect()
}

#[test]
fn every_operation_is_counted_once() {
    for counted in [Counted::Requests, Counted::Bytes] {
        let mut pair = Pair::new();
        let near = [Ops::SEND, Ops::WRITE, Ops::READ].map(|ops| (ops, new(counted)));
        let far = [Ops::RECV, Ops::REMOTE_WRITE, Ops::REMOTE_READ].map(|ops| (ops, new(counted)));
        let of = |counters: &[(Ops, Arc<CompletionCounter>)]| -> Vec<_> {
            counters.iter().map(|(_, counter)| counter.clone()).collect()
        };
        let (near_counters, far_counters) = (of(&near), of(&far));
        let (a, b) = connect(
            &mut pair,
            [&near.each_ref().map(|(ops, c)| (*ops, c)), &far.each_ref().map(|(ops, c)| (*ops, c))],
        );
        let (mine, theirs) = (pair.a.buffer(9000), pair.b.buffer(9000));
        pair.fault("drop every 11");
        pair.post_recvs(&b, 0..2, &[theirs.all()]);
        let post = |pair: &mut Pair, wr: SendWr| pair.post_send(&a, &wr.with_flags(UNSIGNALED));
        post(&mut pair, SendWr::send(1, mine.sge(0, 5000)));
        post(&mut pair, SendWr::write(2, theirs.remote(0), mine.sge(0, 6000)));
        post(
            &mut pair,
            SendWr::write(3, theirs.remote(0), mine.sge(0, 100)).with_immediate([0; 4]),
        );
        for id in 4..7 {
            post(&mut pair, SendWr::read(id, theirs.remote(0), mine.sge(0, 7000)));
        }
        post(&mut pair, SendWr::fetch_add(7, theirs.remote(0), 1, mine.sge(0, 8)));
        pair.allow_all(AFTER_ONE_LOSS);
        pair.allow(DropReason::ResponseOutsideWindow);
        pair.run();
        assert_eq!(a.sent(), [], "nothing is signaled, and nothing has failed");
        let bytes = counted == Counted::Bytes;
        let count = |requests, length| if bytes { (length, 0) } else { (requests, 0) };
        let [sent, written, got] = [count(1, 5000), count(2, 6100), count(3, 21_000)];
        assert_eq!(read(&near_counters), [sent, written, got], "{counted:?}");
        assert_eq!(read(&far_counters), [count(2, 5100), written, got], "{counted:?}");
    }
}

#[test]
fn failures_are_counted_apart() {
    let mut pair = Pair::new();
    let counters = [Counted::Requests, Counted::Bytes, Counted::Bytes].map(new);
    let [sends, writes, theirs] = &counters;
    let (a, b) = connect(
        &mut pair,
        [&[(Ops::SEND, sends), (Ops::WRITE, writes)], &[(Ops::REMOTE_WRITE | Ops::RECV, theirs)]],
    );
    let (mine, far) = (pair.a.buffer(100), pair.b.buffer(100));
    pair.post_recv(&b, &RecvWr::new(1, []));
    pair.post_send(&a, &SendWr::write(1, far.remote(50), mine.sge(0, 50)));
    pair.post_send(&a, &SendWr::write(2, far.remote(51), mine.sge(0, 50)));
    pair.post_send(&a, &SendWr::send(3, Data::empty()));
    pair.allow(DropReason::QpState); // behind the refused one
    pair.run();
    assert_eq!(read(&counters), [(0, 1), (50, 1), (50, 2)], "refused, and flushed");

    sends.set_completed(u64::MAX);
    sends.add_completed(3);
    sends.set_failed(7);
    sends.add_failed(1);
    assert_eq!((sends.completed(), sends.failed()), (2, 8), "the number starts over");
}

#[test]
fn a_counter_is_attached_before_use_and_by_one_operation_once() {
    let mut pair = Pair::new();
    let (sends, others) = (new(Counted::Requests), new(Counted::Requests));
    let (a, b) = connect(&mut pair, [&[(Ops::SEND, &sends)], &[(Ops::SEND, &sends)]]);
    let attach = |pair: &mut Pair, end: &End, ops| {
        pair.a.adapter.count_completions(end.qpn, ops, others.clone())
    };
    assert_eq!(attach(&mut pair, &a, Ops::RECV), Err(CountError::State(State::Rts)));
    assert_eq!(attach(&mut pair, &b, Ops::RECV), Err(CountError::UnknownQp));
    let fresh = pair.a.qp(Side::A, QpType::Rc, &Options::default());
    assert_eq!(attach(&mut pair, &fresh, Ops::empty()), Err(CountError::NoOperation));
    assert_eq!(attach(&mut pair, &fresh, Ops::SEND | Ops::READ), Ok(()));
    assert_eq!(attach(&mut pair, &fresh, Ops::READ | Ops::WRITE), Err(CountError::Counted));
    assert_eq!(attach(&mut pair, &fresh, Ops::WRITE), Ok(()));

    // one counter for both sides' sends
    for (from, to) in [(&a, &b), (&b, &a)] {
        pair.post_recv(to, &RecvWr::new(1, []));
        pair.post_send(from, &SendWr::send(2, Data::empty()));
    }
    pair.run();
    assert_eq!((sends.completed(), others.completed()), (2, 0));
    assert_eq!(Arc::strong_count(&sends), 3);
    pair.a.adapter.destroy_qp(a.qpn).unwrap();
    assert_eq!(Arc::strong_count(&sends), 2, "gone with its queue pair");
}
