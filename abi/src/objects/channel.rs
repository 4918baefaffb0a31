use std::{
    cell::UnsafeCell,
    io,
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::{Duration, Instant},
};

use roce_provider::{CompletionChannel, CompletionQueue, calls::Call};

use super::{
    context::{ContextInner, Ctx},
    object::{Awaited, Users, impl_object},
};
use crate::{
    hooks::check::{self, requests, wake_ups},
    prelude::*,
    translate::event::Subject,
    wait::{
        Polled, blocking, interrupted, is_blocking, test_cancel, wait_checked, wait_for,
        wait_readable,
    },
};

/// Above the moderation time: existing completions then cause no event.
const LONGER_THAN_MODERATION: Duration = Duration::from_millis(150);

#[repr(C)]
pub(crate) struct Channel {
    c: UnsafeCell<ibv_comp_channel>,
    pub(crate) channel: CompletionChannel,
    pub(crate) ctx: Arc<ContextInner>,
    pub(crate) users: Users,
}

impl_object!(Channel, ibv_comp_channel);

impl Channel {
    fn new(ctx: &Ctx) -> Result<Self> {
        let channel = ctx.inner.context.create_channel()?;
        blocking(&channel)?;
        let c = ibv_comp_channel { context: ctx.c(), fd: channel.as_fd().as_raw_fd(), refcnt: 0 };
        Ok(Self { c: UnsafeCell::new(c), channel, ctx: ctx.inner.clone(), users: Users::default() })
    }
}

fn take(
    ctx: &ContextInner,
    mut next: impl FnMut() -> Option<CompletionQueue>,
) -> Option<*mut ibv_cq> {
    loop {
        let cq = next()?;
        // a queue being destroyed has none
        if let Some(cq) = ctx.take_event(Subject::Cq(cq.id().0)) {
            return Some(cq as *mut ibv_cq);
        }
    }
}

/// Null is allowed.
pub(crate) unsafe fn count(channel: *mut ibv_comp_channel, change: c_int) {
    if !channel.is_null() {
        AtomicI32::from_ptr(&raw mut (*channel).refcnt).fetch_add(change, Ordering::Relaxed);
    }
}

calls!(
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
        let ctx = Ctx::get(context)?;
        let channel = Channel::new(ctx)?.into_raw();
        wake_ups::add_channel(channel as usize, (*channel).fd, false, endless);
        Ok(channel)
    }

    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
        call::destroy::<Channel>(channel, |object| {
            object.users.none_left()?;
            wake_ups::remove_channel(channel as usize);
            Ok(())
        })
    }
);

waiting_calls!(
    /// Cancellation point. Sleeps on after the channel's destruction, as in libibverbs.
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int {
        test_cancel();
        let mut awaited = Awaited::default();
        let hand_over = |taken: *mut ibv_cq| {
            wake_ups::woken(taken as usize);
            *cq = taken;
            *cq_context = (*taken).cq_context;
            Ok(())
        };
        loop {
            let descriptor = match try_take(channel, &mut awaited)? {
                Polled::Event(taken) => return hand_over(taken),
                Polled::Nothing(descriptor) => descriptor,
            };
            let may_have_event = match (is_blocking(descriptor), check::is_on()) {
                (true, false) => serve(channel, &mut awaited)?,
                (true, true) => {
                    sleep_checked(channel, descriptor)?;
                    true
                }
                (false, _) => match serve_in_loop(channel, &mut awaited)? {
                    Some(taken) => return hand_over(taken),
                    None => false,
                },
            };
            if !may_have_event {
                wait_readable(descriptor)?;
            }
        }
    }
);

unsafe fn try_take(
    channel: *mut ibv_comp_channel,
    awaited: &mut Awaited,
) -> Result<Polled<*mut ibv_cq>> {
    let _call = Call::begin();
    let (channel, ctx, descriptor) =
        Channel::share(channel, awaited, |c| (c.channel.clone(), c.ctx.clone(), (*channel).fd))?;
    channel.count_use(|| !is_blocking(descriptor));
    Ok(Polled::of(take(&ctx, || channel.poll()), descriptor))
}

/// Serves the device instead of sleeping; true for a possible event.
unsafe fn serve(channel: *mut ibv_comp_channel, awaited: &mut Awaited) -> Result<bool> {
    let shared = {
        let _call = Call::begin();
        Channel::share(channel, awaited, |c| c.channel.clone())
    };
    let Ok(shared) = shared else { return Ok(true) }; // reported by the next check
    let served = shared.prepare_to_wait();
    {
        let _call = Call::begin();
        drop(shared); // ends the channel if it was destroyed meanwhile
    }
    match served {
        Ok(has_event) => Ok(has_event),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupted().map(|()| true),
        // sleeping may work where serving fails
        Err(_) => Ok(false),
    }
}

/// Serves the device for a program's event loop, and takes an event.
unsafe fn serve_in_loop(
    channel: *mut ibv_comp_channel,
    awaited: &mut Awaited,
) -> Result<Option<*mut ibv_cq>> {
    let _call = Call::begin();
    let (channel, ctx) = Channel::share(channel, awaited, |c| (c.channel.clone(), c.ctx.clone()))?;
    Ok(take(&ctx, || channel.serve()))
}

/// Cancellation point.
unsafe fn sleep_checked(channel: *mut ibv_comp_channel, descriptor: c_int) -> Result<()> {
    wake_ups::before_wait(channel as usize);
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let began = Instant::now();
    let done = wait_for(&raw mut wanted, 1, LONGER_THAN_MODERATION.as_millis() as c_int);
    if done < 0 {
        return Err(Errno::plain(Errno::last().number()));
    }
    // ends early on a signal
    if done == 0 && began.elapsed() >= LONGER_THAN_MODERATION {
        wake_ups::still_waits(channel as usize);
        wait_checked(descriptor, || endless("ibv_get_cq_event", channel as usize))?;
    }
    Ok(())
}

fn endless(call: &str, channel: usize) -> Option<String> {
    wake_ups::endless(call, channel, requests::outstanding)
}
