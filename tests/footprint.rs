//! Memory of packets and of idle queue pairs.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

use roce::{
    Access, AddressVector, Gid, Init, Mtu, PeerAttr, QpCaps, QpType, RKey, RequesterAttr,
    ResponderAttr, Rtr, Rts, SendWr,
    transport::{
        adapter::{Adapter, AdapterConfig, TransmitBuffer, TransmitLimits},
        mem::{HeapMemory, MrAttr},
        psn::{Msn, Psn},
        qp::QpInit,
        time::Instant,
        wire::{
            Aeth, AtomicEth, Bth, Datagram, Ext, Feth, FrameFields, Headers, Ident, NetHeader,
            Opcode, Operation, Packet, Reth, Service, Syndrome, icrc,
        },
        work::{CompletionQueue, Remote, Sge},
    },
};

/// Per thread: other tests run in parallel.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promises are the same
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // may be another thread's
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promises are the same
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn connect(
    adapter: &mut Adapter,
    cq: &Arc<CompletionQueue>,
    pd: roce::transport::adapter::PdId,
    peer: Gid,
) -> roce::Qpn {
    let init = QpInit {
        qp_type: QpType::Rc,
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        srq: None,
        caps: QpCaps::default(),
        sq_sig_all: false,
        pd,
        quirks: Default::default(),
    };
    let qpn = adapter.create_qp(init).unwrap();
    adapter
        .to_init(
            qpn,
            &Init { access: Access::REMOTE_WRITE | Access::REMOTE_READ, ..Init::default() },
        )
        .unwrap();
    let av = AddressVector::new(peer, 0);
    // Equal seeds: the first queue pairs of both adapters have each other's expected numbers.
    let rtr = Rtr::Rc(
        PeerAttr { dest_qpn: qpn, path_mtu: Mtu::B1024, rq_psn: Psn::new(0), av },
        ResponderAttr { max_dest_rd_atomic: 16, min_rnr_timer: 1 },
    );
    adapter.to_rtr(qpn, &rtr).unwrap();
    let rts = Rts::Rc(
        Psn::new(0),
        RequesterAttr { timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 16 },
    );
    adapter.to_rts(Instant::ZERO, qpn, &rts).unwrap();
    qpn
}

/// One test: the counters are per process.
#[test]
fn packets_cost_no_allocation_and_idle_queue_pairs_little_memory_and_floods_no_more() {
    let ends = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|ip| Gid::from(std::net::IpAddr::from(ip)));
    let mut adapters = ends.map(|gid| {
        let mut adapter = Adapter::new(AdapterConfig::new([3; 32]));
        adapter.set_gids(vec![gid]);
        adapter
    });
    let mut sides = Vec::new();
    for (index, adapter) in adapters.iter_mut().enumerate() {
        let pd = adapter.alloc_pd().unwrap();
        let cq = adapter.create_cq(1024).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let access = access | Access::REMOTE_ATOMIC | Access::FLUSH_GLOBAL;
        let memory = Arc::new(HeapMemory::new(1 << 20));
        let region = adapter.register(pd, MrAttr { memory, address: 0, access }).unwrap();
        let qpn = connect(adapter, &cq, pd, ends[1 - index]);
        sides.push((pd, cq, region, qpn));
    }

    // Steady state.
    let mut buffer = TransmitBuffer::new(256 << 10, TransmitLimits { segments: 64, bytes: 65_487 });
    let remote = Remote { address: 0, rkey: sides[1].2.rkey() };
    let piece = Sge { lkey: sides[0].2.lkey(), address: 0, length: 100_000 };
    let mut round = |calls: bool| {
        let before = CALLS.get();
        adapters[0].post_send(Instant::ZERO, sides[0].3, &SendWr::write(1, remote, piece)).unwrap();
        adapters[0].post_send(Instant::ZERO, sides[0].3, &SendWr::read(2, remote, piece)).unwrap();
        loop {
            let mut moved = false;
            for from in 0..2 {
                buffer.clear();
                adapters[from].poll_transmit(Instant::ZERO, &mut buffer);
                moved |= !buffer.is_empty();
                for (net, bytes) in buffer.datagrams() {
                    adapters[1 - from].handle_datagram(Instant::ZERO, &Datagram::new(&net, bytes));
                }
                while adapters[from].poll_event().is_some() {}
            }
            if !moved {
                break;
            }
        }
        assert!(
            sides[0].1.pop().unwrap().result.is_ok() && sides[0].1.pop().unwrap().result.is_ok()
        );
        if calls { CALLS.get() - before } else { 0 }
    };
    for _ in 0..10 {
        round(false);
    }
    let calls: usize = (0..10).map(|_| round(true)).sum();
    assert_eq!(calls, 0, "allocations in ten rounds of some 200 packets each");

    let (pd, cq) = (sides[0].0, sides[0].1.clone());
    let count = 1000;
    let before = BYTES.get();
    for _ in 0..count {
        connect(&mut adapters[0], &cq, pd, ends[1]);
    }
    let each = (BYTES.get() - before) / count;
    println!("an idle RC queue pair takes {each} bytes");
    assert!(each < 4096, "{each} bytes");

    // A peer floods and takes no responses: queued data stays bounded.
    let (target, key) = (sides[1].3, sides[1].2.rkey());
    let adapter = &mut adapters[1];
    let expected = adapter.query_qp(target).unwrap().rq_psn;
    for &(name, operation, ext, payload) in FLOODS {
        let before = BYTES.get();
        for n in 0..20_000u32 {
            // new, far ahead, repeated
            let psn = [
                adapter.query_qp(target).unwrap().rq_psn,
                expected.plus(n * 419),
                expected.previous(),
            ][n as usize % 3];
            let opcode = Opcode::new(Service::Rc, operation).unwrap();
            let mut bth = Bth::new(opcode, target, psn);
            bth.ack_req = true;
            let net = NetHeader {
                src: [10, 0, 0, 1].into(),
                dst: [10, 0, 0, 2].into(),
                src_port: 0xC000,
                traffic_class: 3,
                hop_limit: 64,
                ident: Ident::Known { id: 0, dont_fragment: true },
                frame: FrameFields::default(),
            };
            let headers = Headers::new(bth, ext(key)).unwrap();
            let mut bytes = [0; 128];
            let length =
                Packet { headers, payload: &[7; 64][..payload], icrc: 0 }.encode(&mut bytes);
            let (body, end) = bytes[..length].split_at_mut(length - 4);
            end.copy_from_slice(&icrc(&net, body).to_le_bytes());
            adapter.handle_datagram(Instant::ZERO, &Datagram::new(&net, &bytes[..length]));
        }
        let more = BYTES.get().saturating_sub(before);
        println!("a flood of {name} leaves {more} bytes");
        assert!(more < 64 << 10, "a flood of {name} leaves {more} bytes");
        let state = adapter.query_qp(target).unwrap().state;
        assert!(matches!(state, roce::State::Rts | roce::State::Err), "{state}");
        while adapter.poll_event().is_some() {}
        adapter.to_reset(target).unwrap();
        reconnect(adapter, target, ends[0], expected);
    }
}

type Flood = (&'static str, Operation, fn(RKey) -> Ext, usize);

const FLOODS: &[Flood] = &[
    ("SENDs", Operation::SendOnly, |_| Ext::None, 4),
    ("parts of SENDs", Operation::SendMiddle, |_| Ext::None, 4),
    (
        "WRITEs",
        Operation::WriteOnly,
        |rkey| Ext::Reth(Reth { virtual_address: 0, rkey, dma_length: 8 }),
        8,
    ),
    (
        "READs",
        Operation::ReadRequest,
        |rkey| Ext::Reth(Reth { virtual_address: 0, rkey, dma_length: 8 }),
        0,
    ),
    (
        "FLUSHes",
        Operation::Flush,
        |rkey| {
            Ext::FethReth(
                Feth { placement: 1, selectivity: 0 },
                Reth { virtual_address: 0, rkey, dma_length: 8 },
            )
        },
        0,
    ),
    (
        "ATOMIC WRITEs",
        Operation::AtomicWrite,
        |rkey| Ext::Reth(Reth { virtual_address: 0, rkey, dma_length: 8 }),
        8,
    ),
    (
        "atomics",
        Operation::FetchAdd,
        |rkey| Ext::Atomic(AtomicEth { virtual_address: 0, rkey, swap_or_add: 1, compare: 0 }),
        0,
    ),
    (
        "acknowledgements",
        Operation::Acknowledge,
        |_| Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: Msn::new(0) }),
        0,
    ),
];

fn reconnect(adapter: &mut Adapter, qpn: roce::Qpn, peer: Gid, rq_psn: Psn) {
    let access =
        Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC | Access::FLUSH_GLOBAL;
    adapter.to_init(qpn, &Init { access, ..Init::default() }).unwrap();
    let av = AddressVector::new(peer, 0);
    let rtr = Rtr::Rc(
        PeerAttr { dest_qpn: qpn, path_mtu: Mtu::B1024, rq_psn, av },
        ResponderAttr { max_dest_rd_atomic: 16, min_rnr_timer: 1 },
    );
    adapter.to_rtr(qpn, &rtr).unwrap();
    let rts = Rts::Rc(
        Psn::new(0),
        RequesterAttr { timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 16 },
    );
    adapter.to_rts(Instant::ZERO, qpn, &rts).unwrap();
}
