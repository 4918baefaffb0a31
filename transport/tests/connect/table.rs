//! Every state with every message, command and deadline, against the table of edges.

use std::fmt::Write as _;

use roce_transport::{
    addr::Qpn,
    cm::{
        About, Apr, CmMad, CmState, ConnEvent, ConnRecord, EDGES, Edge, Message, Rej, RejectReason,
        SidrRep, Trigger,
    },
    event::{Disposition, DropReason},
};

use super::{
    SERVICE, Talk, hand,
    life::with_listen_grace,
    subject::{PEER_GUID, PEER_ID, Subject, sidr_req},
};
use crate::common::Side;

fn kind(message: &Message) -> &'static str {
    match message {
        Message::Req(_) => "REQ",
        Message::Mra(_) => "MRA",
        Message::Rej(_) => "REJ",
        Message::Rep(_) => "REP",
        Message::Rtu(_) => "RTU",
        Message::Dreq(_) => "DREQ",
        Message::Drep(_) => "DREP",
        Message::SidrReq(_) => "SIDR_REQ",
        Message::SidrRep(_) => "SIDR_REP",
        Message::Lap(_) => "LAP",
        Message::Apr(_) => "APR",
    }
}

fn event(event: &ConnEvent) -> &'static str {
    match event {
        ConnEvent::Request { .. } => "Request",
        ConnEvent::Reply { .. } => "Reply",
        ConnEvent::Established { .. } => "Established",
        ConnEvent::Rejected { .. } => "Rejected",
        ConnEvent::Unreachable(_) => "Unreachable",
        ConnEvent::ConnectError(_) => "ConnectError",
        ConnEvent::Disconnected(_) => "Disconnected",
        ConnEvent::TimeWaitExit(_) => "TimeWaitExit",
        ConnEvent::SidrRequest { .. } => "SidrRequest",
        ConnEvent::SidrReply { .. } => "SidrReply",
    }
}

const MESSAGES: [&str; 11] = [
    "REQ",
    "MRA of REQ",
    "MRA of REP",
    "REP",
    "RTU",
    "REJ",
    "DREQ",
    "DREP",
    "SIDR_REP",
    "LAP",
    "APR",
];
/// Get a response without a connection.
const ANSWERED: [&str; 3] = ["REP", "DREQ", "LAP"];
const STATES: [&str; 12] = [
    "ReqSent",
    "MraReqRcvd",
    "RepRcvd",
    "Established, active",
    "ReqRcvd",
    "RepSent",
    "MraRepRcvd",
    "Established",
    "DreqSent",
    "DreqRcvd",
    "TimeWait",
    "SidrReqSent",
];

/// `+ X`: X sent; `! E`: event; `> S`: next state. Other messages are dropped. A DREQ or LAP
/// without the peer's ID, and a REP to a resolution, find no connection.
const EXPECTED: &str = "
ReqSent / MRA of REQ > MraReqRcvd
ReqSent / REP ! Reply > RepRcvd
ReqSent / REJ ! Rejected > gone
ReqSent / DREQ + DREP > ReqSent
ReqSent / LAP + APR > ReqSent
MraReqRcvd / MRA of REQ > MraReqRcvd
MraReqRcvd / REP ! Reply > RepRcvd
MraReqRcvd / REJ ! Rejected > gone
MraReqRcvd / DREQ + DREP > MraReqRcvd
MraReqRcvd / LAP + APR > MraReqRcvd
RepRcvd / REP + MRA > RepRcvd
RepRcvd / REJ ! Rejected > TimeWait
Established, active / REP + RTU > Established
Established, active / REJ ! Rejected > TimeWait
Established, active / DREQ ! Disconnected > DreqRcvd
Established, active / LAP + APR > Established
ReqRcvd / REQ + MRA > ReqRcvd
RepSent / REQ + REP > RepSent
RepSent / MRA of REP > MraRepRcvd
RepSent / RTU ! Established > Established
RepSent / REJ ! Rejected > TimeWait
RepSent / DREQ ! Disconnected > DreqRcvd
MraRepRcvd / REQ + REP > MraRepRcvd
MraRepRcvd / MRA of REP > MraRepRcvd
MraRepRcvd / RTU ! Established > Established
MraRepRcvd / REJ ! Rejected > TimeWait
MraRepRcvd / DREQ ! Disconnected > DreqRcvd
Established / REP + RTU > Established
Established / REJ ! Rejected > TimeWait
Established / DREQ ! Disconnected > DreqRcvd
Established / LAP + APR > Established
DreqSent / REJ ! Rejected > TimeWait
DreqSent / DREQ + DREP ! Disconnected > TimeWait
DreqSent / DREP ! Disconnected > TimeWait
TimeWait / REQ + REJ > TimeWait
TimeWait / DREQ + DREP > TimeWait
SidrReqSent / REP + REJ > SidrReqSent
SidrReqSent / DREQ + DREP > SidrReqSent
SidrReqSent / SIDR_REP ! SidrReply > gone
SidrReqSent / LAP + APR > SidrReqSent
";

const COMMANDS: [Trigger; 7] = [
    Trigger::Accept,
    Trigger::Establish,
    Trigger::Notify,
    Trigger::Reject,
    Trigger::Disconnect,
    Trigger::SidrRespond,
    Trigger::Destroy,
];

fn trigger(name: &str) -> Option<Trigger> {
    Some(match name {
        "REQ" => Trigger::Req,
        "MRA of REQ" => Trigger::MraOfReq,
        "MRA of REP" => Trigger::MraOfRep,
        "REP" => Trigger::Rep,
        "RTU" => Trigger::Rtu,
        "REJ" => Trigger::Rej,
        "DREQ" => Trigger::Dreq,
        "DREP" => Trigger::Drep,
        "SIDR_REP" => Trigger::SidrRep,
        "LAP" => Trigger::Lap,
        "APR" => return None,
        other => panic!("{other}"),
    })
}

fn has_edge_from(state: Option<CmState>, on: Trigger) -> bool {
    EDGES.iter().any(|&(from, trigger, _)| (from, trigger) == (state, on))
}

fn by_messages(found: &mut String) -> Vec<Edge> {
    let mut taken = Vec::new();
    for state in STATES {
        for name in MESSAGES {
            let passive_only = matches!(
                state,
                "ReqSent" | "MraReqRcvd" | "RepRcvd" | "Established, active" | "SidrReqSent"
            );
            if name == "REQ" && passive_only {
                continue; // it would request another connection
            }
            if state == "ReqRcvd" && !matches!(name, "REQ" | "SIDR_REP") {
                continue; // the peer lacks this side's ID; see below
            }
            let mut subject = Subject::in_state(state);
            let before = subject.state();
            let message = subject.message(name);
            let disposition = subject.deliver(message);
            let sent = hand::sent(&mut subject.talk.pair, subject.side);
            let events = subject.talk.take(subject.side);
            let after = subject.state();
            let on = trigger(name);
            if let Disposition::Dropped(reason) = disposition {
                let expected = [DropReason::CmWrongState, DropReason::CmUnknownConnection];
                assert!(expected.contains(&reason), "{state} / {name}: {reason:?}");
                assert_eq!((sent.len(), events.len(), after), (0, 0, before), "{state} / {name}");
                let has_edge = on.is_some_and(|on| has_edge_from(before, on));
                assert!(!has_edge, "{state} / {name} is in the table");
                continue;
            }
            let edge = (before, on.unwrap(), after);
            // before the peer's ID is known, a message finds no connection
            let is_about_another =
                ANSWERED.contains(&name) && after == before && !has_edge_from(before, edge.1);
            assert!(EDGES.contains(&edge) || is_about_another, "{edge:?} is not in the table");
            taken.push(edge);
            write!(found, "{state} / {name}").unwrap();
            for mad in &sent {
                write!(found, " + {}", kind(&mad.message)).unwrap();
            }
            write_outcome(found, &events, after);
        }
    }
    taken
}

fn by_commands() -> Vec<Edge> {
    let mut taken = Vec::new();
    for state in STATES.into_iter().chain(["SidrReqRcvd"]) {
        for command in COMMANDS {
            let mut subject = Subject::in_state(state);
            let before = subject.state();
            let done = subject.command(command);
            let edge = (before, command, subject.state());
            assert_eq!(done, has_edge_from(before, command), "{state} / {command:?}");
            assert!(if done { EDGES.contains(&edge) } else { edge.2 == before }, "{edge:?}");
            taken.extend(done.then_some(edge));
        }
    }
    taken
}

/// `+ n X`: X sent n times; else as above, until no deadline is left.
const EXPECTED_IN_TIME: &str = "
ReqSent + 15 REQ + 1 REJ ! Unreachable > gone
MraReqRcvd + 15 REQ + 1 REJ ! Unreachable > gone
RepRcvd > RepRcvd
Established, active > Established
ReqRcvd > ReqRcvd
RepSent + 1 REP + 1 REJ ! Unreachable > gone
MraRepRcvd + 15 REP + 1 REJ ! Unreachable > gone
Established > Established
DreqSent + 15 DREQ ! Disconnected ! TimeWaitExit > gone
DreqRcvd > DreqRcvd
TimeWait ! TimeWaitExit > gone
SidrReqSent + 15 SIDR_REQ ! Unreachable > gone
SidrReqRcvd > SidrReqRcvd
";

fn by_timeouts(found: &mut String) -> Vec<Edge> {
    let mut taken = Vec::new();
    for state in STATES.into_iter().chain(["SidrReqRcvd"]) {
        let mut subject = Subject::in_state(state);
        let before = subject.state();
        assert_eq!(
            subject.talk.pair.node(subject.side).adapter.poll_timeout().is_some(),
            has_edge_from(before, Trigger::Timeout),
            "{state}"
        );
        let mut sent = Vec::new();
        while let Some(at) = subject.talk.pair.node(subject.side).adapter.poll_timeout() {
            let before = subject.state();
            subject.talk.pair.now = at;
            subject.talk.pair.node(subject.side).adapter.handle_timeout(at);
            let edge = (before, Trigger::Timeout, subject.state());
            assert!(EDGES.contains(&edge), "{edge:?} is not in the table");
            taken.push(edge);
            sent.extend(hand::sent(&mut subject.talk.pair, subject.side));
        }
        write!(found, "{state}").unwrap();
        for same in sent.chunk_by(|one, other| kind(&one.message) == kind(&other.message)) {
            write!(found, " + {} {}", same.len(), kind(&same[0].message)).unwrap();
        }
        let events = subject.talk.take(subject.side);
        write_outcome(found, &events, subject.state());
    }
    taken
}

fn write_outcome(found: &mut String, events: &[ConnEvent], state: Option<CmState>) {
    for other in events {
        write!(found, " ! {}", event(other)).unwrap();
    }
    match state {
        Some(state) => writeln!(found, " > {state:?}").unwrap(),
        None => writeln!(found, " > gone").unwrap(),
    }
}

fn by_beginnings() -> Vec<Edge> {
    [
        (Trigger::Connect, "ReqSent"),
        (Trigger::Req, "ReqRcvd"),
        (Trigger::SidrRequest, "SidrReqSent"),
        (Trigger::SidrReq, "SidrReqRcvd"),
    ]
    .map(|(trigger, state)| (None, trigger, Subject::in_state(state).state()))
    .into()
}

/// Edges that depend on more than the state.
fn by_circumstances() -> Vec<Edge> {
    let mut taken = Vec::new();
    let mut deliver = |subject: &mut Subject, trigger: Trigger, message: Message| {
        let before = subject.state();
        assert_eq!(subject.deliver(message), Disposition::Executed);
        taken.push((before, trigger, subject.state()));
    };
    let mut subject = Subject::active_in(with_listen_grace());
    let rej = Rej::new(PEER_ID, subject.id, About::Req, RejectReason::INVALID_SERVICE_ID);
    deliver(&mut subject, Trigger::Rej, Message::Rej(Box::new(rej)));
    let mut subject = Subject::active_in(with_listen_grace()).resolving();
    let (request_id, status) = (subject.id, SidrRep::NO_SERVICE);
    let rep = SidrRep { request_id, status, service_id: SERVICE, ..SidrRep::default() };
    deliver(&mut subject, Trigger::SidrRep, Message::SidrRep(rep));
    let mut subject = Subject::in_state("ReqRcvd");
    let rej = Rej::new(PEER_ID, 0, About::Other, RejectReason::TIMEOUT)
        .with_info(&PEER_GUID.to_be_bytes());
    deliver(&mut subject, Trigger::Rej, Message::Rej(Box::new(rej)));
    // the restarted peer does not know the probed connection
    let mut subject = Subject::in_state("Established");
    let Message::Req(mut req) = subject.message("REQ") else { unreachable!() };
    req.local_id ^= 1;
    assert_eq!(subject.deliver(Message::Req(req)), Disposition::Executed);
    let question = hand::sent(&mut subject.talk.pair, Side::B).remove(1);
    let response = CmMad { message: subject.message("DREP"), ..question };
    let before = subject.state();
    let disposition = hand::deliver(&mut subject.talk.pair, Side::B, &response);
    assert_eq!(disposition, Disposition::Executed);
    let disowned = (before, Trigger::Disowned, subject.state());
    for waits in [false, true] {
        let Subject { talk, .. } = Subject::in_state("Established, active");
        let mut subject = Subject::active_in(talk);
        if waits {
            let mra = subject.message("MRA of REQ");
            assert_eq!(subject.deliver(mra), Disposition::Executed);
        }
        let Message::Rep(mut rep) = subject.message("REP") else { unreachable!() };
        rep.local_id ^= 1;
        deliver(&mut subject, Trigger::Rep, Message::Rep(rep));
    }
    taken.push(disowned);
    let mut subject = Subject::active_in(Talk::configured(Side::A, |cm| cm.ids = 0x400..=0x7FF));
    let rep = subject.message("REP");
    assert_eq!(subject.deliver(rep), Disposition::Executed);
    let now = subject.talk.pair.now;
    let adapter = &mut subject.talk.pair.a.adapter;
    let record = ConnRecord { local_id: 0x800, ..adapter.cm().record(subject.conn).unwrap() };
    subject.conn = adapter.cm_end_for_another(now, &record).unwrap();
    taken.push((None, Trigger::EndForAnother, subject.state()));
    taken
}

#[test]
fn every_state_and_every_message() {
    let mut found = String::from("\n");
    by_messages(&mut found);
    assert_eq!(found, EXPECTED);
}

#[test]
fn every_state_and_every_command() {
    by_commands();
}

#[test]
fn every_state_and_time() {
    let mut found = String::from("\n");
    by_timeouts(&mut found);
    assert_eq!(found, EXPECTED_IN_TIME);
}

#[test]
fn every_edge_is_taken() {
    let mut taken = by_messages(&mut String::new());
    taken.extend(by_commands());
    taken.extend(by_timeouts(&mut String::new()));
    taken.extend(by_beginnings());
    taken.extend(by_circumstances());
    for (index, edge) in EDGES.iter().enumerate() {
        assert!(taken.contains(edge), "nothing takes {edge:?}");
        assert!(!EDGES[..index].contains(edge), "{edge:?} stands in the table twice");
    }
    for state in CmState::ALL {
        assert!(EDGES.iter().any(|&(_, _, to)| to == Some(state)), "nothing leads to {state:?}");
    }
}

/// A peer without this side's communication ID rejects with its GUID.
#[test]
fn a_request_that_is_given_up() {
    let mut subject = Subject::in_state("ReqRcvd");
    let give_up = |guid: u64| {
        let rej = Rej::new(PEER_ID, 0, About::Other, RejectReason::TIMEOUT);
        Message::Rej(Box::new(rej.with_info(&guid.to_be_bytes())))
    };
    let unknown = Disposition::Dropped(DropReason::CmUnknownConnection);
    assert_eq!(subject.deliver(give_up(PEER_GUID + 1)), unknown);
    assert_eq!(subject.state(), Some(CmState::ReqRcvd));
    assert_eq!(subject.deliver(give_up(PEER_GUID)), Disposition::Executed);
    assert!(matches!(subject.talk.take(Side::B)[..], [ConnEvent::Rejected { .. }]));
    assert_eq!(subject.state(), None);
}

/// Without a connection, only messages whose sender waits get a response.
#[test]
fn messages_about_nothing() {
    for name in MESSAGES {
        let mut subject = Subject::in_state("gone");
        if name == "REQ" {
            continue;
        }
        let message = subject.message(name);
        let disposition = subject.deliver(message);
        let sent = hand::sent(&mut subject.talk.pair, Side::B);
        if ANSWERED.contains(&name) {
            let names = match (&sent[0].message, name) {
                (Message::Drep(drep), "DREQ") => (drep.local_id, drep.remote_id),
                (Message::Apr(apr), "LAP") => {
                    assert_eq!(apr.status, Apr::INVALID_COMM_ID);
                    (apr.local_id, apr.remote_id)
                }
                (Message::Rej(rej), "REP") => {
                    let invalid = (RejectReason::INVALID_COMM_ID, About::Rep);
                    assert_eq!((rej.reason, rej.about), invalid);
                    (rej.local_id, rej.remote_id)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!((names, sent.len()), ((subject.id, PEER_ID), 1));
            assert_eq!(disposition, Disposition::Executed);
        } else {
            assert_eq!(
                disposition,
                Disposition::Dropped(DropReason::CmUnknownConnection),
                "{name}"
            );
            assert_eq!(sent, []);
        }
        assert_eq!(subject.talk.take(Side::B), []);
    }
}

#[test]
fn a_reply_to_an_id_of_another_adapter() {
    let talk = Talk::configured(Side::A, |cm| cm.ids = 0x400..=0x7FF);
    let mut subject = Subject::active_in(talk);
    for (id, is_own) in [(subject.id ^ 1, true), (0x3FF, false), (0x800, false)] {
        subject.id = id;
        let rep = subject.message("REP");
        let unknown = Disposition::Dropped(DropReason::CmUnknownConnection);
        let expected = if is_own { Disposition::Executed } else { unknown };
        assert_eq!(subject.deliver(rep), expected);
        assert_eq!(hand::sent(&mut subject.talk.pair, Side::A).len(), usize::from(is_own));
    }
}

#[test]
fn an_alternate_path() {
    let mut subject = Subject::in_state("Established");
    for (qpn, status) in [(subject.qpn.get(), Apr::UNSUPPORTED), (0x99, Apr::INVALID_COMM_ID)] {
        subject.qpn = Qpn::new(qpn);
        let lap = subject.message("LAP");
        assert_eq!(subject.deliver(lap), Disposition::Executed);
        let sent = hand::sent(&mut subject.talk.pair, Side::B);
        let Message::Apr(apr) = &sent[0].message else { panic!("{sent:?}") };
        assert_eq!((apr.status, apr.local_id, apr.remote_id), (status, subject.id, PEER_ID));
    }
}

#[test]
fn a_dreq_for_another_queue_pair() {
    let mut subject = Subject::in_state("Established");
    subject.qpn = Qpn::new(subject.qpn.get() ^ 1);
    let message = subject.message("DREQ");
    assert_eq!(subject.deliver(message), Disposition::Dropped(DropReason::CmUnknownConnection));
    assert_eq!(subject.state(), Some(CmState::Established));
}

#[test]
fn resolutions_and_connections() {
    let others = |name: &&str| !ANSWERED.contains(name) && !["REQ", "SIDR_REP"].contains(name);
    for name in MESSAGES.into_iter().filter(others) {
        let mut subject = Subject::in_state("SidrReqSent");
        let message = subject.message(name);
        assert_eq!(
            subject.deliver(message),
            Disposition::Dropped(DropReason::CmUnknownConnection),
            "{name}"
        );
    }
    let mut subject = Subject::in_state("Established");
    assert_eq!(subject.deliver(sidr_req()), Disposition::Executed);
    assert_eq!(subject.state(), Some(CmState::Established));
}
