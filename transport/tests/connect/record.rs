use std::time::Duration;

use roce_transport::{
    addr::Qpn,
    cm::{CmService, ConnEvent, Connect, ServiceId},
    event::{Disposition, DropReason},
    trace::{Call, CallError, MadReason, Record, What, Why},
};

use super::{SERVICE, Talk, connect};
use crate::common::{Node, Pair, Side, UDP_SEGMENT};

fn recorded() -> Talk {
    let mut talk = Talk::with(Pair::new().recorded());
    talk.pair.allow_all(&[DropReason::CmWrongState, DropReason::CmUnknownConnection]);
    talk
}

fn sent(talk: &mut Talk, side: Side) -> Vec<(&'static str, MadReason)> {
    let of = |record: &Record| match &record.what {
        What::Sent { packet, why: Why::Cm(reason) } => {
            assert_eq!(record.qpn, Qpn::GSI);
            Some((packet.message.as_ref()?.message.name(), *reason))
        }
        _ => None,
    };
    talk.pair.record(side).iter().filter_map(of).collect()
}

fn arrived(talk: &mut Talk, side: Side) -> Vec<(&'static str, Disposition)> {
    let of = |record: &Record| match &record.what {
        What::Arrived { packet, disposition } => {
            Some((packet.message.as_ref()?.message.name(), *disposition))
        }
        _ => None,
    };
    talk.pair.record(side).iter().filter_map(of).collect()
}

#[test]
fn a_connection_from_its_request_to_its_end() {
    let mut talk = recorded();
    let (a, b, _) = talk.requested();
    talk.accept(b);
    talk.deliver_all();
    talk.take(Side::A);
    talk.disconnect(Side::A, a);
    talk.deliver_all();
    talk.disconnect(Side::B, b);
    talk.deliver_all();
    let first = |name| (name, MadReason::First);
    assert_eq!(sent(&mut talk, Side::A), [first("REQ"), first("RTU"), first("DREQ")]);
    assert_eq!(sent(&mut talk, Side::B), [first("REP"), first("DREP")]);
    let executed = |name| (name, Disposition::Executed);
    assert_eq!(arrived(&mut talk, Side::B), ["REQ", "RTU", "DREQ"].map(executed));
    assert_eq!(arrived(&mut talk, Side::A), ["REP", "DREP"].map(executed));
    let calls = |side, talk: &mut Talk| {
        let of = |record: &Record| match &record.what {
            What::Call {
                call:
                    call @ (Call::Connect { .. }
                    | Call::Accept { .. }
                    | Call::Disconnect(_)
                    | Call::Listen(_)),
                ..
            } => Some(call.to_string()),
            _ => None,
        };
        talk.pair.record(side).iter().filter_map(of).collect::<Vec<_>>()
    };
    let on_a = calls(Side::A, &mut talk);
    assert!(
        on_a[0].starts_with("connect qp 0x") && on_a[0].ends_with("to Tcp port 7471"),
        "{on_a:?}"
    );
    assert_eq!(on_a[1], format!("disconnect {a}"));
    assert_eq!(calls(Side::B, &mut talk)[0], "listen Tcp port 7471");
}

#[test]
fn messages_that_are_lost_are_sent_again() {
    let mut talk = recorded();
    talk.pair.fault_from(Side::A, "drop qp 1 nth 1"); // the REQ
    talk.pair.fault_from(Side::B, "drop qp 1 nth 2"); // the REP
    talk.call();
    talk.pair.run_for(Duration::from_secs(3));
    let (b, _) = talk.requests()[0];
    talk.accept(b);
    talk.pair.run_for(Duration::from_secs(10));
    let on_a = sent(&mut talk, Side::A);
    assert_eq!(on_a[0], ("REQ", MadReason::First));
    assert!(on_a[1..].contains(&("REQ", MadReason::Unanswered)), "{on_a:?}");
    let on_b = sent(&mut talk, Side::B);
    assert_eq!(on_b[..2], [("MRA", MadReason::Repeated), ("REP", MadReason::First)]);
    let again = |&(name, reason): &(&str, MadReason)| {
        name == "REP" && matches!(reason, MadReason::Unanswered | MadReason::Repeated)
    };
    assert!(on_b.iter().any(again), "{on_b:?}");
}

#[test]
fn a_request_that_nobody_takes_yet() {
    let mut pair = Pair::new().recorded();
    let mut config = Node::config(0xA);
    config.cm.listen_grace = Duration::from_millis(50);
    pair.a = Node::with_record(config, pair.a.ip, UDP_SEGMENT);
    let mut talk = Talk::with(pair);
    let end = talk.qp(Side::A);
    let nobody = ServiceId(SERVICE.0 + 1);
    talk.call_with(&end, nobody, b"").unwrap();
    talk.pair.run();
    let on_a = sent(&mut talk, Side::A);
    assert_eq!(on_a[0], ("REQ", MadReason::First));
    assert!(on_a[1..].iter().all(|sent| *sent == ("REQ", MadReason::NoListener)), "{on_a:?}");
    assert!(on_a.len() > 1, "a peer at which nobody listens is asked for a while");
    assert!(matches!(talk.take(Side::A)[..], [ConnEvent::Rejected { .. }]));
    let on_b = sent(&mut talk, Side::B);
    assert!(on_b.iter().all(|sent| *sent == ("REJ", MadReason::Response)), "{on_b:?}");
    assert_eq!(on_a.len(), on_b.len());
}

#[test]
fn a_command_that_is_refused() {
    let mut talk = recorded();
    let end = talk.qp(Side::A);
    let to = talk.pair.b.ip;
    let wrong = Connect { retry_count: 8, service: CmService::Rc, ..connect(&end, to) };
    let error = talk.pair.a.adapter.cm_connect(talk.pair.now, &wrong).unwrap_err();
    let last = talk.pair.record(Side::A).last().unwrap();
    let result = Err(CallError::Connection(error));
    assert_eq!(
        last.what,
        What::Call { call: Call::Connect { qpn: end.qpn, service: SERVICE }, result }
    );
    assert!(last.to_string().contains("failed: "), "{last}");
}
