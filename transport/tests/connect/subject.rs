use roce_transport::{
    adapter::AcceptError,
    addr::{AddressVector, Gid, PKey, Qpn},
    cm::{
        About, Apr, CmMad, CmState, ConnError, ConnEvent, ConnId, Drep, Dreq, Lap, Message, Mra,
        PrivateData, Rej, RejectReason, Rep, Req, ReqPath, Rtu, SidrRep, SidrReq, Trigger,
    },
    event::Disposition,
    psn::Psn,
};

use super::{SERVICE, Talk, accept, hand};
use crate::common::Side;

pub(crate) const PEER_ID: u32 = 0x0BAD_CAFE;
pub(crate) const PEER_GUID: u64 = 0x0200_0000_0000_0077;
pub(crate) const PEER_QPN: Qpn = Qpn::new(0x77);

pub(crate) struct Subject {
    pub(crate) talk: Talk,
    pub(crate) side: Side,
    pub(crate) conn: ConnId,
    /// Communication ID.
    pub(crate) id: u32,
    pub(crate) qpn: Qpn,
}

fn mad(message: Message) -> CmMad {
    CmMad { transaction: 5, modifier: 0, message }
}

impl Subject {
    fn active() -> Self {
        Self::active_in(Talk::new())
    }

    pub(crate) fn active_in(mut talk: Talk) -> Self {
        let end = talk.qp(Side::A);
        let conn = talk.call_unmanaged(&end);
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
            ..subject.talk.qp(Side::B) // for its queues; the messages name `qpn`
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

    /// Replaces the connection by a resolution.
    pub(crate) fn resolving(mut self) -> Self {
        let av = AddressVector::new(self.talk.pair.b.ip.into(), 0);
        let now = self.talk.pair.now;
        self.talk.destroy(Side::A, self.conn);
        hand::sent(&mut self.talk.pair, Side::A);
        self.conn = self.talk.pair.a.adapter.sidr_request(now, SERVICE, &av, b"").unwrap();
        let Message::SidrReq(req) = hand::sent(&mut self.talk.pair, Side::A).remove(0).message
        else {
            unreachable!()
        };
        self.id = req.request_id;
        self
    }

    /// A SIDR_REQ received.
    fn resolved() -> Self {
        let mut talk = Talk::new();
        hand::deliver(&mut talk.pair, Side::B, &mad(sidr_req()));
        let events = talk.take(Side::B);
        let [ConnEvent::SidrRequest { conn, .. }] = events[..] else { panic!("{events:?}") };
        let end = talk.qp(Side::B);
        Self { talk, side: Side::B, conn, id: 0, qpn: end.qpn }
    }

    pub(crate) fn deliver(&mut self, message: Message) -> Disposition {
        hand::deliver(&mut self.talk.pair, self.side, &mad(message))
    }

    pub(crate) fn in_state(state: &str) -> Self {
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
            "SidrReqSent" => Self::active().resolving(),
            "SidrReqRcvd" => Self::resolved(),
            "gone" => {
                let mut subject = Self::accepted();
                subject.talk.pair.b.adapter.cm_mut().destroy(subject.talk.pair.now, subject.conn);
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

    pub(crate) fn state(&mut self) -> Option<CmState> {
        let conn = self.conn;
        self.talk.pair.node(self.side).adapter.cm().state(conn)
    }

    /// False if the state refuses the command.
    pub(crate) fn command(&mut self, command: Trigger) -> bool {
        let (now, conn) = (self.talk.pair.now, self.conn);
        let end = self.talk.qp(self.side);
        let adapter = &mut self.talk.pair.node(self.side).adapter;
        let result = match command {
            Trigger::Accept => match adapter.cm_accept(now, conn, &accept(&end), false) {
                Err(AcceptError::QueuePair(error)) => panic!("{error}"),
                Err(AcceptError::Connection(error)) => Err(error),
                Ok(()) => Ok(()),
            },
            Trigger::Establish => adapter.cm_establish(conn, b""),
            Trigger::Notify => adapter.cm_mut().notify(conn),
            Trigger::Reject => adapter.cm_reject(now, conn, RejectReason::CONSUMER, b""),
            Trigger::Disconnect => adapter.cm_disconnect(now, conn, b""),
            Trigger::SidrRespond => adapter.sidr_respond(conn, Err(SidrRep::REJECTED), b""),
            Trigger::Destroy => {
                adapter.cm_mut().destroy(now, conn);
                Ok(())
            }
            other => panic!("{other:?}"),
        };
        assert!(matches!(result, Ok(()) | Err(ConnError::State(_))), "{command:?}: {result:?}");
        result.is_ok()
    }

    pub(crate) fn message(&mut self, name: &str) -> Message {
        let (local_id, remote_id) = (PEER_ID, self.id);
        let mra = |about| Mra {
            local_id,
            remote_id,
            about,
            service_timeout: 20,
            private_data: PrivateData::default(),
        };
        let rej = Rej::new(local_id, remote_id, About::Other, RejectReason::CONSUMER);
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
            "REJ" => Message::Rej(Box::new(rej)),
            "DREQ" => {
                Message::Dreq(Dreq { local_id, remote_id, remote_qpn: self.qpn, ..Dreq::default() })
            }
            "DREP" => Message::Drep(Drep { local_id, remote_id, ..Drep::default() }),
            "LAP" => Message::Lap(Lap { local_id, remote_id, remote_qpn: self.qpn }),
            "APR" => Message::Apr(Box::new(Apr { local_id, remote_id, ..Apr::default() })),
            "SIDR_REP" => Message::SidrRep(SidrRep {
                request_id: remote_id,
                service_id: SERVICE,
                ..SidrRep::default()
            }),
            other => panic!("{other}"),
        }
    }
}

pub(crate) fn sidr_req() -> Message {
    Message::SidrReq(SidrReq {
        request_id: PEER_ID,
        pkey: PKey::DEFAULT,
        service_id: SERVICE,
        private_data: PrivateData::default(),
    })
}

fn req(local_gid: Gid, remote_gid: Gid) -> Message {
    Message::Req(Box::new(Req {
        local_id: PEER_ID,
        service_id: SERVICE,
        local_ca_guid: PEER_GUID,
        local_qpn: PEER_QPN,
        pkey: PKey::DEFAULT,
        path_mtu: 3,
        primary: ReqPath { local_gid, remote_gid, ack_timeout: 14, ..ReqPath::default() },
        ..Req::default()
    }))
}
