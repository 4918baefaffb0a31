use std::{net::IpAddr, sync::Arc};

use roce_fabric::Delivery;
use roce_transport::{
    adapter::{Adapter, AdapterConfig, Limits, PdId, TransmitBuffer, TransmitLimits},
    addr::{AddressVector, Mtu, QKey, Qpn},
    cm::ConnEvent,
    event::{Disposition, DropReason, Event},
    mem::{Access, HeapMemory, Memory, MrAttr, Region},
    psn::Psn,
    qp::{
        Init, PeerAttr, QpCaps, QpInit, QpType, Quirks, RequesterAttr, ResponderAttr, Rtr, Rts,
        State,
    },
    time::Instant,
    wire::{Datagram, NetHeader},
    work::{CompletionQueue, Remote, Sge, SrqAttr, SrqId, UdDestination, Wc, WcStatus, XrcdId},
};

use super::record::Recorded;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    A,
    B,
}

impl Side {
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub mtu: Mtu,
    /// 4.2 ms.
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    /// 0.64 ms.
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub access: Access,
    pub caps: QpCaps,
    pub sq_sig_all: bool,
    pub a_psn: u32,
    pub b_psn: u32,
    pub cqe: usize,
    pub pkey_index: u16,
    pub srq: Option<SrqId>,
    pub quirks: Quirks,
    /// With ECT, the network may mark packets.
    pub traffic_class: u8,
}

impl Options {
    fn peer(&self, dest_ip: IpAddr, dest_qpn: Qpn, rq_psn: u32) -> PeerAttr {
        PeerAttr {
            dest_qpn,
            path_mtu: self.mtu,
            rq_psn: Psn::new(rq_psn),
            av: AddressVector {
                traffic_class: self.traffic_class,
                ..AddressVector::new(dest_ip.into(), 0)
            },
        }
    }

    const fn responder(&self) -> ResponderAttr {
        let &Self { max_dest_rd_atomic, min_rnr_timer, .. } = self;
        ResponderAttr { max_dest_rd_atomic, min_rnr_timer }
    }

    const fn requester(&self) -> RequesterAttr {
        let &Self { timeout, retry_cnt, rnr_retry, max_rd_atomic, .. } = self;
        RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mtu: Mtu::B1024,
            timeout: 10,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            caps: QpCaps {
                max_send_sge: 16,
                max_recv_sge: 16,
                max_inline_data: 256,
                ..QpCaps::default()
            },
            sq_sig_all: false,
            a_psn: 0x100,
            b_psn: 0x200,
            cqe: 4096,
            pkey_index: 0,
            srq: None,
            quirks: Quirks::default(),
            traffic_class: 0,
        }
    }
}

pub const ALL_RIGHTS: Access = Access::all().difference(Access::FLUSH_PERSISTENT);

pub const QKEY: QKey = QKey(0x1111_1111);

pub struct Node {
    pub ip: IpAddr,
    pub adapter: Adapter,
    pub pd: PdId,
    /// Default XRC domain of targets and XRC SRQs.
    pub xrcd: XrcdId,
    pub transmit: TransmitBuffer,
    pub events: Vec<Event>,
    pub cm_events: Vec<ConnEvent>,
    pub recorded: Recorded,
    /// Received packets report a filling receive buffer.
    pub fills: bool,
}

impl Node {
    pub fn new(ip: IpAddr, seed: u8, limits: TransmitLimits) -> Self {
        Self::granting(Limits::default(), ip, seed, limits)
    }

    pub fn granting(granted: Limits, ip: IpAddr, seed: u8, limits: TransmitLimits) -> Self {
        let config = AdapterConfig { limits: granted, ..Self::config(seed) };
        Self::with_config(config, ip, limits)
    }

    /// Windows start at their maximum: tests do not depend on growth.
    pub fn config(seed: u8) -> AdapterConfig {
        let mut config = AdapterConfig::new([seed; 32]);
        let window = &mut config.congestion.window;
        (window.initial, window.destination_initial) = (window.most, window.destination_most);
        config
    }

    pub fn with_config(config: AdapterConfig, ip: IpAddr, limits: TransmitLimits) -> Self {
        Self::with_adapter(Adapter::new(config), Recorded::default(), ip, limits)
    }

    pub fn with_record(config: AdapterConfig, ip: IpAddr, limits: TransmitLimits) -> Self {
        let recorded = Recorded::default();
        let adapter = Adapter::with_trace(config, recorded.trace());
        Self::with_adapter(adapter, recorded, ip, limits)
    }

    fn with_adapter(
        mut adapter: Adapter,
        recorded: Recorded,
        ip: IpAddr,
        limits: TransmitLimits,
    ) -> Self {
        adapter.set_gids(vec![ip.into()]);
        let (pd, xrcd) = (adapter.alloc_pd().unwrap(), adapter.open_xrcd().unwrap());
        Self {
            ip,
            adapter,
            pd,
            xrcd,
            transmit: TransmitBuffer::new(1 << 20, limits),
            events: Vec::new(),
            cm_events: Vec::new(),
            recorded,
            fills: false,
        }
    }

    pub fn with_read_budget(
        read_budget: u64,
        ip: IpAddr,
        seed: u8,
        limits: TransmitLimits,
    ) -> Self {
        Self::with_config(AdapterConfig { read_budget, ..Self::config(seed) }, ip, limits)
    }

    pub fn buffer(&mut self, len: usize) -> Buffer {
        self.buffer_with(len, ALL_RIGHTS)
    }

    pub fn buffer_with(&mut self, len: usize, access: Access) -> Buffer {
        let pd = self.pd;
        self.buffer_in(pd, len, access)
    }

    pub fn buffer_in(&mut self, pd: PdId, len: usize, access: Access) -> Buffer {
        let memory = Arc::new(HeapMemory::new(len));
        let attr = MrAttr { memory: memory.clone(), address: 0x10_0000, access };
        Buffer { region: self.adapter.register(pd, attr).unwrap(), memory }
    }

    pub fn qp(&mut self, side: Side, qp_type: QpType, options: &Options) -> End {
        let send_cq = self.adapter.create_cq(options.cqe).unwrap();
        let recv_cq = self.adapter.create_cq(options.cqe).unwrap();
        self.qp_with(side, qp_type, options, send_cq, recv_cq)
    }

    pub fn qp_with(
        &mut self,
        side: Side,
        qp_type: QpType,
        options: &Options,
        send_cq: Arc<CompletionQueue>,
        recv_cq: Arc<CompletionQueue>,
    ) -> End {
        let &Options { srq, caps, sq_sig_all, quirks, .. } = options;
        let init = QpInit {
            send_cq: send_cq.clone(),
            srq,
            caps,
            sq_sig_all,
            quirks,
            ..qp_init(qp_type, &recv_cq, self.pd)
        };
        let qpn = match qp_type {
            QpType::XrcTarget => self.adapter.create_xrc_target(self.xrcd),
            _ => self.adapter.create_qp(init),
        };
        let qpn = qpn.unwrap();
        End { side, qpn, send_cq, recv_cq }
    }

    pub fn xrc_srq(&mut self) -> (SrqId, Arc<CompletionQueue>) {
        let (pd, xrcd) = (self.pd, self.xrcd);
        self.xrc_srq_in(pd, xrcd)
    }

    pub fn xrc_srq_in(&mut self, pd: PdId, xrcd: XrcdId) -> (SrqId, Arc<CompletionQueue>) {
        let cq = self.adapter.create_cq(Options::default().cqe).unwrap();
        let attr = SrqAttr { max_wr: 64, max_sge: 4 };
        (self.adapter.create_xrc_srq(pd, attr, xrcd, cq.clone()).unwrap(), cq)
    }

    pub fn enter_init(&mut self, qpn: Qpn, options: &Options) {
        let &Options { pkey_index, access, .. } = options;
        self.adapter.to_init(qpn, &Init { pkey_index, access, qkey: QKEY }).unwrap();
    }

    pub fn enter_rtr(
        &mut self,
        qpn: Qpn,
        dest_ip: IpAddr,
        dest_qpn: Qpn,
        rq_psn: u32,
        options: &Options,
    ) {
        let peer = options.peer(dest_ip, dest_qpn, rq_psn);
        let rtr = Rtr::new(self.qp_type(qpn), peer, options.responder());
        self.adapter.to_rtr(qpn, &rtr).unwrap();
    }

    pub fn enter_rts(&mut self, qpn: Qpn, sq_psn: u32, options: &Options) {
        let rts = Rts::new(self.qp_type(qpn), Psn::new(sq_psn), options.requester());
        self.adapter.to_rts(Instant::ZERO, qpn, &rts).unwrap();
    }

    fn qp_type(&self, qpn: Qpn) -> QpType {
        self.adapter.query_qp(qpn).unwrap().qp_type
    }

    pub fn connect(
        &mut self,
        qpn: Qpn,
        dest_ip: IpAddr,
        dest_qpn: Qpn,
        rq_psn: u32,
        sq_psn: u32,
        options: &Options,
    ) {
        self.enter_init(qpn, options);
        self.enter_rtr(qpn, dest_ip, dest_qpn, rq_psn, options);
        self.enter_rts(qpn, sq_psn, options);
    }

    pub fn start_datagrams(&mut self, qpn: Qpn, options: &Options) {
        self.connect(qpn, self.ip, qpn, 0, 0, options); // the peer is ignored
    }

    pub fn state(&self, qpn: Qpn) -> State {
        self.adapter.query_qp(qpn).unwrap().state
    }

    pub fn drain_events(&mut self) {
        while let Some(event) = self.adapter.poll_event() {
            self.events.push(event);
        }
        while let Some(event) = self.adapter.poll_cm_event() {
            self.cm_events.push(event);
        }
    }

    /// Drop reasons are of packets and copies.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        net: &NetHeader,
        bytes: &[u8],
    ) -> (Disposition, Vec<DropReason>) {
        self.watch(|adapter| adapter.handle_datagram(now, &Datagram::new(net, bytes)).disposition)
    }

    /// With the network's flags.
    pub fn handle(&mut self, now: Instant, delivery: &Delivery) -> (Disposition, Vec<DropReason>) {
        let mut datagram = delivery.datagram();
        datagram.meta.congested |= self.fills;
        self.watch(|adapter| adapter.handle_datagram(now, &datagram).disposition)
    }

    fn watch(
        &mut self,
        take: impl FnOnce(&mut Adapter) -> Disposition,
    ) -> (Disposition, Vec<DropReason>) {
        let before = self.adapter.counters().clone();
        let disposition = take(&mut self.adapter);
        self.drain_events();
        let after = self.adapter.counters();
        let grown = |reason: &DropReason| after.dropped(*reason) > before.dropped(*reason);
        (disposition, DropReason::ALL.iter().copied().filter(grown).collect())
    }

    /// True if the link would be a member.
    pub fn has_joined(&self, group: IpAddr) -> bool {
        self.adapter.mcast_groups(None).any(|joined| joined == group.into())
    }

    pub fn destination(&self, qpn: Qpn) -> UdDestination {
        UdDestination::new(AddressVector::new(self.ip.into(), 0), qpn, QKEY)
    }
}

#[derive(Clone, Debug)]
pub struct End {
    pub side: Side,
    pub qpn: Qpn,
    pub send_cq: Arc<CompletionQueue>,
    pub recv_cq: Arc<CompletionQueue>,
}

/// Identifier, and `byte_len` or status.
pub type Outcome = (u64, Result<u32, WcStatus>);

impl End {
    pub fn sent(&self) -> Vec<Wc> {
        polled(&self.send_cq)
    }

    pub fn received(&self) -> Vec<Wc> {
        polled(&self.recv_cq)
    }

    pub fn send_outcomes(&self) -> Vec<Outcome> {
        outcomes(self.sent())
    }

    pub fn recv_outcomes(&self) -> Vec<Outcome> {
        outcomes(self.received())
    }
}

/// Queue pair of default sizes with one completion queue.
pub fn qp_init(qp_type: QpType, cq: &Arc<CompletionQueue>, pd: PdId) -> QpInit {
    let (send_cq, recv_cq) = (cq.clone(), cq.clone());
    let (caps, quirks) = Default::default();
    QpInit { qp_type, send_cq, recv_cq, srq: None, caps, sq_sig_all: false, pd, quirks }
}

pub fn polled(cq: &CompletionQueue) -> Vec<Wc> {
    std::iter::from_fn(|| cq.pop()).collect()
}

pub fn to_group(group: IpAddr) -> UdDestination {
    UdDestination::new(AddressVector::new(group.into(), 0), Qpn::MULTICAST, QKEY)
}

pub fn outcomes(wcs: Vec<Wc>) -> Vec<Outcome> {
    let outcome =
        |wc: Wc| (wc.wr_id, wc.result.map(|ok| ok.byte_len).map_err(|error| error.status));
    wcs.into_iter().map(outcome).collect()
}

#[derive(Clone)]
pub struct Buffer {
    pub region: Arc<Region>,
    memory: Arc<HeapMemory>,
}

impl Buffer {
    pub fn len(&self) -> usize {
        self.memory.len() as usize
    }

    pub fn all(&self) -> Sge {
        self.sge(0, self.len())
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge {
            lkey: self.region.lkey(),
            address: self.region.address() + offset as u64,
            length: length as u32,
        }
    }

    pub fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.region.address() + offset as u64, rkey: self.region.rkey() }
    }

    pub fn put(&self, offset: usize, bytes: &[u8]) {
        self.memory.write_at(offset as u64, bytes).unwrap();
    }

    /// The pattern shows misplaced bytes.
    pub fn fill(self, seed: u8) -> Self {
        self.put(0, &pattern(seed, self.len()));
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.part(0, self.len())
    }

    pub fn part(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read_at(offset as u64, &mut bytes).unwrap();
        bytes
    }
}

pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i / 251) as u8 ^ seed).collect()
}
