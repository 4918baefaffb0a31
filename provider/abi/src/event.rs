//! Asynchronous events; and which events a program has taken and not acknowledged yet, which keeps
//! objects from being destroyed.

use std::{
    ffi::{c_int, c_short, c_uint, c_ulong},
    sync::PoisonError,
};

use roce_provider::AsyncEvent;

use crate::{
    context::{Ctx, Home, Named},
    errno,
    export::export,
    layout::verbs::{Element, ibv_async_event, ibv_context, ibv_cq},
};

/// What an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Cq(u32),
    Qp(u32),
    Srq(u32),
    Port,
    Device,
}

/// `ibv_event_type`, and what the event is about; none for what C has no number for.
fn translate(event: AsyncEvent) -> Option<(c_uint, About)> {
    Some(match event {
        AsyncEvent::CqError(cq) => (0, About::Cq(cq.0)),
        AsyncEvent::QpFatal(qpn) => (1, About::Qp(qpn.get())),
        AsyncEvent::QpRequestError(qpn, _) => (2, About::Qp(qpn.get())),
        AsyncEvent::QpAccessError(qpn, _) => (3, About::Qp(qpn.get())),
        AsyncEvent::CommunicationEstablished(qpn) => (4, About::Qp(qpn.get())),
        AsyncEvent::SendQueueDrained(qpn) => (5, About::Qp(qpn.get())),
        AsyncEvent::DeviceFatal => (8, About::Device),
        AsyncEvent::PortActive => (9, About::Port),
        AsyncEvent::PortError => (10, About::Port),
        AsyncEvent::PKeyChange => (12, About::Port),
        AsyncEvent::SrqLimitReached(srq) => (15, About::Srq(srq.get())),
        AsyncEvent::LastWqeReached(qpn) => (16, About::Qp(qpn.get())),
        AsyncEvent::GidChange => (18, About::Port),
        _ => return None,
    })
}

impl Home {
    /// Takes an event about the object that `find` finds the program's pointer to. `None`: there is
    /// no such object here.
    pub(crate) fn take_event(&self, find: impl FnOnce(&Named) -> Option<usize>) -> Option<usize> {
        let mut named = self.named();
        let pointer = find(&named)?;
        *named.unacknowledged.entry(pointer).or_default() += 1;
        Some(pointer)
    }

    /// So many events about an object are acknowledged.
    pub(crate) fn acknowledge(&self, pointer: usize, number: u32) {
        let mut named = self.named();
        let Some(left) = named.unacknowledged.get_mut(&pointer) else { return };
        *left = left.saturating_sub(number);
        if *left == 0 {
            named.unacknowledged.remove(&pointer);
            self.acknowledged.notify_all();
        }
    }

    /// For an object that is being destroyed: after `remove` there are no more events about it, and
    /// those that the program has taken are waited for until it has acknowledged them.
    pub(crate) fn forget(&self, pointer: usize, remove: impl FnOnce(&mut Named)) {
        let mut named = self.named();
        remove(&mut named);
        let outstanding = |named: &mut Named| named.unacknowledged.contains_key(&pointer);
        drop(
            self.acknowledged
                .wait_while(named, outstanding)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// The next event about something of this context.
    fn take_async_event(&self) -> Option<ibv_async_event> {
        loop {
            let Some((event_type, about)) = translate(self.events.poll()?) else { continue };
            let object = match about {
                About::Cq(cq) => self.take_event(|named| named.cqs.get(&cq).copied()),
                About::Qp(qpn) => self.take_event(|named| named.qps.get(&qpn).copied()),
                About::Srq(srq) => self.take_event(|named| named.srqs.get(&srq).copied()),
                About::Port => {
                    return Some(ibv_async_event { element: Element { port_num: 1 }, event_type });
                }
                About::Device => {
                    return Some(ibv_async_event { element: Element { port_num: 0 }, event_type });
                }
            };
            if let Some(pointer) = object {
                // whichever kind it is of, it is a pointer in the same place
                return Some(ibv_async_event {
                    element: Element { cq: pointer as *mut ibv_cq },
                    event_type,
                });
            }
        }
    }
}

/// `poll`, during which the thread may be cancelled: it unwinds through the callers.
mod cancellable {
    unsafe extern "C-unwind" {
        pub(super) fn poll(
            fds: *mut libc::pollfd,
            number: super::c_ulong,
            timeout: super::c_int,
        ) -> super::c_int;
    }
}

/// Whether a call that a signal has interrupted goes on after it. Reading does if the signal's
/// handler is of such a kind, and waiting never does; which signal it was is not known, so all
/// handlers are asked, but for those of faults, which do not come to a thread that waits.
fn signals_restart() -> bool {
    const FAULTS: [c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal)).all(|signal| {
        // SAFETY: All bytes zero are a value of it.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: It asks, and writes to a place of ours.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
        let is_handled =
            known && action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
        !is_handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Waits until a descriptor is readable, as reading from it would: 0, or -1 with `EAGAIN` if the
/// program does not want to wait, or `EINTR` after a signal whose handler does not let calls go on.
///
/// It is a cancellation point; nothing may need to be dropped in its callers.
pub(crate) unsafe extern "C-unwind" fn wait_readable(descriptor: c_int) -> c_int {
    let flags = libc::fcntl(descriptor, libc::F_GETFL);
    if flags == -1 {
        return -1;
    }
    if flags & libc::O_NONBLOCK != 0 {
        errno::set(libc::EAGAIN);
        return -1;
    }
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN as c_short, revents: 0 };
    let done = cancellable::poll(&raw mut wanted, 1, -1);
    let goes_on = done != -1 || *libc::__errno_location() == libc::EINTR && signals_restart();
    if goes_on { 0 } else { -1 }
}

/// A thread may be cancelled while it waits here: nothing of ours is under way then.
pub(crate) unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    loop {
        match Ctx::get(context).map(|ctx| ctx.home.take_async_event()) {
            Ok(Some(taken)) => {
                *event = taken;
                return 0;
            }
            Ok(None) => {}
            Err(error) => return errno::minus_one(Err(error)),
        }
        if wait_readable((*context).async_fd) == -1 {
            return -1;
        }
    }
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // events of objects, which all start with their context
    if !matches!((*event).event_type, 0..=7 | 14..=16) {
        return;
    }
    let object = (*event).element.cq;
    if let Ok(ctx) = Ctx::get(*object.cast::<*const ibv_context>()) {
        ctx.home.acknowledge(object as usize, 1);
    }
}

export!(ibv_get_async_event, ibv_ack_async_event);
