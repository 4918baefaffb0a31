//! Service ID resolution (12.11).

use roce_transport::{
    addr::{AddressVector, QKey, Qpn},
    cm::{ConnError, ConnEvent, ConnId, PortSpace, ServiceId, SidrRep, SidrReq},
    event::DropReason,
};

use super::{Talk, listen};
use crate::common::Side;

const SERVICE: ServiceId = PortSpace::Udp.service(7174);

fn talk() -> Talk {
    let mut talk = Talk::new();
    talk.listener = listen(&mut talk.pair.b, SERVICE, 2);
    talk
}

fn request(talk: &mut Talk, service: ServiceId, private_data: &[u8]) -> ConnId {
    let av = AddressVector::new(talk.pair.b.ip.into(), 0);
    talk.pair.a.adapter.sidr_request(talk.pair.now, service, &av, private_data).unwrap()
}

fn requests(talk: &mut Talk) -> Vec<(ConnId, SidrReq)> {
    let request = |event| match event {
        ConnEvent::SidrRequest { conn, req, .. } => (conn, *req),
        event => panic!("{event:?}"),
    };
    talk.take(Side::B).into_iter().map(request).collect()
}

fn replies(talk: &mut Talk) -> Vec<(ConnId, SidrRep)> {
    let reply = |event| match event {
        ConnEvent::SidrReply { conn, rep } => (conn, *rep),
        event => panic!("{event:?}"),
    };
    talk.take(Side::A).into_iter().map(reply).collect()
}

#[test]
fn a_response_with_a_queue_pair() {
    let mut talk = talk();
    let a = request(&mut talk, SERVICE, b"who?");
    talk.deliver_all();
    let (b, req) = requests(&mut talk)[0];
    assert_eq!((req.service_id, &req.private_data.0[..5]), (SERVICE, &b"who?\0"[..]));
    talk.pair.b.adapter.sidr_respond(b, Ok((Qpn::new(0x55), QKey(0x0123_4567))), b"me").unwrap();
    talk.deliver_all();
    let (conn, rep) = replies(&mut talk)[0];
    assert_eq!((conn, rep.status, rep.qpn, rep.qkey), (a, 0, Qpn::new(0x55), QKey(0x0123_4567)));
    assert_eq!((rep.service_id, &rep.private_data.0[..3]), (SERVICE, &b"me\0"[..]));
    talk.assert_gone();
}

#[test]
fn no_listener_and_a_refusal() {
    let mut talk = talk();
    request(&mut talk, PortSpace::Udp.service(1), b"");
    talk.deliver_all();
    assert_eq!(replies(&mut talk)[0].1.status, SidrRep::NO_SERVICE);
    for destroy in [false, true] {
        request(&mut talk, SERVICE, b"");
        talk.deliver_all();
        let (b, _) = requests(&mut talk)[0];
        if destroy {
            talk.destroy(Side::B, b);
        } else {
            talk.pair.b.adapter.sidr_respond(b, Err(SidrRep::REJECTED), b"").unwrap();
        }
        talk.deliver_all();
        assert_eq!(replies(&mut talk)[0].1.status, SidrRep::REJECTED);
    }
    talk.assert_gone();
}

#[test]
fn lost_and_repeated() {
    for (side, fault) in [
        (Side::A, "drop qp 1 nth 1"),
        (Side::B, "drop qp 1 nth 1"),
        (Side::A, "duplicate qp 1"),
        (Side::B, "duplicate qp 1"),
    ] {
        let mut talk = talk();
        talk.pair.allow_all(&[DropReason::CmWrongState, DropReason::CmUnknownConnection]);
        talk.pair.fault_from(side, fault);
        let a = request(&mut talk, SERVICE, b"");
        for _ in 0..3 {
            talk.pair.run_for(std::time::Duration::from_millis(900));
            for (b, _) in requests(&mut talk) {
                talk.pair.b.adapter.sidr_respond(b, Ok((Qpn::new(0x55), QKey(7))), b"").unwrap();
            }
        }
        talk.deliver_all();
        let replies = replies(&mut talk);
        assert!(
            matches!(replies[..], [(conn, rep)] if conn == a && rep.status == 0),
            "{side:?} {fault}: {replies:?}"
        );
        talk.assert_gone();
    }
}

#[test]
fn no_response() {
    let mut talk = talk();
    talk.pair.fault_from(Side::A, "drop qp 1");
    let a = request(&mut talk, SERVICE, b"");
    talk.pair.run();
    assert_eq!(talk.take(Side::A), [ConnEvent::Unreachable(a)]);
    talk.assert_gone();
}

/// Retransmissions do not count.
#[test]
fn a_backlog_of_requests() {
    let mut talk = talk();
    talk.pair.allow_all(&[DropReason::CmWrongState, DropReason::CmBacklog]);
    for _ in 0..3 {
        request(&mut talk, SERVICE, b"");
    }
    talk.pair.run_for(std::time::Duration::from_secs(5));
    assert_eq!(requests(&mut talk).len(), 2);
    assert!(talk.pair.dropped(DropReason::CmWrongState) >= 2);
    assert!(talk.pair.dropped(DropReason::CmBacklog) >= 1);
}

#[test]
fn bounds() {
    let mut talk = talk();
    let av = AddressVector::new(talk.pair.b.ip.into(), 0);
    let now = talk.pair.now;
    let adapter = &mut talk.pair.a.adapter;
    assert_eq!(
        adapter.sidr_request(now, SERVICE, &av, &[1; 217]),
        Err(ConnError::PrivateData(216))
    );
    let elsewhere = AddressVector::new("fd00::2".parse::<std::net::IpAddr>().unwrap().into(), 0);
    assert_eq!(adapter.sidr_request(now, SERVICE, &elsewhere, b""), Err(ConnError::NoRoute));
    let a = adapter.sidr_request(now, SERVICE, &av, &[1; 216]).unwrap();
    assert!(matches!(adapter.sidr_respond(a, Err(1), b""), Err(ConnError::State(_))));
    talk.destroy(Side::A, a);
    talk.deliver_all();
    let (b, _) = requests(&mut talk)[0];
    let long = talk.pair.b.adapter.sidr_respond(b, Ok((Qpn::new(5), QKey(0))), &[1; 137]);
    assert_eq!(long, Err(ConnError::PrivateData(136)));
    talk.pair.allow(DropReason::CmUnknownConnection);
    talk.pair.b.adapter.sidr_respond(b, Ok((Qpn::new(5), QKey(0))), &[1; 136]).unwrap();
    talk.deliver_all();
    talk.assert_gone();
}
