//! Memory that the program owns and takes away.

use std::{
    fs::File,
    ptr,
    sync::{Arc, atomic::AtomicU64, atomic::AtomicUsize},
    thread,
};

use roce::{
    Data, ForeignMemory, Memory, MemoryFault, RecvWr, RegionError, RegisterError, ReregMr, SendWr,
    State, Unreachable,
};

use super::*;

const PAGE: usize = 4096;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Pages at never reused addresses: no request reaches other memory.
struct Pages {
    start: *mut u8,
    len: usize,
}

impl Pages {
    fn new(count: usize) -> Self {
        Self::map(count * PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    fn of_file(count: usize) -> (Self, File) {
        use std::os::fd::AsRawFd;
        let file = tempfile::tempfile().unwrap();
        file.set_len((count * PAGE) as u64).unwrap();
        (Self::map(count * PAGE, libc::MAP_SHARED, file.as_raw_fd()), file)
    }

    fn map(len: usize, flags: i32, file: i32) -> Self {
        // Unmapped, with room for ThreadSanitizer's shadow memory.
        static NEXT: AtomicUsize = AtomicUsize::new(0x0100_0000_0000);
        let wanted = NEXT.fetch_add(len.next_multiple_of(1 << 30), Ordering::Relaxed);
        // SAFETY: a new mapping, where nothing is
        let start = unsafe {
            libc::mmap(
                wanted as *mut _,
                len,
                READ_WRITE,
                flags | libc::MAP_FIXED_NOREPLACE,
                file,
                0,
            )
        };
        assert_eq!(start as usize, wanted, "{}", std::io::Error::last_os_error());
        Self { start: start.cast(), len }
    }

    fn protect(&self, page: usize, rights: i32) {
        // SAFETY: a page of this mapping, without references
        assert_eq!(unsafe { libc::mprotect(self.start.add(page * PAGE).cast(), PAGE, rights) }, 0);
    }

    fn unmap(&self) {
        // SAFETY: this mapping, without references
        assert_eq!(unsafe { libc::munmap(self.start.cast(), self.len) }, 0);
    }

    fn unmap_page(&self, page: usize) {
        // SAFETY: a page of this mapping, without references
        assert_eq!(unsafe { libc::munmap(self.start.add(page * PAGE).cast(), PAGE) }, 0);
    }

    fn try_register(&self, side: &Side, access: Access) -> Result<MemoryRegion, RegionError> {
        // SAFETY: only references to atomics are ever made
        unsafe {
            side.memory.domain().register_raw(self.start, self.len, self.start as u64, access)
        }
    }

    fn region(&self, side: &Side, access: Access) -> MemoryRegion {
        self.try_register(side, access).unwrap()
    }

    fn on_demand(&self, side: &Side, access: Access) -> MemoryRegion {
        // SAFETY: as above
        unsafe {
            side.memory.domain().register_raw_on_demand(
                self.start,
                self.len,
                self.start as u64,
                access,
            )
        }
        .unwrap()
    }

    fn refusal(&self, side: &Side, access: Access) -> Option<Unreachable> {
        match self.try_register(side, access) {
            Ok(_) => None,
            Err(RegionError::Unreachable(error)) => Some(error),
            Err(error) => panic!("{error}"),
        }
    }
}

fn status(side: &Side) -> Option<WcStatus> {
    side.next().result.err().map(|error| error.status)
}

/// Checks completions and events of both sides.
fn target_is_gone(gone: impl FnOnce(&Pages), request: impl FnOnce(&Side, &MemoryRegion) -> SendWr) {
    let (a, b) = pair();
    let pages = Pages::new(3);
    let target = pages.region(&b, ALL);
    gone(&pages);
    a.qp.post_send(&[request(&a, &target)]).unwrap();
    assert_eq!(status(&a), Some(WcStatus::RemOpErr));
    assert_eq!((a.qp.query().state, b.qp.query().state), (State::Err, State::Err));
}

/// The request fails, and the peer is untouched.
fn source_is_gone(
    gone: impl FnOnce(&Pages),
    request: impl FnOnce(&Side, &Side, &MemoryRegion) -> SendWr,
) {
    let (a, b) = pair();
    let pages = Pages::new(3);
    let source = pages.region(&a, ALL);
    gone(&pages);
    a.qp.post_send(&[request(&a, &b, &source)]).unwrap();
    assert_eq!(status(&a), Some(WcStatus::LocProtErr));
    assert_eq!((a.qp.query().state, b.qp.query().state), (State::Err, State::Rts));
}

#[test]
fn a_programs_own_memory_is_written_and_read() {
    let (a, b) = pair();
    let (source, target) = (Pages::new(64), Pages::new(64));
    let (source, target) = (source.region(&a, ALL), target.region(&b, ALL));
    let data = noise(64 * PAGE, 1);
    source.write_at(0, &data).unwrap();
    a.qp.post_send(&[SendWr::write(1, target.remote(3), source.sge(5..200_005))]).unwrap();
    a.next().result.unwrap();
    assert!(target.to_vec(3..200_003).unwrap() == data[5..200_005]);
    a.qp.post_send(&[SendWr::read(2, target.remote(3), source.sge(11..100_011))]).unwrap();
    a.next().result.unwrap();
    assert!(source.to_vec(11..100_011).unwrap() == data[5..100_005]);
    b.qp.post_recv(&[RecvWr::new(3, [target.sge_all()])]).unwrap();
    a.qp.post_send(&[SendWr::send(4, source.sge_all())]).unwrap();
    b.next().result.unwrap();
    a.next().result.unwrap();
    assert!(target.to_vec(0..64 * PAGE).unwrap() == source.to_vec(0..64 * PAGE).unwrap());
}

#[test]
fn a_target_that_is_gone() {
    let write = |a: &Side, target: &MemoryRegion| {
        SendWr::write(1, target.remote(100), a.memory.sge(0..10_000))
    };
    let read = |a: &Side, target: &MemoryRegion| {
        SendWr::read(1, target.remote(100), a.memory.sge(0..10_000))
    };
    let add = |a: &Side, target: &MemoryRegion| {
        SendWr::fetch_add(1, target.remote(8), 1, a.memory.sge(0..8))
    };
    let swap = |a: &Side, target: &MemoryRegion| {
        SendWr::compare_swap(1, target.remote(8), 0, 1, a.memory.sge(0..8))
    };
    let word = |_: &Side, target: &MemoryRegion| {
        SendWr::atomic_write(1, target.remote(8), Data::inline(&[1; 8]))
    };
    target_is_gone(Pages::unmap, write);
    target_is_gone(Pages::unmap, read);
    target_is_gone(Pages::unmap, add);
    target_is_gone(Pages::unmap, swap);
    target_is_gone(Pages::unmap, word);
    let last = |pages: &Pages| pages.protect(2, libc::PROT_NONE);
    target_is_gone(last, write);
    target_is_gone(last, read);
    let read_only = |pages: &Pages| (0..3).for_each(|page| pages.protect(page, libc::PROT_READ));
    target_is_gone(read_only, write);
    target_is_gone(read_only, add);
    target_is_gone(read_only, swap);
    target_is_gone(read_only, word);
}

#[test]
fn a_receive_buffer_that_is_gone() {
    let (a, b) = pair();
    let pages = Pages::new(3);
    let buffer = pages.region(&b, ALL);
    b.qp.post_recv(&[RecvWr::new(1, [buffer.sge_all()])]).unwrap();
    pages.unmap_page(1);
    a.qp.post_send(&[SendWr::send(2, a.memory.sge(0..3 * PAGE))]).unwrap();
    assert_eq!(status(&a), Some(WcStatus::RemOpErr));
    assert_eq!(status(&b), Some(WcStatus::LocProtErr));
}

#[test]
fn a_local_buffer_that_is_gone() {
    let send = |_: &Side, _: &Side, source: &MemoryRegion| SendWr::send(1, source.sge_all());
    let write = |_: &Side, b: &Side, source: &MemoryRegion| {
        SendWr::write(1, b.memory.remote(0), source.sge_all())
    };
    let read = |_: &Side, b: &Side, source: &MemoryRegion| {
        SendWr::read(1, b.memory.remote(0), source.sge_all())
    };
    let add = |_: &Side, b: &Side, source: &MemoryRegion| {
        SendWr::fetch_add(1, b.memory.remote(0), 1, source.sge(PAGE..PAGE + 8))
    };
    source_is_gone(Pages::unmap, send);
    source_is_gone(Pages::unmap, write);
    source_is_gone(Pages::unmap, read);
    source_is_gone(Pages::unmap, add);
    let middle = |pages: &Pages| pages.protect(1, libc::PROT_NONE);
    source_is_gone(middle, send);
    source_is_gone(middle, write);
    source_is_gone(middle, read);
    source_is_gone(middle, add);
    let read_only = |pages: &Pages| pages.protect(1, libc::PROT_READ);
    source_is_gone(read_only, read);
    source_is_gone(read_only, add);
}

#[test]
fn a_file_that_is_cut_short() {
    let (a, b) = pair();
    let (pages, file) = Pages::of_file(3);
    let target = pages.region(&b, ALL);
    a.memory.write_at(0, &noise(3 * PAGE, 1)).unwrap();
    a.qp.post_send(&[SendWr::write(1, target.remote(0), a.memory.sge(0..3 * PAGE))]).unwrap();
    assert_eq!(status(&a), None);
    assert!(target.to_vec(0..3 * PAGE).unwrap() == noise(3 * PAGE, 1));
    file.set_len(PAGE as u64).unwrap();
    assert!(target.to_vec(0..PAGE).unwrap() == noise(PAGE, 1));
    assert_eq!(target.to_vec(0..PAGE + 1), Err(MemoryFault));
    assert_eq!(target.store_u64(PAGE, 1), Err(MemoryFault));
    a.qp.post_send(&[SendWr::read(2, target.remote(0), a.memory.sge(0..3 * PAGE))]).unwrap();
    assert_eq!(status(&a), Some(WcStatus::RemOpErr));
}

#[test]
fn read_only_memory_with_rights_to_read() {
    let (a, b) = pair();
    let pages = Pages::new(2);
    pages.region(&b, ALL).write_at(0, b"constant").unwrap();
    (0..2).for_each(|page| pages.protect(page, libc::PROT_READ));
    let address = pages.start as u64;
    assert_eq!(pages.refusal(&b, Access::LOCAL_WRITE), Some(Unreachable { address, write: true }));
    let target = pages.region(&b, Access::REMOTE_READ);
    a.qp.post_send(&[SendWr::read(1, target.remote(0), a.memory.sge(0..8))]).unwrap();
    assert_eq!(status(&a), None);
    assert_eq!(a.memory.to_vec(0..8).unwrap(), b"constant");
}

#[test]
fn what_cannot_be_registered() {
    let side = Side::on(loopback(OpenOptions::default()));
    // Few pages are probed, many looked up.
    for count in [4, 4096] {
        let pages = Pages::new(count);
        let at = |page: usize| (pages.start as usize + page * PAGE) as u64;
        assert_eq!(pages.refusal(&side, ALL), None);
        pages.protect(count - 2, libc::PROT_READ);
        assert_eq!(
            pages.refusal(&side, Access::LOCAL_WRITE),
            Some(Unreachable { address: at(count - 2), write: true })
        );
        assert_eq!(pages.refusal(&side, Access::REMOTE_READ), None);
        pages.protect(count - 2, libc::PROT_NONE);
        assert_eq!(
            pages.refusal(&side, Access::REMOTE_READ),
            Some(Unreachable { address: at(count - 2), write: false })
        );
        pages.unmap_page(count - 2);
        assert_eq!(
            pages.refusal(&side, Access::empty()),
            Some(Unreachable { address: at(count - 2), write: false })
        );
        pages.unmap_page(count - 1);
        assert!(pages.refusal(&side, Access::empty()).is_some());
        pages.unmap_page(0);
        assert_eq!(
            pages.refusal(&side, Access::empty()),
            Some(Unreachable { address: at(0), write: false })
        );

        let (pages, file) = Pages::of_file(count);
        assert_eq!(pages.refusal(&side, ALL), None);
        file.set_len(((count - 1) * PAGE) as u64).unwrap();
        assert!(pages.refusal(&side, ALL).is_some());
        assert!(pages.refusal(&side, Access::REMOTE_READ).is_some());
    }
    let pd = side.memory.domain();
    for (address, length) in [
        (0, 1),
        (0, usize::MAX),
        (8, 1 << 40),
        (usize::MAX - 8, 4),
        (usize::MAX, 2),
        (1 << 63, PAGE),
    ] {
        // SAFETY: no region comes of it
        let refused = unsafe {
            pd.register_raw(ptr::without_provenance_mut(address), length, 0, Access::empty())
        };
        assert!(
            matches!(refused.err(), Some(RegionError::Unreachable(_))),
            "{length} bytes at {address:#x}"
        );
    }
    let pages = Pages::new(1);
    // SAFETY: no region comes of it
    let refused = unsafe { pd.register_raw(pages.start, PAGE, u64::MAX - 100, Access::empty()) };
    assert!(matches!(refused.err(), Some(RegionError::Register(RegisterError::AddressOverflow))));
}

#[test]
fn many_gigabytes_that_are_not_there_yet() {
    let side = Side::on(loopback(OpenOptions::default()));
    let pages =
        Pages::map(64 << 30, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1);
    let start = Instant::now();
    let region = pages.region(&side, ALL);
    assert!(start.elapsed() < Duration::from_secs(1));
    region.write_at((64 << 30) - 3, b"end").unwrap();
    assert_eq!(region.to_vec((64 << 30) - 3..64 << 30).unwrap(), b"end");
    pages.unmap();
}

#[test]
fn on_demand() {
    let (a, b) = pair();
    let pages = Pages::new(3);
    pages.protect(1, libc::PROT_NONE);
    pages.unmap_page(2);
    let target = pages.on_demand(&b, ALL);
    target.prefetch(0..PAGE).unwrap();
    assert_eq!(target.prefetch(0..3 * PAGE), Err(MemoryFault));
    a.qp.post_send(&[SendWr::write(1, target.remote(PAGE - 4), a.memory.sge(0..4))]).unwrap();
    assert_eq!(status(&a), None);
    pages.protect(1, READ_WRITE);
    a.qp.post_send(&[SendWr::write(2, target.remote(0), a.memory.sge(0..2 * PAGE))]).unwrap();
    assert_eq!(status(&a), None);
    a.qp.post_send(&[SendWr::write(3, target.remote(PAGE), a.memory.sge(0..PAGE + 1))]).unwrap();
    assert_eq!(status(&a), Some(WcStatus::RemOpErr));
}

#[test]
fn all_of_the_address_space() {
    let (a, b) = pair();
    // SAFETY: peers and requests reach only what this test has mapped
    let all =
        unsafe { b.memory.domain().register_raw_on_demand(ptr::null_mut(), usize::MAX, 0, ALL) }
            .unwrap();
    let pages = Pages::new(1);
    a.memory.write_at(0, b"anywhere").unwrap();
    a.qp.post_send(&[SendWr::write(1, all.remote(pages.start as usize), a.memory.sge(0..8))])
        .unwrap();
    assert_eq!(status(&a), None);
    assert_eq!(all.to_vec(pages.start as usize..pages.start as usize + 8).unwrap(), b"anywhere");
    // first page, last bytes, non-canonical addresses
    let mut bytes = [0; 16];
    for address in [0, 4000, usize::MAX - 16, 1 << 62, 1 << 47, usize::MAX - PAGE] {
        assert_eq!(all.read_at(address, &mut bytes), Err(MemoryFault), "{address:#x}");
        assert_eq!(all.write_at(address, &bytes), Err(MemoryFault), "{address:#x}");
    }
    for address in [0, 1 << 62, usize::MAX - 15] {
        assert_eq!(all.load_u64(address), Err(MemoryFault), "{address:#x}");
    }
    a.qp.post_send(&[SendWr::read(2, all.remote(1 << 62), a.memory.sge(0..8))]).unwrap();
    assert_eq!(status(&a), Some(WcStatus::RemOpErr));
}

#[test]
fn another_place_for_a_region() {
    let (a, b) = pair();
    let (first, second) = (Pages::new(1), Pages::new(2));
    let region = first.region(&b, Access::REMOTE_READ);
    // SAFETY: no reference to these pages is ever made
    let memory = unsafe { ForeignMemory::new(second.start, 2 * PAGE, ALL) }.unwrap();
    let change = ReregMr {
        memory: Some((Arc::new(memory), 0x7000)),
        access: Some(ALL),
        ..ReregMr::default()
    };
    let moved = region.reregister(change).unwrap();
    first.unmap();
    assert_eq!((moved.rkey(), moved.len(), moved.address()), (region.rkey(), 2 * PAGE, 0x7000));
    a.memory.fill(7).unwrap();
    a.qp.post_send(&[SendWr::write(1, moved.remote(0), a.memory.sge(0..2 * PAGE))]).unwrap();
    assert_eq!(status(&a), None);
    assert!(moved.to_vec(0..2 * PAGE).unwrap() == [7; 2 * PAGE]);
}

#[test]
fn eight_bytes_at_an_odd_address() {
    let (a, b) = pair();
    let pages = Pages::new(1);
    let odd = pages.start.wrapping_add(3);
    let pd = b.memory.domain();
    // SAFETY: no reference to this page is ever made
    let (same, other) = unsafe {
        (
            pd.register_raw(odd, 100, odd as u64, ALL).unwrap(),
            pd.register_raw(odd, 100, 0x8000, ALL).unwrap(),
        )
    };
    // the 8-byte aligned word, 5 bytes into the region
    same.write_at(5, &41_u64.to_ne_bytes()).unwrap();
    a.qp.post_send(&[SendWr::fetch_add(1, same.remote(5), 1, a.memory.sge(0..8))]).unwrap();
    assert_eq!(status(&a), None);
    a.qp.post_send(&[SendWr::compare_swap(2, same.remote(5), 42, 50, a.memory.sge(8..16))])
        .unwrap();
    assert_eq!(status(&a), None);
    a.qp.post_send(&[SendWr::compare_swap(3, same.remote(5), 42, 60, a.memory.sge(16..24))])
        .unwrap();
    assert_eq!(status(&a), None);
    assert_eq!([0, 8, 16].map(|at| a.memory.load_u64(at).unwrap()), [41, 42, 50]);
    assert_eq!(same.load_u64(5), Ok(50));
    a.qp.post_send(&[SendWr::atomic_write(4, same.remote(5), Data::inline(&70_u64.to_ne_bytes()))])
        .unwrap();
    assert_eq!(status(&a), None);
    assert_eq!(same.load_u64(5), Ok(70));
    assert_eq!(same.load_u64(0), Err(MemoryFault));
    // aligned for peers, not in memory
    assert_eq!(other.store_u64(8, 1), Err(MemoryFault));
    a.qp.post_send(&[SendWr::fetch_add(5, other.remote(8), 1, a.memory.sge(0..8))]).unwrap();
    assert_eq!(status(&a), Some(WcStatus::RemOpErr));
    assert_eq!(same.load_u64(5), Ok(70));
}

#[test]
fn atomic_against_the_programs_own_atomics() {
    const EACH: u64 = 100_000;
    let pages = Pages::new(1);
    // SAFETY: only atomics refer to this page
    let (memory, own) = unsafe {
        (
            ForeignMemory::new(pages.start, PAGE, ALL).unwrap(),
            AtomicU64::from_ptr(pages.start.cast()),
        )
    };
    thread::scope(|scope| {
        scope.spawn(|| (0..EACH).for_each(|_| _ = own.fetch_add(1, Ordering::Relaxed)));
        scope.spawn(|| (0..EACH).for_each(|_| _ = memory.fetch_add(0, 1).unwrap()));
        scope.spawn(|| {
            for _ in 0..EACH {
                while memory
                    .load_u64(0)
                    .and_then(|old| Ok(memory.compare_swap(0, old, old + 1)? != old))
                    .unwrap()
                {}
            }
        });
    });
    assert_eq!(own.load(Ordering::Relaxed), 3 * EACH);
}
