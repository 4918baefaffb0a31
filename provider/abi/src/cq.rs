//! Completion queues.

use std::{
    cell::UnsafeCell,
    ffi::{c_int, c_uint, c_void},
    sync::Arc,
};

use roce_provider::{
    CompletionQueue,
    calls::Call,
    transport::work::{NotifyKind, Wc},
};

use crate::{
    batch::Batch,
    channel::{self, Channel},
    context::{ContextInner, Ctx},
    errno::{self, Errno, Result},
    event::count_acknowledged,
    export::export,
    hooks::check::{self, Kind, requests, wake_ups},
    latest_time::LatestTime,
    layout::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc},
    object::{Identity, Object, User, Users},
    rule::Rule,
    translate::wc,
};

/// A completion queue as programs hold it. All of them are extended ones, which start with the
/// members of others.
#[repr(C)]
pub(crate) struct Cq {
    c: UnsafeCell<ibv_cq_ex>,
    pub(crate) cq: CompletionQueue,
    pub(crate) ctx: Arc<ContextInner>,
    /// The queue pairs and shared receive queues that complete here.
    pub(crate) users: Users,
    _channel: Option<User>,
    /// The parent domain that it was made with.
    pub(crate) parent: Option<User>,
    /// Where the program is between `ibv_start_poll` and `ibv_end_poll`.
    pub(crate) batch: Batch<Visit>,
}

// SAFETY: `repr(C)`, and it starts with its cell, whose structure starts with this one.
unsafe impl Object for Cq {
    type C = ibv_cq;
    const NAME: &str = "ibv_cq";

    unsafe fn identity(c: *const ibv_cq) -> Identity {
        Identity::new((*c).context, (*c).handle)
    }
}

/// The completion that the program is at, and the latest time of day that it was told.
pub(crate) struct Visit {
    pub(crate) wc: Wc,
    pub(crate) wall: LatestTime,
}

impl Visit {
    pub(crate) const NONE: Self = Self { wc: Wc::UNUSED, wall: LatestTime::NONE };
}

impl Cq {
    pub(crate) unsafe fn new(
        context: *mut ibv_context,
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
    ) -> Result<Self> {
        let ctx = Ctx::get(context)?;
        let vectors = (*context).num_comp_vectors as u32;
        if comp_vector >= vectors {
            return Err(Errno::of(Rule::CompletionVector));
        }
        let told = Channel::get_optional(channel)?;
        if told.is_some_and(|told| !Arc::ptr_eq(&told.ctx, &ctx.inner)) {
            return Err(Errno::of(Rule::ForeignChannel));
        }
        let cq = ctx.inner.context.create_cq(cqe as usize, told.map(|told| &told.channel))?;
        let c = ibv_cq_ex {
            context,
            channel,
            cq_context,
            handle: ctx.inner.new_handle(),
            cqe: cq.capacity() as c_int,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            cond: libc::PTHREAD_COND_INITIALIZER,
            ..ibv_cq_ex::zeroed()
        };
        let _channel = told.map(|told| told.users.add());
        let (ctx, users, batch) =
            (ctx.inner.clone(), Users::default(), Batch::single_threaded(Visit::NONE));
        Ok(Self { c: UnsafeCell::new(c), cq, ctx, users, _channel, parent: None, batch })
    }

    /// The structure that programs see, which they do not yet.
    pub(crate) const fn functions(&mut self) -> &mut ibv_cq_ex {
        self.c.get_mut()
    }

    /// Hands it to the program, which gets its events from then on.
    pub(crate) fn start(self) -> *mut ibv_cq {
        let (ctx, id) = (self.ctx.clone(), self.cq.id().0);
        let pointer = self.into_raw();
        // SAFETY: Its own members, and a channel that it keeps.
        unsafe { channel::count((*pointer).channel, 1) };
        ctx.objects().cqs.insert(id, pointer as usize);
        if check::is_on() {
            // SAFETY: It was made above.
            let (channel, made) = unsafe { ((*pointer).channel, &*pointer.cast::<Self>()) };
            requests::size_cq(pointer as usize, made.cq.capacity());
            wake_ups::add(pointer as usize, channel as usize, made.cq.clone());
        }
        pointer
    }
}

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let _call = Call::begin();
    // negative numbers are too great
    errno::pointer(
        "ibv_create_cq",
        Cq::new(context, cqe as u32, cq_context, channel, comp_vector as u32).map(Cq::start),
    )
}

pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let _call = Call::begin();
    let free = Cq::get(cq).and_then(|object| {
        object.users.none_left()?;
        let id = object.cq.id().0;
        object.ctx.remove_object(cq as usize, Kind::CqEventsUnacknowledged, |objects| {
            objects.cqs.remove(&id);
        });
        if check::is_on() {
            requests::remove_cq(cq as usize);
            wake_ups::remove(cq as usize);
        }
        channel::count((*cq).channel, -1);
        Ok(())
    });
    errno::status("ibv_destroy_cq", free.map(|()| drop(Cq::from_raw(cq))))
}

pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let _call = Call::begin();
    let resize = |object: &Cq| -> Result<()> {
        object.cq.resize(usize::try_from(cqe).map_err(|_| Errno::of(Rule::CqSize))?)?;
        (*cq).cqe = object.cq.capacity() as c_int;
        if check::is_on() {
            requests::size_cq(cq as usize, object.cq.capacity());
        }
        Ok(())
    };
    errno::status("ibv_resize_cq", Cq::get(cq).and_then(resize))
}

/// `ibv_poll_cq`. Beyond the completions that are left in it, a queue that has overflowed gives
/// `EOVERFLOW`: there will be no more.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, number: c_int, wcs: *mut ibv_wc) -> c_int {
    let Ok(object) = Cq::trust(cq) else {
        return errno::minus_one("ibv_poll_cq", Err(Errno::of(Rule::NullObject)));
    };
    poll_each(object, number, wcs, |place, wc| wc::write(place, wc))
}

/// The same, with what writes each completion to its place.
pub(crate) unsafe fn poll_each(
    object: &Cq,
    number: c_int,
    wcs: *mut ibv_wc,
    write: impl Fn(*mut ibv_wc, &Wc),
) -> c_int {
    let limit = usize::try_from(number).unwrap_or(0);
    let mut next = wcs;
    let taken = object.cq.poll_each(limit, |wc| {
        write(next, &wc);
        next = next.add(1);
    });
    if taken == 0 && limit > 0 && object.cq.has_overrun() {
        return errno::minus_one("ibv_poll_cq", Err(Errno::of(Rule::CqOverrun)));
    }
    taken as c_int
}

/// `ibv_req_notify_cq`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    arm(cq, |queue| queue.req_notify_unpolled(notify_kind(solicited_only)))
}

/// The kind of completions for which a program asks.
pub(crate) fn notify_kind(solicited_only: c_int) -> NotifyKind {
    if solicited_only == 0 { NotifyKind::Next } else { NotifyKind::Solicited }
}

/// `ibv_req_notify_cq`, with what arms the queue.
pub(crate) unsafe fn arm(cq: *mut ibv_cq, arm: impl FnOnce(&CompletionQueue)) -> c_int {
    errno::status("ibv_req_notify_cq", Cq::trust(cq).map(|object| arm(&object.cq)))
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, number: c_uint) {
    let _call = Call::begin();
    if let Ok(object) = Cq::get(cq) {
        count_acknowledged(&raw mut (*cq).comp_events_completed, number);
        object.ctx.acknowledge(cq as usize, number);
    }
}

export!(ibv_create_cq, ibv_destroy_cq, ibv_resize_cq, ibv_ack_cq_events);

#[cfg(test)]
mod tests;
