use std::collections::BTreeMap;

use roce_transport::{
    addr::{Mtu, PKey, Qpn},
    cm::{
        About, Apr, CmMad, Drep, Dreq, IpHeader, Lap, Message as Body, Mra, PortSpace, PrivateData,
        Rej, RejectReason, Rep, Req, ReqPath, Rtu, SidrRep, SidrReq,
    },
    psn::Psn,
};

use crate::{
    case::{Field, Message, Packet, PacketKind},
    subject::{Listener, Route},
};

const IDS: u8 = 64;
/// Distance between cases' IDs.
pub(crate) const NUMBERS: u32 = IDS as u32 + 1;
/// 4.3 s: the device retransmits messages only in cases about retransmission.
const RESPONSE_TIMEOUT: u8 = 20;
/// READs and atomics.
const DEPTH: u8 = 4;

macro_rules! value {
    ($fields:expr, $kind:path) => {
        $fields.iter().find_map(|it| if let $kind(value) = *it { Some(value) } else { None })
    };
}

#[derive(Debug)]
pub(crate) struct Dialog {
    listener: Listener,
    route: Route,
    /// Communication ID 0, unused.
    base: u32,
    /// The instrument's queue pair of ID 1.
    own: Qpn,
    pub(crate) sq_psn: u32,
    pub(crate) mtu: u32,
    connections: BTreeMap<u8, Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    is_requested: bool,
    /// REJ sent or received, or DREP received.
    is_over: bool,
    reply: Option<Rep>,
    /// Transaction of a DREQ to respond to.
    asked_to_end: Option<u64>,
    latest: BTreeMap<Message, CmMad>,
}

impl Dialog {
    pub(crate) fn new(listener: &Listener, route: Route, base: u32, own: Qpn) -> Self {
        Self {
            listener: listener.clone(),
            route,
            base,
            own,
            sq_psn: 0x100,
            mtu: 1024,
            connections: BTreeMap::new(),
        }
    }

    /// Queue pair of the device in the first connection, and its first received PSN.
    pub(crate) fn device(&self) -> Option<(Qpn, u32)> {
        let reply = self.connections.get(&1)?.reply?;
        Some((reply.local_qpn, reply.starting_psn.get()))
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = u8> {
        let is_open = |it: &Connection| it.is_requested && !it.is_over;
        self.connections.iter().filter(move |(_, it)| is_open(it)).map(|(&id, _)| id)
    }

    pub(crate) fn closing_message(&self, id: u8) -> Packet {
        let connection = self.connections.get(&id);
        let message = match connection {
            Some(it) if it.asked_to_end.is_some() => Message::Drep,
            Some(it) if it.reply.is_some() => Message::Dreq,
            _ => Message::Rej,
        };
        let mut fields = vec![Field::Id(id)];
        if message == Message::Rej {
            fields.extend([Field::About(About::Req), Field::Reason(RejectReason::TIMEOUT.0)]);
        }
        Packet { operation: PacketKind::Message(message), fields }
    }

    pub(crate) fn encode(&mut self, message: Message, fields: &[Field]) -> Vec<u8> {
        let id = id(fields);
        let body = self.body(message, id, fields);
        let transaction = match (message, self.connections.get(&id)) {
            (Message::Drep, Some(Connection { asked_to_end: Some(asked), .. })) => *asked,
            _ => self.transaction(message, id),
        };
        let connection = self.connections.entry(id).or_default();
        match message {
            Message::Req => connection.is_requested = true,
            Message::Rej | Message::Drep => connection.is_over = true,
            _ => {}
        }
        let mut mad = CmMad::new(transaction, body).encode().to_vec();
        for field in fields {
            match *field {
                Field::BaseVersion(version) => mad[0] = version,
                Field::Class(class) => mad[1] = class,
                Field::ClassVersion(version) => mad[2] = version,
                Field::Method(method) => mad[3] = method,
                Field::Attribute(attribute) => {
                    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
                }
                _ => {}
            }
        }
        mad
    }

    fn body(&self, message: Message, id: u8, fields: &[Field]) -> Body {
        let local_id = self.base + u32::from(id);
        let peer = self.connections.get(&id).and_then(|it| it.reply.as_ref());
        let differs = |wrong| if fields.contains(&wrong) { 0x0055_0000 } else { 0 };
        let remote_id = peer.map_or(0x0BAD_0000, |it| it.local_id) ^ differs(Field::WrongPeerId);
        let remote_qpn =
            Qpn::new(peer.map_or(0, |it| it.local_qpn.get()) ^ differs(Field::WrongPeerQp));
        let about = value!(fields, Field::About).unwrap_or(About::Other);
        match message {
            Message::Req => Body::Req(Box::new(self.request(local_id, id, fields))),
            Message::Mra => {
                let service_timeout = value!(fields, Field::ServiceTimeout);
                let service_timeout = service_timeout.unwrap_or(RESPONSE_TIMEOUT);
                Body::Mra(Mra {
                    local_id,
                    remote_id,
                    about,
                    service_timeout,
                    private_data: PrivateData::default(),
                })
            }
            Message::Rej => {
                let reason = value!(fields, Field::Reason).map(RejectReason);
                let reason = reason.unwrap_or(RejectReason::CONSUMER);
                // without a reply the device's ID is unknown
                let remote_id = if peer.is_some() { remote_id } else { 0 };
                Body::Rej(Box::new(Rej::new(local_id, remote_id, about, reason)))
            }
            Message::Rep => Body::Rep(Box::new(Rep {
                local_id,
                remote_id,
                local_qpn: self.qpn(id, fields),
                starting_psn: Psn::new(self.sq_psn),
                ..Rep::default()
            })),
            Message::Rtu => Body::Rtu(Rtu { local_id, remote_id, ..Rtu::default() }),
            Message::Dreq => {
                Body::Dreq(Dreq { local_id, remote_id, remote_qpn, ..Dreq::default() })
            }
            Message::Drep => Body::Drep(Drep { local_id, remote_id, ..Drep::default() }),
            Message::SidrReq => Body::SidrReq(SidrReq {
                request_id: local_id,
                pkey: PKey::DEFAULT,
                service_id: PortSpace::Udp.service(self.port(fields)),
                private_data: self.header(fields),
            }),
            Message::SidrRep => {
                Body::SidrRep(SidrRep { request_id: local_id, ..SidrRep::default() })
            }
            Message::Lap => Body::Lap(Lap { local_id, remote_id, remote_qpn }),
            Message::Apr => Body::Apr(Box::new(Apr { local_id, remote_id, ..Apr::default() })),
        }
    }

    fn request(&self, local_id: u32, id: u8, fields: &[Field]) -> Req {
        let mut req = Req {
            local_id,
            service_id: PortSpace::Tcp.service(self.port(fields)),
            local_ca_guid: 0x0200_0000_0000_0000 | u64::from(self.listener.seed),
            local_qpn: self.qpn(id, fields),
            responder_resources: DEPTH,
            initiator_depth: DEPTH,
            remote_response_timeout: RESPONSE_TIMEOUT,
            flow_control: true,
            starting_psn: Psn::new(self.sq_psn),
            local_response_timeout: RESPONSE_TIMEOUT,
            retry_count: 7,
            pkey: PKey::DEFAULT,
            path_mtu: Mtu::from_bytes(self.mtu).map_or(0, |mtu| mtu as u8),
            rnr_retry: 7,
            max_cm_retries: 15,
            primary: ReqPath {
                // RoCE: permissive LIDs
                local_lid: 0xFFFF,
                remote_lid: 0xFFFF,
                local_gid: self.route.own.into(),
                remote_gid: self.route.device.into(),
                hop_limit: 64,
                ack_timeout: 18,
                ..ReqPath::default()
            },
            private_data: self.header(fields),
            ..Req::default()
        };
        for field in fields {
            match *field {
                Field::Transport(code) => req.transport = code,
                Field::PathMtu(code) => req.path_mtu = code,
                Field::ResponseTimeout(code) => req.local_response_timeout = code,
                Field::Retries(count) => req.max_cm_retries = count,
                Field::WrongGid => req.primary.remote_gid.0[15] ^= 0x40,
                _ => {}
            }
        }
        req
    }

    fn port(&self, fields: &[Field]) -> u16 {
        let port = value!(fields, Field::Port);
        port.unwrap_or(self.listener.port)
    }

    fn qpn(&self, id: u8, fields: &[Field]) -> Qpn {
        let other = value!(fields, Field::OwnQp);
        Qpn::new(self.own.get() + u32::from(other.unwrap_or(id)) - 1)
    }

    /// IP header, then the listener's private data.
    fn header<const N: usize>(&self, fields: &[Field]) -> PrivateData<N> {
        let Route { own: src, device: dst, .. } = self.route;
        let mut bytes = IpHeader { src_port: 45_000, src, dst }.encode().to_vec();
        if let Some(version) = value!(fields, Field::IpVersion) {
            bytes[1] = version << 4;
        }
        bytes.extend(&self.listener.private_data);
        PrivateData::new(&bytes).unwrap_or_default()
    }

    /// A REQ and its sequel share a transaction.
    fn transaction(&self, message: Message, id: u8) -> u64 {
        let kind = match message {
            Message::Dreq | Message::SidrReq | Message::Lap => message as u64,
            _ => Message::Req as u64,
        };
        u64::from(self.base) << 32 | kind << 8 | u64::from(id)
    }

    pub(crate) fn is_foreign(&self, payload: &[u8]) -> bool {
        CmMad::parse(payload).is_ok_and(|mad| self.id_of(&mad.message).is_none())
    }

    fn id_of(&self, body: &Body) -> Option<u8> {
        let number = identity(body).1.wrapping_sub(self.base);
        (1..=u32::from(IDS)).contains(&number).then_some(number as u8)
    }

    pub(crate) fn record(&mut self, payload: &[u8]) {
        let Ok(mad) = CmMad::parse(payload) else { return };
        let Some(id) = self.id_of(&mad.message) else { return };
        let connection = self.connections.entry(id).or_default();
        match &mad.message {
            Body::Rep(rep) => {
                connection.reply.get_or_insert(**rep);
            }
            Body::Rej(_) | Body::Drep(_) => connection.is_over = true,
            Body::Dreq(_) => connection.asked_to_end = Some(mad.transaction),
            _ => {}
        }
    }

    pub(crate) fn is_of_another(&self, packet: &Packet, payload: &[u8]) -> bool {
        let id = id(&packet.fields);
        CmMad::parse(payload).is_ok_and(|mad| self.id_of(&mad.message) != Some(id))
    }

    /// `Err`: difference from the expected message.
    pub(crate) fn check(&mut self, packet: &Packet, payload: &[u8]) -> Result<(), String> {
        let PacketKind::Message(message) = packet.operation else { return Ok(()) };
        let mad = CmMad::parse(payload).map_err(|error| format!("it is {error}"))?;
        let body = &mad.message;
        let (kind, own_id) = identity(body);
        if kind != message {
            return Err(format!("it is {}", words(body)));
        }
        let id = id(&packet.fields);
        if self.id_of(body) != Some(id) {
            return Err(format!("its communication ID of the peer is {own_id:#x}"));
        }
        let is_a_response = match body {
            Body::Rep(_) | Body::Drep(_) | Body::SidrRep(_) | Body::Apr(_) => true,
            Body::Rej(rej) => rej.about == About::Req,
            Body::Mra(mra) => mra.about == About::Req,
            _ => false,
        };
        let asked = match body {
            Body::Drep(_) => Message::Dreq,
            Body::SidrRep(_) => Message::SidrReq,
            Body::Apr(_) => Message::Lap,
            _ => Message::Req,
        };
        let right = self.transaction(asked, id);
        if is_a_response && mad.transaction != right {
            return Err(format!("its transaction is {:#x}, expected {right:#x}", mad.transaction));
        }
        self.agrees(body, id)?;
        for field in &packet.fields {
            let is_right = match (field, body) {
                (Field::Reason(reason), Body::Rej(rej)) => rej.reason.0 == *reason,
                (Field::About(about), Body::Rej(rej)) => rej.about == *about,
                (Field::About(about), Body::Mra(mra)) => mra.about == *about,
                (Field::Status(status), Body::SidrRep(rep)) => rep.status == *status,
                (Field::Status(status), Body::Apr(apr)) => apr.status == *status,
                (Field::Same, _) => {
                    let latest = self.connections.get(&id).and_then(|it| it.latest.get(&message));
                    if latest.is_some_and(|latest| *latest != mad) {
                        return Err("it is not the same as before".into());
                    }
                    true
                }
                _ => true,
            };
            if !is_right {
                return Err(format!("it is {}", words(body)));
            }
        }
        self.connections.entry(id).or_default().latest.insert(message, mad);
        Ok(())
    }

    fn agrees(&self, body: &Body, id: u8) -> Result<(), String> {
        match body {
            Body::Rep(rep) => {
                if rep.local_id == 0 {
                    return Err("its communication ID is 0".into());
                }
                if !(2..0x00FF_FFFF).contains(&rep.local_qpn.get()) {
                    return Err(format!("its queue pair is {}", rep.local_qpn));
                }
                let others = self.connections.iter().filter(|(other, _)| **other != id);
                for other in others.filter_map(|(_, it)| it.reply) {
                    if other.local_id == rep.local_id || other.local_qpn == rep.local_qpn {
                        return Err("it has the ID or the queue pair of another connection".into());
                    }
                }
            }
            Body::Dreq(Dreq { local_id, .. }) => {
                let reply = self.connections.get(&id).and_then(|it| it.reply);
                if reply.is_some_and(|reply| reply.local_id != *local_id) {
                    return Err(format!(
                        "its communication ID is {local_id:#x}, and not the REP's"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// From 1.
fn id(fields: &[Field]) -> u8 {
    let id = value!(fields, Field::Id);
    id.unwrap_or(1).clamp(1, IDS)
}

/// Kind, and the instrument's communication ID; 0 in requests.
fn identity(body: &Body) -> (Message, u32) {
    match body {
        Body::Req(_) => (Message::Req, 0),
        Body::Mra(it) => (Message::Mra, it.remote_id),
        Body::Rej(it) => (Message::Rej, it.remote_id),
        Body::Rep(it) => (Message::Rep, it.remote_id),
        Body::Rtu(it) => (Message::Rtu, it.remote_id),
        Body::Dreq(it) => (Message::Dreq, it.remote_id),
        Body::Drep(it) => (Message::Drep, it.remote_id),
        Body::SidrReq(_) => (Message::SidrReq, 0),
        Body::SidrRep(it) => (Message::SidrRep, it.request_id),
        Body::Lap(it) => (Message::Lap, it.remote_id),
        Body::Apr(it) => (Message::Apr, it.remote_id),
    }
}

fn words(body: &Body) -> String {
    match body {
        Body::Rej(rej) => format!("REJ ({})", rej.reason),
        Body::SidrRep(rep) => format!("SIDR_REP of status {}", rep.status),
        Body::Apr(apr) => format!("APR of status {}", apr.status),
        other => other.name().to_owned(),
    }
}

pub(crate) fn text(dest_qp: Qpn, payload: &[u8]) -> Option<String> {
    let mad = (dest_qp == Qpn::GSI).then(|| CmMad::parse(payload).ok())??;
    Some(words(&mad.message))
}

pub(crate) fn rejection(payload: &[u8]) -> Option<RejectReason> {
    match CmMad::parse(payload).ok()?.message {
        Body::Rej(rej) => Some(rej.reason),
        _ => None,
    }
}

pub(crate) fn message(payload: &[u8]) -> Option<Message> {
    CmMad::parse(payload).ok().map(|mad| identity(&mad.message).0)
}
