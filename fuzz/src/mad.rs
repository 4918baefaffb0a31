//! Target: management datagrams, and a script for an adapter's QP1.
//!
//! A step is a byte for its kind and operands. Messages are mended into CM messages, mostly of an
//! existing exchange.
//!
//! Invariants: messages are written back equal. The adapter sends only messages, and sending ends.
//! Events and connections are bounded. Nothing is left after destruction and timers.

use std::net::IpAddr;

use roce_transport::{
    adapter::{Adapter, AdapterConfig, TransmitBuffer, TransmitLimits},
    addr::{AddressVector, Mtu, PKey, QKey, Qpn},
    cm::{
        Accept, CmConfig, CmMad, CmService, ConnEnd, ConnEvent, ConnId, Connect, Listen, PortSpace,
        RejectReason,
    },
    event::{Disposition, DropReason},
    psn::Psn,
    qp::{Init, QpCaps, QpInit, QpType},
    time::Instant,
    wire::{
        Bth, Datagram, Deth, Ext, FrameFields, HEADERS_MAX, Headers, ICRC_LEN, Ident, MAD_LEN,
        MadHeader, NetHeader, Opcode, Operation, Packet, Service, icrc,
    },
};

use crate::input::Input;

const STEPS_MAX: usize = 200;
const MOST: usize = 6;
/// Requests waiting to be accepted; more than possible connections.
const BACKLOG: usize = 8;
/// Per step.
const EVENTS_MAX: usize = 16;
const BURST_MAX: usize = 64;
const OWN: [u8; 4] = [10, 0, 0, 1];
const PEERS: [[u8; 4]; 2] = [[10, 0, 0, 2], [10, 0, 0, 3]];

/// As a message and as a script. Returns the number of accepted messages.
pub fn mad(data: &[u8]) -> u64 {
    round_trip(data);
    let mut input = Input::new(data);
    let mut run = Run::new();
    input.play(STEPS_MAX, |input| {
        run.step(input);
        run.check();
    });
    run.finish()
}

fn round_trip(data: &[u8]) {
    if let Some(header) = data.first_chunk() {
        let parsed = MadHeader::parse(header);
        assert_eq!(MadHeader::parse(&parsed.encode()), parsed);
    }
    let mut bytes = [0; MAD_LEN];
    let length = data.len().min(MAD_LEN);
    bytes[..length].copy_from_slice(&data[..length]);
    for attribute in 0..0x20 {
        bytes[..4].copy_from_slice(&[
            1,
            MadHeader::CM_CLASS,
            MadHeader::CM_VERSION,
            MadHeader::SEND,
        ]);
        bytes[16..18].copy_from_slice(&[0, attribute]);
        let Ok(mad) = CmMad::parse(&bytes) else { continue };
        assert_eq!(
            CmMad::parse(&mad.encode()).as_ref(),
            Ok(&mad),
            "written back as another message"
        );
        assert!(!format!("{mad:?}").is_empty());
    }
    assert!(data.len() == MAD_LEN || CmMad::parse(data).is_err());
}

struct Run {
    adapter: Adapter,
    buffer: TransmitBuffer,
    now: Instant,
    qpns: Vec<Qpn>,
    conns: Vec<ConnId>,
    /// Exchange IDs from the adapter or a peer.
    names: Vec<[u8; 4]>,
    taken: u64,
}

impl Run {
    fn new() -> Self {
        let cm = CmConfig { max_connections: MOST, max_retries: 2, ..CmConfig::default() };
        let mut adapter = Adapter::new(AdapterConfig { cm, ..AdapterConfig::new([9; 32]) });
        adapter.set_gids(vec![IpAddr::from(OWN).into()]);
        let pd = adapter.alloc_pd().expect("a protection domain");
        let cq = adapter.create_cq(64).expect("a completion queue");
        let mut qp = |qp_type| {
            let init = QpInit {
                qp_type,
                send_cq: cq.clone(),
                recv_cq: cq.clone(),
                srq: None,
                caps: QpCaps::default(),
                sq_sig_all: false,
                pd,
                quirks: Default::default(),
            };
            let qpn = adapter.create_qp(init).expect("a queue pair");
            adapter.to_init(qpn, &Init::default()).expect("the first edge");
            qpn
        };
        let qpns = [QpType::Rc, QpType::Rc, QpType::Uc].map(&mut qp).into();
        let service_id = PortSpace::Tcp.service(7);
        for (service_id, address) in
            [(service_id, None), (PortSpace::Udp.service(7), Some(IpAddr::from(OWN)))]
        {
            adapter
                .cm_listen(Listen { service_id, address, backlog: BACKLOG })
                .expect("no other listener");
        }
        let buffer = TransmitBuffer::new(1 << 14, TransmitLimits::SINGLE);
        let now = Instant::from_nanos(1_000_000);
        Self { adapter, buffer, now, qpns, conns: Vec::new(), names: vec![[0; 4]], taken: 0 }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() & 0x0F {
            0..=6 => self.receive(input),
            7 => self.connect(input),
            8 | 9 => self.accept(input),
            10 => self.pass_time(input),
            _ => self.command(input),
        }
    }

    /// The input gives: parts not to mend, kind, exchange IDs, bytes.
    fn receive(&mut self, input: &mut Input<'_>) {
        let [control, kind, local, remote, words] = input.array();
        let mut bytes = [0; MAD_LEN];
        let raw = input.bytes(usize::from(words & 0x3F) * 4);
        bytes[24..].iter_mut().zip(raw).for_each(|(to, from)| *to = *from);
        bytes[..4].copy_from_slice(&[
            1,
            MadHeader::CM_CLASS,
            MadHeader::CM_VERSION,
            MadHeader::SEND,
        ]);
        bytes[17] = if kind < 0xF0 { 0x10 + kind % 9 } else { kind & 0x1F };
        let name =
            |n: u8| if n < 0xE0 { self.names[usize::from(n) % self.names.len()] } else { [n; 4] };
        bytes[24..28].copy_from_slice(&name(local));
        bytes[28..32].copy_from_slice(&name(remote));
        match bytes[17] {
            // a request for an existing service and transport service
            0x10 if control & 1 == 0 => {
                bytes[32..40].copy_from_slice(&PortSpace::Tcp.service(7).0.to_be_bytes());
                bytes[28..32].copy_from_slice(&[0; 4]);
                bytes[24 + 43] &= !0x06 | control & 2;
                bytes[24 + 48..24 + 50].copy_from_slice(&PKey::DEFAULT.0.to_be_bytes());
            }
            0x17 if control & 1 == 0 => {
                bytes[28..30].copy_from_slice(&PKey::DEFAULT.0.to_be_bytes());
                bytes[32..40].copy_from_slice(&PortSpace::Udp.service(7).0.to_be_bytes());
            }
            _ => {}
        }
        let length = if control & 0xC0 == 0xC0 { usize::from(control) } else { MAD_LEN };
        if self.names.len() < 64 {
            self.names.extend(bytes[24..28].first_chunk::<4>());
        }
        round_trip(&bytes);
        let src = PEERS[usize::from(control >> 2 & 1)];
        let qkey = if control & 0x38 == 0x38 { QKey(1) } else { QKey::GSI };
        let disposition = self.deliver(src.into(), qkey, &bytes[..length]);
        self.taken += u64::from(!matches!(disposition, Disposition::Dropped(_)));
        assert!(
            qkey == QKey::GSI || disposition == Disposition::Dropped(DropReason::QKey),
            "{disposition}"
        );
    }

    fn deliver(&mut self, src: IpAddr, qkey: QKey, payload: &[u8]) -> Disposition {
        let ident = Ident::Known { id: 1, dont_fragment: true };
        let net = NetHeader {
            src,
            dst: OWN.into(),
            src_port: 0xC000,
            traffic_class: 0,
            hop_limit: 64,
            ident,
            frame: FrameFields::default(),
        };
        let opcode = Opcode::new(Service::Ud, Operation::SendOnly).expect("datagrams exist");
        let ext = Ext::Deth(Deth { qkey, source_qp: Qpn::GSI });
        let headers = Headers::new(Bth::new(opcode, Qpn::GSI, Psn::new(0)), ext)
            .expect("the opcode's headers");
        let mut bytes = vec![0; HEADERS_MAX + payload.len() + 3 + ICRC_LEN];
        let length = Packet { headers, payload, icrc: 0 }.encode(&mut bytes);
        let (body, end) = bytes[..length].split_at_mut(length - ICRC_LEN);
        end.copy_from_slice(&icrc(&net, body).to_le_bytes());
        let before = self.adapter.cm().count();
        let disposition = self
            .adapter
            .handle_datagram(self.now, &Datagram::new(&net, &bytes[..length]))
            .disposition;
        let dropped = matches!(disposition, Disposition::Dropped(_));
        assert!(
            !dropped || self.adapter.cm().count() == before,
            "a refused message changed something: {disposition}"
        );
        disposition
    }

    fn conn(&self, n: u8) -> Option<ConnId> {
        self.conns.get(usize::from(n) % self.conns.len().max(1)).copied()
    }

    fn connect(&mut self, input: &mut Input<'_>) {
        let [to, how, length] = input.array();
        let mut av = AddressVector::new(
            IpAddr::from(PEERS[usize::from(to & 1)]).into(),
            u16::from(to == 0xFF),
        );
        av.flow_label = u32::from(to);
        let connect = Connect {
            service_id: PortSpace::Tcp.service(u16::from(how)),
            av,
            service: [CmService::Rc, CmService::Uc, CmService::Xrc][usize::from(how & 3) % 3],
            end: ConnEnd {
                qpn: self.qpns[usize::from(to >> 1) % self.qpns.len()],
                starting_psn: Psn::new(u32::from(how)),
                responder_resources: 4,
                initiator_depth: 4,
                rnr_retry: 7,
                min_rnr_timer: if to == 0xFE { 32 } else { 1 },
                srq: false,
            },
            managed: how & 4 != 0,
            retry_count: how >> 4,
            ack_timeout: 8,
            fits_ack_delay: how & 8 != 0,
            path_mtu: Mtu::B1024,
            pkey: PKey::DEFAULT,
            private_data: &[length; 100][..usize::from(length % 100)],
        };
        let before = self.adapter.cm().count();
        match self.adapter.cm_connect(self.now, &connect) {
            Ok(conn) => self.conns.push(conn),
            Err(error) => {
                assert!(self.adapter.cm().count() == before && !error.to_string().is_empty());
            }
        }
    }

    fn accept(&mut self, input: &mut Input<'_>) {
        let [which, how] = input.array();
        let Some(conn) = self.conn(which) else { return };
        let accept = Accept {
            end: ConnEnd {
                qpn: self.qpns[usize::from(how) % self.qpns.len()],
                starting_psn: Psn::new(0),
                responder_resources: 4,
                initiator_depth: 4,
                rnr_retry: 7,
                min_rnr_timer: 1,
                srq: false,
            },
            private_data: &[how],
        };
        let before = self.adapter.cm().state(conn);
        if self.adapter.cm_accept(self.now, conn, &accept, how & 0x80 != 0).is_err() {
            assert_eq!(
                self.adapter.cm().state(conn),
                before,
                "a refused command changed something"
            );
        }
    }

    fn command(&mut self, input: &mut Input<'_>) {
        let [how, which, bytes] = input.array();
        let Some(conn) = self.conn(which) else { return };
        let data = &[bytes; 255][..usize::from(bytes)];
        let before = self.adapter.cm().state(conn);
        let Self { adapter, now, .. } = self;
        let result = match how % 7 {
            0 => adapter.cm_establish(conn, data),
            1 => adapter.cm_mut().notify(conn),
            2 => adapter.cm_reject(*now, conn, RejectReason(u16::from(how)), data),
            3 => adapter.cm_disconnect(*now, conn, data),
            4 => adapter.sidr_respond(
                conn,
                if how & 8 == 0 { Ok((Qpn::new(5), QKey(1))) } else { Err(how) },
                data,
            ),
            5 => {
                let _setup = adapter.cm().qp_setup(conn);
                Ok(())
            }
            _ => {
                adapter.cm_mut().destroy(*now, conn);
                Ok(())
            }
        };
        if result.is_err() {
            assert_eq!(
                self.adapter.cm().state(conn),
                before,
                "a refused command changed something"
            );
        }
    }

    fn pass_time(&mut self, input: &mut Input<'_>) {
        for _ in 0..input.byte() & 7 {
            let Some(at) = self.adapter.poll_timeout() else { return };
            self.now = at.max(self.now);
            self.adapter.handle_timeout(self.now);
            assert!(
                self.adapter.poll_timeout().is_none_or(|at| at > self.now),
                "what was due is due again"
            );
            self.check();
        }
    }

    fn check(&mut self) {
        assert!(
            self.adapter.cm().count() <= 2 * MOST,
            "more connections and time waits than may be"
        );
        let events: Vec<_> =
            std::iter::from_fn(|| self.adapter.poll_cm_event()).take(EVENTS_MAX + 1).collect();
        assert!(events.len() <= EVENTS_MAX, "more than {EVENTS_MAX} events in one step");
        for event in events {
            if let ConnEvent::Request { conn, .. } | ConnEvent::SidrRequest { conn, .. } = event {
                self.conns.push(conn);
            }
        }
        let mut packets = 0;
        loop {
            self.buffer.clear();
            self.adapter.poll_transmit(self.now, &mut self.buffer);
            if self.buffer.is_empty() {
                return;
            }
            for (_, bytes) in self.buffer.datagrams() {
                packets += 1;
                let packet = Packet::parse(bytes).expect("sent something that is no packet");
                let mad = CmMad::parse(packet.payload).expect("sent something that is no message");
                assert_eq!(mad.encode()[..], *packet.payload);
                if self.names.len() < 64 {
                    self.names.extend(packet.payload[24..28].first_chunk::<4>());
                }
            }
            assert!(packets <= BURST_MAX, "sending does not come to an end");
        }
    }

    fn finish(mut self) -> u64 {
        self.check();
        for conn in std::mem::take(&mut self.conns) {
            self.adapter.cm_mut().destroy(self.now, conn);
        }
        self.check();
        for _ in 0..1000 {
            let Some(at) = self.adapter.poll_timeout() else { break };
            self.now = at.max(self.now);
            self.adapter.handle_timeout(self.now);
            self.check();
        }
        assert_eq!(
            (self.adapter.cm().count(), self.adapter.poll_timeout()),
            (0, None),
            "something is left"
        );
        self.taken
    }
}
