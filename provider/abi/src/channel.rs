//! Completion channels.

use std::{
    cell::UnsafeCell,
    ffi::{c_int, c_void},
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use roce_provider::{CompletionChannel, calls::Call};

use crate::{
    context::{ContextInner, Ctx},
    errno::{self, Result},
    export::export,
    layout::{ibv_comp_channel, ibv_context, ibv_cq},
    object::{Object, Users},
    wait::{blocking, may_end_here, wait_readable},
};

/// A completion channel as programs hold it.
#[repr(C)]
pub(crate) struct Channel {
    c: UnsafeCell<ibv_comp_channel>,
    pub(crate) channel: CompletionChannel,
    pub(crate) ctx: Arc<ContextInner>,
    /// Completion queues that have the channel.
    pub(crate) users: Users,
}

// SAFETY: `repr(C)`, and it starts with its cell.
unsafe impl Object for Channel {
    type C = ibv_comp_channel;
}

impl Channel {
    fn new(ctx: &Ctx) -> Result<Self> {
        let channel = ctx.inner.context.create_channel()?;
        blocking(&channel)?;
        let c = ibv_comp_channel { context: ctx.c(), fd: channel.as_fd().as_raw_fd(), refcnt: 0 };
        Ok(Self { c: UnsafeCell::new(c), channel, ctx: ctx.inner.clone(), users: Users::default() })
    }

    /// The next queue that has an event, which is now taken.
    fn take(&self) -> Option<*mut ibv_cq> {
        loop {
            let cq = self.channel.poll()?;
            // a queue that is being destroyed has no events any more
            if let Some(cq) = self.ctx.take_event(|objects| objects.cqs.get(&cq.id().0).copied()) {
                return Some(cq as *mut ibv_cq);
            }
        }
    }
}

/// Keeps the number that programs see of a channel's queues; the channel may be null.
pub(crate) unsafe fn count(channel: *mut ibv_comp_channel, change: c_int) {
    if !channel.is_null() {
        AtomicI32::from_ptr(&raw mut (*channel).refcnt).fetch_add(change, Ordering::Relaxed);
    }
}

pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    let _call = Call::begin();
    errno::pointer(
        "ibv_create_comp_channel",
        Ctx::get(context).and_then(|ctx| Ok(Channel::new(ctx)?.into_raw())),
    )
}

pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let _call = Call::begin();
    let free = Channel::get(channel).and_then(|channel| channel.users.none_left());
    errno::status("ibv_destroy_comp_channel", free.map(|()| drop(Channel::from_raw(channel))))
}

/// The thread may be cancelled while it waits: nothing needs to be dropped then.
pub(crate) unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    may_end_here();
    loop {
        let taken = {
            let _call = Call::begin();
            Channel::get(channel).map(Channel::take)
        };
        match taken {
            Ok(Some(taken)) => {
                *cq = taken;
                *cq_context = (*taken).cq_context;
                return 0;
            }
            Ok(None) => {}
            Err(error) => return errno::minus_one("ibv_get_cq_event", Err(error)),
        }
        if wait_readable((*channel).fd) == -1 {
            return -1;
        }
    }
}

export!(ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event);
