//! Ending the connections of an adapter that is gone.

use roce_transport::{
    cm::{CmState, ConnError, ConnEvent, ConnId, ConnRecord},
    event::DropReason,
};

use super::{SERVICE, Talk, configure, hand, listen};
use crate::common::{End, Side};

/// Communication IDs.
const GONE: std::ops::RangeInclusive<u32> = 0x100..=0x1FF;
const LEFT: std::ops::RangeInclusive<u32> = 0x200..=0x2FF;

/// A connection whose adapter at A is gone.
fn left_behind() -> (Talk, ConnRecord, ConnId, End) {
    let mut talk = Talk::configured(Side::A, |cm| cm.ids = GONE);
    let (a, b, _, b_qp) = talk.connected();
    let record = talk.pair.a.adapter.cm().record(a).unwrap();
    configure(&mut talk.pair.a, |cm| cm.ids = LEFT);
    (talk, record, b, b_qp)
}

fn end(talk: &mut Talk, record: &ConnRecord) -> Result<ConnId, ConnError> {
    talk.pair.a.adapter.cm_end_for_another(talk.pair.now, record)
}

#[test]
fn its_peer_is_told() {
    for lost in ["", "drop qp 1 nth 1"] {
        let (mut talk, record, b, b_qp) = left_behind();
        assert_eq!((record.remote, record.remote_qpn), (talk.pair.b.ip, b_qp.qpn));
        talk.pair.allow(DropReason::CmWrongState); // retransmission before B's program responds
        if !lost.is_empty() {
            talk.pair.fault_from(Side::A, lost);
        }
        let a = end(&mut talk, &record).unwrap();
        assert_eq!(talk.pair.a.adapter.cm().state(a), Some(CmState::DreqSent));
        talk.pair.run_for(std::time::Duration::from_millis(1100));
        assert_eq!(talk.take(Side::B), [ConnEvent::Disconnected(b)]);
        talk.disconnect(Side::B, b);
        talk.pair.run();
        assert_eq!(talk.take(Side::A), []);
        talk.assert_gone();
    }
}

#[test]
fn its_peer_does_not_know_it() {
    let (mut talk, record, ..) = left_behind();
    configure(&mut talk.pair.b, |_| {});
    end(&mut talk, &record).unwrap();
    talk.pair.run();
    talk.assert_gone();
    talk.pair.fault_from(Side::A, "drop qp 1");
    end(&mut talk, &record).unwrap();
    talk.pair.run();
    assert_eq!(talk.take(Side::A), []);
    talk.assert_gone();
}

#[test]
fn what_is_refused() {
    let (mut talk, record, ..) = left_behind();
    let own = ConnRecord { local_id: *LEFT.start(), ..record };
    assert_eq!(end(&mut talk, &own), Err(ConnError::OwnId));
    let elsewhere = ConnRecord { local: [10, 0, 0, 9].into(), ..record };
    assert_eq!(end(&mut talk, &elsewhere), Err(ConnError::NoRoute));
    let ipv6 = ConnRecord { remote: "fd00::1".parse().unwrap(), ..record };
    assert_eq!(end(&mut talk, &ipv6), Err(ConnError::NoRoute));
    end(&mut talk, &record).unwrap();
    assert_eq!(end(&mut talk, &record), Err(ConnError::OwnId), "it is being ended");
    let most = LEFT.count() / 4;
    for n in 1..most as u32 {
        end(&mut talk, &ConnRecord { local_id: 0x300 + n, ..record }).unwrap();
    }
    let one_more = ConnRecord { local_id: 0x400, ..record };
    assert_eq!(end(&mut talk, &one_more), Err(ConnError::TooMany(most)));
}

/// A record exists while the peer considers it connected.
#[test]
fn when_there_is_a_record() {
    let mut talk = Talk::new();
    let (a, b, _) = talk.requested();
    let records = |talk: &Talk| {
        let (a, b) = (talk.pair.a.adapter.cm().record(a), talk.pair.b.adapter.cm().record(b));
        (a.is_some(), b.is_some())
    };
    assert_eq!(records(&talk), (false, false));
    talk.accept(b);
    assert_eq!(records(&talk), (false, true));
    talk.deliver_all();
    assert_eq!(records(&talk), (true, true));
    let (one, other) = (talk.pair.a.adapter.cm().record(a), talk.pair.b.adapter.cm().record(b));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!((one.local_id, one.remote_id), (other.remote_id, other.local_id));
    assert_eq!((one.local_qpn, one.remote_qpn), (other.remote_qpn, other.local_qpn));
    assert_eq!((one.local, one.remote, one.pkey), (other.remote, other.local, other.pkey));
    talk.disconnect(Side::A, a);
    assert_eq!(records(&talk), (false, true));
    talk.deliver_all();
    assert_eq!(records(&talk), (false, false));
    talk.pair.allow(DropReason::CmWrongState);
    talk.disconnect(Side::B, b);
    talk.pair.run();
    assert_eq!(records(&talk), (false, false));
    assert_eq!(hand::sent(&mut talk.pair, Side::A), []);
}

fn told(talk: &mut Talk, side: Side) -> Vec<(ConnId, bool)> {
    let adapter = &mut talk.pair.node(side).adapter;
    let told = std::iter::from_fn(|| adapter.cm_mut().poll_record()).collect::<Vec<_>>();
    for (conn, record) in &told {
        assert_eq!(*record, adapter.cm().record(*conn));
    }
    told.into_iter().map(|(conn, record)| (conn, record.is_some())).collect()
}

#[test]
fn records_are_told_of_when_they_come_and_go() {
    let mut talk = Talk::configured(Side::A, |cm| cm.tells_records = true);
    configure(&mut talk.pair.b, |cm| cm.tells_records = true);
    talk.listener = listen(&mut talk.pair.b, SERVICE, 16);
    let (a, b, ..) = talk.connected();
    assert_eq!(told(&mut talk, Side::A), [(a, true)]);
    assert_eq!(told(&mut talk, Side::B), [(b, true)]);
    talk.disconnect(Side::A, a);
    assert_eq!(told(&mut talk, Side::A), [(a, false)]);
    talk.deliver_all();
    assert_eq!(told(&mut talk, Side::B), [(b, false)]);
    talk.disconnect(Side::B, b);
    talk.pair.run();
    talk.assert_gone();
    for side in [Side::A, Side::B] {
        assert!(told(&mut talk, side).iter().all(|(_, is_some)| !is_some));
    }
    // a refused or abandoned REQ has none
    let (a, _) = talk.call();
    talk.destroy(Side::A, a);
    assert_eq!(told(&mut talk, Side::A), [(a, false)]);
}

#[test]
fn nothing_is_told_unasked() {
    let mut talk = Talk::new();
    talk.connected();
    assert_eq!((told(&mut talk, Side::A), told(&mut talk, Side::B)), (vec![], vec![]));
}

/// No DREQ is sent or answered.
#[test]
fn a_peer_that_is_gone_ends_its_connections() {
    let gone = |talk: &mut Talk, b| {
        let now = talk.pair.now;
        configure(&mut talk.pair.a, |_| {});
        talk.pair.fault_from(Side::B, "drop qp 1");
        talk.pair.b.adapter.cm_mut().end_by_peer(now, b);
        talk.pair.b.adapter.cm_mut().end_by_peer(now, b); // changes nothing
    };
    for announced in [false, true] {
        let mut talk = Talk::new();
        let (_, b, ..) = talk.connected();
        if announced {
            talk.disconnect(Side::B, b);
        }
        gone(&mut talk, b);
        assert_eq!(talk.take(Side::B), [ConnEvent::Disconnected(b)]);
        if !announced {
            assert_eq!(talk.pair.b.adapter.cm().state(b), Some(CmState::DreqRcvd));
            talk.disconnect(Side::B, b);
        }
        assert_eq!(talk.pair.b.adapter.cm().state(b), Some(CmState::TimeWait));
        talk.pair.run();
        assert_eq!(talk.take(Side::B), [ConnEvent::TimeWaitExit(b)]);
        talk.assert_gone();
    }
    // the REQ stays: another program may accept it
    let mut talk = Talk::new();
    let (a, _) = talk.call();
    talk.pair.a.adapter.cm_mut().end_by_peer(talk.pair.now, a);
    assert_eq!(talk.pair.a.adapter.cm().state(a), Some(CmState::ReqSent));
}
