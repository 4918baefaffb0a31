use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use roce_transport::{
    adapter::{Adapter, AdapterConfig, ObjectError, TransmitBuffer, TransmitLimits},
    addr::{AddressVector, Mtu, QKey, Qpn},
    cm::{Accept, ConnEnd, ConnEvent, ConnId, IpHeader, Listen, PortSpace, RejectReason, Req},
    ids::{PdId, SrqId},
    mem::{Access, HeapMemory, Memory, MrAttr, RKey, Region, WindowBind, WindowId, WindowType},
    psn::Psn,
    qp::{Init, PeerAttr, QpCaps, QpInit, QpType, Quirks, Rtr, Rts},
    time::Instant,
    wire::{Datagram, NetHeader},
    work::{
        CompletionQueue, Data, Placement, RecvWr, Remote, SendFlags, SendWr, Sge, SrqAttr,
        UdDestination, Wc,
    },
};

use crate::{
    case::{
        Bind, Connection, PEER_ADDRESS, PEER_KEY, PauseFrames, Queue, Request, RequestKind,
        WRONG_KEY, pattern,
    },
    run::{INBOX, SOURCE, SOURCE_SEED},
    subject::{
        Arrival, Completion, Listener, Program, RemoteRegion, Result, Route, Subject, SubjectError,
    },
};

const OWN: [u8; 4] = [10, 0, 0, 1];
const DEVICE: [u8; 4] = [10, 0, 0, 2];

/// Bytes that the line sends at once, and its pause.
const AT_ONCE: usize = 1 << 16;
const BUSY: Duration = Duration::from_micros(1);
/// One pause frame at 100 Gb/s.
const LONGEST_PAUSE: Duration = Duration::from_nanos(65_535 * 512 / 100);

/// This project's adapter in virtual time, on a network without delay. Time passes only while the
/// runner waits.
#[derive(Debug)]
pub struct Simulated {
    now: Instant,
    adapter: Adapter,
    transmit: TransmitBuffer,
    /// End of the line's transmission or pause.
    free: Instant,
    pd: PdId,
    objects: Objects,
    listener: Listener,
    connections: Vec<Connected>,
    sent: VecDeque<Arrival>,
}

#[derive(Debug)]
struct Connected {
    conn: ConnId,
    qpn: Qpn,
    cq: Arc<CompletionQueue>,
}

#[derive(Debug, Default)]
struct Objects {
    regions: BTreeMap<String, (Arc<Region>, Arc<HeapMemory>)>,
    /// Present keys.
    windows: BTreeMap<String, RKey>,
    queue_pairs: Vec<QueuePair>,
    chosen: usize,
    shared: Option<SrqId>,
}

#[derive(Debug)]
struct QueuePair {
    qpn: Qpn,
    queues: [Arc<CompletionQueue>; 2],
}

impl Default for Simulated {
    fn default() -> Self {
        let mut config = AdapterConfig::new([1; 32]);
        // Cases count packets.
        let window = &mut config.congestion.window;
        (window.initial, window.destination_initial) = (window.most, window.destination_most);
        let mut adapter = Adapter::new(config);
        adapter.set_gids(vec![IpAddr::from(DEVICE).into()]);
        let pd = adapter.alloc_pd().unwrap_or_else(|_| unreachable!("it has none yet"));
        let listener = Listener { port: 7174, private_data: Vec::new(), seed: 1 };
        let service_id = PortSpace::Tcp.service(listener.port);
        adapter
            .cm_listen(Listen { service_id, address: None, backlog: 64 })
            .unwrap_or_else(|_| unreachable!("nobody listens yet"));
        Self {
            now: Instant::from_nanos(1_000_000),
            adapter,
            transmit: TransmitBuffer::new(AT_ONCE, TransmitLimits::SINGLE),
            free: Instant::ZERO,
            pd,
            objects: Objects::default(),
            listener,
            connections: Vec::new(),
            sent: VecDeque::new(),
        }
    }
}

fn refused(error: &dyn ToString) -> SubjectError {
    SubjectError::Unsupported(error.to_string())
}

fn mistake(what: &str) -> SubjectError {
    SubjectError::Broken(format!("the case has no {what}"))
}

impl Simulated {
    fn transmit(&mut self) {
        while self.now >= self.free {
            self.transmit.clear();
            self.adapter.poll_transmit(self.now, &mut self.transmit);
            if self.transmit.is_empty() && !self.transmit.may_have_more() {
                return;
            }
            let bytes: usize = self.transmit.datagrams().map(|(_, bytes)| bytes.len()).sum();
            if bytes > AT_ONCE / 2 {
                self.free = self.now.plus(BUSY);
            }
            self.sent.extend(self.transmit.datagrams().map(|(net, bytes)| Arrival {
                at: self.now,
                net,
                bytes: bytes.to_vec(),
            }));
        }
    }

    /// The listening program: accepts; disconnects when the peer does.
    fn serve(&mut self) {
        while let Some(event) = self.adapter.poll_cm_event() {
            match event {
                ConnEvent::Request { conn, req, .. } => {
                    // As rdma_cm.
                    let header = req.private_data.0.first_chunk().and_then(IpHeader::parse);
                    let is_for_it = req.transport == 0 && header.is_some();
                    if !is_for_it || self.accept(conn, &req).is_none() {
                        let _ = self.adapter.cm_reject(self.now, conn, RejectReason::CONSUMER, &[]);
                    }
                }
                ConnEvent::Disconnected(conn)
                | ConnEvent::Rejected { conn, .. }
                | ConnEvent::Unreachable(conn)
                | ConnEvent::ConnectError(conn) => {
                    // unknown if not from this peer
                    let _ = self.adapter.cm_disconnect(self.now, conn, &[]);
                    let at = self.connections.iter().position(|it| it.conn == conn);
                    if let Some(at) = at {
                        let gone = self.connections.swap_remove(at);
                        self.forget(&gone);
                    }
                }
                _ => {}
            }
        }
    }

    fn forget(&mut self, Connected { qpn, cq, .. }: &Connected) {
        // existing and unused
        let _ = self.adapter.destroy_qp(*qpn);
        let _ = self.adapter.destroy_cq(cq.id());
    }

    fn accept(&mut self, conn: ConnId, req: &Req) -> Option<()> {
        let cq = self.adapter.create_cq(16).ok()?;
        let init = QpInit {
            qp_type: QpType::Rc,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            caps: QpCaps::default(),
            sq_sig_all: true,
            pd: self.pd,
            quirks: Quirks::default(),
        };
        let qpn = self.adapter.create_qp(init).ok()?;
        self.connections.push(Connected { conn, qpn, cq });
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        self.adapter.to_init(qpn, &Init { access, ..Init::default() }).ok()?;
        let accept = Accept {
            end: ConnEnd {
                qpn,
                starting_psn: Psn::new(0x0012_3456),
                responder_resources: req.initiator_depth,
                initiator_depth: req.responder_resources,
                rnr_retry: 7,
                min_rnr_timer: 12,
                srq: false,
            },
            private_data: &[],
        };
        self.adapter.cm_accept(self.now, conn, &accept, true).ok()
    }

    fn chosen(&self) -> Result<&QueuePair> {
        self.objects.queue_pairs.get(self.objects.chosen).ok_or_else(|| mistake("queue pair"))
    }

    fn queue_pair(&self) -> Result<Qpn> {
        self.chosen().map(|it| it.qpn)
    }

    fn post(&mut self, wr: &SendWr) -> Result<()> {
        let qpn = self.queue_pair()?;
        self.adapter.post_send(self.now, qpn, wr).map_err(|error| refused(&error))
    }

    fn find(&self, name: &str) -> Result<&(Arc<Region>, Arc<HeapMemory>)> {
        self.objects.regions.get(name).ok_or_else(|| mistake(name))
    }

    fn sge(&self, name: &str, offset: u32, length: u32) -> Result<Sge> {
        let (region, _) = self.find(name)?;
        Ok(Sge { lkey: region.lkey(), address: region.address() + u64::from(offset), length })
    }

    fn write(&self, region: &str, offset: u32, bytes: &[u8]) -> Result<()> {
        let (_, memory) = self.find(region)?;
        memory.write_at(offset.into(), bytes).map_err(|it| SubjectError::Broken(it.to_string()))
    }

    fn read(&self, region: &str, offset: u32, bytes: &mut [u8]) -> Result<()> {
        let (_, memory) = self.find(region)?;
        memory.read_at(offset.into(), bytes).map_err(|it| SubjectError::Broken(it.to_string()))
    }

    fn destroy(&mut self) -> Result<(), ObjectError> {
        let Objects { regions, windows, queue_pairs, shared, .. } =
            std::mem::take(&mut self.objects);
        for QueuePair { qpn, queues } in queue_pairs {
            self.adapter.destroy_qp(qpn)?;
            for cq in queues {
                self.adapter.destroy_cq(cq.id())?;
            }
        }
        if let Some(srq) = shared {
            self.adapter.destroy_srq(srq)?;
        }
        for rkey in windows.into_values() {
            self.adapter.dealloc_window(WindowId::of(rkey))?;
        }
        for (region, _) in regions.values() {
            // registered, without bound windows
            let _ = self.adapter.deregister(region);
        }
        Ok(())
    }
}

impl Subject for Simulated {
    fn program(&mut self) -> Result<&mut dyn Program> {
        Ok(self)
    }

    fn listener(&self) -> Option<&Listener> {
        Some(&self.listener)
    }

    fn clear(&mut self) -> Result<()> {
        for gone in std::mem::take(&mut self.connections) {
            self.adapter.cm_mut().destroy(self.now, gone.conn);
            self.forget(&gone);
        }
        self.free = self.now;
        self.transmit();
        self.sent.clear();
        self.destroy().map_err(|error| SubjectError::Broken(error.to_string()))
    }

    fn route(&self) -> Route {
        Route { own: OWN.into(), device: DEVICE.into(), src_port: 0xC001, id: 0 }
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn tolerance(&self) -> Duration {
        Duration::ZERO
    }

    fn send(&mut self, net: &NetHeader, bytes: &[u8]) -> Result<()> {
        self.transmit();
        self.adapter.handle_datagram(self.now, &Datagram::new(net, bytes));
        self.serve();
        self.transmit();
        Ok(())
    }

    fn pause(&mut self, pause: PauseFrames) -> Result<()> {
        self.transmit();
        // untagged
        if pause.priorities & 1 == 1 {
            self.free = self.now.plus(pause.time.unwrap_or(LONGEST_PAUSE));
        }
        Ok(())
    }

    fn receive(&mut self, until: Instant) -> Result<Option<Arrival>> {
        loop {
            self.serve();
            self.transmit();
            while self.adapter.poll_event().is_some() {}
            if let Some(arrival) = self.sent.pop_front() {
                return Ok(Some(arrival));
            }
            let line = Some(self.free).filter(|&free| free > self.now);
            let next = self.adapter.poll_timeout().into_iter().chain(line).min();
            match next.filter(|&next| next <= until) {
                Some(next) => {
                    self.now = self.now.max(next);
                    self.adapter.handle_timeout(self.now);
                }
                None => {
                    self.now = self.now.max(until);
                    return Ok(None);
                }
            }
        }
    }
}

impl Program for Simulated {
    fn region(&mut self, name: &str, bytes: u32, rights: Access) -> Result<RemoteRegion> {
        let memory = Arc::new(HeapMemory::new(bytes as usize));
        let address = 0x10_0000 * (self.objects.regions.len() as u64 + 1);
        let attr = MrAttr { memory: memory.clone(), address, access: rights };
        let region = self.adapter.register(self.pd, attr).map_err(|error| refused(&error))?;
        let remote = RemoteRegion { address, rkey: region.rkey().0 };
        self.objects.regions.insert(name.to_owned(), (region, memory));
        Ok(remote)
    }

    fn connect(&mut self, connection: &Connection, peer: Qpn) -> Result<Qpn> {
        let mut cq = || self.adapter.create_cq(256).map_err(|error| refused(&error));
        let queues = [cq()?, cq()?];
        let [send_cq, recv_cq] = queues.clone();
        let Connection { qp_type, sq_psn, .. } = *connection;
        if connection.shared && self.objects.shared.is_none() {
            let attr = SrqAttr { max_wr: 64, max_sge: 4 };
            let srq = self.adapter.create_srq(self.pd, attr).map_err(|error| refused(&error))?;
            self.objects.shared = Some(srq);
        }
        let init = QpInit {
            qp_type,
            send_cq,
            recv_cq,
            srq: self.objects.shared,
            caps: QpCaps {
                max_send_sge: connection.max_send_sge,
                max_inline_data: connection.max_inline_data,
                ..QpCaps::default()
            },
            sq_sig_all: true,
            pd: self.pd,
            quirks: Quirks::default(),
        };
        let qpn = self.adapter.create_qp(init).map_err(|error| refused(&error))?;
        self.objects.queue_pairs.push(QueuePair { qpn, queues });
        let qkey = QKey(connection.qkey);
        let init = Init { access: connection.rights, qkey, ..Init::default() };
        self.adapter.to_init(qpn, &init).map_err(|error| refused(&error))?;
        let peer = PeerAttr {
            dest_qpn: peer,
            path_mtu: Mtu::from_bytes(connection.mtu).ok_or_else(|| mistake("path MTU"))?,
            rq_psn: Psn::new(connection.rq_psn),
            av: AddressVector::new(IpAddr::from(OWN).into(), 0),
        };
        let rtr = Rtr::new(qp_type, peer, connection.responder);
        self.adapter.to_rtr(qpn, &rtr).map_err(|error| refused(&error))?;
        let rts = Rts::new(qp_type, Psn::new(sq_psn), connection.requester);
        self.adapter.to_rts(self.now, qpn, &rts).map_err(|error| refused(&error))?;
        Ok(qpn)
    }

    fn choose(&mut self, pair: usize) {
        self.objects.chosen = pair;
    }

    fn post_receive(&mut self, id: u64, offset: u32, bytes: u32) -> Result<()> {
        let (qpn, sge) = (self.queue_pair()?, self.sge(INBOX, offset, bytes)?);
        let wr = RecvWr::new(id, [sge]);
        let posted = match self.objects.shared {
            Some(srq) => self.adapter.post_srq_recv(srq, &wr),
            None => self.adapter.post_recv(self.now, qpn, &wr),
        };
        posted.map_err(|error| refused(&error))
    }

    fn post_send(&mut self, request: &Request, peer: Qpn) -> Result<()> {
        let qpn = self.queue_pair()?;
        let mut sges = Vec::new();
        for (offset, length) in request.places() {
            let mut sge = self.sge(SOURCE, offset, length)?;
            if request.wrong_key {
                sge.lkey.0 ^= WRONG_KEY;
            }
            sges.push(sge);
        }
        let sge = sges[0];
        let remote = Remote { address: PEER_ADDRESS, rkey: RKey(PEER_KEY) };
        let info = self.adapter.query_qp(qpn).ok_or_else(|| mistake("queue pair"))?;
        let id = request.id;
        let mut wr = match request.kind {
            RequestKind::Send if info.qp_type == QpType::Ud => {
                let av = AddressVector::new(IpAddr::from(OWN).into(), 0);
                SendWr::send_to(id, UdDestination::new(av, peer, info.qkey), sge)
            }
            RequestKind::Send => SendWr::send(id, sge),
            RequestKind::Write => SendWr::write(id, remote, sge),
            RequestKind::Read => SendWr::read(id, remote, sge),
            RequestKind::CompareSwap { compare, swap } => {
                SendWr::compare_swap(id, remote, compare, swap, sge)
            }
            RequestKind::FetchAdd { add } => SendWr::fetch_add(id, remote, add, sge),
            RequestKind::AtomicWrite => SendWr::atomic_write(id, remote, sge),
            RequestKind::Flush => SendWr::flush(id, remote, request.bytes, Placement::GLOBAL),
        };
        if request.inline {
            wr.data = Data::inline(&pattern(SOURCE_SEED, request.bytes));
        } else if request.kind != RequestKind::Flush {
            wr.data = Data::Sges(sges.into());
        }
        if let Some(immediate) = request.immediate {
            wr = wr.with_immediate(immediate.to_be_bytes());
        }
        wr.flags.set(SendFlags::SOLICITED, request.solicited);
        wr.flags.set(SendFlags::FENCE, request.fence);
        self.post(&wr)
    }

    fn bind(&mut self, bind: &Bind) -> Result<RemoteRegion> {
        let part = self.sge(&bind.place.region, bind.place.offset, 0)?;
        let old = match self.objects.windows.get(&bind.window) {
            Some(&rkey) => rkey,
            None => {
                let kind = if bind.is_type_2 { WindowType::Type2B } else { WindowType::Type1 };
                self.adapter.alloc_window(self.pd, kind).map_err(|error| refused(&error))?
            }
        };
        let rkey = old.next();
        self.objects.windows.insert(bind.window.clone(), rkey);
        let bound = WindowBind {
            rkey,
            region: part.lkey,
            address: part.address,
            length: bind.bytes.into(),
            access: bind.rights,
            zero_based: false,
        };
        self.post(&SendWr::bind_window(bind.id, bound))?;
        Ok(RemoteRegion { address: part.address, rkey: rkey.0 })
    }

    fn invalidate(&mut self, id: u64, window: &str) -> Result<()> {
        let rkey = *self.objects.windows.get(window).ok_or_else(|| mistake(window))?;
        self.post(&SendWr::local_invalidate(id, rkey))
    }

    fn join(&mut self, group: IpAddr) -> Result<()> {
        let attached = self.adapter.attach_mcast(self.queue_pair()?, group.into());
        attached.map(drop).map_err(|error| refused(&error))
    }

    fn fill(&mut self, region: &str, offset: u32, bytes: u32, seed: u32) -> Result<()> {
        self.write(region, offset, &pattern(seed, bytes))
    }

    fn differs(&mut self, region: &str, offset: u32, bytes: u32, seed: u32) -> Result<Option<u32>> {
        let mut found = vec![0; bytes as usize];
        self.read(region, offset, &mut found)?;
        let mut pairs = found.iter().zip(pattern(seed, bytes));
        Ok(pairs.position(|(&is, should)| is != should).map(|at| offset + at as u32))
    }

    fn set_word(&mut self, region: &str, offset: u32, value: u64) -> Result<()> {
        self.write(region, offset, &value.to_ne_bytes())
    }

    fn word(&mut self, region: &str, offset: u32) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(region, offset, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn completions(&mut self, queue: Queue) -> Result<Vec<Completion>> {
        let cq = &self.chosen()?.queues[queue as usize];
        Ok(std::iter::from_fn(|| cq.pop()).map(|wc| completion(&wc)).collect())
    }

    fn state(&mut self) -> Result<String> {
        let info = self.adapter.query_qp(self.queue_pair()?);
        Ok(info.ok_or_else(|| mistake("queue pair"))?.state.to_string())
    }

    fn mtu(&self) -> Mtu {
        Mtu::B4096
    }
}

fn completion(wc: &Wc) -> Completion {
    let (status, bytes, immediate) = match wc.result {
        Ok(ok) => ("SUCCESS", ok.byte_len, ok.immediate),
        Err(error) => (error.status.name().trim_start_matches("IBV_WC_"), 0, None),
    };
    let immediate = immediate.map(|immediate| u32::from_be_bytes(immediate.0));
    Completion { id: wc.wr_id, status: status.to_owned(), bytes, immediate }
}
