use roce_transport::{
    addr::QKey,
    cm::{About, CmMad, CmState, ConnEvent, Drep, Dreq, Message, Rej, RejectReason, Rtu},
    event::{Disposition, DropReason},
    wire::MAD_LEN,
};

use super::{Talk, hand};
use crate::common::Side;

const fn dropped(reason: DropReason) -> Disposition {
    Disposition::Dropped(reason)
}

/// With valid IDs.
#[test]
fn from_another_host() {
    let mut talk = Talk::new();
    let (a, b, _, b_qp) = talk.connected();
    talk.disconnect(Side::A, a);
    let genuine = hand::sent(&mut talk.pair, Side::A).remove(0);
    let Message::Dreq(Dreq { local_id, remote_id, .. }) = genuine.message else {
        panic!("{genuine:?}")
    };
    let rej = Rej::new(local_id, remote_id, About::Other, RejectReason::CONSUMER);
    let forged = [
        genuine.message.clone(),
        Message::Drep(Drep { local_id, remote_id, ..Drep::default() }),
        Message::Rej(Box::new(rej)),
        Message::Rtu(Rtu { local_id, remote_id, ..Rtu::default() }),
    ];
    for message in forged {
        let mad = CmMad { transaction: genuine.transaction, modifier: 0, message };
        assert_eq!(
            hand::deliver_from(&mut talk.pair, Side::B, hand::OTHER_HOST, &mad),
            dropped(DropReason::CmWrongPeer)
        );
    }
    assert_eq!(talk.take(Side::B), []);
    assert_eq!(talk.pair.b.adapter.cm().state(b), Some(CmState::Established));
    assert_eq!(talk.pair.state(&b_qp), roce_transport::qp::State::Rts);
    assert_eq!(hand::deliver(&mut talk.pair, Side::B, &genuine), Disposition::Executed);
    assert_eq!(talk.take(Side::B), [ConnEvent::Disconnected(b)]);
}

#[test]
fn another_host_with_the_peers_names() {
    let mut talk = Talk::new();
    let (a, _) = talk.call();
    let req = hand::sent(&mut talk.pair, Side::A).remove(0);
    hand::deliver(&mut talk.pair, Side::B, &req);
    let (b, _) = talk.requests()[0];
    talk.accept(b);
    let rep = hand::sent(&mut talk.pair, Side::B).remove(0);
    assert_eq!(
        hand::deliver_from(&mut talk.pair, Side::A, hand::OTHER_HOST, &rep),
        dropped(DropReason::CmWrongPeer)
    );
    assert_eq!(talk.pair.a.adapter.cm().state(a), Some(CmState::ReqSent));
    hand::deliver(&mut talk.pair, Side::A, &rep);
    talk.deliver_all();
    talk.take(Side::A);
    talk.take(Side::B);
    // the same adapter and queue pair at another address: a new request
    assert_eq!(
        hand::deliver_from(&mut talk.pair, Side::B, hand::OTHER_HOST, &req),
        Disposition::Executed
    );
    assert_eq!(talk.requests().len(), 1);
    assert_eq!(talk.pair.b.adapter.cm().state(b), Some(CmState::Established));
}

/// One communication ID is right, the other guessed.
#[test]
fn a_guessed_id() {
    let mut talk = Talk::new();
    let (a, b, ..) = talk.connected();
    talk.disconnect(Side::A, a);
    let genuine = hand::sent(&mut talk.pair, Side::A).remove(0);
    let Message::Dreq(dreq) = genuine.message else { panic!("{genuine:?}") };
    for (local_id, remote_id) in
        [(dreq.local_id ^ 1, dreq.remote_id), (dreq.local_id, dreq.remote_id ^ 1)]
    {
        let mad = CmMad {
            message: Message::Dreq(Dreq { local_id, remote_id, ..dreq }),
            ..genuine.clone()
        };
        // response as for an unknown connection
        assert_eq!(hand::deliver(&mut talk.pair, Side::B, &mad), Disposition::Executed);
    }
    assert_eq!(talk.take(Side::B), []);
    assert_eq!(talk.pair.b.adapter.cm().state(b), Some(CmState::Established));
}

#[test]
fn no_message_at_all() {
    let mut talk = Talk::new();
    let from = talk.pair.a.ip;
    talk.call();
    let good = hand::sent(&mut talk.pair, Side::A).remove(0).encode();
    let not_a_mad = dropped(DropReason::NotAMad);
    for length in [0, 1, 24, MAD_LEN - 1, MAD_LEN + 1] {
        let mut bytes = good.to_vec();
        bytes.resize(length, 0);
        assert_eq!(
            hand::deliver_bytes(&mut talk.pair, Side::B, from, &bytes, hand::GSI_QKEY),
            not_a_mad,
            "{length}"
        );
    }
    // base version, class, class version, method, attribute
    for (at, value) in
        [(0, 2), (1, 3), (2, 1), (3, 0x81), (17, 0x0F), (17, 0x1B), (17, 0xFF), (16, 1)]
    {
        let mut bytes = good;
        bytes[at] = value;
        assert_eq!(
            hand::deliver_bytes(&mut talk.pair, Side::B, from, &bytes, hand::GSI_QKEY),
            not_a_mad,
            "byte {at}"
        );
    }
    let wrong_key = hand::deliver_bytes(&mut talk.pair, Side::B, from, &good, QKey(0x8001_0001));
    assert_eq!(wrong_key, dropped(DropReason::QKey));
    assert_eq!(talk.take(Side::B), []);
    assert_eq!(
        hand::deliver_bytes(&mut talk.pair, Side::B, from, &good, hand::GSI_QKEY),
        Disposition::Executed
    );
}

/// Responses beyond the queue are dropped.
#[test]
fn a_flood_of_requests() {
    let mut talk = Talk::new();
    talk.call();
    let good = hand::sent(&mut talk.pair, Side::A).remove(0);
    let Message::Req(req) = &good.message else { unreachable!() };
    for n in 0..10_000u32 {
        let mut req = **req;
        req.local_id = n;
        req.local_qpn = roce_transport::addr::Qpn::new(n);
        if n % 2 == 0 {
            req.service_id.0 += 1;
        }
        let mad = CmMad { message: Message::Req(Box::new(req)), ..good.clone() };
        hand::deliver(&mut talk.pair, Side::B, &mad);
    }
    assert_eq!(talk.requests().len(), 16, "the backlog");
    assert_eq!(talk.pair.b.adapter.cm().count(), 16);
    assert_eq!(talk.pair.dropped(DropReason::CmBacklog), 5_000 - 16);
    let responses: usize =
        std::iter::from_fn(|| Some(hand::sent(&mut talk.pair, Side::B).len()).filter(|&n| n > 0))
            .sum();
    assert_eq!(responses, 4096, "rejections that wait to be sent");
}
