//! A `libcuda.so.1` for tests: the functions of the CUDA driver that copies need.
//!
//! Device memory is a file mapped twice: with `PROT_NONE` where programs know it, so a processor's
//! access faults, and where only copies know it. A copy ends once its stream was queried as often
//! as the knob `late` says. Only queries advance a stream.
//!
//! With the knob `lie` the driver reports an end too early.

#![allow(unsafe_code, reason = "functions of C, and mappings")]
#![allow(clippy::missing_safety_doc, reason = "the contract is that of the driver's functions")]
#![allow(non_snake_case, reason = "the driver's names")]
#![allow(missing_docs, reason = "the driver's functions are documented by NVIDIA")]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{c_int, c_uint, c_void},
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

type Status = c_int;
type Handle = *mut c_void;

const SUCCESS: Status = 0;
const INVALID_VALUE: Status = 1;
const OUT_OF_MEMORY: Status = 2;
const INVALID_CONTEXT: Status = 201;
const INVALID_HANDLE: Status = 400;
const NOT_READY: Status = 600;
const CONTEXT_IS_DESTROYED: Status = 709;
const LAUNCH_FAILED: Status = 719;

#[derive(Clone, Copy, Debug, Default)]
struct Knobs {
    /// Queries of a stream before a copy ends.
    late: u64,
    /// 1: streams report an end at once.
    lie: u64,
    /// Copies that succeed before all fail; 0: no failure.
    fail_after: u64,
    /// 1: no copy ends.
    stuck: u64,
    /// 1: memory has no context, like pools.
    pooled: u64,
}

#[derive(Clone, Copy)]
struct Allocation {
    size: usize,
    context: usize,
    /// Address that only copies know.
    inside: usize,
}

#[derive(Clone, Copy)]
struct Transfer {
    to: usize,
    from: usize,
    length: usize,
    queries: u64,
    number: u64,
}

struct Driver {
    knobs: Knobs,
    copies: u64,
    next: usize,
    contexts: BTreeSet<usize>,
    allocations: BTreeMap<usize, Allocation>,
    streams: BTreeMap<usize, (usize, VecDeque<Transfer>)>,
    /// Streams of events, and the copies in front of the events.
    events: BTreeMap<usize, (usize, u64)>,
}

static DRIVER: Mutex<Driver> = Mutex::new(Driver {
    knobs: Knobs { late: 0, lie: 0, fail_after: 0, stuck: 0, pooled: 0 },
    copies: 0,
    next: 0x1000,
    contexts: BTreeSet::new(),
    allocations: BTreeMap::new(),
    streams: BTreeMap::new(),
    events: BTreeMap::new(),
});

std::thread_local! {
    /// Contexts pushed by this thread.
    static CURRENT: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn driver() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    fn number(&mut self) -> usize {
        self.next += 16;
        self.next
    }

    /// Allocation of a range, and the inner address of its first byte.
    fn place(&self, address: u64, length: usize) -> Option<(Allocation, usize)> {
        let (start, allocation) = self.allocations.range(..=address as usize).next_back()?;
        let offset = address as usize - start;
        let fits = offset.checked_add(length)? <= allocation.size && offset < allocation.size;
        fits.then_some((*allocation, allocation.inside + offset))
    }

    fn start(&mut self, stream: Handle, transfer: Transfer) -> Status {
        let late = self.knobs.late;
        self.copies += 1;
        let number = self.copies;
        let failed = self.knobs.fail_after > 0 && self.copies > self.knobs.fail_after;
        match self.streams.get_mut(&stream.addr()) {
            None => INVALID_HANDLE,
            Some(_) if failed => LAUNCH_FAILED,
            Some((context, _)) if !self.contexts.contains(context) => CONTEXT_IS_DESTROYED,
            Some((_, waiting)) => {
                waiting.push_back(Transfer { queries: late, number, ..transfer });
                SUCCESS
            }
        }
    }

    fn query(&mut self, stream: usize) -> Status {
        let Knobs { lie, stuck, .. } = self.knobs;
        let Some((context, waiting)) = self.streams.get_mut(&stream) else {
            return INVALID_HANDLE;
        };
        if !self.contexts.contains(context) {
            return CONTEXT_IS_DESTROYED;
        }
        while let Some(next) = waiting.front_mut().filter(|_| stuck == 0) {
            if next.queries > 0 {
                next.queries -= 1;
                break;
            }
            // SAFETY: both ranges were checked when the copy was started
            unsafe { ptr::copy(next.from as *const u8, next.to as *mut u8, next.length) };
            waiting.pop_front();
        }
        if waiting.is_empty() || lie != 0 { SUCCESS } else { NOT_READY }
    }

    /// Not ready while copies in front of the event wait.
    fn query_event(&mut self, event: usize) -> Status {
        let Some(&(stream, number)) = self.events.get(&event) else { return INVALID_HANDLE };
        let status = self.query(stream);
        let first = self.streams.get(&stream).and_then(|(_, waiting)| waiting.front());
        let is_past = first.is_none_or(|first| first.number > number);
        if status == NOT_READY && is_past { SUCCESS } else { status }
    }
}

/// Knobs: 0 `late`, 1 `lie`, 2 `fail_after`, 3 `stuck`, 4 `pooled`.
#[unsafe(no_mangle)]
pub extern "C" fn fake_cuda_set(knob: c_int, value: u64) {
    let mut driver = driver();
    match knob {
        0 => driver.knobs.late = value,
        1 => driver.knobs.lie = value,
        2 => driver.knobs.fail_after = if value == 0 { 0 } else { driver.copies + value },
        3 => driver.knobs.stuck = value,
        _ => driver.knobs.pooled = value,
    }
}

/// Copies started so far.
#[unsafe(no_mangle)]
pub extern "C" fn fake_cuda_copies() -> u64 {
    driver().copies
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Status {
    // SAFETY: by the contract
    unsafe { *device = ordinal };
    if ordinal == 0 { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, _device: c_int) -> Status {
    const PRIMARY: usize = 0x10;
    driver().contexts.insert(PRIMARY);
    // SAFETY: by the contract
    unsafe { *context = PRIMARY as Handle };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v2(
    context: *mut Handle,
    _flags: c_uint,
    _device: c_int,
) -> Status {
    let mut driver = driver();
    let number = driver.number();
    driver.contexts.insert(number);
    // SAFETY: by the contract
    unsafe { *context = number as Handle };
    SUCCESS
}

/// Frees the context's memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDestroy_v2(context: Handle) -> Status {
    let mut driver = driver();
    driver.allocations.retain(|_, allocation| allocation.context != context.addr());
    if driver.contexts.remove(&context.addr()) { SUCCESS } else { INVALID_CONTEXT }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> Status {
    if !driver().contexts.contains(&context.addr()) {
        return CONTEXT_IS_DESTROYED;
    }
    CURRENT.with_borrow_mut(|current| current.push(context.addr()));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut Handle) -> Status {
    let popped = CURRENT.with_borrow_mut(Vec::pop);
    // SAFETY: by the contract
    unsafe { *context = popped.unwrap_or(0) as Handle };
    if popped.is_some() { SUCCESS } else { INVALID_CONTEXT }
}

fn current() -> Option<usize> {
    CURRENT.with_borrow(|current| current.last().copied())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) -> Status {
    let Some(context) = current() else { return INVALID_CONTEXT };
    let mut driver = driver();
    let number = driver.number();
    driver.streams.insert(number, (context, VecDeque::new()));
    // SAFETY: by the contract
    unsafe { *stream = number as Handle };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Status {
    if driver().streams.remove(&stream.addr()).is_some() { SUCCESS } else { INVALID_HANDLE }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(stream: Handle) -> Status {
    driver().query(stream.addr())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut Handle, _flags: c_uint) -> Status {
    let mut driver = driver();
    let number = driver.number();
    driver.events.insert(number, (0, 0));
    // SAFETY: by the contract
    unsafe { *event = number as Handle };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: Handle) -> Status {
    if driver().events.remove(&event.addr()).is_some() { SUCCESS } else { INVALID_HANDLE }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> Status {
    let mut driver = driver();
    let last = driver.copies;
    if !driver.streams.contains_key(&stream.addr()) {
        return INVALID_HANDLE;
    }
    driver.events.insert(event.addr(), (stream.addr(), last));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: Handle) -> Status {
    driver().query_event(event.addr())
}

/// Maps memory twice: where nothing may be touched, and where copies are made.
fn map(size: usize) -> Option<(usize, usize)> {
    // SAFETY: new mappings of a new file, which go with the process
    unsafe {
        let file = libc::memfd_create(c"device".as_ptr(), libc::MFD_CLOEXEC);
        if file < 0 || libc::ftruncate(file, size as libc::off_t) != 0 {
            return None;
        }
        let [outside, inside] = [libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE]
            .map(|rights| libc::mmap(ptr::null_mut(), size, rights, libc::MAP_SHARED, file, 0));
        libc::close(file);
        let mapped = outside != libc::MAP_FAILED && inside != libc::MAP_FAILED;
        mapped.then_some((outside.addr(), inside.addr()))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, size: usize) -> Status {
    let Some(context) = current() else { return INVALID_CONTEXT };
    let Some((outside, inside)) = map(size.next_multiple_of(4096)) else { return OUT_OF_MEMORY };
    driver().allocations.insert(outside, Allocation { size, context, inside });
    // SAFETY: by the contract
    unsafe { *address = outside as u64 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> Status {
    let freed = driver().allocations.remove(&(address as usize)).is_some();
    if freed { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    address: *mut *mut c_void,
    size: usize,
    _flags: c_uint,
) -> Status {
    // SAFETY: by the contract
    unsafe { *address = libc::malloc(size) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: *mut c_void) -> Status {
    // SAFETY: by the contract
    unsafe { libc::free(address) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(
    value: *mut c_void,
    attribute: c_int,
    address: u64,
) -> Status {
    let driver = driver();
    let Some((allocation, inside)) = driver.place(address, 1) else { return INVALID_VALUE };
    let start = address - (inside - allocation.inside) as u64;
    // SAFETY: by the contract, of the attribute's type
    unsafe {
        match attribute {
            1 if driver.knobs.pooled != 0 => *value.cast::<usize>() = 0,
            1 => *value.cast::<usize>() = allocation.context,
            2 => *value.cast::<c_uint>() = 2,
            8 => *value.cast::<u8>() = 0,
            9 => *value.cast::<c_int>() = 0,
            11 => *value.cast::<u64>() = start,
            12 => *value.cast::<usize>() = allocation.size,
            _ => return INVALID_VALUE,
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    length: usize,
    stream: Handle,
) -> Status {
    let mut driver = driver();
    let Some((_, to)) = driver.place(to, length) else { return INVALID_VALUE };
    driver.start(stream, Transfer { to, from: from.addr(), length, queries: 0, number: 0 })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    length: usize,
    stream: Handle,
) -> Status {
    let mut driver = driver();
    let Some((_, from)) = driver.place(from, length) else { return INVALID_VALUE };
    driver.start(stream, Transfer { to: to.addr(), from, length, queries: 0, number: 0 })
}

/// At once, as a program's kernels see memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, length: usize) -> Status {
    let Some((_, to)) = driver().place(to, length) else { return INVALID_VALUE };
    // SAFETY: by the contract; just checked
    unsafe { ptr::copy(from.cast::<u8>(), to as *mut u8, length) };
    SUCCESS
}

/// Likewise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, length: usize) -> Status {
    let Some((_, from)) = driver().place(from, length) else { return INVALID_VALUE };
    // SAFETY: by the contract; just checked
    unsafe { ptr::copy(from as *const u8, to.cast::<u8>(), length) };
    SUCCESS
}

/// The descriptor cannot be mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetHandleForAddressRange(
    descriptor: *mut c_void,
    address: u64,
    length: usize,
    _kind: c_int,
    _flags: u64,
) -> Status {
    if driver().place(address, length).is_none() {
        return INVALID_VALUE;
    }
    // SAFETY: by the contract
    unsafe { *descriptor.cast::<c_int>() = libc::eventfd(0, libc::EFD_CLOEXEC) };
    SUCCESS
}
