use std::sync::Arc;

use roce_transport::{
    adapter::{
        Adapter, AdapterConfig, Limits, ObjectError, ObjectKind, ObjectSize, SendQueueMemory,
    },
    addr::AddressVector,
    mem::{Access, HeapMemory, MrAttr, RegisterError, WindowId, WindowType},
    qp::{QpCaps, QpInit, QpType},
    work::{CompletionQueue, SrqAttr},
};

use crate::common::{Node, UDP_SEGMENT, qp_init};

fn granting(limits: Limits) -> Node {
    Node::granting(limits, [10, 0, 0, 1].into(), 1, UDP_SEGMENT)
}

fn too_many(what: ObjectKind, limit: usize) -> ObjectError {
    ObjectError::TooMany { what, limit }
}

fn init(node: &Node, cq: &Arc<CompletionQueue>) -> QpInit {
    qp_init(QpType::Rc, cq, node.pd)
}

#[test]
fn limits_that_cannot_be_kept_are_not_promised() {
    let asked = Limits { max_qp: 1 << 40, max_mw: 1 << 40, max_srq: 1 << 40, ..Limits::default() };
    let config = AdapterConfig { qpns: 100..=109, limits: asked, ..AdapterConfig::new([1; 32]) };
    let mut adapter = Adapter::new(config);
    assert_eq!(
        (adapter.limits().max_qp, adapter.limits().max_mw, adapter.limits().max_srq),
        (5, 1 << 20, 1 << 23)
    );
    let (cq, pd) = (adapter.create_cq(8).unwrap(), adapter.alloc_pd().unwrap());
    let mut node = granting(Limits::default());
    node.pd = pd;
    let mut create = || adapter.create_qp(init(&node, &cq));
    (0..5).for_each(|_| assert!(create().is_ok()));
    assert_eq!(create(), Err(too_many(ObjectKind::QueuePair, 5)));
}

#[test]
fn protection_domains() {
    let mut node = granting(Limits { max_pd: 2, ..Limits::default() });
    let second = node.adapter.alloc_pd().unwrap();
    assert_eq!(node.adapter.alloc_pd(), Err(too_many(ObjectKind::ProtectionDomain, 2)));
    node.adapter.dealloc_pd(second).unwrap();
    node.adapter.alloc_pd().unwrap();
}

#[test]
fn completion_queues() {
    let mut node = granting(Limits { max_cq: 1, max_cqe: 8, ..Limits::default() });
    let size = ObjectError::Size { what: ObjectSize::Completions, least: 1, limit: 8 };
    assert_eq!(node.adapter.create_cq(9).err(), Some(size));
    assert_eq!(node.adapter.create_cq(0).err(), Some(size));
    let first = node.adapter.create_cq(8).unwrap();
    assert_eq!(node.adapter.create_cq(8).err(), Some(too_many(ObjectKind::CompletionQueue, 1)));
    node.adapter.destroy_cq(first.id()).unwrap();
    node.adapter.create_cq(8).unwrap();
}

#[test]
fn queue_pairs() {
    let mut node = granting(Limits { max_qp: 1, ..Limits::default() });
    let cq = node.adapter.create_cq(8).unwrap();
    let first = node.adapter.create_qp(init(&node, &cq)).unwrap();
    assert_eq!(node.adapter.create_qp(init(&node, &cq)), Err(too_many(ObjectKind::QueuePair, 1)));
    node.adapter.destroy_qp(first).unwrap();
    node.adapter.create_qp(init(&node, &cq)).unwrap();
}

/// mlx5's sizes: all must fit one queue.
#[test]
fn memory_of_a_send_queue() {
    let (queue, element, unit) = (1 << 21, 1024, 64);
    let memory =
        SendQueueMemory { queue, element, unit, connected: 192, datagrams: 64, extended: 208 };
    let most = Limits { max_inline_data: 1024, send_queue: Some(memory), ..Limits::default() };
    let mut node = granting(most);
    let cq = node.adapter.create_cq(8).unwrap();
    let mut most = |qp_type, what, caps: &dyn Fn(u32) -> QpCaps| {
        let mut create =
            |caps| node.adapter.create_qp(QpInit { qp_type, caps, ..init(&node, &cq) });
        let Err(ObjectError::Size { what: found, limit, .. }) = create(caps(1 << 15)) else {
            return 1 << 15;
        };
        assert_eq!(found, what);
        create(caps(limit as u32)).unwrap();
        create(caps(limit as u32 + 1)).unwrap_err();
        limit
    };
    let caps = |max_send_wr, max_send_sge, max_inline_data| QpCaps {
        max_send_wr,
        max_send_sge,
        max_inline_data,
        ..QpCaps::default()
    };
    let mut depth = |of, sges, inline| most(of, ObjectSize::MaxSendWr, &|n| caps(n, sges, inline));
    assert_eq!(depth(QpType::Rc, 1, 0), 1 << 13);
    assert_eq!(depth(QpType::Rc, 4, 60), 1 << 13);
    assert_eq!(depth(QpType::Uc, 5, 0), 6553);
    assert_eq!(depth(QpType::Rc, 30, 828), 2048);
    assert_eq!(depth(QpType::Ud, 4, 0), 1 << 14);
    assert_eq!(depth(QpType::Ud, 0, 0), 1 << 15);
    assert_eq!(depth(QpType::XrcInitiator, 4, 0), 6553);
    let mut inline = |of| most(of, ObjectSize::MaxInlineData, &|n| caps(1, 1, n.min(1024)));
    let all = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcInitiator];
    assert_eq!(all.map(&mut inline), [828, 828, 956, 812]);
}

#[test]
fn sizes_of_queue_pairs() {
    let limits = Limits {
        max_qp_wr: 16,
        max_sge: 3,
        max_recv_sge: 3,
        max_inline_data: 100,
        ..Limits::default()
    };
    let mut node = granting(limits);
    let cq = node.adapter.create_cq(8).unwrap();
    let most = QpCaps {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 3,
        max_recv_sge: 3,
        max_inline_data: 100,
    };
    let mut try_caps = |caps| node.adapter.create_qp(QpInit { caps, ..init(&node, &cq) });
    try_caps(most).unwrap();
    for (what, caps, limit) in [
        (ObjectSize::MaxSendWr, QpCaps { max_send_wr: 17, ..most }, 16),
        (ObjectSize::MaxRecvWr, QpCaps { max_recv_wr: 17, ..most }, 16),
        (ObjectSize::MaxSendSge, QpCaps { max_send_sge: 4, ..most }, 3),
        (ObjectSize::MaxRecvSge, QpCaps { max_recv_sge: 4, ..most }, 3),
        (ObjectSize::MaxInlineData, QpCaps { max_inline_data: 101, ..most }, 100),
    ] {
        assert_eq!(try_caps(caps), Err(ObjectError::Size { what, least: 0, limit }));
    }
}

#[test]
fn shared_receive_queues() {
    let mut node =
        granting(Limits { max_srq: 1, max_srq_wr: 16, max_srq_sge: 3, ..Limits::default() });
    let attr = SrqAttr { max_wr: 16, max_sge: 3 };
    let size = |what, least, limit| ObjectError::Size { what, least, limit };
    assert_eq!(
        node.adapter.create_srq(node.pd, SrqAttr { max_wr: 17, ..attr }),
        Err(size(ObjectSize::MaxWr, 1, 16))
    );
    assert_eq!(
        node.adapter.create_srq(node.pd, SrqAttr { max_sge: 4, ..attr }),
        Err(size(ObjectSize::MaxSge, 0, 3))
    );
    let first = node.adapter.create_srq(node.pd, attr).unwrap();
    assert_eq!(
        node.adapter.create_srq(node.pd, attr),
        Err(too_many(ObjectKind::SharedReceiveQueue, 1))
    );
    node.adapter.destroy_srq(first).unwrap();
    node.adapter.create_srq(node.pd, attr).unwrap();
}

#[test]
fn memory_regions() {
    let mut node = granting(Limits { max_mr: 1, ..Limits::default() });
    let attr =
        || MrAttr { memory: Arc::new(HeapMemory::new(8)), address: 0, access: Access::empty() };
    let first = node.adapter.register(node.pd, attr()).unwrap();
    assert_eq!(node.adapter.register(node.pd, attr()).err(), Some(RegisterError::TooMany(1)));
    node.adapter.deregister(&first).unwrap();
    node.adapter.register(node.pd, attr()).unwrap();
}

#[test]
fn xrc_domains() {
    // the node has one
    let mut node = granting(Limits { max_xrcd: 2, ..Limits::default() });
    let first = node.adapter.open_xrcd().unwrap();
    assert_eq!(node.adapter.open_xrcd(), Err(too_many(ObjectKind::XrcDomain, 2)));
    node.adapter.close_xrcd(first).unwrap();
    node.adapter.open_xrcd().unwrap();
}

#[test]
fn memory_windows() {
    let mut node = granting(Limits { max_mw: 1, ..Limits::default() });
    let first = node.adapter.alloc_window(node.pd, WindowType::Type1).unwrap();
    assert_eq!(
        node.adapter.alloc_window(node.pd, WindowType::Type1),
        Err(too_many(ObjectKind::MemoryWindow, 1))
    );
    node.adapter.dealloc_window(WindowId::of(first)).unwrap();
    node.adapter.alloc_window(node.pd, WindowType::Type1).unwrap();
}

#[test]
fn address_handles() {
    let mut node = granting(Limits { max_ah: 1, ..Limits::default() });
    let av = AddressVector::new(node.ip.into(), 0);
    let first = node.adapter.create_ah(node.pd, &av).unwrap();
    assert_eq!(node.adapter.create_ah(node.pd, &av), Err(too_many(ObjectKind::AddressHandle, 1)));
    node.adapter.destroy_ah(first).unwrap();
    node.adapter.create_ah(node.pd, &av).unwrap();
}
