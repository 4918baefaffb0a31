//! An adapter with queue pairs in every state and regions with all kinds of rights.

use std::{net::IpAddr, sync::Arc};

use roce_transport::{
    adapter::{Adapter, AdapterConfig, PdId, TransmitBuffer, TransmitLimits},
    addr::{AddressVector, Gid, Mtu, QKey, Qpn},
    mem::{Access, HeapMemory, MrAttr, RKey, Region, WindowBind, WindowType},
    psn::Psn,
    qp::{
        Init, ModifyError, PeerAttr, QpCaps, QpInit, QpType, RequesterAttr, ResponderAttr, Rtr,
        Rts, State,
    },
    time::Instant,
    trace::{Record, Trace},
    wire::PACKET_MAX,
    work::{CompletionQueue, RecvWr, SendWr, Sge, SrqAttr, SrqId, UdDestination, XrcdId},
};

/// The smallest: short messages have many packets.
pub(super) const MTU: Mtu = Mtu::B256;
pub(super) const REGION: u64 = 4096;
/// Open to peers.
pub(super) const RIGHTS: Access = Access::LOCAL_WRITE.union(REMOTE);
pub(super) const REMOTE: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL);
pub(super) const QKEY: QKey = QKey(0x1111_1111);

/// Enough to bring a queue pair up again.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) qpn: Qpn,
    pub(super) qp_type: QpType,
    /// Source address of its packets, and the peer's number.
    pub(super) peer: IpAddr,
    pub(super) peer_qpn: Qpn,
    pub(super) queues: Queues,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Queues {
    /// Its own receive queue; completions are checked in order.
    Own,
    /// The shared receive queue; otherwise like [`Own`](Self::Own).
    Shared,
    /// The XRC SRQ, a target's only queue.
    Xrc,
    /// Its own receive queue, and a completion queue that soon overflows.
    Tiny,
}

pub(super) type Edge = fn(&mut World, Member) -> Result<(), ModifyError>;

/// One input byte.
#[derive(Clone, Copy)]
pub(super) struct Setup(pub(super) u8);

impl Setup {
    const fn v6(self) -> bool {
        self.0 & 1 != 0
    }

    /// Starts in mid-range, or just before the wrap.
    const fn psn(self) -> Psn {
        Psn::new(if self.0 & 2 == 0 { 0x0040_0000 } else { 0x00FF_FFFC })
    }

    const fn retries(self) -> u8 {
        if self.0 & 4 == 0 { 7 } else { 1 }
    }

    const fn reads(self) -> u8 {
        if self.0 & 8 == 0 { 3 } else { 1 }
    }

    fn buffer(self) -> TransmitBuffer {
        let limits = TransmitLimits { segments: 8, bytes: 3 * PACKET_MAX };
        match self.0 >> 4 & 3 {
            0 => TransmitBuffer::new(8 * PACKET_MAX, limits),
            1 => TransmitBuffer::new(2 * PACKET_MAX, limits),
            2 => TransmitBuffer::new(8 * PACKET_MAX, TransmitLimits::SINGLE),
            // room for one packet
            _ => TransmitBuffer::new(0, limits),
        }
    }

    pub(super) fn group(self) -> IpAddr {
        if self.v6() { [0xFF15, 0, 0, 0, 0, 0, 0, 7].into() } else { [239, 0, 0, 7].into() }
    }

    /// The adapter's, GID index 0, and a peer's.
    pub(super) fn addresses(self) -> [IpAddr; 2] {
        if self.v6() { [V6, PEER_V6].map(IpAddr::from) } else { [V4, PEER_V4].map(IpAddr::from) }
    }
}

const V4: [u8; 4] = [10, 0, 0, 1];
const PEER_V4: [u8; 4] = [10, 0, 0, 2];
const V6: [u16; 8] = [0xFD00, 0, 0, 0, 0, 0, 0, 1];
const PEER_V6: [u16; 8] = [0xFD00, 0, 0, 0, 0, 0, 0, 2];

pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) adapter: Adapter,
    pub(super) buffer: TransmitBuffer,
    pub(super) now: Instant,
    pub(super) pd: PdId,
    pub(super) members: Vec<Member>,
    /// Of tracked queue pairs, sends and receives apart, and all of the others.
    pub(super) send_cq: Arc<CompletionQueue>,
    pub(super) recv_cq: Arc<CompletionQueue>,
    pub(super) tiny_cq: Arc<CompletionQueue>,
    pub(super) srq: SrqId,
    pub(super) xrcd: XrcdId,
    pub(super) xrc_srq: SrqId,
    /// Of an XRC domain without targets; its one request never completes.
    pub(super) foreign_srq: SrqId,
    /// All rights.
    pub(super) open: Arc<Region>,
    /// Peers may only read.
    pub(super) readable: Arc<Region>,
    /// Closed to peers; no posted request names it.
    pub(super) private: Arc<Region>,
    /// All rights, in a protection domain without queue pairs.
    pub(super) foreign: Arc<Region>,
    /// Peers may use it through a window, bound to the first half or unbound.
    pub(super) windowed: Arc<Region>,
    /// Latest keys of each type, bound or not.
    pub(super) windows: [RKey; 3],
}

impl World {
    pub(super) fn new(setup: Setup, header_prediction: bool) -> Self {
        let config = AdapterConfig {
            port_mtu: Mtu::B1024,
            header_prediction,
            ..AdapterConfig::new([7; 32])
        };
        // a record must be printable for any packet; tracing turns prediction off
        let trace = Trace::to(|record: Record| drop(record.to_string()));
        let trace = if header_prediction { Trace::default() } else { trace };
        let mut adapter = Adapter::with_trace(config, trace);
        let [own, peer] = setup.addresses();
        let [other_family, _] = Setup(!setup.0).addresses();
        adapter.set_gids(vec![own.into(), Gid::default(), other_family.into()]);
        let pd = adapter.alloc_pd().expect("the first protection domain");
        let other_pd = adapter.alloc_pd().expect("the second protection domain");
        let mut cq = |capacity| adapter.create_cq(capacity).expect("a completion queue");
        let [send_cq, recv_cq, tiny_cq] = [cq(1024), cq(1024), cq(4)];
        let srq = adapter
            .create_srq(pd, SrqAttr { max_wr: 16, max_sge: 2 })
            .expect("a shared receive queue");
        let [xrcd, other_xrcd] = [(); 2].map(|()| adapter.open_xrcd().expect("an XRC domain"));
        let mut xrc_srq = |pd, xrcd| {
            let srq = adapter.create_xrc_srq(
                pd,
                SrqAttr { max_wr: 16, max_sge: 2 },
                xrcd,
                recv_cq.clone(),
            );
            srq.expect("an XRC SRQ")
        };
        let (xrc_srq, foreign_srq) = (xrc_srq(pd, xrcd), xrc_srq(other_pd, other_xrcd));
        adapter
            .post_srq_recv(foreign_srq, &RecvWr::new(u64::MAX, []))
            .expect("room for one request");
        let windows = [WindowType::Type1, WindowType::Type2A, WindowType::Type2B]
            .map(|window_type| adapter.alloc_window(pd, window_type).expect("a memory window"));
        let mut region = |pd, number: u64, access| register(&mut adapter, pd, number, access);
        let mut world = Self {
            setup,
            open: region(pd, 1, RIGHTS),
            readable: region(pd, 2, Access::REMOTE_READ),
            private: region(pd, 3, Access::LOCAL_WRITE),
            foreign: region(other_pd, 4, RIGHTS),
            windowed: region(pd, 5, Access::LOCAL_WRITE | Access::MW_BIND),
            windows,
            buffer: setup.buffer(),
            now: Instant::from_nanos(1_000_000),
            pd,
            members: Vec::new(),
            adapter,
            send_cq,
            recv_cq,
            tiny_cq,
            srq,
            xrcd,
            xrc_srq,
            foreign_srq,
        };
        let connected = Qpn::new(0x111);
        for state in [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Err] {
            let member = world.create(QpType::Rc, peer, connected, Queues::Own);
            world.raise(member, state);
        }
        let overflowing = world.create(QpType::Rc, peer, connected, Queues::Tiny);
        world.raise(overflowing, State::Rts);
        world.connect_two([QpType::Rc; 2], own, Queues::Own);
        for state in [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqe, State::Err] {
            let member = world.create(QpType::Ud, peer, Qpn::default(), Queues::Own);
            world.raise(member, state);
        }
        for state in [State::Rtr, State::Rts, State::Sqe] {
            let member = world.create(QpType::Uc, peer, connected, Queues::Own);
            world.raise(member, state);
        }
        world.connect_two([QpType::Uc; 2], own, Queues::Own);
        world.connect_two([QpType::Rc; 2], own, Queues::Shared);
        for qp_type in [QpType::Uc, QpType::Ud] {
            let member = world.create(qp_type, peer, connected, Queues::Shared);
            world.raise(member, State::Rts);
        }
        for state in [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Err] {
            let member = world.create(QpType::XrcTarget, peer, connected, Queues::Xrc);
            world.raise(member, state);
        }
        for state in [State::Rtr, State::Rts, State::Sqd] {
            let member = world.create(QpType::XrcInitiator, peer, connected, Queues::Own);
            world.raise(member, state);
        }
        world.connect_two([QpType::XrcInitiator, QpType::XrcTarget], own, Queues::Xrc);
        for member in world.members.iter().filter(|member| member.qp_type == QpType::Ud) {
            world.adapter.attach_mcast(member.qpn, setup.group().into()).expect("a group");
        }
        world
    }

    fn connect_two(&mut self, [first, second]: [QpType; 2], own: IpAddr, queues: Queues) {
        let first = self.create(first, own, Qpn::default(), queues);
        let second = self.create(second, own, first.qpn, queues);
        let first = Member { peer_qpn: second.qpn, ..first };
        if let Some(member) = self.members.iter_mut().find(|member| member.qpn == first.qpn) {
            *member = first;
        }
        self.raise(first, State::Rts);
        self.raise(second, State::Rts);
    }

    fn create(&mut self, qp_type: QpType, peer: IpAddr, peer_qpn: Qpn, queues: Queues) -> Member {
        let (send_cq, recv_cq) = match queues {
            Queues::Own | Queues::Shared | Queues::Xrc => (&self.send_cq, &self.recv_cq),
            Queues::Tiny => (&self.tiny_cq, &self.tiny_cq),
        };
        let init = QpInit {
            qp_type,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: (queues == Queues::Shared).then_some(self.srq),
            caps: QpCaps {
                max_send_wr: 12,
                max_recv_wr: 12,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 64,
            },
            sq_sig_all: false,
            pd: self.pd,
            quirks: Default::default(),
        };
        let qpn = match qp_type {
            QpType::XrcTarget => self.adapter.create_xrc_target(self.xrcd),
            _ => self.adapter.create_qp(init),
        };
        let qpn = qpn.expect("a queue pair");
        let member = Member { qpn, qp_type, peer, peer_qpn, queues };
        self.members.push(member);
        member
    }

    pub(super) fn raise(&mut self, member: Member, state: State) {
        let steps: &[Edge] = match state {
            State::Reset => &[],
            State::Init => &[Self::init],
            State::Rtr => &[Self::init, Self::rtr],
            State::Rts | State::Sqe => &[Self::init, Self::rtr, Self::rts],
            State::Sqd => &[Self::init, Self::rtr, Self::rts, Self::drain],
            State::Err => &[Self::init, Self::fail],
        };
        for step in steps {
            step(self, member).expect("the way up");
        }
        if state == State::Sqe {
            self.fail_a_send(member);
        }
        assert_eq!(self.adapter.query_qp(member.qpn).map(|info| info.state), Some(state));
    }

    /// A send from a foreign protection domain takes an unreliable queue pair to SQE, unseen by the
    /// oracle.
    fn fail_a_send(&mut self, member: Member) {
        let sge = Sge { lkey: self.foreign.lkey(), address: self.foreign.address(), length: 1 };
        let to = UdDestination::new(self.way_to(member.peer), member.qpn, QKEY);
        let wr = if member.qp_type == QpType::Ud {
            SendWr::send_to(0, to, sge)
        } else {
            SendWr::send(0, sge)
        };
        self.adapter.post_send(self.now, member.qpn, &wr).expect("room for one request");
        self.buffer.clear();
        self.adapter.poll_transmit(self.now, &mut self.buffer);
        assert!(self.buffer.is_empty());
        assert!(self.send_cq.pop().is_some_and(|wc| wc.result.is_err()));
    }

    pub(super) fn init(&mut self, member: Member) -> Result<(), ModifyError> {
        let qkey = if member.qp_type == QpType::Ud { QKEY } else { QKey::default() };
        self.adapter.to_init(member.qpn, &Init { pkey_index: 0, access: RIGHTS, qkey })
    }

    pub(super) fn rtr(&mut self, member: Member) -> Result<(), ModifyError> {
        let peer = PeerAttr {
            dest_qpn: member.peer_qpn,
            path_mtu: MTU,
            rq_psn: self.setup.psn(),
            av: self.way_to(member.peer),
        };
        let responder = ResponderAttr { max_dest_rd_atomic: self.setup.reads(), min_rnr_timer: 1 };
        let rtr = Rtr::new(member.qp_type, peer, responder);
        self.adapter.to_rtr(member.qpn, &rtr)
    }

    pub(super) fn rts(&mut self, member: Member) -> Result<(), ModifyError> {
        let sq_psn = self.setup.psn();
        let retries = self.setup.retries();
        let requester = RequesterAttr {
            timeout: 8,
            retry_cnt: retries,
            rnr_retry: retries,
            max_rd_atomic: self.setup.reads(),
        };
        let rts = Rts::new(member.qp_type, sq_psn, requester);
        self.adapter.to_rts(self.now, member.qpn, &rts)
    }

    pub(super) fn resume(&mut self, member: Member) -> Result<(), ModifyError> {
        self.adapter.to_rts(self.now, member.qpn, &Rts::Resume)
    }

    pub(super) fn drain(&mut self, member: Member) -> Result<(), ModifyError> {
        self.adapter.to_sqd(self.now, member.qpn, true)
    }

    pub(super) fn fail(&mut self, member: Member) -> Result<(), ModifyError> {
        self.adapter.to_error(self.now, member.qpn)
    }

    pub(super) fn reset(&mut self, member: Member) -> Result<(), ModifyError> {
        self.adapter.to_reset(member.qpn)
    }

    pub(super) fn way_to(&self, peer: IpAddr) -> AddressVector {
        AddressVector::new(peer.into(), 0)
    }

    /// While in use; another gets new keys.
    pub(super) fn renew_open(&mut self) {
        self.adapter.deregister(&self.open).unwrap();
        self.open = register(&mut self.adapter, self.pd, 1, RIGHTS);
    }

    /// To at most the first half of its region, with its next key.
    pub(super) fn bind(&mut self, which: usize, length: u8, zero_based: bool) -> WindowBind {
        let rkey = self.windows[which].next();
        self.windows[which] = rkey;
        let length = u64::from(length) * (REGION / 2 / 255);
        let (region, address) = (self.windowed.lkey(), self.windowed.address());
        WindowBind { rkey, region, address, length, access: REMOTE, zero_based }
    }

    /// Memory closed to packets is unchanged.
    pub(super) fn check_memory(&self) {
        for region in [&self.readable, &self.private, &self.foreign, &self.windowed] {
            let mut bytes = [0; REGION as usize];
            region.memory().read_at(0, &mut bytes).expect("memory of our own");
            let from = if Arc::ptr_eq(region, &self.windowed) { REGION as usize / 2 } else { 0 };
            assert!(
                bytes[from..].iter().all(|&byte| byte == FILL),
                "a region was written without the right to write it"
            );
        }
        let foreign = self.adapter.query_srq(self.foreign_srq).map(|info| info.posted);
        assert_eq!(foreign, Some(1), "a request of another XRC domain was taken");
    }
}

pub(super) const FILL: u8 = 0xEE;

fn register(adapter: &mut Adapter, pd: PdId, number: u64, access: Access) -> Arc<Region> {
    let region = MrAttr {
        memory: Arc::new(HeapMemory::new(REGION as usize)),
        address: number << 32,
        access,
    };
    let region = adapter.register(pd, region).expect("a region");
    region.memory().write_at(0, &[FILL; REGION as usize]).expect("memory of our own");
    region
}
