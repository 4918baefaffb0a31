//! NVIDIA's driver, `libcuda.so.1`, as loaded by the program.
//!
//! See the CUDA driver API: "Unified Addressing", "Memory Management", "Stream Management".

#![allow(unsafe_code, reason = "calling functions of a library of C")]

use std::{
    collections::VecDeque,
    ffi::{CStr, c_int, c_uint, c_void},
    mem,
    ops::Range,
    ptr,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use roce_transport::mem::MemoryFault;

use crate::sync::Mutex;

/// `CUresult`.
type Status = c_int;
/// `CUcontext`, `CUstream`.
type Handle = *mut c_void;

const SUCCESS: Status = 0;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: Status = 600;

// `CUpointer_attribute`.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;

/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: c_uint = 2;
/// `CU_STREAM_NON_BLOCKING`: does not wait for the program's kernels.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;
/// `CU_MEMHOSTALLOC_PORTABLE`.
const PORTABLE: c_uint = 1;

/// Bytes of a pinned buffer, so of a copy.
const BUFFER: usize = 256 << 10;
/// Maximum copies in flight per context.
const MAX_IN_FLIGHT: usize = 32;
/// Time limit of a copy.
const COPY_TIMEOUT: Duration = Duration::from_secs(2);

macro_rules! functions {
    ($($field:ident = $name:literal($($argument:ty),*);)*) => {
        pub(super) struct Cuda {
            $($field: unsafe extern "C" fn($($argument),*) -> Status,)*
            streams: Mutex<Vec<Weak<CopyStream>>>,
        }

        impl Cuda {
            /// `None` if the library lacks a function.
            fn of(library: Handle) -> Option<Self> {
                Some(Self {
                    $($field: {
                        let function = function(library, $name)?;
                        // SAFETY: the driver's signature
                        unsafe {
                            mem::transmute::<Handle, unsafe extern "C" fn($($argument),*) -> Status>(
                                function,
                            )
                        }
                    },)*
                    streams: Mutex::default(),
                })
            }
        }
    };
}

functions! {
    pointer_attribute = c"cuPointerGetAttribute"(*mut c_void, c_int, u64);
    push = c"cuCtxPushCurrent_v2"(Handle);
    pop = c"cuCtxPopCurrent_v2"(*mut Handle);
    device = c"cuDeviceGet"(*mut c_int, c_int);
    retain = c"cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    create_stream = c"cuStreamCreate"(*mut Handle, c_uint);
    destroy_stream = c"cuStreamDestroy_v2"(Handle);
    query_stream = c"cuStreamQuery"(Handle);
    create_event = c"cuEventCreate"(*mut Handle, c_uint);
    destroy_event = c"cuEventDestroy_v2"(Handle);
    record = c"cuEventRecord"(Handle, Handle);
    query_event = c"cuEventQuery"(Handle);
    to_device = c"cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, Handle);
    to_host = c"cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, Handle);
    allocate = c"cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    free = c"cuMemFreeHost"(*mut c_void);
}

fn function(library: Handle, name: &CStr) -> Option<Handle> {
    // SAFETY: a loaded library and a C string
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

const fn done(status: Status) -> Result<(), MemoryFault> {
    if status == SUCCESS { Ok(()) } else { Err(MemoryFault) }
}

impl Cuda {
    /// `None` until the program has loaded the driver, which then stays loaded.
    pub(super) fn loaded() -> Option<&'static Self> {
        static LOADED: OnceLock<Option<Cuda>> = OnceLock::new();
        if let Some(found) = LOADED.get() {
            return found.as_ref();
        }
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
        // SAFETY: a C string; nothing is loaded
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) };
        if library.is_null() {
            return None;
        }
        LOADED.get_or_init(|| Self::of(library)).as_ref()
    }

    /// `None` if the driver does not know the address.
    fn attribute<T: Copy>(&self, attribute: c_int, address: u64, mut value: T) -> Option<T> {
        // SAFETY: callers pass the attribute's type
        let status =
            unsafe { (self.pointer_attribute)((&raw mut value).cast(), attribute, address) };
        (status == SUCCESS).then_some(value)
    }

    /// Context and end of the device allocation around `address`, if any.
    fn allocation(&self, address: u64) -> Option<(Handle, u64)> {
        let is_device = self.attribute(MEMORY_TYPE, address, 0 as c_uint)? == DEVICE;
        // the processor reaches managed memory
        let is_managed = self.attribute(IS_MANAGED, address, 0 as c_uint).unwrap_or(0) & 0xFF != 0;
        if !is_device || is_managed {
            return None;
        }
        let start = self.attribute(RANGE_START, address, 0_u64)?;
        let size = self.attribute(RANGE_SIZE, address, 0_usize)?;
        let end = start.checked_add(size as u64).filter(|end| *end > address)?;
        // pools and mappings have no context: use their device's primary one
        let context = self
            .attribute(CONTEXT, address, ptr::null_mut::<c_void>())
            .filter(|context| !context.is_null())
            .or_else(|| self.primary(self.attribute(DEVICE_ORDINAL, address, 0 as c_int)?))?;
        Some((context, end))
    }

    fn primary(&self, ordinal: c_int) -> Option<Handle> {
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: writes `device`
        done(unsafe { (self.device)(&raw mut device, ordinal) }).ok()?;
        // SAFETY: writes `context`, which stays retained
        done(unsafe { (self.retain)(&raw mut context, device) }).ok()?;
        Some(context)
    }

    /// Calls `act` with `context` current on this thread.
    fn with_context<R>(
        &self,
        context: Handle,
        act: impl FnOnce() -> Result<R, MemoryFault>,
    ) -> Result<R, MemoryFault> {
        // SAFETY: the driver refuses a dead context
        done(unsafe { (self.push)(context) })?;
        let result = act();
        let mut popped = ptr::null_mut();
        // SAFETY: writes `popped`
        unsafe { (self.pop)(&raw mut popped) };
        result
    }

    fn stream(&'static self, context: Handle) -> Result<Arc<CopyStream>, MemoryFault> {
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.strong_count() > 0);
        let mut open = streams.iter().filter_map(Weak::upgrade);
        if let Some(stream) = open.find(|stream| stream.context == context && stream.works()) {
            return Ok(stream);
        }
        let stream = Arc::new(CopyStream::new(self, context)?);
        streams.push(Arc::downgrade(&stream));
        Ok(stream)
    }

    /// Copies to and from a range; `None` if it does not begin in device memory.
    ///
    /// # Errors
    /// The first address outside, if the range only begins in device memory.
    pub(super) fn find(&'static self, range: Range<u64>) -> Result<Option<Arc<CopyStream>>, u64> {
        let Some((context, mut end)) = self.allocation(range.start) else { return Ok(None) };
        while end < range.end {
            end = self.allocation(end).filter(|next| next.0 == context).ok_or(end)?.1;
        }
        self.stream(context).map(Some).map_err(|MemoryFault| range.start)
    }
}

/// Stream of a context, with pinned buffers. Copies run in order; calls return when the copy has
/// ended, except [`start_write`](Self::start_write).
pub(super) struct CopyStream {
    cuda: &'static Cuda,
    context: Handle,
    stream: Handle,
    state: Mutex<State>,
    /// Set once a copy fails or exceeds [`COPY_TIMEOUT`]: buffers may still be in use.
    is_broken: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Copies in flight, in order.
    started: VecDeque<Started>,
    free: Vec<Pinned>,
    last: u64,
}

struct Started {
    number: u64,
    buffer: Pinned,
    at: Instant,
}

/// Pinned buffer, and the event after its copy.
struct Pinned {
    bytes: *mut u8,
    event: Handle,
}

// SAFETY: any thread may use the driver's handles
unsafe impl Send for CopyStream {}
// SAFETY: as above; the buffers are behind a mutex
unsafe impl Sync for CopyStream {}

impl CopyStream {
    fn new(cuda: &'static Cuda, context: Handle) -> Result<Self, MemoryFault> {
        let stream = cuda.with_context(context, || {
            let mut stream = ptr::null_mut();
            // SAFETY: writes `stream`
            done(unsafe { (cuda.create_stream)(&raw mut stream, NON_BLOCKING) })?;
            Ok(stream)
        })?;
        let state = Mutex::default();
        Ok(Self { cuda, context, stream, state, is_broken: AtomicBool::new(false) })
    }

    /// True if the context still exists.
    fn works(&self) -> bool {
        // SAFETY: the driver refuses a dead stream
        let query = || match unsafe { (self.cuda.query_stream)(self.stream) } {
            NOT_READY => Ok(()),
            status => done(status),
        };
        !self.is_broken.load(Ordering::Relaxed)
            && self.cuda.with_context(self.context, query).is_ok()
    }

    /// Calls `act` under the lock, with the context current.
    fn with<R>(
        &self,
        act: impl FnOnce(&mut State) -> Result<R, MemoryFault>,
    ) -> Result<R, MemoryFault> {
        let mut state = self.state.lock();
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(MemoryFault);
        }
        self.cuda.with_context(self.context, || act(&mut state))
    }

    fn buffer(&self, state: &mut State) -> Result<Pinned, MemoryFault> {
        self.reap(state)?;
        if let Some(buffer) = state.free.pop() {
            return Ok(buffer);
        }
        if state.started.len() >= MAX_IN_FLIGHT {
            self.finish(state, state.last - MAX_IN_FLIGHT as u64 + 1)?;
            return state.free.pop().ok_or(MemoryFault);
        }
        let (mut bytes, mut event) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: writes `event`
        done(unsafe { (self.cuda.create_event)(&raw mut event, NO_TIMING) })?;
        // SAFETY: writes `bytes`
        let allocated = unsafe { (self.cuda.allocate)(&raw mut bytes, BUFFER, PORTABLE) };
        if allocated != SUCCESS {
            // SAFETY: the event just created
            unsafe { (self.cuda.destroy_event)(event) };
            return Err(MemoryFault);
        }
        Ok(Pinned { bytes: bytes.cast(), event })
    }

    /// Starts `copy` and returns its number.
    fn start(
        &self,
        state: &mut State,
        buffer: Pinned,
        copy: impl FnOnce(&Pinned) -> Status,
    ) -> Result<u64, MemoryFault> {
        let started = done(copy(&buffer)).and_then(|()| {
            // SAFETY: a live event and stream
            done(unsafe { (self.cuda.record)(buffer.event, self.stream) })
        });
        if started.is_err() {
            state.free.push(buffer);
            return Err(MemoryFault);
        }
        state.last += 1;
        state.started.push_back(Started { number: state.last, buffer, at: Instant::now() });
        Ok(state.last)
    }

    /// Frees the buffers of completed copies.
    fn reap(&self, state: &mut State) -> Result<(), MemoryFault> {
        while let Some(first) = state.started.front() {
            // SAFETY: a live event
            match unsafe { (self.cuda.query_event)(first.buffer.event) } {
                SUCCESS => {}
                NOT_READY if first.at.elapsed() < COPY_TIMEOUT => break,
                _ => {
                    self.is_broken.store(true, Ordering::Relaxed);
                    return Err(MemoryFault);
                }
            }
            state.free.extend(state.started.pop_front().map(|first| first.buffer));
        }
        Ok(())
    }

    fn finish(&self, state: &mut State, number: u64) -> Result<(), MemoryFault> {
        loop {
            self.reap(state)?;
            if state.started.front().is_none_or(|first| first.number > number) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }

    /// Returns the number of the last copy.
    fn send(&self, state: &mut State, address: u64, from: &[u8]) -> Result<u64, MemoryFault> {
        let (mut at, mut last) = (address, state.last);
        for part in from.chunks(BUFFER) {
            let buffer = self.buffer(state)?;
            // SAFETY: the buffer is long enough and unshared
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), buffer.bytes, part.len()) };
            last = self.start(state, buffer, |buffer| {
                // SAFETY: the buffer is unchanged until the copy ends
                unsafe { (self.cuda.to_device)(at, buffer.bytes.cast(), part.len(), self.stream) }
            })?;
            at += part.len() as u64;
        }
        Ok(last)
    }

    fn fetch(&self, state: &mut State, address: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        let mut at = address;
        for part in to.chunks_mut(BUFFER) {
            let buffer = self.buffer(state)?;
            let bytes = buffer.bytes;
            let number = self.start(state, buffer, |buffer| {
                // SAFETY: the buffer is long enough, and unshared until the copy ends
                unsafe { (self.cuda.to_host)(buffer.bytes.cast(), at, part.len(), self.stream) }
            })?;
            self.finish(state, number)?;
            // SAFETY: the copy has ended, and no other has started
            unsafe { ptr::copy_nonoverlapping(bytes, part.as_mut_ptr(), part.len()) };
            at += part.len() as u64;
        }
        Ok(())
    }

    pub(super) fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.with(|state| {
            let last = self.send(state, address, from)?;
            self.finish(state, last)
        })
    }

    /// Starts a write and returns its number.
    pub(super) fn start_write(&self, address: u64, from: &[u8]) -> Result<u64, MemoryFault> {
        self.with(|state| self.send(state, address, from))
    }

    pub(super) fn has_ended(&self, number: u64) -> Result<bool, MemoryFault> {
        self.with(|state| {
            self.reap(state)?;
            Ok(state.started.front().is_none_or(|first| first.number > number))
        })
    }

    pub(super) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.with(|state| self.fetch(state, address, to))
    }

    /// Replaces a word and returns the old value, atomically among calls of this process.
    pub(super) fn exchange(
        &self,
        address: u64,
        new: impl FnOnce(u64) -> u64,
    ) -> Result<u64, MemoryFault> {
        self.with(|state| {
            let mut word = [0; 8];
            self.fetch(state, address, &mut word)?;
            let found = u64::from_ne_bytes(word);
            let last = self.send(state, address, &new(found).to_ne_bytes())?;
            self.finish(state, last)?;
            Ok(found)
        })
    }
}

impl Drop for CopyStream {
    fn drop(&mut self) {
        if self.is_broken.load(Ordering::Relaxed) {
            return; // copies may still use buffers
        }
        let _ = self.with(|state| {
            let last = state.last;
            self.finish(state, last)?;
            for Pinned { bytes, event } in state.free.drain(..) {
                // SAFETY: both are ours and unused
                unsafe {
                    (self.cuda.destroy_event)(event);
                    (self.cuda.free)(bytes.cast());
                }
            }
            // SAFETY: likewise
            done(unsafe { (self.cuda.destroy_stream)(self.stream) })
        });
    }
}

opaque_debug!(CopyStream, |it| context: it.context);
