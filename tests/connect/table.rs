//! Every state and every message: what is answered, what state follows, what the program hears.

use std::fmt::Write as _;

use roce_transport::{
    addr::{Gid, PKey, Qpn},
    cm::{
        About, CmMad, CmState, ConnEvent, ConnId, Connect, Drep, Dreq, Message, Mra, PrivateData,
        Rej, RejectReason, Rep, Req, ReqPath, Rtu, SidrRep, SidrReq,
    },
    event::{Disposition, DropReason},
    psn::Psn,
};

use super::{SERVICE, Talk, accept, connect, hand};
use crate::common::Side;

/// The peer that the test plays: its name for the connection, its adapter, its queue pair.
const PEER_ID: u32 = 0x0BAD_CAFE;
const PEER_GUID: u64 = 0x0200_0000_0000_0077;
const PEER_QPN: Qpn = Qpn::new(0x77);

/// One side, with a connection in some state.
struct Subject {
    talk: Talk,
    side: Side,
    conn: ConnId,
    /// Its name, as the peer knows it.
    id: u32,
    qpn: Qpn,
}

fn mad(message: Message) -> CmMad {
    CmMad { transaction: 5, modifier: 0, message }
}

impl Subject {
    fn active() -> Self {
        let mut talk = Talk::new();
        let end = talk.qp(Side::A);
        let to = talk.pair.b.ip;
        let call = Connect { managed: false, ..connect(&end, to) };
        let conn = talk.pair.a.adapter.cm_connect(talk.pair.now, &call).unwrap();
        let Message::Req(req) = hand::sent(&mut talk.pair, Side::A).remove(0).message else {
            unreachable!()
        };
        Self { talk, side: Side::A, conn, id: req.local_id, qpn: end.qpn }
    }

    fn passive() -> Self {
        let mut talk = Talk::new();
        let (a, b) = (talk.pair.a.ip, talk.pair.b.ip);
        hand::deliver(&mut talk.pair, Side::B, &mad(req(a.into(), b.into())));
        let (conn, _) = talk.requests()[0];
        let end = talk.qp(Side::B);
        Self { talk, side: Side::B, conn, id: 0, qpn: end.qpn }
    }

    fn accepted() -> Self {
        let mut subject = Self::passive();
        let end = crate::common::End {
            qpn: subject.qpn,
            ..subject.talk.qp(Side::B) // only for its queues; the number is the one that the table's messages name
        };
        subject
            .talk
            .pair
            .b
            .adapter
            .cm_accept(subject.talk.pair.now, subject.conn, &accept(&end), false)
            .unwrap();
        let Message::Rep(rep) = hand::sent(&mut subject.talk.pair, Side::B).remove(0).message
        else {
            unreachable!()
        };
        subject.id = rep.local_id;
        subject
    }

    fn deliver(&mut self, message: Message) -> Disposition {
        hand::deliver(&mut self.talk.pair, self.side, &mad(message))
    }

    fn in_state(state: &str) -> Self {
        let after = |mut subject: Self, messages: &[&str]| {
            for message in messages {
                let message = subject.message(message);
                assert_eq!(subject.deliver(message), Disposition::Executed);
            }
            subject
        };
        let ended = |mut subject: Self| {
            let now = subject.talk.pair.now;
            let node = subject.talk.pair.node(subject.side);
            node.adapter.cm_disconnect(now, subject.conn, b"").unwrap();
            subject
        };
        let mut subject = match state {
            "ReqSent" => Self::active(),
            "MraReqRcvd" => after(Self::active(), &["MRA of REQ"]),
            "RepRcvd" => after(Self::active(), &["REP"]),
            "ReqRcvd" => Self::passive(),
            "RepSent" => Self::accepted(),
            "MraRepRcvd" => after(Self::accepted(), &["MRA of REP"]),
            "Established" => after(Self::accepted(), &["RTU"]),
            "Established, active" => {
                let mut subject = after(Self::active(), &["REP"]);
                subject.talk.pair.a.adapter.cm_establish(subject.conn, b"").unwrap();
                subject
            }
            "DreqSent" => ended(after(Self::accepted(), &["RTU"])),
            "DreqRcvd" => after(Self::accepted(), &["RTU", "DREQ"]),
            "TimeWait" => ended(after(Self::accepted(), &["RTU", "DREQ"])),
            "SidrReqSent" => {
                let mut subject = Self::active();
                let av = roce_transport::addr::AddressVector::new(subject.talk.pair.b.ip.into(), 0);
                let now = subject.talk.pair.now;
                subject.conn =
                    subject.talk.pair.a.adapter.sidr_request(now, SERVICE, &av, b"").unwrap();
                let Message::SidrReq(req) =
                    hand::sent(&mut subject.talk.pair, Side::A).remove(0).message
                else {
                    unreachable!()
                };
                subject.id = req.request_id;
                subject
            }
            "gone" => {
                let mut subject = Self::accepted();
                subject.talk.pair.b.adapter.cm_destroy(subject.talk.pair.now, subject.conn);
                subject.id ^= 1;
                subject
            }
            other => panic!("{other}"),
        };
        hand::sent(&mut subject.talk.pair, subject.side);
        subject.talk.take(subject.side);
        if state != "gone" {
            let name = state.split(',').next().unwrap();
            assert_eq!(format!("{:?}", subject.state().unwrap()), name);
        }
        subject
    }

    fn state(&mut self) -> Option<CmState> {
        let conn = self.conn;
        self.talk.pair.node(self.side).adapter.cm_state(conn)
    }

    /// A message of the peer's about the connection.
    fn message(&mut self, name: &str) -> Message {
        let (local_id, remote_id) = (PEER_ID, self.id);
        let mra = |about| Mra {
            local_id,
            remote_id,
            about,
            service_timeout: 20,
            private_data: PrivateData::default(),
        };
        let rej = |about| {
            let (info, private_data) = Default::default();
            Rej {
                local_id,
                remote_id,
                about,
                info_length: 0,
                reason: RejectReason::CONSUMER,
                info,
                private_data,
            }
        };
        match name {
            "REQ" => req(self.talk.pair.a.ip.into(), self.talk.pair.b.ip.into()),
            "MRA of REQ" => Message::Mra(mra(About::Req)),
            "MRA of REP" => Message::Mra(mra(About::Rep)),
            "REP" => Message::Rep(Box::new(Rep {
                local_id,
                remote_id,
                local_qpn: PEER_QPN,
                starting_psn: Psn::new(9),
                local_ca_guid: PEER_GUID,
                ..Rep::default()
            })),
            "RTU" => Message::Rtu(Rtu { local_id, remote_id, ..Rtu::default() }),
            "REJ" => Message::Rej(Box::new(rej(About::Other))),
            "DREQ" => {
                Message::Dreq(Dreq { local_id, remote_id, remote_qpn: self.qpn, ..Dreq::default() })
            }
            "DREP" => Message::Drep(Drep { local_id, remote_id, ..Drep::default() }),
            "SIDR_REP" => Message::SidrRep(SidrRep {
                request_id: remote_id,
                service_id: SERVICE,
                ..SidrRep::default()
            }),
            other => panic!("{other}"),
        }
    }
}

fn req(local_gid: Gid, remote_gid: Gid) -> Message {
    Message::Req(Box::new(Req {
        local_id: PEER_ID,
        service_id: SERVICE,
        local_ca_guid: PEER_GUID,
        local_qpn: PEER_QPN,
        path_mtu: 3,
        primary: ReqPath { local_gid, remote_gid, ack_timeout: 14, ..ReqPath::default() },
        ..Req::default()
    }))
}

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
    }
}

fn event(event: &ConnEvent) -> &'static str {
    match event {
        ConnEvent::Request { .. } => "Request",
        ConnEvent::Reply { .. } => "Reply",
        ConnEvent::Established { .. } => "Established",
        ConnEvent::Rejected { .. } => "Rejected",
        ConnEvent::Unreachable { .. } => "Unreachable",
        ConnEvent::ConnectError { .. } => "ConnectError",
        ConnEvent::Disconnected { .. } => "Disconnected",
        ConnEvent::TimeWaitExit { .. } => "TimeWaitExit",
        ConnEvent::SidrRequest { .. } => "SidrRequest",
        ConnEvent::SidrReply { .. } => "SidrReply",
    }
}

const MESSAGES: [&str; 9] =
    ["REQ", "MRA of REQ", "MRA of REP", "REP", "RTU", "REJ", "DREQ", "DREP", "SIDR_REP"];
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

/// `+ X`: X is sent. `! E`: the program hears E. `> S`: the new state. Whatever is not named means
/// nothing there. A DREQ that comes before the peer's name is known is about a connection that does
/// not exist.
const EXPECTED: &str = "
ReqSent / MRA of REQ > MraReqRcvd
ReqSent / REP ! Reply > RepRcvd
ReqSent / REJ ! Rejected > gone
ReqSent / DREQ + DREP > ReqSent
MraReqRcvd / MRA of REQ > MraReqRcvd
MraReqRcvd / REP ! Reply > RepRcvd
MraReqRcvd / REJ ! Rejected > gone
MraReqRcvd / DREQ + DREP > MraReqRcvd
RepRcvd / REP + MRA > RepRcvd
RepRcvd / REJ ! Rejected > TimeWait
Established, active / REP + RTU > Established
Established, active / REJ ! Rejected > TimeWait
Established, active / DREQ ! Disconnected > DreqRcvd
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
DreqSent / REJ ! Rejected > TimeWait
DreqSent / DREQ + DREP ! Disconnected > TimeWait
DreqSent / DREP ! Disconnected > TimeWait
TimeWait / REQ + REJ > TimeWait
TimeWait / DREQ + DREP > TimeWait
SidrReqSent / DREQ + DREP > SidrReqSent
SidrReqSent / SIDR_REP ! SidrReply > gone
";

#[test]
fn every_state_and_every_message() {
    let mut found = String::from("\n");
    for state in STATES {
        for name in MESSAGES {
            let passive_only = matches!(
                state,
                "ReqSent" | "MraReqRcvd" | "RepRcvd" | "Established, active" | "SidrReqSent"
            );
            if name == "REQ" && passive_only {
                continue; // which would be about another connection
            }
            if state == "ReqRcvd" && !matches!(name, "REQ" | "SIDR_REP") {
                continue; // the peer does not know our name yet; see below
            }
            let mut subject = Subject::in_state(state);
            let before = subject.state();
            let message = subject.message(name);
            let disposition = subject.deliver(message);
            let sent = hand::sent(&mut subject.talk.pair, subject.side);
            let events = subject.talk.take(subject.side);
            let after = subject.state();
            if let Disposition::Dropped(reason) = disposition {
                let expected = [DropReason::CmWrongState, DropReason::CmUnknownConnection];
                assert!(expected.contains(&reason), "{state} / {name}: {reason:?}");
                assert_eq!((sent.len(), events.len(), after), (0, 0, before), "{state} / {name}");
                continue;
            }
            write!(found, "{state} / {name}").unwrap();
            for mad in &sent {
                write!(found, " + {}", kind(&mad.message)).unwrap();
            }
            for heard in &events {
                write!(found, " ! {}", event(heard)).unwrap();
            }
            match after {
                Some(state) => writeln!(found, " > {state:?}").unwrap(),
                None => writeln!(found, " > gone").unwrap(),
            }
        }
    }
    assert_eq!(found, EXPECTED);
}

/// Who gives up waiting for a reply has not heard our name: it gives its adapter's GUID.
#[test]
fn a_request_that_is_given_up() {
    let mut subject = Subject::in_state("ReqRcvd");
    let give_up = |guid: u64| {
        let info = PrivateData::new(&guid.to_be_bytes()).unwrap();
        Message::Rej(Box::new(Rej {
            local_id: PEER_ID,
            remote_id: 0,
            about: About::Other,
            info_length: 8,
            reason: RejectReason::TIMEOUT,
            info,
            private_data: PrivateData::default(),
        }))
    };
    let unknown = Disposition::Dropped(DropReason::CmUnknownConnection);
    assert_eq!(subject.deliver(give_up(PEER_GUID + 1)), unknown);
    assert_eq!(subject.state(), Some(CmState::ReqRcvd));
    assert_eq!(subject.deliver(give_up(PEER_GUID)), Disposition::Executed);
    assert!(matches!(subject.talk.take(Side::B)[..], [ConnEvent::Rejected { .. }]));
    assert_eq!(subject.state(), None);
}

/// About connections that do not exist: a DREQ is answered, for its sender to end; nothing else is.
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
        if name == "DREQ" {
            let Message::Drep(drep) = &sent[0].message else { panic!("{sent:?}") };
            assert_eq!((drep.local_id, drep.remote_id), (subject.id, PEER_ID));
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

/// A DREQ for another queue pair than the connection's is not about it.
#[test]
fn a_dreq_for_another_queue_pair() {
    let mut subject = Subject::in_state("Established");
    subject.qpn = Qpn::new(subject.qpn.get() ^ 1);
    let message = subject.message("DREQ");
    assert_eq!(subject.deliver(message), Disposition::Dropped(DropReason::CmUnknownConnection));
    assert_eq!(subject.state(), Some(CmState::Established));
}

/// A question for a datagram service is not mistaken for a connection, nor the other way round.
#[test]
fn questions_and_connections() {
    for name in
        MESSAGES.into_iter().filter(|&name| name != "REQ" && name != "SIDR_REP" && name != "DREQ")
    {
        let mut subject = Subject::in_state("SidrReqSent");
        let message = subject.message(name);
        assert_eq!(
            subject.deliver(message),
            Disposition::Dropped(DropReason::CmUnknownConnection),
            "{name}"
        );
    }
    let mut subject = Subject::in_state("Established");
    let question = SidrReq {
        request_id: PEER_ID,
        pkey: PKey::DEFAULT,
        service_id: SERVICE,
        private_data: PrivateData::default(),
    };
    assert_eq!(subject.deliver(Message::SidrReq(question)), Disposition::Executed);
    assert_eq!(subject.state(), Some(CmState::Established));
}
