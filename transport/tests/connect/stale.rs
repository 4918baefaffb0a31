//! A REQ for a connected queue pair: forged, wrong, or after a restart.

use std::time::Duration;

use roce_transport::{
    adapter::{Adapter, AdapterConfig},
    addr::Qpn,
    cm::{CmMad, CmState, ConnEvent, ConnId, Drep, Dreq, Message, RejectReason, Req},
    event::{Disposition, DropReason},
    qp::{Init, State},
};

use super::{SERVICE, Talk, hand, rejection};
use crate::common::{End, Side};

struct Connected {
    talk: Talk,
    a: ConnId,
    b: ConnId,
    a_qp: End,
    b_qp: End,
    req: CmMad,
}

impl Connected {
    fn new() -> Self {
        let mut talk = Talk::new();
        let (a, a_qp) = talk.call();
        let req = hand::sent(&mut talk.pair, Side::A).remove(0);
        hand::deliver(&mut talk.pair, Side::B, &req);
        let (b, _) = talk.requests()[0];
        let b_qp = talk.accept(b);
        talk.deliver_all();
        talk.take(Side::A);
        talk.take(Side::B);
        assert_eq!(talk.pair.b.adapter.cm().state(b), Some(CmState::Established));
        Self { talk, a, b, a_qp, b_qp, req }
    }

    /// The REQ with another communication ID.
    fn another(&self, n: u32) -> CmMad {
        hand::change_req(self.req.clone(), |req: &mut Req| req.local_id ^= n)
    }

    /// B's rejection, and its probe if any.
    fn response(&mut self) -> (CmMad, Option<CmMad>) {
        let mut sent = hand::sent(&mut self.talk.pair, Side::B).into_iter();
        let rej = sent.next().unwrap();
        let Message::Rej(reason) = &rej.message else { panic!("{rej:?}") };
        assert_eq!(reason.reason, RejectReason::STALE_CONNECTION);
        let question = sent.next();
        assert_eq!(sent.next(), None);
        (rej, question)
    }

    #[track_caller]
    fn assert_alive(&mut self) {
        let talk = &mut self.talk;
        assert_eq!((talk.take(Side::A), talk.take(Side::B)), (vec![], vec![]));
        assert_eq!(talk.pair.b.adapter.cm().state(self.b), Some(CmState::Established));
        assert_eq!(talk.pair.state(&self.b_qp), State::Rts);
    }

    /// A restarts with the same GUID.
    fn restart(&mut self) {
        let Message::Req(req) = &self.req.message else { unreachable!() };
        let a = &mut self.talk.pair.a;
        a.adapter =
            Adapter::new(AdapterConfig { guid: req.local_ca_guid, ..AdapterConfig::new([77; 32]) });
        a.adapter.set_gids(vec![a.ip.into()]);
        a.pd = a.adapter.alloc_pd().unwrap();
    }
}

const UNKNOWN: Disposition = Disposition::Dropped(DropReason::CmUnknownConnection);

/// Even if the connection is silent.
#[test]
fn a_forged_request_ends_no_connection() {
    let mut world = Connected::new();
    world.talk.pair.run_for(Duration::from_secs(3600));
    for n in 1..=50 {
        let forged = world.another(n);
        assert_eq!(hand::deliver(&mut world.talk.pair, Side::B, &forged), Disposition::Executed);
        let (rej, question) = world.response();
        // one probe per second, ignored by the peer
        assert_eq!(question.is_some(), n % 10 == 1, "{n}");
        for mad in [Some(rej), question].into_iter().flatten() {
            assert_eq!(hand::deliver(&mut world.talk.pair, Side::A, &mad), UNKNOWN);
        }
        assert_eq!(hand::sent(&mut world.talk.pair, Side::A), []);
        world.talk.pair.run_for(Duration::from_millis(100));
    }
    world.talk.pair.run_for(Duration::from_secs(3600));
    world.assert_alive();
    world.talk.disconnect(Side::A, world.a);
    world.talk.deliver_all();
    assert_eq!(world.talk.take(Side::B), [ConnEvent::Disconnected(world.b)]);
}

/// A DREP without a probe, or with a guessed transaction ID.
#[test]
fn a_forged_response_ends_no_connection() {
    let mut world = Connected::new();
    world.talk.disconnect(Side::A, world.a);
    let Message::Dreq(Dreq { local_id, remote_id, .. }) =
        hand::sent(&mut world.talk.pair, Side::A).remove(0).message
    else {
        unreachable!()
    };
    let drep = Message::Drep(Drep { local_id, remote_id, ..Drep::default() });
    let unexpected = Disposition::Dropped(DropReason::CmWrongState);
    let unasked = CmMad::new(0, drep.clone());
    assert_eq!(hand::deliver(&mut world.talk.pair, Side::B, &unasked), unexpected);
    let another = world.another(1);
    hand::deliver(&mut world.talk.pair, Side::B, &another);
    let question = world.response().1.unwrap();
    let guessed = CmMad::new(question.transaction ^ 1, drep.clone());
    assert_eq!(hand::deliver(&mut world.talk.pair, Side::B, &guessed), unexpected);
    world.assert_alive();
    let right = CmMad::new(question.transaction, drep);
    assert_eq!(hand::deliver(&mut world.talk.pair, Side::B, &right), Disposition::Executed);
    assert_eq!(world.talk.take(Side::B), [ConnEvent::Disconnected(world.b)]);
}

/// A restarted peer disowns the connection and may reuse its queue pair.
#[test]
fn a_peer_that_starts_anew() {
    let mut world = Connected::new();
    world.restart();
    let again = world.another(1);
    hand::deliver(&mut world.talk.pair, Side::B, &again);
    let (_, question) = world.response();
    let question = question.unwrap();
    let Message::Dreq(dreq) = &question.message else { panic!("{question:?}") };
    assert_ne!(dreq.remote_qpn, world.a_qp.qpn);
    assert_eq!(hand::deliver(&mut world.talk.pair, Side::A, &question), Disposition::Executed);
    world.talk.deliver_all();
    assert_eq!(world.talk.take(Side::B), [ConnEvent::Disconnected(world.b)]);
    assert_eq!(world.talk.pair.b.adapter.cm().state(world.b), Some(CmState::TimeWait));
    let again = world.another(2);
    assert_eq!(hand::deliver(&mut world.talk.pair, Side::B, &again), Disposition::Executed);
    assert_eq!(world.talk.requests().len(), 1);
}

/// The second is refused until the first ends.
#[test]
fn a_queue_pair_with_two_connections() {
    let Connected { mut talk, a, b, a_qp, .. } = Connected::new();
    talk.pair.allow(DropReason::CmUnknownConnection); // the probe
    talk.pair.a.adapter.to_reset(a_qp.qpn).unwrap();
    talk.pair.a.adapter.to_init(a_qp.qpn, &Init::default()).unwrap();
    talk.call_with(&a_qp, SERVICE, b"").unwrap();
    talk.pair.run();
    let events = talk.take(Side::A);
    assert_eq!((rejection(&events[0]).reason, events.len()), (RejectReason::STALE_CONNECTION, 1));
    assert_eq!(talk.take(Side::B), []);
    talk.disconnect(Side::A, a);
    talk.deliver_all();
    talk.disconnect(Side::B, b);
    talk.deliver_all();
    talk.take(Side::B);
    talk.call_with(&a_qp, SERVICE, b"").unwrap();
    talk.deliver_all();
    assert_eq!(talk.requests().len(), 1, "the old connection is in its time wait");
}

#[test]
fn a_reply_with_a_connected_queue_pair() {
    let mut world = Connected::new();
    let (second, b, _) = world.talk.requested();
    world.talk.accept(b);
    let mut rep = hand::sent(&mut world.talk.pair, Side::B).remove(0);
    let Message::Rep(named) = &mut rep.message else { panic!("{rep:?}") };
    named.local_qpn = world.b_qp.qpn;
    assert_eq!(hand::deliver(&mut world.talk.pair, Side::A, &rep), Disposition::Executed);
    let sent = hand::sent(&mut world.talk.pair, Side::A);
    let [Message::Rej(rej), Message::Dreq(question)] = [&sent[0].message, &sent[1].message] else {
        panic!("{sent:?}")
    };
    assert_eq!(rej.reason, RejectReason::STALE_CONNECTION);
    assert_eq!(question.remote_qpn, Qpn::new(0));
    assert_eq!(hand::deliver(&mut world.talk.pair, Side::B, &sent[1]), UNKNOWN);
    let events = world.talk.take(Side::A);
    assert!(matches!(events[..], [ConnEvent::Rejected { conn, .. }] if conn == second));
    assert_eq!(world.talk.pair.a.adapter.cm().state(world.a), Some(CmState::Established));
}
