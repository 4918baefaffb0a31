use std::sync::atomic::{AtomicU32, Ordering};

use roce_provider::calls::Call;

use super::{
    context::{ContextInner, Ctx},
    object::Awaited,
};
use crate::{
    hooks::check::wake_ups,
    prelude::*,
    translate::event::{self, Subject},
    wait::{Polled, test_cancel, wait_readable},
};

impl ContextInner {
    fn take_async_event(&self) -> Option<ibv_async_event> {
        loop {
            let Some((event_type, subject)) = event::to_c(self.events.poll()?) else { continue };
            let element = match subject {
                Subject::Port => Element { port_num: 1 },
                Subject::Device => Element { port_num: 0 },
                object => match self.take_event(object) {
                    // the same union offset for every kind
                    Some(pointer) => Element { cq: pointer as *mut ibv_cq },
                    // another thread is destroying it
                    None => continue,
                },
            };
            return Some(ibv_async_event { element, event_type });
        }
    }
}

waiting_calls!(
    /// Cancellation point. Sleeps on after the context's closing, as in libibverbs.
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
        test_cancel();
        let mut awaited = Awaited::default();
        loop {
            match try_take(context, &mut awaited)? {
                Polled::Event(taken) => {
                    *event = taken;
                    return Ok(());
                }
                Polled::Nothing(descriptor) => {
                    wake_ups::reads_async(context as usize, true);
                    let waited = wait_readable(descriptor);
                    wake_ups::reads_async(context as usize, false);
                    waited?;
                }
            }
        }
    }
);

unsafe fn try_take(
    context: *mut ibv_context,
    awaited: &mut Awaited,
) -> Result<Polled<ibv_async_event>> {
    let _call = Call::begin();
    let (inner, descriptor) =
        Ctx::share(context, awaited, |ctx| (ctx.inner.clone(), (*context).async_fd))?;
    Ok(Polled::of(inner.take_async_event(), descriptor))
}

calls!(
    fn ibv_ack_async_event(event: *mut ibv_async_event) {
        let element = (*event).element;
        let counted = match (*event).event_type {
            IBV_EVENT_CQ_ERR => &raw mut (*element.cq).async_events_completed,
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                &raw mut (*element.srq).events_completed
            }
            IBV_EVENT_QP_FATAL..=IBV_EVENT_PATH_MIG_ERR | IBV_EVENT_QP_LAST_WQE_REACHED => {
                &raw mut (*element.qp).events_completed
            }
            _ => return,
        };
        // every kind has this offset, and starts with its context
        let object = element.cq;
        if let Ok(ctx) = Ctx::get(*object.cast::<*const ibv_context>()) {
            count_acknowledged(counted, 1);
            ctx.inner.acknowledge(object as usize, 1);
        }
    }
);

/// Counts as libibverbs does. Call before acknowledging, which may free the object.
///
/// # Safety
/// `member` belongs to a live object.
pub(crate) unsafe fn count_acknowledged(member: *mut u32, number: u32) {
    AtomicU32::from_ptr(member).fetch_add(number, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::{
        ptr::{null_mut, with_exposed_provenance_mut},
        sync::mpsc,
        thread,
        time::Duration,
    };

    use roce_provider::QueuePair;

    use super::*;
    use crate::{
        objects::cq::{ibv_create_cq, ibv_destroy_cq},
        tests::{Opened, flush, flushing},
    };

    const THREADS: usize = 4;
    const EVENTS: usize = 200;
    const LONG: Duration = Duration::from_secs(60);

    /// Causes an event.
    fn overflow(cq: *mut ibv_cq) -> QueuePair {
        let qp = flushing(cq);
        // SAFETY: A live queue.
        let room = unsafe { (*cq).cqe } as u64;
        (0..=room).for_each(|id| flush(&qp, id));
        qp
    }

    #[test]
    fn threads_that_wait_share_the_events() {
        let context = Opened::new();
        let exposed = context.0.expose_provenance();
        let cqs: Vec<_> = (0..EVENTS + THREADS)
            // SAFETY: An open context.
            .map(|_| unsafe { ibv_create_cq(context.0, 1, null_mut(), null_mut(), 0) })
            .collect();
        let places: Vec<_> = cqs.iter().map(|cq| cq.addr()).collect();
        let (sender, taken) = mpsc::channel();
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (sender, places) = (sender.clone(), places.clone());
                thread::spawn(move || {
                    let mut event =
                        ibv_async_event { element: Element { port_num: 0 }, event_type: 99 };
                    loop {
                        let context = with_exposed_provenance_mut(exposed);
                        // SAFETY: Context and queues outlive the threads.
                        let cq = unsafe {
                            assert_eq!(ibv_get_async_event(context, &raw mut event), 0);
                            ibv_ack_async_event(&raw mut event);
                            event.element.cq
                        };
                        let number = places.iter().position(|place| *place == cq.addr()).unwrap();
                        sender.send((thread, number)).unwrap();
                        if number >= EVENTS {
                            break;
                        }
                    }
                })
            })
            .collect();
        let next = || taken.recv_timeout(LONG).expect("an event, for a thread that waits");

        let mut qps: Vec<_> = cqs[..EVENTS].iter().map(|cq| overflow(*cq)).collect();
        let seen: Vec<_> = (0..EVENTS).map(|_| next()).collect();
        let mut numbers: Vec<_> = seen.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..EVENTS).collect::<Vec<_>>());
        for thread in 0..THREADS {
            let own = seen.iter().filter(|(by, _)| *by == thread).map(|(_, number)| number);
            assert!(own.is_sorted(), "{seen:?}");
        }

        let mut woken: Vec<_> = cqs[EVENTS..]
            .iter()
            .map(|cq| {
                qps.push(overflow(*cq));
                next().0
            })
            .collect();
        woken.sort_unstable();
        assert_eq!(woken, (0..THREADS).collect::<Vec<_>>());

        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(qps);
        for cq in cqs {
            // SAFETY: A live queue.
            assert_eq!(unsafe { (*cq).async_events_completed }, 1);
            // SAFETY: The queue is unused.
            assert_eq!(unsafe { ibv_destroy_cq(cq) }, 0);
        }
    }
}
