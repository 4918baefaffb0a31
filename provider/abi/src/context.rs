//! Open devices.

use std::{
    cell::UnsafeCell,
    collections::HashMap,
    ffi::c_int,
    mem::offset_of,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use roce_provider::{AsyncEvents, Context, OpenError};

use crate::{
    advise, counters, cq, cq_ex,
    device::Dev,
    dm, domain,
    errno::{self, Errno, Result},
    export::export,
    import::Family,
    layout::verbs::{ibv_context, ibv_device, verbs_context},
    modify, mr, mw,
    object::Object,
    port, post, qp, srq, xrc,
};

/// A context as programs hold it: a pointer to the last member of the structure at its start.
#[repr(C)]
pub(crate) struct Ctx {
    verbs: UnsafeCell<verbs_context>,
    pub(crate) dev: &'static Dev,
    pub(crate) home: Arc<Home>,
    _imported_by: Option<OwnedFd>,
}

/// What the objects of a context need of it.
pub(crate) struct Home {
    pub(crate) context: Context,
    pub(crate) events: AsyncEvents,
    /// What asynchronous events can be about: the program's pointers, as numbers, by the adapter's
    /// names.
    pub(crate) named: Mutex<Named>,
    /// Told when every event about some object is acknowledged.
    pub(crate) acknowledged: Condvar,
    /// What it has in common with the contexts that were imported from it.
    pub(crate) family: Arc<Family>,
}

/// Programs' pointers to objects, by the adapter's names for them.
#[derive(Default)]
pub(crate) struct Named {
    pub(crate) cqs: HashMap<u32, usize>,
    pub(crate) qps: HashMap<u32, usize>,
    pub(crate) srqs: HashMap<u32, usize>,
    /// How many events about an object the program has taken and not acknowledged.
    pub(crate) unacknowledged: HashMap<usize, u32>,
}

impl Home {
    pub(crate) fn named(&self) -> MutexGuard<'_, Named> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a new object's `handle`.
    pub(crate) fn new_handle(&self) -> u32 {
        self.family.new_handle()
    }
}

impl Ctx {
    /// The context behind a program's pointer; `EINVAL` for null.
    pub(crate) unsafe fn get<'a>(pointer: *const ibv_context) -> Result<&'a Self> {
        if pointer.is_null() {
            return Err(Errno::INVAL);
        }
        Ok(&*pointer.byte_sub(offset_of!(verbs_context, context)).cast::<Self>())
    }

    /// What programs hold of it.
    pub(crate) fn c(&self) -> *mut ibv_context {
        // SAFETY: The member lies inside.
        unsafe { &raw mut (*self.verbs.get()).context }
    }

    /// One of `family` on a device that has been opened for it; if it is imported, then by this
    /// descriptor, which belongs to it from then on.
    pub(crate) fn open(
        dev: &'static Dev,
        opened: Result<Context, OpenError>,
        family: Arc<Family>,
        imported_by: Option<c_int>,
    ) -> Result<*mut ibv_context> {
        let context = opened.map_err(|error| {
            crate::say(&format!("cannot open {}: {error}", dev.device().name()));
            Errno::from(error)
        })?;
        let events =
            match context.read_async_events().and_then(|events| blocking(&events).map(|()| events))
            {
                Ok(events) => events,
                Err(error) => {
                    dev.close();
                    return Err(error.into());
                }
            };
        let async_fd = events.as_fd().as_raw_fd();
        let home =
            Home { context, events, named: Mutex::default(), acknowledged: Condvar::new(), family };
        let mut verbs = operations();
        verbs.sz = size_of::<verbs_context>();
        verbs.context.device = dev.c();
        verbs.context.cmd_fd = imported_by.unwrap_or(home.family.command());
        verbs.context.async_fd = async_fd;
        verbs.context.num_comp_vectors = 1;
        verbs.context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        verbs.context.abi_compat = usize::MAX as *mut _;
        // SAFETY: Whoever imports a context gives it the descriptor.
        let _imported_by =
            imported_by.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) });
        let context = Box::new(Self {
            verbs: UnsafeCell::new(verbs),
            dev,
            home: Arc::new(home),
            _imported_by,
        });
        Ok(Box::leak(context).c())
    }
}

/// Makes reading a descriptor wait, as programs expect until they say otherwise.
pub(crate) fn blocking(descriptor: &impl AsFd) -> std::io::Result<()> {
    let descriptor = descriptor.as_fd().as_raw_fd();
    // SAFETY: An open descriptor.
    let done = unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        libc::fcntl(descriptor, libc::F_SETFL, flags & !libc::O_NONBLOCK)
    };
    if done == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// The operations that are reached through a context and not by name. What is not set is not
/// supported, and says so by itself.
fn operations() -> verbs_context {
    let mut verbs = verbs_context::zeroed();
    verbs.query_port = Some(port::query_port);
    verbs.query_device_ex = Some(port::query_device_ex);
    verbs.create_cq_ex = Some(cq_ex::create_cq_ex);
    verbs.modify_cq = Some(cq_ex::modify_cq);
    verbs.alloc_td = Some(domain::alloc_td);
    verbs.dealloc_td = Some(domain::dealloc_td);
    verbs.alloc_parent_domain = Some(domain::alloc_parent_domain);
    verbs.alloc_dm = Some(dm::alloc_dm);
    verbs.free_dm = Some(dm::free_dm);
    verbs.reg_dm_mr = Some(dm::reg_dm_mr);
    verbs.alloc_null_mr = Some(mr::alloc_null_mr);
    verbs.advise_mr = Some(advise::advise_mr);
    verbs.create_counters = Some(counters::create_counters);
    verbs.destroy_counters = Some(counters::destroy_counters);
    verbs.attach_counters_point_flow = Some(counters::attach_counters_point_flow);
    verbs.read_counters = Some(counters::read_counters);
    verbs.query_rt_values = Some(port::query_rt_values);
    verbs.context.ops.poll_cq = Some(cq::poll_cq);
    verbs.context.ops.req_notify_cq = Some(cq::req_notify_cq);
    verbs.context.ops.post_send = Some(post::post_send);
    verbs.context.ops.post_recv = Some(post::post_recv);
    verbs.context.ops.post_srq_recv = Some(post::post_srq_recv);
    verbs.context.ops.alloc_mw = Some(mw::alloc_mw);
    verbs.context.ops.bind_mw = Some(mw::bind_mw);
    verbs.context.ops.dealloc_mw = Some(mw::dealloc_mw);
    verbs.create_qp_ex = Some(qp::create_qp_ex);
    verbs.open_qp = Some(qp::open_qp);
    verbs.modify_qp_rate_limit = Some(modify::modify_qp_rate_limit);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    verbs.open_xrcd = Some(xrc::open_xrcd);
    verbs.close_xrcd = Some(xrc::close_xrcd);
    verbs
}

unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    errno::pointer(
        Dev::get(device)
            .and_then(|dev| Ctx::open(dev, dev.open_or_down(), Family::new(dev)?, None)),
    )
}

pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let ctx = match Ctx::get(context) {
        Ok(ctx) => std::ptr::from_ref(ctx).cast_mut(),
        Err(error) => return errno::status(Err(error)),
    };
    let Ctx { dev, home, .. } = *Box::from_raw(ctx);
    drop(home);
    dev.close();
    0
}

export!(ibv_open_device, ibv_close_device);
