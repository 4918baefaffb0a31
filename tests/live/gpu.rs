//! GPU memory over the driver of `tests/fake_cuda`: the processor cannot reach it, and copies end
//! late.

use std::{
    ffi::{c_int, c_uint, c_void},
    ptr::{self, null_mut},
    sync::LazyLock,
};

use roce::{Data, ForeignMemory, GpuMemory, Placement, Remote, WindowBind, WindowType};

use super::*;

#[path = "../fake_cuda/load.rs"]
mod load;

const LATE: c_int = 0;
const LIE: c_int = 1;
const FAIL_AFTER: c_int = 2;
const STUCK: c_int = 3;
const POOLED: c_int = 4;

const SIZE: usize = 300_000;
const RIGHTS: Access = ALL.union(Access::MW_BIND).union(Access::FLUSH_GLOBAL);

struct Driver {
    set: extern "C" fn(c_int, u64),
    create: unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> c_int,
    destroy: extern "C" fn(*mut c_void) -> c_int,
    push: extern "C" fn(*mut c_void) -> c_int,
    pop: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: extern "C" fn(u64) -> c_int,
    put: unsafe extern "C" fn(u64, *const c_void, usize) -> c_int,
    get: unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int,
}

static DRIVER: LazyLock<Driver> = LazyLock::new(|| {
    let library = load::driver();
    macro_rules! function {
        ($name:literal) => {{
            // SAFETY: the library stays loaded, and the name is terminated
            let found = unsafe { libc::dlsym(library, $name.as_ptr()) };
            assert!(!found.is_null());
            #[allow(clippy::missing_transmute_annotations, reason = "the field's type")]
            // SAFETY: the driver declares it so
            unsafe {
                std::mem::transmute(found)
            }
        }};
    }
    Driver {
        set: function!(c"fake_cuda_set"),
        create: function!(c"cuCtxCreate_v2"),
        destroy: function!(c"cuCtxDestroy_v2"),
        push: function!(c"cuCtxPushCurrent_v2"),
        pop: function!(c"cuCtxPopCurrent_v2"),
        allocate: function!(c"cuMemAlloc_v2"),
        free: function!(c"cuMemFree_v2"),
        put: function!(c"cuMemcpyHtoD_v2"),
        get: function!(c"cuMemcpyDtoH_v2"),
    }
});

/// A context, and the turn of its test: tests share the knobs.
struct Gpu {
    context: *mut c_void,
    _turn: MutexGuard<'static, ()>,
}

impl Gpu {
    fn new(late: u64) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        for knob in [LIE, FAIL_AFTER, STUCK, POOLED] {
            (DRIVER.set)(knob, 0);
        }
        (DRIVER.set)(LATE, late);
        let mut context = null_mut();
        // SAFETY: it writes the place
        assert_eq!(unsafe { (DRIVER.create)(&raw mut context, 0, 0) }, 0);
        Self { context, _turn: turn }
    }

    fn set(&self, knob: c_int, value: u64) {
        (DRIVER.set)(knob, value);
    }

    /// Registered by address.
    fn region(&self, side: &Side, size: usize) -> MemoryRegion {
        let address = self.allocate(size);
        let pointer = ptr::with_exposed_provenance_mut(address as usize);
        let pd = side.memory.domain();
        // SAFETY: without references
        unsafe { pd.register_raw(pointer, size, address, RIGHTS) }.unwrap()
    }

    fn allocate(&self, size: usize) -> u64 {
        let (mut address, mut popped) = (0, null_mut());
        assert_eq!((DRIVER.push)(self.context), 0);
        // SAFETY: they write the places
        unsafe {
            assert_eq!((DRIVER.allocate)(&raw mut address, size), 0);
            (DRIVER.pop)(&raw mut popped);
        }
        address
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        (DRIVER.destroy)(self.context);
        self.set(STUCK, 0);
    }
}

/// As the GPU's kernels do.
fn put(region: &MemoryRegion, offset: usize, bytes: &[u8]) {
    let address = region.address() + offset as u64;
    // SAFETY: it reads the bytes
    assert_eq!(unsafe { (DRIVER.put)(address, bytes.as_ptr().cast(), bytes.len()) }, 0);
}

/// As the GPU's kernels see them.
fn get(region: &MemoryRegion, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let address = region.address() + offset as u64;
    // SAFETY: it writes the bytes
    assert_eq!(unsafe { (DRIVER.get)(bytes.as_mut_ptr().cast(), address, length) }, 0);
    bytes
}

struct Place {
    region: MemoryRegion,
    on_gpu: bool,
}

impl Place {
    fn new(gpu: &Gpu, side: &Side, on_gpu: bool) -> Self {
        let region = if on_gpu {
            gpu.region(side, SIZE)
        } else {
            side.memory.domain().allocate(SIZE, RIGHTS).unwrap()
        };
        Self { region, on_gpu }
    }

    fn put(&self, bytes: &[u8]) {
        if self.on_gpu {
            put(&self.region, 0, bytes);
        } else {
            self.region.write_at(0, bytes).unwrap();
        }
    }

    fn get(&self, length: usize) -> Vec<u8> {
        if self.on_gpu {
            get(&self.region, 0, length)
        } else {
            self.region.to_vec(0..length).unwrap()
        }
    }
}

/// Bytes go from the process to a GPU, back, and from GPU to GPU.
fn both_ways(late: u64, act: impl Fn((&Side, &Place), (&Side, &Place))) {
    for (here, there) in [(false, true), (true, false), (true, true)] {
        let gpu = Gpu::new(late);
        let (a, b) = pair();
        let (source, target) = (Place::new(&gpu, &a, here), Place::new(&gpu, &b, there));
        act((&a, &source), (&b, &target));
        assert_nothing_dropped(&b.context);
    }
}

#[test]
fn the_processor_cannot_reach_it() {
    let gpu = Gpu::new(0);
    let address = gpu.allocate(5000);
    let pointer = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: without references
    assert!(unsafe { ForeignMemory::new(pointer, 5000, ALL) }.is_err());
    assert!(GpuMemory::find(address, 5000).unwrap().is_some());
    assert!(GpuMemory::find(address + 100, 4900).unwrap().is_some());
    let beyond = GpuMemory::find(address, 5001).unwrap_err();
    assert_eq!(beyond.address, address + 5000);
    assert!(GpuMemory::find(&raw const gpu as u64, 8).unwrap().is_none(), "memory of the process");
    gpu.set(POOLED, 1);
    assert!(GpuMemory::find(address, 5000).unwrap().is_some(), "without a context of its own");
}

#[test]
fn send_write_and_read_between_gpus_and_processes() {
    both_ways(3, |(a, source), (b, target)| {
        for (round, size) in [1, 7, 4096, 4097, 65_539, SIZE].into_iter().enumerate() {
            let data = noise(size, round as u32 + 1);
            source.put(&data);
            target.put(&vec![0xEE; size]);
            b.qp.post_recv(&[RecvWr::new(1, [target.region.sge(0..size)])]).unwrap();
            a.qp.post_send(&[SendWr::send(2, source.region.sge(0..size))]).unwrap();
            assert_eq!(b.next().result.unwrap().byte_len as usize, size);
            assert!(target.get(size) == data, "SEND of {size} bytes");
            a.next().result.unwrap();

            target.put(&vec![0xEE; size]);
            let write = SendWr::write(3, target.region.remote(0), source.region.sge(0..size));
            a.qp.post_send(&[write]).unwrap();
            a.next().result.unwrap();
            assert!(target.get(size) == data, "WRITE of {size} bytes");

            source.put(&vec![0; size]);
            let read = SendWr::read(4, target.region.remote(0), source.region.sge(0..size));
            a.qp.post_send(&[read]).unwrap();
            a.next().result.unwrap();
            assert!(source.get(size) == data, "READ of {size} bytes");
        }
    });
}

#[test]
fn atomics_atomic_writes_and_flushes_of_a_gpus_memory() {
    both_ways(2, |(a, source), (_, target)| {
        target.put(&[40_u64, 7].map(u64::to_ne_bytes).concat());
        let word = |at: usize| source.region.sge(at..at + 8);
        let remote = |at: usize| target.region.remote(at);
        let number = |bytes: Vec<u8>| u64::from_ne_bytes(bytes.try_into().unwrap());
        for (wr, found) in [
            (SendWr::fetch_add(1, remote(0), 2, word(0)), 40),
            (SendWr::compare_swap(2, remote(0), 42, 50, word(0)), 42),
            (SendWr::compare_swap(3, remote(0), 42, 60, word(0)), 50),
        ] {
            a.qp.post_send(&[wr]).unwrap();
            a.next().result.unwrap();
            assert_eq!(number(source.get(8)), found);
        }
        assert_eq!(number(target.get(8)), 50);

        source.put(&9_u64.to_ne_bytes());
        let flush = SendWr::flush(5, target.region.remote(0), 8, Placement::GLOBAL);
        a.qp.post_send(&[SendWr::atomic_write(4, remote(0), word(0)), flush]).unwrap();
        for _ in 0..2 {
            a.next().result.unwrap();
        }
        assert_eq!(number(target.get(8)), 9);
    });
}

#[test]
fn lists_that_mix_both_kinds_of_memory() {
    let gpu = Gpu::new(2);
    let (a, b) = pair();
    let (near, far) = (gpu.region(&a, SIZE), gpu.region(&b, SIZE));
    let data = noise(30_000, 3);
    put(&near, 5, &data[..10_000]);
    a.memory.write_at(9, &data[10_000..20_000]).unwrap();
    put(&near, 20_001, &data[20_000..]);
    let list = [near.sge(5..10_005), a.memory.sge(9..10_009), near.sge(20_001..30_001)];
    let room = [far.sge(3..7_003), b.memory.sge(1..15_001), far.sge(50_000..60_000)];
    b.qp.post_recv(&[RecvWr::new(1, room)]).unwrap();
    a.qp.post_send(&[SendWr::send(2, list)]).unwrap();
    assert_eq!(b.next().result.unwrap().byte_len, 30_000);
    let got = [get(&far, 3, 7_000), b.memory.to_vec(1..15_001).unwrap(), get(&far, 50_000, 8_000)];
    assert!(got.concat() == data);
    a.next().result.unwrap();

    let inline = SendWr::write(3, far.remote(11), Data::inline(b"words"));
    a.qp.post_send(&[inline]).unwrap();
    a.next().result.unwrap();
    assert_eq!(get(&far, 11, 5), b"words");
}

#[test]
fn a_window_of_a_gpus_memory() {
    let gpu = Gpu::new(1);
    let (a, b) = pair();
    let far = gpu.region(&b, 9000);
    let window = far.domain().alloc_window(WindowType::Type2B).unwrap();
    let bind = WindowBind {
        rkey: window.rkey().next(),
        region: far.lkey(),
        address: far.address() + 100,
        length: 50,
        access: Access::REMOTE_WRITE,
        zero_based: true,
    };
    b.qp.post_send(&[SendWr::bind_window(1, bind)]).unwrap();
    b.next().result.unwrap();
    a.memory.write_at(0, b"words").unwrap();
    let remote = Remote { address: 45, rkey: bind.rkey };
    a.qp.post_send(&[SendWr::write(1, remote, a.memory.sge(0..5))]).unwrap();
    a.next().result.unwrap();
    assert_eq!(get(&far, 145, 5), b"words");
    a.qp.post_send(&[SendWr::write(2, remote, a.memory.sge(0..6))]).unwrap();
    assert_eq!(a.next().result.unwrap_err().status, WcStatus::RemAccessErr);
}

/// Status of a request, and of the peer's receive request.
fn ends(a: &Side, b: Option<&Side>) -> (WcStatus, Option<WcStatus>) {
    let status = |side: &Side| side.next().result.unwrap_err().status;
    (status(a), b.map(status))
}

/// A failure is an error of the queue pair, with the status of unreachable memory. Queue pairs with
/// other memory continue.
#[test]
fn a_gpu_that_fails() {
    for failure in ["copies", "freed", "context", "stuck"] {
        let gpu = Gpu::new(0);
        let (a, b) = pair();
        let (near, far) = (gpu.region(&a, SIZE), gpu.region(&b, SIZE));
        let (c, d) = pair();
        connect_more(&a, &b, |more_a, more_b| {
            match failure {
                "copies" => gpu.set(FAIL_AFTER, 1),
                "freed" => {
                    assert_eq!((DRIVER.free)(near.address()), 0);
                    assert_eq!((DRIVER.free)(far.address()), 0);
                }
                "context" => assert_eq!((DRIVER.destroy)(gpu.context), 0),
                _ => gpu.set(STUCK, 1),
            }
            // the source cannot be read
            a.qp.post_send(&[SendWr::write(1, b.memory.remote(0), near.sge(0..SIZE))]).unwrap();
            assert_eq!(ends(&a, None).0, WcStatus::LocProtErr, "{failure}");
            a.qp.post_send(&[SendWr::write(2, b.memory.remote(0), a.memory.sge(0..1))]).unwrap();
            assert_eq!(ends(&a, None).0, WcStatus::WrFlushErr, "{failure}");
            // the target cannot be written
            more_b.post_recv(&[RecvWr::new(3, [far.sge(0..SIZE)])]).unwrap();
            more_a.post_send(&[SendWr::send(4, a.memory.sge(0..8192))]).unwrap();
            let both = ends(&a, Some(&b));
            assert_eq!(both, (WcStatus::RemOpErr, Some(WcStatus::LocProtErr)), "{failure}");
        });
        c.qp.post_send(&[SendWr::write(1, d.memory.remote(0), c.memory.sge(0..9000))]).unwrap();
        c.next().result.unwrap();
    }
}

/// With one more connected queue pair of each side.
fn connect_more(a: &Side, b: &Side, act: impl FnOnce(&QueuePair, &QueuePair)) {
    let [more_a, more_b] = [a, b].map(|side| {
        side.memory.domain().create_qp(&QpInitAttr::new(QpType::Rc, &side.cq)).unwrap()
    });
    more_a.connect_to(more_b.endpoint(0).unwrap()).unwrap();
    more_b.connect_to(more_a.endpoint(0).unwrap()).unwrap();
    act(&more_a, &more_b);
}

/// Here the driver reports the end of copies too early. By hand: let `Lane::look` in
/// `provider/src/region/gpu` take every copy as ended, or `Copies::has` in
/// `transport/src/work/copies.rs` return false. Then
/// `send_write_and_read_between_gpus_and_processes` or `pair::copies` fail.
#[test]
fn a_completion_before_its_copy_is_seen() {
    let gpu = Gpu::new(1000);
    let (a, b) = pair();
    let far = gpu.region(&b, SIZE);
    gpu.set(LIE, 1);
    a.memory.write_at(0, &[1; 100]).unwrap();
    a.qp.post_send(&[SendWr::write(1, far.remote(0), a.memory.sge(0..100))]).unwrap();
    a.next().result.unwrap();
    assert_eq!(get(&far, 0, 100), [0; 100]);
}
