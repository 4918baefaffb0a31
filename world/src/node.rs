use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
};

use roce_transport::{
    adapter::{Adapter, AdapterConfig, TransmitBuffer, TransmitLimits},
    addr::{AddressVector, Mtu, QKey, Qpn},
    defaults,
    ids::PdId,
    mem::{Access, HeapMemory, Memory, MrAttr, Region},
    psn::Psn,
    qp::{Init, PeerAttr, QpCaps, QpInit, QpType, Quirks, RequesterAttr, ResponderAttr, Rtr, Rts},
    time::Instant,
    trace::{Record, Trace},
    work::{CompletionQueue, Remote, Sge, SrqId, XrcdId},
};

use crate::line::End;

pub(crate) const QKEY: QKey = QKey(0x1111_1111);

/// Records of all ends in order.
pub(crate) type Records = Arc<Mutex<Vec<(End, Record)>>>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EndQp {
    pub(crate) end: End,
    pub(crate) qpn: Qpn,
}

defaults! {
    #[derive(Clone, Copy, Debug)]
    pub(crate) Options {
        mtu: Mtu = Mtu::B1024;
        /// 67 ms
        timeout: u8 = 14;
        retry_cnt: u8 = 7;
        /// 1.28 ms
        min_rnr_timer: u8 = 14;
        depth: u32 = 64;
        traffic_class: u8 = 0;
        srq: Option<SrqId> = None;
    }
}

/// An adapter and its program's objects.
#[derive(Debug)]
pub struct Node {
    /// End.
    pub end: End,
    /// IP address.
    pub ip: IpAddr,
    /// Adapter.
    pub adapter: Adapter,
    pub(crate) pd: PdId,
    pub(crate) transmit: TransmitBuffer,
    cqs: Vec<Arc<CompletionQueue>>,
    /// Memory regions in order of creation.
    pub buffers: Vec<Buffer>,
    /// Queue pairs in order of creation.
    pub queue_pairs: Vec<Qpn>,
    peers: BTreeMap<Qpn, EndQp>,
}

/// Registered memory.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Addresses and keys.
    pub region: Arc<Region>,
    memory: Arc<HeapMemory>,
}

impl Buffer {
    pub(crate) const ADDRESS: u64 = 0x1000;

    /// Copy of the bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.region.length() as usize];
        self.memory.read_at(0, &mut bytes).expect("within the memory");
        bytes
    }

    pub(crate) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { lkey: self.region.lkey(), address: self.region.address() + offset, length }
    }

    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.region.address() + offset, rkey: self.region.rkey() }
    }

    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) {
        self.memory.write_at(offset, bytes).expect("within the memory");
    }

    pub(crate) fn word(&self) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read_at(0, &mut bytes).expect("within the memory");
        u64::from_ne_bytes(bytes)
    }
}

pub(crate) const fn address(end: End) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, end as u8 + 1))
}

const fn first_psn(end: End) -> Psn {
    Psn::new(100 + 400 * end as u32)
}

fn peer(to: EndQp, options: &Options) -> PeerAttr {
    let av = AddressVector {
        traffic_class: options.traffic_class,
        ..AddressVector::new(address(to.end).into(), 0)
    };
    PeerAttr { dest_qpn: to.qpn, path_mtu: options.mtu, rq_psn: first_psn(to.end), av }
}

const WRITTEN: &str = "the scenario's own calls are right";

impl Node {
    pub(crate) fn new(end: End, records: &Records) -> Self {
        let (number, ip) = (end as u8 + 1, address(end));
        let records = records.clone();
        let trace = Trace::to(move |record: Record| {
            records.lock().expect("nobody panics with it").push((end, record));
        });
        let mut adapter = Adapter::with_trace(AdapterConfig::new([number; 32]), trace);
        adapter.set_gids(vec![ip.into()]);
        let pd = adapter.alloc_pd().expect(WRITTEN);
        let limits = TransmitLimits { segments: 64, bytes: 65_000 };
        let transmit = TransmitBuffer::new(1 << 16, limits);
        let (cqs, buffers, queue_pairs) = (Vec::new(), Vec::new(), Vec::new());
        let peers = BTreeMap::new();
        Self { end, ip, adapter, pd, transmit, cqs, buffers, queue_pairs, peers }
    }

    pub(crate) fn buffer(&mut self, length: usize) -> Buffer {
        let memory = Arc::new(HeapMemory::new(length));
        // letters show the origin
        let signs = match self.end {
            End::A => b'a'..=b'z',
            End::B => b'A'..=b'Z',
            End::C => b'0'..=b'9',
            End::D => b'!'..=b'/',
        };
        let signs: Vec<_> = signs.cycle().take(length).collect();
        memory.write_at(0, &signs).expect("within the memory");
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let attr = MrAttr { memory: memory.clone(), address: Buffer::ADDRESS, access };
        let region = self.adapter.register(self.pd, attr).expect(WRITTEN);
        let buffer = Buffer { region, memory };
        self.buffers.push(buffer.clone());
        buffer
    }

    pub(crate) fn first_buffer(&mut self) -> Buffer {
        match self.buffers.first() {
            Some(buffer) => buffer.clone(),
            None => self.buffer(4096),
        }
    }

    pub(crate) fn peer(&self, qpn: Qpn) -> Option<EndQp> {
        self.peers.get(&qpn).copied()
    }

    pub(crate) fn cq(&mut self) -> Arc<CompletionQueue> {
        let cq = self.adapter.create_cq(1024).expect(WRITTEN);
        self.cqs.push(cq.clone());
        cq
    }

    pub(crate) fn qp(&mut self, qp_type: QpType, options: &Options) -> Qpn {
        let cq = self.cq();
        let caps = QpCaps {
            max_send_wr: options.depth,
            max_recv_wr: options.depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit {
            qp_type,
            send_cq: cq.clone(),
            recv_cq: cq,
            srq: options.srq,
            caps,
            sq_sig_all: false,
            pd: self.pd,
            quirks: Quirks::default(),
        };
        let qpn = self.adapter.create_qp(init).expect(WRITTEN);
        self.queue_pairs.push(qpn);
        qpn
    }

    pub(crate) fn target(&mut self, xrcd: XrcdId) -> Qpn {
        let qpn = self.adapter.create_xrc_target(xrcd).expect(WRITTEN);
        self.queue_pairs.push(qpn);
        qpn
    }

    pub(crate) fn enter_init(&mut self, qpn: Qpn) {
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let init = Init { pkey_index: 0, access, qkey: QKEY };
        self.adapter.to_init(qpn, &init).expect(WRITTEN);
    }

    pub(crate) fn enter_rtr(&mut self, qp_type: QpType, qpn: Qpn, to: EndQp, options: &Options) {
        let peer = peer(to, options);
        self.peers.insert(qpn, to);
        let min_rnr_timer = options.min_rnr_timer;
        let responder = ResponderAttr { max_dest_rd_atomic: 4, min_rnr_timer };
        self.adapter.to_rtr(qpn, &Rtr::new(qp_type, peer, responder)).expect(WRITTEN);
    }

    /// Requests RTR in any state.
    pub(crate) fn try_rtr(&mut self, qpn: Qpn, to: EndQp, options: &Options) {
        let peer = peer(to, options);
        let responder = ResponderAttr { max_dest_rd_atomic: 4, min_rnr_timer: 12 };
        let _ = self.adapter.to_rtr(qpn, &Rtr::Rc(peer, responder));
    }

    pub(crate) fn enter_rts(&mut self, now: Instant, qp_type: QpType, qpn: Qpn, options: &Options) {
        let psn = first_psn(self.end);
        let &Options { timeout, retry_cnt, .. } = options;
        let requester = RequesterAttr { timeout, retry_cnt, rnr_retry: 7, max_rd_atomic: 4 };
        self.adapter.to_rts(now, qpn, &Rts::new(qp_type, psn, requester)).expect(WRITTEN);
    }

    /// The record has the discarded completions.
    pub(crate) fn poll(&mut self) {
        for cq in &self.cqs {
            while cq.pop().is_some() {}
        }
        while self.adapter.poll_event().is_some() {}
    }
}
