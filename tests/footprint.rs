//! What a packet and an idle queue pair cost in memory.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use roce::{
    Access, AddressVector, Gid, Init, Mtu, QpCaps, QpType, Rtr, Rts, SendWr,
    transport::{
        adapter::{Adapter, AdapterConfig, TransmitBuffer, TransmitLimits},
        mem::{HeapMemory, MrAttr},
        psn::Psn,
        qp::QpInit,
        time::Instant,
        work::{CompletionQueue, Remote, Sge},
    },
};

/// Counts what is allocated.
struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: Everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: The caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: The caller's promises are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn connect(adapter: &mut Adapter, cq: &Arc<CompletionQueue>, pd: roce::transport::adapter::PdId, peer: Gid) -> roce::Qpn {
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
    adapter.to_init(qpn, &Init { access: Access::REMOTE_WRITE | Access::REMOTE_READ, ..Init::default() }).unwrap();
    let av = AddressVector::new(peer, 0);
    // the first queue pair of either adapter has the other's first as its peer, since both come from the same seed
    let rtr = Rtr::Rc { dest_qpn: qpn, path_mtu: Mtu::B1024, rq_psn: Psn::new(0), av, max_dest_rd_atomic: 16, min_rnr_timer: 1 };
    adapter.to_rtr(qpn, &rtr).unwrap();
    let rts = Rts::Rc { sq_psn: Psn::new(0), timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 16 };
    adapter.to_rts(Instant::ZERO, qpn, &rts).unwrap();
    qpn
}

/// One test for both, because the counters are of the whole process.
#[test]
fn packets_cost_no_allocation_and_idle_queue_pairs_little_memory() {
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
        let memory = Arc::new(HeapMemory::new(1 << 20));
        let region = adapter.register(pd, MrAttr { memory, address: 0, access }).unwrap();
        let qpn = connect(adapter, &cq, pd, ends[1 - index]);
        sides.push((pd, cq, region, qpn));
    }

    // Steady state: whole messages, requests, responses, acknowledgements and completions.
    let mut buffer = TransmitBuffer::new(256 << 10, TransmitLimits { segments: 64, bytes: 65_487 });
    let remote = Remote { address: 0, rkey: sides[1].2.rkey() };
    let piece = Sge { lkey: sides[0].2.lkey(), address: 0, length: 100_000 };
    let mut round = |calls: bool| {
        let before = CALLS.load(Ordering::Relaxed);
        adapters[0].post_send(Instant::ZERO, sides[0].3, &SendWr::write(1, remote, piece)).unwrap();
        adapters[0].post_send(Instant::ZERO, sides[0].3, &SendWr::read(2, remote, piece)).unwrap();
        loop {
            let mut moved = false;
            for from in 0..2 {
                buffer.clear();
                adapters[from].poll_transmit(Instant::ZERO, &mut buffer);
                moved |= !buffer.is_empty();
                for (net, bytes) in buffer.datagrams() {
                    adapters[1 - from].handle_datagram(Instant::ZERO, &net, bytes);
                }
                while adapters[from].poll_event().is_some() {}
            }
            if !moved {
                break;
            }
        }
        assert!(sides[0].1.pop().unwrap().result.is_ok() && sides[0].1.pop().unwrap().result.is_ok());
        if calls { CALLS.load(Ordering::Relaxed) - before } else { 0 }
    };
    for _ in 0..10 {
        round(false);
    }
    let calls: usize = (0..10).map(|_| round(true)).sum();
    assert_eq!(calls, 0, "allocations in ten rounds of some 200 packets each");

    // Idle queue pairs.
    let (pd, cq) = (sides[0].0, sides[0].1.clone());
    let count = 1000;
    let before = BYTES.load(Ordering::Relaxed);
    for _ in 0..count {
        connect(&mut adapters[0], &cq, pd, ends[1]);
    }
    let each = (BYTES.load(Ordering::Relaxed) - before) / count;
    println!("an idle RC queue pair takes {each} bytes");
    assert!(each < 4096, "{each} bytes");
}
