//! One adapter with one queue pair; the test is the peer.

use std::{fmt, net::IpAddr, time::Duration};

use roce_transport::{
    addr::Qpn,
    event::{Disposition, DropReason, Refusal},
    mem::RKey,
    psn::{Msn, Psn},
    qp::{QpType, State},
    time::Instant,
    wire::{
        Aeth, AtomicAckEth, AtomicEth, Bth, Datagram, DatagramMeta, DatagramRun, Ext, Feth,
        FrameFields, Headers, Ident, Immediate, InvalidateEth, NakCode, NetHeader, Opcode,
        Operation, Packet, Reth, Service, Syndrome, XrcEth, icrc,
    },
    work::{Data, RecvWr, Remote, SendWr, Sge, SrqId},
};

use super::node::{Buffer, End, Node, Options, Side};

#[derive(Clone, PartialEq)]
pub struct Pkt {
    pub operation: Operation,
    pub psn: u32,
    pub ack_req: bool,
    pub solicited: bool,
    pub srq: Option<SrqId>,
    pub ext: Ext,
    pub payload: Vec<u8>,
}

pub fn pkt(operation: Operation, psn: u32) -> Pkt {
    Pkt {
        operation,
        psn,
        ack_req: false,
        solicited: false,
        srq: None,
        ext: Ext::None,
        payload: Vec::new(),
    }
}

pub fn ack(psn: u32, msn: u32) -> Pkt {
    pkt(Operation::Acknowledge, psn).aeth(Syndrome::ACK, msn)
}

pub fn nak(code: NakCode, psn: u32, msn: u32) -> Pkt {
    pkt(Operation::Acknowledge, psn).aeth(Syndrome::Nak(code), msn)
}

pub fn rnr(timer: u8, psn: u32, msn: u32) -> Pkt {
    pkt(Operation::Acknowledge, psn).aeth(Syndrome::RnrNak { timer }, msn)
}

impl Pkt {
    pub fn ask(mut self) -> Self {
        self.ack_req = true;
        self
    }

    pub fn srq(mut self, srq: SrqId) -> Self {
        self.srq = Some(srq);
        self
    }

    pub fn payload(mut self, bytes: &[u8]) -> Self {
        self.payload = bytes.to_vec();
        self
    }

    pub fn aeth(mut self, syndrome: Syndrome, msn: u32) -> Self {
        self.ext = Ext::Aeth(Aeth { syndrome, msn: Msn::new(msn) });
        self
    }

    pub fn reth(mut self, remote: Remote, dma_length: u32) -> Self {
        let reth = Reth { virtual_address: remote.address, rkey: remote.rkey, dma_length };
        self.ext = match self.ext.immediate() {
            None => Ext::Reth(reth),
            Some(immediate) => Ext::RethImm(reth, immediate),
        };
        self
    }

    pub fn atomic_ack(mut self, msn: u32, found: u64) -> Self {
        self.ext = Ext::AethAtomicAck(
            Aeth { syndrome: Syndrome::ACK, msn: Msn::new(msn) },
            AtomicAckEth(found),
        );
        self
    }

    pub fn atomic(mut self, remote: Remote, swap_or_add: u64, compare: u64) -> Self {
        self.ext = Ext::Atomic(AtomicEth {
            virtual_address: remote.address,
            rkey: remote.rkey,
            swap_or_add,
            compare,
        });
        self
    }

    pub fn invalidate(mut self, key: RKey) -> Self {
        self.ext = Ext::Ieth(InvalidateEth(key));
        self
    }

    pub fn flush(
        mut self,
        placement: u8,
        selectivity: u8,
        remote: Remote,
        dma_length: u32,
    ) -> Self {
        let reth = Reth { virtual_address: remote.address, rkey: remote.rkey, dma_length };
        self.ext = Ext::FethReth(Feth { placement, selectivity }, reth);
        self
    }

    pub fn imm(mut self, bytes: [u8; 4]) -> Self {
        self.ext = match self.ext.reth() {
            None => Ext::Imm(Immediate(bytes)),
            Some(reth) => Ext::RethImm(reth, Immediate(bytes)),
        };
        self
    }
}

impl fmt::Debug for Pkt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} psn {:#x}", self.operation.name(), self.psn)?;
        if self.ack_req {
            f.write_str(" A")?;
        }
        if self.solicited {
            f.write_str(" S")?;
        }
        if let Some(srq) = self.srq {
            write!(f, " {srq:?}")?;
        }
        if self.ext != Ext::None {
            write!(f, " {:?}", self.ext)?;
        }
        match self.payload.len() {
            0 => Ok(()),
            len @ 1..=16 => write!(f, " {:?} ({len})", self.payload),
            len => write!(f, " [{len}]"),
        }
    }
}

pub struct Half {
    pub node: Node,
    pub qp: End,
    pub now: Instant,
    pub lossless: bool,
}

impl Half {
    /// First PSN of the adapter.
    pub const OURS: u32 = 0x100;
    /// First PSN of the peer.
    pub const THEIRS: u32 = 0x200;
    pub const PEER: Qpn = Qpn::new(0x77);
    const OWN_IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    pub const PEER_IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    /// In RTS.
    pub fn new(options: Options) -> Self {
        Self::reset(options).connected(Self::THEIRS, Self::OURS, &options)
    }

    /// With empty SENDs 1 to `count` on the wire.
    pub fn with_sent(count: u64) -> Self {
        let mut half = Self::new(Options::default());
        half.post_sends(1..=count);
        half.take();
        half
    }

    pub fn with_read_budget(bytes: u64, options: Options) -> Self {
        let node = Node::with_read_budget(bytes, Self::OWN_IP, 0xA, super::UDP_SEGMENT);
        Self::on(node, QpType::Rc, &options).connected(Self::THEIRS, Self::OURS, &options)
    }

    fn connected(mut self, rq_psn: u32, sq_psn: u32, options: &Options) -> Self {
        self.node.connect(self.qp.qpn, Self::PEER_IP, Self::PEER, rq_psn, sq_psn, options);
        self
    }

    /// Replaces the queue pair, or connects it again.
    pub fn connect(&mut self, qp: End, options: &Options) {
        let qpn = qp.qpn;
        self.qp = qp;
        self.node.connect(qpn, Self::PEER_IP, Self::PEER, Self::THEIRS, Self::OURS, options);
    }

    pub fn xrc_target(options: Options) -> Self {
        Self::of(QpType::XrcTarget, &options).connected(Self::THEIRS, 0, &options)
    }

    pub fn xrc_initiator(options: Options) -> Self {
        Self::of(QpType::XrcInitiator, &options).connected(0, Self::OURS, &options)
    }

    pub fn reset(options: Options) -> Self {
        Self::of(QpType::Rc, &options)
    }

    fn of(qp_type: QpType, options: &Options) -> Self {
        Self::on(Node::new(Self::OWN_IP, 0xA, super::UDP_SEGMENT), qp_type, options)
    }

    fn on(mut node: Node, qp_type: QpType, options: &Options) -> Self {
        let qp = node.qp(Side::A, qp_type, options);
        Self { node, qp, now: Instant::from_nanos(1_000_000), lossless: false }
    }

    pub fn state(&self) -> State {
        self.node.state(self.qp.qpn)
    }

    pub fn buffer(&mut self, len: usize) -> Buffer {
        self.node.buffer(len)
    }

    #[track_caller]
    pub fn post_send(&mut self, wr: &SendWr) {
        self.node.adapter.post_send(self.now, self.qp.qpn, wr).unwrap();
    }

    #[track_caller]
    pub fn post_recv(&mut self, wr: &RecvWr) {
        self.node.adapter.post_recv(self.now, self.qp.qpn, wr).unwrap();
    }

    /// Posts empty SENDs.
    #[track_caller]
    pub fn post_sends(&mut self, ids: impl IntoIterator<Item = u64>) {
        ids.into_iter().for_each(|id| self.post_send(&SendWr::send(id, Data::empty())));
    }

    /// Posts receives with the same buffers.
    #[track_caller]
    pub fn post_recvs(&mut self, ids: impl IntoIterator<Item = u64>, sges: &[Sge]) {
        ids.into_iter().for_each(|id| self.post_recv(&RecvWr::new(id, sges.to_vec())));
    }

    /// The peer's.
    pub fn net(&self) -> NetHeader {
        net(Self::PEER_IP, self.node.ip)
    }

    pub fn bth(&self, packet: &Pkt) -> Bth {
        let service = self
            .node
            .adapter
            .query_qp(self.qp.qpn)
            .map_or(Service::Rc, |info| info.qp_type.service());
        let opcode = Opcode::new(service, packet.operation).unwrap();
        let mut bth = Bth::new(opcode, self.qp.qpn, Psn::new(packet.psn));
        bth.ack_req = packet.ack_req;
        bth.solicited = packet.solicited;
        bth
    }

    pub fn send(&mut self, packet: &Pkt) -> Disposition {
        self.send_as(&self.net(), self.headers(packet), &packet.payload)
    }

    fn headers(&self, packet: &Pkt) -> Headers {
        let (bth, ext) = (self.bth(packet), packet.ext);
        let headers = match packet.srq {
            Some(srq) => Headers::xrc(bth, XrcEth { srq }, ext),
            None => Headers::new(bth, ext),
        };
        headers.expect("headers that the opcode does not call for")
    }

    /// All but the last of equal length.
    pub fn send_run(&mut self, packets: &[Pkt]) {
        let first = self.net();
        let mut net = first;
        let mut payloads = Vec::new();
        for packet in packets {
            payloads.push(encode(&net, self.headers(packet), &packet.payload));
            net.ident = net.ident.next();
        }
        let meta = DatagramMeta { checksum_verified: self.lossless, ..DatagramMeta::default() };
        let run = DatagramRun {
            net: &first,
            bytes: &payloads.concat(),
            segment: payloads[0].len(),
            meta,
        };
        self.node.adapter.handle_run(self.now, &run);
        self.node.drain_events();
    }

    pub fn send_as(&mut self, net: &NetHeader, headers: Headers, payload: &[u8]) -> Disposition {
        let bytes = encode(net, headers, payload);
        self.send_bytes(net, &bytes)
    }

    pub fn send_bytes(&mut self, net: &NetHeader, bytes: &[u8]) -> Disposition {
        let meta = DatagramMeta { checksum_verified: self.lossless, ..DatagramMeta::default() };
        let datagram = Datagram { net, bytes, meta };
        let disposition = self.node.adapter.handle_datagram(self.now, &datagram).disposition;
        self.node.drain_events();
        disposition
    }

    pub fn take(&mut self) -> Vec<Pkt> {
        let mut packets = Vec::new();
        loop {
            let turn = self.take_turn();
            if turn.is_empty() && !self.node.transmit.may_have_more() {
                return packets;
            }
            packets.extend(turn);
        }
    }

    /// For one transmit buffer.
    pub fn take_turn(&mut self) -> Vec<Pkt> {
        self.node.transmit.clear();
        self.node.adapter.poll_transmit(self.now, &mut self.node.transmit);
        self.node.drain_events();
        self.node.transmit.datagrams().map(|(_, bytes)| decode(bytes)).collect()
    }

    #[track_caller]
    pub fn expect(&mut self, packets: &[Pkt]) {
        assert_eq!(self.take(), packets);
    }

    #[track_caller]
    pub fn expect_drop(&mut self, packet: &Pkt, reason: DropReason) {
        assert_eq!(self.send(packet), Disposition::Dropped(reason));
    }

    /// Sends a packet and expects the response.
    #[track_caller]
    pub fn exchange(&mut self, packet: &Pkt, response: &[Pkt]) {
        self.send(packet);
        self.expect(response);
    }

    #[track_caller]
    pub fn expect_nothing(&mut self) {
        self.expect(&[]);
    }

    /// Handles timers; sent packets wait for [`take`](Self::take).
    pub fn advance(&mut self, time: Duration) {
        let end = self.now.plus(time);
        while let Some(next) = self.node.adapter.poll_timeout().filter(|&next| next <= end) {
            self.now = self.now.max(next);
            self.node.adapter.handle_timeout(self.now);
            if self.node.adapter.poll_timeout() == Some(next) {
                break;
            }
        }
        self.now = end;
        self.node.drain_events();
    }
}

pub fn refused_with(code: NakCode, refusal: Refusal) -> Disposition {
    Disposition::Refused(Syndrome::Nak(code), refusal)
}

pub fn net(src: IpAddr, dst: IpAddr) -> NetHeader {
    let ident = Ident::Known { id: 7, dont_fragment: true };
    let frame = FrameFields::default();
    NetHeader { src, dst, src_port: 0xC000, traffic_class: 0, hop_limit: 64, ident, frame }
}

pub fn encode(net: &NetHeader, headers: Headers, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 64 + payload.len()];
    let mut packet = Packet { headers, payload, icrc: 0 };
    let length = packet.encode(&mut bytes);
    packet.icrc = icrc(net, &bytes[..length - 4]);
    let length = packet.encode(&mut bytes);
    bytes.truncate(length);
    bytes
}

fn decode(bytes: &[u8]) -> Pkt {
    let packet = Packet::parse(bytes).expect("an adapter sent something that is no packet");
    let bth = packet.headers.bth();
    assert_eq!(bth.dest_qp, Half::PEER);
    Pkt {
        operation: bth.opcode.operation(),
        psn: bth.psn.get(),
        ack_req: bth.ack_req,
        solicited: bth.solicited,
        srq: packet.headers.xrceth().map(|xrceth| xrceth.srq),
        ext: *packet.headers.ext(),
        payload: packet.payload.to_vec(),
    }
}
