use roce_transport::{
    addr::Mtu,
    psn::Psn,
    qp::SendQueueInfo,
    work::{SendOp, SendWr},
};

use crate::common::{End, Options, Pair, Side};

fn queue(pair: &Pair, end: &End) -> SendQueueInfo {
    pair.a.adapter.query_send_queue(end.qpn).unwrap()
}

#[test]
fn requests_are_told_until_they_are_complete() {
    let (mut pair, a, _) = Pair::connected(Options { mtu: Mtu::B256, ..Options::default() });
    let (near, far) = (pair.a.buffer(600), pair.b.buffer(600));
    assert_eq!(queue(&pair, &a).requests, []);
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.post_send(&a, &SendWr::read(2, far.remote(0), near.sge(0, 300)));
    let posted = queue(&pair, &a);
    let ids: Vec<_> = posted.requests.iter().map(|it| (it.wr_id, it.length, it.psns)).collect();
    assert_eq!(ids, [(1, 600, None), (2, 300, None)]);
    assert!(matches!(posted.requests[1].op, SendOp::Read { .. }));
    assert_eq!((posted.oldest_unacked, posted.in_flight), (Psn::new(0x100), 0));

    pair.transmit(Side::A);
    let sent = queue(&pair, &a);
    let psns: Vec<_> = sent.requests.iter().map(|it| it.psns.unwrap()).collect();
    // a READ has a PSN per response packet
    let expected = [(0x100, 0x102), (0x103, 0x104)];
    assert_eq!(psns, expected.map(|(first, last)| (Psn::new(first), Psn::new(last))));
    assert!(sent.in_flight >= 600, "{}", sent.in_flight);

    pair.run();
    let done = queue(&pair, &a);
    assert_eq!((done.requests.len(), done.in_flight), (0, 0));
    assert_eq!(done.oldest_unacked, Psn::new(0x105));
}
