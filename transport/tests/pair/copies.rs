//! Memory behind a driver: completions wait for copies.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use roce_transport::{
    addr::Mtu,
    event::DropReason,
    mem::{HeapMemory, Memory, MemoryFault, MrAttr, Region},
    qp::State,
    work::{RecvWr, Remote, SendWr, Sge, WcStatus},
};

use crate::common::{ALL_RIGHTS, End, Node, Options, Pair, Side};

/// Device memory: started copies wait until allowed to end.
struct Device {
    there: HeapMemory,
    copies: Mutex<Copies>,
}

#[derive(Default)]
struct Copies {
    started: Vec<(u64, Vec<u8>)>,
    ended: usize,
    /// Copies that may end.
    allowed: usize,
    fails: bool,
    reads: usize,
}

impl Device {
    fn new(length: usize) -> Arc<Self> {
        Arc::new(Self { there: HeapMemory::new(length), copies: Mutex::default() })
    }

    fn allow(&self, copies: usize) {
        self.copies.lock().unwrap().allowed = copies;
    }

    fn part(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.there.read_at(offset, &mut bytes).unwrap();
        bytes
    }
}

impl Memory for Device {
    fn len(&self) -> u64 {
        self.there.len()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        let mut copies = self.copies.lock().unwrap();
        copies.reads += 1;
        if copies.fails {
            return Err(MemoryFault);
        }
        self.there.read_at(offset, to)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), MemoryFault> {
        panic!("bytes of packets are copied later");
    }

    fn is_behind_driver(&self) -> bool {
        true
    }

    fn start_write(&self, offset: u64, from: &[u8]) -> Result<u64, MemoryFault> {
        let mut copies = self.copies.lock().unwrap();
        copies.started.push((offset, from.to_vec()));
        Ok(copies.started.len() as u64)
    }

    fn has_ended(&self, copy: u64) -> Result<bool, MemoryFault> {
        let mut copies = self.copies.lock().unwrap();
        if copies.fails {
            return Err(MemoryFault);
        }
        while copies.ended < copies.allowed.min(copies.started.len()) {
            let (offset, bytes) = &copies.started[copies.ended];
            self.there.write_at(*offset, bytes)?;
            copies.ended += 1;
        }
        Ok(copy <= copies.ended as u64)
    }
}

struct Registered {
    device: Arc<Device>,
    region: Arc<Region>,
}

impl Registered {
    fn on(node: &mut Node, length: usize) -> Self {
        let device = Device::new(length);
        let attr = MrAttr { memory: device.clone(), address: 0x1000, access: ALL_RIGHTS };
        let region = node.adapter.register(node.pd, attr).unwrap();
        Self { device, region }
    }

    fn remote(&self, offset: u64) -> Remote {
        Remote { address: 0x1000 + offset, rkey: self.region.rkey() }
    }

    fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { lkey: self.region.lkey(), address: 0x1000 + offset, length }
    }
}

fn pair() -> (Pair, End, End) {
    Pair::connected(Options { mtu: Mtu::B256, ..Options::default() })
}

/// Shorter than a retransmission.
const SOON: Duration = Duration::from_micros(100);
const ALL: usize = usize::MAX;

#[test]
fn nothing_is_told_before_the_copy_has_ended() {
    let (mut pair, a, b) = pair();
    let near = pair.a.buffer(2000).fill(3);
    let far = Registered::on(&mut pair.b, 4000);
    pair.post_recv(&b, &RecvWr::new(1, [far.sge(2000, 2000)]));
    pair.post_recv(&b, &RecvWr::new(2, []));
    pair.post_send(&a, &SendWr::send(3, near.all()));
    let write = SendWr::write(4, far.remote(0), near.all());
    pair.post_send(&a, &write.with_immediate([0; 4]));
    pair.run_for(SOON);
    assert_eq!((a.send_outcomes(), b.recv_outcomes()), (vec![], vec![]));
    assert_eq!(far.device.part(0, 4000), [0; 4000]);
    far.device.allow(ALL);
    pair.run_for(SOON);
    assert_eq!(b.recv_outcomes(), [(1, Ok(2000)), (2, Ok(2000))]);
    assert_eq!(a.send_outcomes(), [(3, Ok(0)), (4, Ok(0))]);
    assert_eq!(far.device.part(0, 4000), [near.bytes(), near.bytes()].concat());
}

#[test]
fn a_completion_waits_for_no_copy_behind_it() {
    let (mut pair, a, b) = pair();
    let near = pair.a.buffer(100).fill(3);
    let far = Registered::on(&mut pair.b, 1000);
    for id in 1..=2 {
        pair.post_recv(&b, &RecvWr::new(id, [far.sge(id * 300, 100)]));
        pair.post_send(&a, &SendWr::send(id, near.all()));
        pair.run_for(SOON);
    }
    far.device.allow(1);
    pair.run_for(SOON);
    assert_eq!(b.recv_outcomes(), [(1, Ok(100))]);
    assert_eq!(far.device.part(300, 400), [&near.bytes()[..], &[0; 300]].concat());
    far.device.allow(2);
    pair.run_for(SOON);
    assert_eq!(b.recv_outcomes(), [(2, Ok(100))]);
}

#[test]
fn bytes_for_the_process_come_after_the_copies_of_earlier_ones() {
    let (mut pair, a, _) = pair();
    let near = pair.a.buffer(1000).fill(3);
    let far = Registered::on(&mut pair.b, 1000);
    let flag = pair.b.buffer(8);
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.post_send(&a, &SendWr::write(2, flag.remote(0), near.sge(0, 8)));
    pair.run_for(SOON);
    assert_eq!(flag.bytes(), [0; 8]);
    far.device.allow(ALL);
    pair.run_for(SOON);
    assert_eq!(flag.bytes(), near.part(0, 8));
    assert_eq!(far.device.part(0, 1000), near.bytes());
    assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, Ok(0))]);
}

#[test]
fn a_read_completes_after_its_copy() {
    let (mut pair, a, _) = pair();
    let near = Registered::on(&mut pair.a, 1000);
    let far = pair.b.buffer(1000).fill(9);
    pair.post_send(&a, &SendWr::read(1, far.remote(0), near.sge(0, 1000)));
    pair.run_for(SOON);
    assert_eq!(a.send_outcomes(), []);
    near.device.allow(ALL);
    pair.run_for(SOON);
    assert_eq!(a.send_outcomes(), [(1, Ok(1000))]);
    assert_eq!(near.device.part(0, 1000), far.bytes());

    near.device.allow(0);
    pair.post_send(&a, &SendWr::read(2, far.remote(0), near.sge(0, 1000)));
    pair.run_for(SOON);
    near.device.copies.lock().unwrap().fails = true;
    pair.run_for(SOON);
    assert_eq!(a.send_outcomes(), [(2, Err(WcStatus::LocProtErr))]);
    assert_eq!(pair.state(&a), State::Err);
}

/// Reported completions stay; others fail on both sides.
#[test]
fn a_copy_that_fails() {
    for by_write in [true, false] {
        let (mut pair, a, b) = pair();
        let near = pair.a.buffer(1000).fill(3);
        let far = Registered::on(&mut pair.b, 1000);
        far.device.allow(ALL);
        pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
        pair.run_for(SOON);
        assert_eq!(a.send_outcomes(), [(1, Ok(0))]);

        far.device.allow(0);
        pair.post_recv(&b, &RecvWr::new(2, [far.sge(0, 1000)]));
        pair.post_recv(&b, &RecvWr::new(3, [far.sge(0, 1000)]));
        for id in 2..=3 {
            let write = SendWr::write(id, far.remote(0), near.all());
            let send = SendWr::send(id, near.all());
            pair.post_send(&a, if by_write { &write } else { &send });
        }
        pair.run_for(SOON);
        far.device.copies.lock().unwrap().fails = true;
        pair.run_for(SOON);
        let told = [(2, Err(WcStatus::RemOpErr)), (3, Err(WcStatus::WrFlushErr))];
        assert_eq!(a.send_outcomes(), told, "{by_write}");
        let first = if by_write { WcStatus::WrFlushErr } else { WcStatus::LocProtErr };
        assert_eq!(b.recv_outcomes(), [(2, Err(first)), (3, Err(WcStatus::WrFlushErr))]);
        assert_eq!((pair.state(&a), pair.state(&b)), (State::Err, State::Err));
        pair.allow(DropReason::QpState);
    }
}

#[test]
fn a_response_has_the_bytes_of_earlier_copies() {
    let (mut pair, a, _) = pair();
    let (near, back) = (pair.a.buffer(600).fill(3), pair.a.buffer(600));
    let far = Registered::on(&mut pair.b, 600);
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.post_send(&a, &SendWr::read(2, far.remote(0), back.all()));
    pair.run_for(SOON);
    assert_eq!(a.send_outcomes(), []);
    far.device.allow(ALL);
    pair.run_for(SOON);
    assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, Ok(600))]);
    assert_eq!(back.bytes(), near.bytes());
}

/// Sixteen packets, one copy.
#[test]
fn messages_are_copied_in_runs() {
    let (mut pair, a, _) = pair();
    let near = Registered::on(&mut pair.a, 4096);
    let (far, back) = (Registered::on(&mut pair.b, 4096), pair.a.buffer(4096));
    let bytes: Vec<u8> = (0..4096_u32).map(|at| (at * 7 / 5) as u8).collect();
    near.device.there.write_at(0, &bytes).unwrap();
    far.device.allow(ALL);
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.sge(0, 4096)));
    pair.run_for(SOON);
    pair.post_send(&a, &SendWr::read(2, far.remote(0), back.all()));
    pair.run_for(SOON);
    assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, Ok(4096))]);
    assert_eq!((far.device.part(0, 4096), back.bytes()), (bytes.clone(), bytes));
    let reads = [&near, &far].map(|side| side.device.copies.lock().unwrap().reads);
    assert_eq!(reads, [1, 1]);
}

/// Fetched bytes are not sent after the deregistration.
#[test]
fn a_source_deregistered_under_way() {
    let (mut pair, a, _) = pair();
    let near = Registered::on(&mut pair.a, 1 << 20);
    let far = pair.b.buffer(1 << 20);
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.sge(0, 1 << 20)));
    pair.transmit(Side::A);
    pair.a.adapter.deregister(&near.region).unwrap();
    pair.run_for(SOON);
    assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::LocProtErr))]);
}
