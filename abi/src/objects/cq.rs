use std::{cell::UnsafeCell, sync::Arc};

use roce_provider::{
    CompletionQueue,
    transport::work::{NotifyKind, Wc},
};

use super::{
    batch::Batch,
    channel::{self, Channel},
    context::{ContextInner, Ctx},
    event::count_acknowledged,
    latest_time::LatestTime,
    object::{User, Users, impl_object},
};
use crate::{
    hooks::check::{self, Kind, requests, single, wake_ups},
    prelude::*,
    translate::{event::Subject, wc},
};

/// Always extended, which includes the basic members.
#[repr(C)]
pub(crate) struct Cq {
    c: UnsafeCell<ibv_cq_ex>,
    pub(crate) cq: CompletionQueue,
    pub(crate) ctx: Arc<ContextInner>,
    pub(crate) users: Users,
    _channel: Option<User>,
    pub(crate) parent: Option<User>,
    /// Requested completion members.
    pub(crate) members: u64,
    pub(crate) batch: Batch<CurrentCompletion>,
}

// `ibv_cq_ex` starts with `ibv_cq`.
impl_object!(Cq, ibv_cq, context, handle);

/// `wall`: latest time reported.
pub(crate) struct CurrentCompletion {
    pub(crate) wc: Wc,
    pub(crate) wall: LatestTime,
}

impl CurrentCompletion {
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
        refuse_if(comp_vector >= vectors, Rule::CompletionVector { vector: comp_vector, vectors })?;
        let events = Channel::get_optional(channel)?;
        let is_foreign = events.is_some_and(|events| !Arc::ptr_eq(&events.ctx, &ctx.inner));
        refuse_if(is_foreign, Rule::ForeignChannel)?;
        let cq = ctx.inner.context.create_cq(cqe as usize, events.map(|events| &events.channel))?;
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
        let _channel = events.map(|events| events.users.add());
        let (ctx, users, batch) =
            (ctx.inner.clone(), Users::default(), Batch::single_threaded(CurrentCompletion::NONE));
        Ok(Self {
            c: UnsafeCell::new(c),
            cq,
            ctx,
            users,
            _channel,
            parent: None,
            members: 0,
            batch,
        })
    }

    /// The public structure, before the program has it.
    pub(crate) const fn functions(&mut self) -> &mut ibv_cq_ex {
        self.c.get_mut()
    }

    /// Publishes the queue, and starts its events.
    pub(crate) fn start(self) -> *mut ibv_cq {
        let (ctx, id) = (self.ctx.clone(), self.cq.id().0);
        let pointer = self.into_raw();
        // SAFETY: The queue keeps its channel.
        unsafe { channel::count((*pointer).channel, 1) };
        ctx.add_object(Subject::Cq(id), pointer as usize);
        // SAFETY: Made above; keeps its channel.
        let (channel, made) = unsafe { ((*pointer).channel, &*pointer.cast::<Self>()) };
        // SAFETY: As above; null for none.
        let descriptor = unsafe { channel.as_ref() }.map_or(-1, |channel| channel.fd);
        requests::size_cq(pointer as usize, made.cq.capacity());
        wake_ups::add(pointer as usize, channel as usize, descriptor, &made.cq);
        pointer
    }
}

calls!(
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq {
        // negative: too large
        Cq::new(context, cqe as u32, cq_context, channel, comp_vector as u32).map(Cq::start)
    }

    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
        call::destroy::<Cq>(cq, |object| {
            object.users.none_left()?;
            let subject = Subject::Cq(object.cq.id().0);
            object.ctx.remove_object(subject, cq as usize, Kind::CqEventsUnacknowledged);
            requests::remove_cq(cq as usize);
            wake_ups::remove(cq as usize);
            channel::count((*cq).channel, -1);
            Ok(())
        })
    }

    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
        let object = Cq::get(cq)?;
        object.cq.resize(usize::try_from(cqe).map_err(|_| Rule::CqSize)?)?;
        (*cq).cqe = object.cq.capacity() as c_int;
        requests::size_cq(cq as usize, object.cq.capacity());
        Ok(())
    }

    fn ibv_ack_cq_events(cq: *mut ibv_cq, number: c_uint) {
        if let Ok(object) = Cq::get(cq) {
            count_acknowledged(&raw mut (*cq).comp_events_completed, number);
            object.ctx.acknowledge(cq as usize, number);
        }
    }
);

/// After an overflow, `EOVERFLOW` once empty: no completion follows.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, number: c_int, wcs: *mut ibv_wc) -> c_int {
    call::data(CallId::ibv_poll_cq, move |call| {
        let object = call.object::<Cq>(cq)?;
        let limit = usize::try_from(number).unwrap_or(0);
        let mut next = wcs;
        let taken = if call.is_checked {
            let _inside = single::enter(cq as usize, call.id.name());
            let taken = object.cq.poll_each(limit, |wc| {
                requests::completed(object.ctx.device(), cq as usize, &wc);
                wc::write_checked(next, &wc);
                next = next.add(1);
            });
            wake_ups::polled(cq as usize);
            if taken == 0 && limit > 0 {
                requests::found_empty(cq as usize);
            }
            taken
        } else {
            object.cq.poll_each(limit, |wc| {
                wc::write(next, &wc);
                next = next.add(1);
            })
        };
        refuse_if(taken == 0 && limit > 0 && object.cq.has_overrun(), Rule::CqOverrun)?;
        Ok(taken as c_int)
    })
}

operations!(
    /// Under checks, does only what the specification promises, to expose programs that rely on
    /// more.
    fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
        // a thread that arms a wrong queue would wait forever
        let queue = &Cq::get(cq)?.cq;
        let kind = if solicited_only == 0 { NotifyKind::Next } else { NotifyKind::Solicited };
        if check::is_on() {
            wake_ups::armed(cq as usize, kind, requests::pending(cq as usize));
            queue.req_notify(kind);
        } else {
            queue.req_notify_unpolled(kind);
        }
        Ok(())
    }
);

#[cfg(test)]
mod tests;
