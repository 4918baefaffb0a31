//! Every verb with every wrong argument: the error names it, and nothing changes.

use std::{net::IpAddr, ops::Range, sync::Arc, time::Duration};

use roce::{
    Access, AddressVector, AhFromWcError, Attribute, BadWorkRequest, ChannelError, CompletionQueue,
    ConnectError, Context, CqModeration, Data, DeviceMemoryError, Endpoint, Gid, Init, Limits,
    McastError, MemoryFault, MemoryRegion, MmapMemory, ModifyError, Mtu, ObjectError, ObjectKind,
    ObjectSize, OpenOptions, PeerAttr, PostError, ProtectionDomain, Psn, QKey, QpCaps, QpInfo,
    QpInitAttr, QpType, Qpn, QueuePair, RKey, RecvWr, RegionError, RegisterError, Remote,
    RequesterAttr, ReregMr, ResponderAttr, Rtr, Rts, SendFlags, SendWr, SharedReceiveQueue,
    SrqAttr, SrqError, SrqInfo, State, UdDestination, Wc, WindowType, link::Fabric,
};

use super::ALL;

const LIMITS: Limits = Limits {
    max_pd: 2,
    max_mr: 4,
    max_mw: 2,
    max_cq: 3,
    max_cqe: 64,
    max_qp: 3,
    max_srq: 2,
    max_xrcd: 1,
    max_mcast_grp: 1,
    max_mcast_qp_attach: 1,
    max_ah: 1,
    max_dm_size: 8192,
    max_read_sge: u32::MAX,
    atomics: true,
    early_posts: false,
    send_queue: None,
    ack_timer: roce::transport::qp::AckTimer::USUAL,
    max_mr_size: u64::MAX,
    max_qp_wr: 8,
    max_sge: 2,
    max_recv_sge: 2,
    max_srq_wr: 8,
    max_srq_sge: 2,
    max_inline_data: 16,
};

struct World {
    context: Context,
    pd: ProtectionDomain,
    region: MemoryRegion,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    qp: QueuePair,
}

#[derive(PartialEq, Debug)]
struct Known {
    qp: QpInfo,
    srq: SrqInfo,
    cq: (usize, CqModeration),
    bytes: Vec<u8>,
}

const CAPS: QpCaps = QpCaps {
    max_send_wr: 2,
    max_recv_wr: 2,
    max_send_sge: 2,
    max_recv_sge: 2,
    max_inline_data: 16,
};

impl World {
    fn on(fabric: &Fabric, ip: &str) -> Self {
        // Equal seeds give equal numbers and keys: foreign objects look like local objects.
        let options = OpenOptions { limits: LIMITS, seed: Some([5; 32]), ..OpenOptions::default() };
        let context = fabric.open(ip.parse().unwrap(), options).unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(16, None).unwrap();
        let srq = pd.create_srq(SrqAttr { max_wr: 4, max_sge: 1 }).unwrap();
        let qp =
            pd.create_qp(&QpInitAttr { caps: CAPS, ..QpInitAttr::new(QpType::Rc, &cq) }).unwrap();
        let region = pd.allocate(4096, ALL | Access::MW_BIND).unwrap();
        Self { context, pd, region, cq, srq, qp }
    }

    fn known(&self) -> Known {
        Known {
            qp: self.qp.query(),
            srq: self.srq.query(),
            cq: (self.cq.capacity(), self.cq.moderation()),
            bytes: self.region.to_vec(0..4096).unwrap(),
        }
    }

    #[track_caller]
    fn refused<T, E>(&self, call: impl FnOnce() -> Result<T, E>) -> E {
        let before = self.known();
        let Err(error) = call() else { panic!("accepted") };
        assert_eq!(self.known(), before, "what was refused has changed something");
        error
    }

    fn attr(&self, qp_type: QpType) -> QpInitAttr {
        QpInitAttr { caps: CAPS, ..QpInitAttr::new(qp_type, &self.cq) }
    }
}

fn worlds() -> (World, World) {
    let fabric = Fabric::new("delay 1us".parse().unwrap(), 1);
    (World::on(&fabric, "10.0.0.1"), World::on(&fabric, "10.0.0.2"))
}

const fn too_many(what: ObjectKind, limit: usize) -> ObjectError {
    ObjectError::TooMany { what, limit }
}

/// As many as the limit, twice.
#[track_caller]
fn up_to<T>(
    world: &World,
    count: usize,
    error: ObjectError,
    make: impl Fn() -> Result<T, ObjectError>,
) {
    for _ in 0..2 {
        let all: Vec<_> =
            (0..count).map(|_| make().map_err(|error| error.to_string()).unwrap()).collect();
        assert_eq!(world.refused(&make), error);
        drop(all);
    }
}

#[test]
fn more_than_there_may_be() {
    let (a, _) = worlds();
    up_to(&a, 1, too_many(ObjectKind::ProtectionDomain, 2), || a.context.alloc_pd());
    up_to(&a, 1, too_many(ObjectKind::XrcDomain, 1), || a.context.open_xrcd());
    up_to(&a, 2, too_many(ObjectKind::CompletionQueue, 3), || a.context.create_cq(1, None));
    up_to(&a, 2, too_many(ObjectKind::MemoryWindow, 2), || a.pd.alloc_window(WindowType::Type1));
    up_to(&a, 1, too_many(ObjectKind::SharedReceiveQueue, 2), || {
        a.pd.create_srq(SrqAttr { max_wr: 1, max_sge: 1 })
    });
    up_to(&a, 2, too_many(ObjectKind::QueuePair, 3), || a.pd.create_qp(&a.attr(QpType::Uc)));
    let way = AddressVector::new(IpAddr::from([10, 0, 0, 2]).into(), 0);
    up_to(&a, 1, too_many(ObjectKind::AddressHandle, 1), || a.pd.create_ah(way));
    let xrcd = a.context.open_xrcd().unwrap();
    up_to(&a, 2, too_many(ObjectKind::QueuePair, 3), || xrcd.create_target());
    let regions = [(); 3].map(|()| a.pd.allocate(8, ALL).unwrap());
    assert!(matches!(
        a.refused(|| a.pd.allocate(8, ALL)),
        RegionError::Register(RegisterError::TooMany(4))
    ));
    assert!(matches!(
        a.refused(|| a.pd.null_region()),
        RegionError::Register(RegisterError::TooMany(4))
    ));
    drop(regions);
    a.pd.null_region().unwrap();
}

#[test]
fn sizes() {
    let (a, _) = worlds();
    for capacity in [0, 65, usize::MAX] {
        let wrong = ObjectError::Size { what: ObjectSize::Completions, least: 1, limit: 64 };
        assert_eq!(a.refused(|| a.context.create_cq(capacity, None)), wrong);
        assert_eq!(a.refused(|| a.cq.resize(capacity)), wrong);
    }
    let size = |what, least, limit| ObjectError::Size { what, least, limit };
    for (attr, error) in [
        (SrqAttr { max_wr: 0, max_sge: 1 }, size(ObjectSize::MaxWr, 1, 8)),
        (SrqAttr { max_wr: 9, max_sge: 1 }, size(ObjectSize::MaxWr, 1, 8)),
        (SrqAttr { max_wr: 1, max_sge: 3 }, size(ObjectSize::MaxSge, 0, 2)),
    ] {
        assert_eq!(a.refused(|| a.pd.create_srq(attr)), error);
    }
    for (caps, error) in [
        (QpCaps { max_send_wr: 9, ..CAPS }, size(ObjectSize::MaxSendWr, 0, 8)),
        (QpCaps { max_recv_wr: 9, ..CAPS }, size(ObjectSize::MaxRecvWr, 0, 8)),
        (QpCaps { max_send_sge: 3, ..CAPS }, size(ObjectSize::MaxSendSge, 0, 2)),
        (QpCaps { max_recv_sge: 3, ..CAPS }, size(ObjectSize::MaxRecvSge, 0, 2)),
        (QpCaps { max_inline_data: 17, ..CAPS }, size(ObjectSize::MaxInlineData, 0, 16)),
    ] {
        assert_eq!(a.refused(|| a.pd.create_qp(&QpInitAttr { caps, ..a.attr(QpType::Rc) })), error);
    }
    let long =
        CqModeration { count: 1, period: CqModeration::MAX_PERIOD + Duration::from_micros(1) };
    assert!(matches!(a.refused(|| a.cq.moderate(long)), ObjectError::Size { .. }));
    assert_eq!(a.refused(|| a.srq.set_limit(5)), SrqError::Limit(4));
    a.srq.set_limit(3).unwrap();
    assert_eq!(a.refused(|| a.srq.resize(2)), SrqError::Limit(2));
    for size in [0, 9] {
        assert_eq!(a.refused(|| a.srq.resize(size)), SrqError::Size(8));
    }
    for length in [0, 8193] {
        assert!(a.context.alloc_dm(length).is_err());
    }
    let all = a.context.alloc_dm(8192).unwrap();
    assert!(a.context.alloc_dm(1).is_err());
    drop(all);
    a.context.alloc_dm(8192).unwrap();
}

/// Objects of another device are unknown, even with equal numbers.
#[test]
fn of_another_device() {
    let (a, b) = worlds();
    let Known { qp, .. } = b.known();
    assert_eq!(a.qp.query().qpn, qp.qpn, "they look alike");
    assert_eq!((a.srq.id(), a.region.rkey()), (b.srq.id(), b.region.rkey()));
    let foreign_cq = QpInitAttr { recv_cq: b.cq.clone(), ..a.attr(QpType::Rc) };
    assert_eq!(a.refused(|| a.pd.create_qp(&foreign_cq).map(drop)), ObjectError::Unknown);
    let foreign_srq = QpInitAttr { srq: Some(b.srq.clone()), ..a.attr(QpType::Rc) };
    assert_eq!(a.refused(|| a.pd.create_qp(&foreign_srq).map(drop)), ObjectError::Unknown);
    let attr = SrqAttr { max_wr: 1, max_sge: 1 };
    let (own, foreign) = (a.context.open_xrcd().unwrap(), b.context.open_xrcd().unwrap());
    assert_eq!(
        a.refused(|| a.pd.create_xrc_srq(attr, &foreign, &a.cq).map(drop)),
        ObjectError::Unknown
    );
    assert_eq!(
        a.refused(|| a.pd.create_xrc_srq(attr, &own, &b.cq).map(drop)),
        ObjectError::Unknown
    );
    assert_eq!(
        a.refused(|| a.pd.parent_domain(Some(&b.context.alloc_td())).map(drop)),
        ObjectError::Unknown
    );
    let change = ReregMr { pd: Some(b.pd.clone()), ..ReregMr::default() };
    assert_eq!(a.refused(|| a.region.reregister(change).map(drop)), RegisterError::UnknownPd);
    let memory = b.context.alloc_dm(64).unwrap();
    assert!(matches!(
        a.refused(|| a.pd.register_dm(&memory, 0..64, ALL)),
        DeviceMemoryError::OtherDevice
    ));
    assert_eq!(a.refused(|| a.context.create_counters().attach_qp(&b.qp)), ObjectError::Unknown);
    assert_eq!(b.known().qp, qp);
}

#[test]
fn kinds_that_do_not_go_together() {
    let (a, _) = worlds();
    let xrcd = a.context.open_xrcd().unwrap();
    let xrc_srq = a.pd.create_xrc_srq(SrqAttr { max_wr: 1, max_sge: 1 }, &xrcd, &a.cq).unwrap();
    for attr in [
        QpInitAttr { srq: Some(xrc_srq), ..a.attr(QpType::Rc) },
        QpInitAttr { srq: Some(a.srq.clone()), ..a.attr(QpType::XrcInitiator) },
        a.attr(QpType::XrcTarget),
    ] {
        assert!(matches!(a.refused(|| a.pd.create_qp(&attr).map(drop)), ObjectError::Mismatch(_)));
    }
    let way = |sgid_index, to: IpAddr| AddressVector::new(to.into(), sgid_index);
    for av in [
        way(1, [10, 0, 0, 2].into()),
        way(u16::MAX, [10, 0, 0, 2].into()),
        way(0, [0xFD, 0, 0, 0, 0, 0, 0, 1].into()),
    ] {
        assert_eq!(
            a.refused(|| a.pd.create_ah(av).map(drop)),
            ObjectError::GidIndex(av.sgid_index)
        );
    }
    let area = [0; 40];
    assert!(matches!(
        a.refused(|| a.pd.create_ah_from_wc(&Wc::UNUSED, &area).map(drop)),
        AhFromWcError::NotDatagram
    ));
    assert_eq!((a.context.query_gid(u16::MAX), a.context.query_pkey(u16::MAX)), (None, None));
    assert_eq!(a.qp.endpoint(u16::MAX), None);
}

#[test]
#[allow(clippy::reversed_empty_ranges, reason = "a range that is wrong is what is tried")]
fn memory() {
    let (a, _) = worlds();
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC | Access::REMOTE_READ] {
        let error = a.refused(|| a.pd.allocate(8, access).map(drop));
        assert!(matches!(error, RegionError::Register(RegisterError::RemoteWithoutLocalWrite)));
        let change = ReregMr { access: Some(access), ..ReregMr::default() };
        assert_eq!(
            a.refused(|| a.region.reregister(change).map(drop)),
            RegisterError::RemoteWithoutLocalWrite
        );
    }
    let error = a.refused(|| a.pd.allocate(8, Access::FLUSH_PERSISTENT).map(drop));
    assert!(matches!(error, RegionError::Register(RegisterError::NotPersistent)));
    assert!(matches!(
        a.refused(|| a.pd.allocate(usize::MAX / 2, ALL).map(drop)),
        RegionError::Memory(_)
    ));
    let few = Arc::new(MmapMemory::new(8).unwrap());
    let error = a.refused(|| a.pd.register(few, u64::MAX - 3, ALL).map(drop));
    assert!(matches!(error, RegionError::Register(RegisterError::AddressOverflow)));

    let outside: [Range<usize>; 4] =
        [4090..4097, 4097..4097, 0..usize::MAX, usize::MAX - 1..usize::MAX];
    for range in outside {
        assert_eq!(a.refused(|| a.region.to_vec(range.clone())), MemoryFault);
        assert_eq!(a.refused(|| a.region.prefetch(range.clone())), MemoryFault);
    }
    assert_eq!(a.region.to_vec(10..5), Ok(vec![]));
    for offset in [4089, 4096, usize::MAX] {
        assert_eq!(a.refused(|| a.region.write_at(offset, &[1; 8])), MemoryFault);
        assert_eq!(a.refused(|| a.region.read_at(offset, &mut [0; 8])), MemoryFault);
        assert_eq!(a.refused(|| a.region.load_u64(offset)), MemoryFault);
        assert_eq!(a.refused(|| a.region.store_u64(offset, 1)), MemoryFault);
    }
    let words = a.context.alloc_dm(64).unwrap();
    for range in [0..65, 64..65, 65..65] {
        assert!(matches!(
            a.refused(|| a.pd.register_dm(&words, range, ALL).map(drop)),
            DeviceMemoryError::Range(_)
        ));
    }
    assert_eq!(a.refused(|| words.write_at(60, &[0; 5])), MemoryFault);
    assert_eq!(a.refused(|| words.read_at(65, &mut [])), MemoryFault);

    // invalid keys
    let region = a.pd.allocate(8, ALL).unwrap();
    region.deregister().unwrap();
    assert_eq!(
        a.refused(|| region.reregister(ReregMr::default()).map(drop)),
        RegisterError::Deregistered
    );
}

fn rtr(qpn: Qpn) -> Rtr {
    let av = AddressVector::new(IpAddr::from([10, 0, 0, 2]).into(), 0);
    let (path_mtu, rq_psn) = (Mtu::B256, Psn::new(0));
    Rtr::Rc(
        PeerAttr { dest_qpn: qpn, path_mtu, rq_psn, av },
        ResponderAttr { max_dest_rd_atomic: 1, min_rnr_timer: 1 },
    )
}

const RTS: Rts = Rts::Rc(
    Psn::new(0),
    RequesterAttr { timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 },
);

#[test]
fn transitions() {
    let (a, b) = worlds();
    let (qp, peer) = (&a.qp, b.qp.qpn());
    let is_edge = |error: &ModifyError| matches!(error, ModifyError::IllegalTransition { .. });
    assert!(is_edge(&a.refused(|| qp.to_rtr(rtr(peer)))));
    assert!(is_edge(&a.refused(|| qp.to_rts(RTS))));
    assert!(is_edge(&a.refused(|| qp.to_sqd(false))));
    assert!(is_edge(&a.refused(|| qp.to_error())));
    assert_eq!(
        a.refused(|| qp.to_init(Init { pkey_index: 9999, ..Init::default() })),
        ModifyError::PKeyIndex(9999)
    );
    qp.to_init(Init::default()).unwrap();
    let Rtr::Rc(peer_attr, _) = rtr(peer) else { unreachable!() };
    let PeerAttr { path_mtu, av, .. } = peer_attr;
    let with = |path_mtu, av, max_dest_rd_atomic, min_rnr_timer| {
        let peer = PeerAttr { path_mtu, av, ..peer_attr };
        Rtr::Rc(peer, ResponderAttr { max_dest_rd_atomic, min_rnr_timer })
    };
    let group: Gid = IpAddr::from([239, 1, 1, 1]).into();
    for (rtr, error) in [
        (Rtr::Ud, ModifyError::WrongService(QpType::Rc)),
        (Rtr::Uc(peer_attr), ModifyError::WrongService(QpType::Rc)),
        (
            with(path_mtu, av, 129, 1),
            ModifyError::Range { attribute: Attribute::MaxDestRdAtomic, limit: 128 },
        ),
        (
            with(path_mtu, av, 1, 32),
            ModifyError::Range { attribute: Attribute::MinRnrTimer, limit: 31 },
        ),
        (with(path_mtu, AddressVector { sgid_index: 7, ..av }, 1, 1), ModifyError::GidIndex(7)),
        (
            with(path_mtu, AddressVector { dgid: group, ..av }, 1, 1),
            ModifyError::MulticastPeer(group),
        ),
    ] {
        assert_eq!(a.refused(|| qp.to_rtr(rtr)), error);
    }
    qp.to_rtr(rtr(peer)).unwrap();
    let rts = |timeout, retry_cnt, rnr_retry, max_rd_atomic| {
        Rts::Rc(Psn::new(0), RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic })
    };
    for (rts, attribute, limit) in [
        (rts(32, 7, 7, 1), Attribute::Timeout, 31),
        (rts(14, 8, 7, 1), Attribute::RetryCnt, 7),
        (rts(14, 7, 8, 1), Attribute::RnrRetry, 7),
        (rts(14, 7, 7, 129), Attribute::MaxRdAtomic, 128),
    ] {
        assert_eq!(a.refused(|| qp.to_rts(rts)), ModifyError::Range { attribute, limit });
    }
    assert_eq!(
        a.refused(|| qp.to_rts(Rts::Uc(Psn::new(0)))),
        ModifyError::WrongService(QpType::Rc)
    );
    qp.to_rts(RTS).unwrap();
    assert!(is_edge(&a.refused(|| qp.to_init(Init::default()))));
}

/// `connect` refuses before its first step, or undoes its steps.
#[test]
fn connecting() {
    let (a, b) = worlds();
    let peer = b.qp.endpoint(0).unwrap();
    let elsewhere = Endpoint { gid: IpAddr::from([0xFD, 0, 0, 0, 0, 0, 0, 1]).into(), ..peer };
    assert_eq!(a.refused(|| a.qp.connect_to(elsewhere)), ConnectError::NoAddress(elsewhere.gid));
    let group = Endpoint { gid: IpAddr::from([239, 1, 1, 1]).into(), ..peer };
    assert_eq!(
        a.refused(|| a.qp.connect_to(group)),
        ConnectError::Modify(ModifyError::MulticastPeer(group.gid))
    );
    for qp_type in [QpType::Ud, QpType::Uc] {
        let qp = a.pd.create_qp(&a.attr(qp_type)).unwrap();
        assert_eq!(
            qp.connect_to(peer),
            Err(ConnectError::Modify(ModifyError::WrongService(qp_type)))
        );
        assert_eq!(qp.query().state, State::Reset);
    }
    a.qp.connect_to(peer).unwrap();
    assert!(matches!(
        a.refused(|| a.qp.connect_to(peer)),
        ConnectError::Modify(ModifyError::IllegalTransition { .. })
    ));
}

#[test]
fn posting() {
    let (a, b) = worlds();
    let failed = |index, error| BadWorkRequest { index, error };
    let (send, recv) = (SendWr::send(1, Data::empty()), RecvWr::new(1, []));
    assert_eq!(
        a.refused(|| a.qp.post_send(std::slice::from_ref(&send))),
        failed(0, PostError::State(State::Reset))
    );
    assert_eq!(
        a.refused(|| a.qp.post_recv(std::slice::from_ref(&recv))),
        failed(0, PostError::State(State::Reset))
    );
    a.qp.connect_to(b.qp.endpoint(0).unwrap()).unwrap();
    let sge = a.region.sge(0..8);
    let remote = Remote { address: 0, rkey: RKey(0) };
    let to = UdDestination::new(
        AddressVector::new(IpAddr::from([10, 0, 0, 2]).into(), 0),
        b.qp.qpn(),
        QKey(0),
    );
    let wrong = PostError::WrongOperation(QpType::Rc);
    for (wr, error) in [
        (SendWr::send(1, [sge; 3]), PostError::TooManySges { limit: 2 }),
        (SendWr::send(1, Data::inline(&[0; 17])), PostError::InlineTooLong { limit: 16 }),
        (SendWr::read(1, remote, Data::inline(&[0; 8])), PostError::InlineRead),
        (SendWr::fetch_add(1, remote, 1, Data::inline(&[0; 8])), PostError::InlineRead),
        (SendWr { data: sge.into(), ..SendWr::local_invalidate(1, RKey(0)) }, PostError::NoBytes),
        (SendWr::send_to(1, to, sge), wrong),
        (SendWr { remote_srq: Some(a.srq.id()), ..SendWr::send(1, sge) }, PostError::RemoteSrq),
        (SendWr::send(1, [roce::Sge { length: 1 << 30, ..sge }; 2]), PostError::TooLong),
    ] {
        assert_eq!(
            a.refused(|| a.qp.post_send(std::slice::from_ref(&wr))),
            failed(0, error),
            "{wr:?}"
        );
    }
    let uc = a.pd.create_qp(&a.attr(QpType::Uc)).unwrap();
    for wr in [
        SendWr::read(1, remote, sge),
        SendWr::fetch_add(1, remote, 1, sge),
        SendWr::send_invalidate(1, RKey(0), sge),
    ] {
        assert!(uc.post_send(&[wr]).is_err());
    }
    assert_eq!(
        a.refused(|| a.qp.post_recv(&[RecvWr::new(1, [sge; 3])])),
        failed(0, PostError::TooManySges { limit: 2 })
    );
    assert_eq!(
        a.refused(|| a.srq.post_recv(&[RecvWr::new(1, [sge; 2])])),
        failed(0, PostError::TooManySges { limit: 1 })
    );
    let on_srq =
        a.pd.create_qp(&QpInitAttr { srq: Some(a.srq.clone()), ..a.attr(QpType::Rc) }).unwrap();
    on_srq.to_init(Init::default()).unwrap();
    assert_eq!(
        a.refused(|| on_srq.post_recv(std::slice::from_ref(&recv))),
        failed(0, PostError::SharedQueue)
    );

    // The error names the first wrong request; those before it are posted.
    assert_eq!(
        a.qp.post_recv(&[recv.clone(), recv.clone(), recv.clone()]),
        Err(failed(2, PostError::QueueFull))
    );
    let five: Vec<_> = (0..5).map(|id| RecvWr::new(id, [])).collect();
    assert_eq!(a.srq.post_recv(&five), Err(failed(4, PostError::QueueFull)));
    assert_eq!(a.srq.query().posted, 4);
    assert_eq!(a.refused(|| a.srq.resize(3)), SrqError::Posted(4));
    let unsignaled = send.clone().with_flags(SendFlags::empty());
    let error = a.qp.post_send(&[unsignaled.clone(), SendWr::send(2, [sge; 3]), unsignaled]);
    assert_eq!(error, Err(failed(1, PostError::TooManySges { limit: 2 })));
}

#[test]
fn groups_and_channels() {
    let (a, _) = worlds();
    let group: Gid = IpAddr::from([239, 1, 1, 1]).into();
    let adapter = |error: roce::AttachError| match error {
        roce::AttachError::Adapter(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(
        adapter(a.refused(|| a.qp.attach_mcast(group))),
        McastError::WrongService(QpType::Rc)
    );
    assert_eq!(a.refused(|| a.qp.detach_mcast(group)), McastError::WrongService(QpType::Rc));
    let qps = [(); 2].map(|()| a.pd.create_qp(&a.attr(QpType::Ud)).unwrap());
    let plain: Gid = IpAddr::from([10, 0, 0, 2]).into();
    assert_eq!(adapter(a.refused(|| qps[0].attach_mcast(plain))), McastError::NotMulticast(plain));
    assert_eq!(a.refused(|| qps[0].detach_mcast(group)), McastError::NotAttached(group));
    qps[0].attach_mcast(group).unwrap();
    assert_eq!(
        adapter(a.refused(|| qps[1].attach_mcast(group))),
        McastError::TooManyMembers { limit: 1 }
    );
    let other: Gid = IpAddr::from([239, 1, 1, 2]).into();
    assert_eq!(
        adapter(a.refused(|| qps[1].attach_mcast(other))),
        McastError::TooManyGroups { limit: 1 }
    );
    drop(qps);
    a.pd.create_qp(&a.attr(QpType::Ud)).unwrap().attach_mcast(other).unwrap();

    let channel = a.context.create_channel().unwrap();
    assert!(channel.poll().is_none());
    assert!(matches!(channel.wait(Some(Duration::from_millis(1))), Err(ChannelError::TimedOut)));
}
