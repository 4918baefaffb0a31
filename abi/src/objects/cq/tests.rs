#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]

use std::{
    ptr::{null, null_mut},
    sync::mpsc,
    thread,
    time::Duration,
};

use super::*;
use crate::{
    layout::{Element, ibv_async_event, ibv_cq_init_attr_ex, ibv_moderate_cq, ibv_modify_cq_attr},
    objects::{
        channel::{ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event},
        cq_ex::{ibv_create_cq_ex, ibv_modify_cq},
        event::{ibv_ack_async_event, ibv_get_async_event},
        port::ibv_query_rt_values_ex,
    },
    tests::{Opened, errno, flush, flushing},
};

const FLUSH_ERROR: u32 = 5;

fn create(
    context: &Opened,
    cqe: c_int,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    unsafe { ibv_create_cq(context.0, cqe, 0x1234 as *mut c_void, channel, vector) }
}

fn poll(cq: *mut ibv_cq, limit: usize) -> Result<Vec<ibv_wc>, c_int> {
    let mut places = vec![ibv_wc::zeroed(); limit];
    let taken = unsafe { poll_cq(cq, limit as c_int, places.as_mut_ptr()) };
    if taken < 0 {
        return Err(errno());
    }
    places.truncate(taken as usize);
    Ok(places)
}

fn do_not_wait(descriptor: c_int) {
    assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}

fn is_readable(descriptor: c_int) -> bool {
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    unsafe { libc::poll(&raw mut wanted, 1, 0) == 1 }
}

fn event(channel: *mut ibv_comp_channel) -> Result<*mut ibv_cq, c_int> {
    let (mut cq, mut cq_context) = (null_mut(), null_mut());
    if unsafe { ibv_get_cq_event(channel, &raw mut cq, &raw mut cq_context) } != 0 {
        return Err(errno());
    }
    assert_eq!(cq_context, 0x1234 as *mut c_void);
    Ok(cq)
}

fn async_event(context: &Opened) -> Result<ibv_async_event, c_int> {
    let mut event = ibv_async_event { element: Element { port_num: 0 }, event_type: 99 };
    if unsafe { ibv_get_async_event(context.0, &raw mut event) } == 0 {
        Ok(event)
    } else {
        Err(errno())
    }
}

#[test]
fn sizes_and_vectors_that_do_not_exist() {
    let context = Opened::new();
    let max = unsafe { Ctx::get(context.0) }.unwrap().inner.context.limits().max_cqe as c_int;
    for (cqe, vector) in [(0, 0), (-1, 0), (max + 1, 0), (10, 1), (10, -1)] {
        assert_eq!(
            (create(&context, cqe, null_mut(), vector), errno()),
            (null_mut(), libc::EINVAL),
            "{cqe} {vector}"
        );
    }
    let cq = create(&context, 10, null_mut(), 0);
    assert!(unsafe { (*cq).cqe } >= 10);
    for cqe in [0, -1, max + 1] {
        assert_eq!(unsafe { ibv_resize_cq(cq, cqe) }, libc::EINVAL);
    }
    assert_eq!(unsafe { ibv_resize_cq(cq, 500) }, 0);
    assert!(unsafe { (*cq).cqe } >= 500);
    assert_eq!(unsafe { ibv_destroy_cq(cq) }, 0);
}

#[test]
fn completions_in_order_and_no_more_than_asked_for() {
    let context = Opened::new();
    let cq = create(&context, 10, null_mut(), 0);
    let qp = flushing(cq);
    (7..=9).for_each(|id| flush(&qp, id));
    assert!(poll(cq, 0).unwrap().is_empty());
    let seen = |wcs: Vec<ibv_wc>| {
        wcs.iter().map(|wc| (wc.wr_id, wc.status, wc.qp_num)).collect::<Vec<_>>()
    };
    let qpn = qp.qpn().get();
    assert_eq!(seen(poll(cq, 2).unwrap()), [(7, FLUSH_ERROR, qpn), (8, FLUSH_ERROR, qpn)]);
    assert_eq!(seen(poll(cq, 2).unwrap()), [(9, FLUSH_ERROR, qpn)]);
    assert!(poll(cq, 2).unwrap().is_empty());
    drop(qp);
    let user = unsafe { Cq::get(cq) }.unwrap().users.add();
    assert_eq!(unsafe { ibv_destroy_cq(cq) }, libc::EBUSY);
    drop(user);
    assert_eq!(unsafe { ibv_destroy_cq(cq) }, 0);
}

#[test]
fn an_overflow_is_told_to_the_context_of_the_queue() {
    let (context, other) = (Opened::new(), Opened::new());
    let [fd, other_fd] = [&context, &other].map(|opened| unsafe { (*opened.0).async_fd });
    do_not_wait(fd);
    do_not_wait(other_fd);
    let cq = create(&context, 1, null_mut(), 0);
    let room = unsafe { (*cq).cqe } as u64;
    let qp = flushing(cq);
    (0..=room).for_each(|id| flush(&qp, id));
    assert_eq!(poll(cq, room as usize + 1).unwrap().len() as u64, room);
    assert_eq!(poll(cq, 1).err(), Some(libc::EOVERFLOW));

    assert_eq!((is_readable(fd), is_readable(other_fd)), (true, false));
    let mut told = async_event(&context).unwrap();
    assert_eq!((told.event_type, unsafe { told.element.cq }), (0, cq));
    assert_eq!(async_event(&context).err(), Some(libc::EAGAIN));
    assert_eq!(async_event(&other).err(), Some(libc::EAGAIN), "a queue of another context");

    drop(qp);
    assert!(!is_destroyed_at_once(cq), "the event is not acknowledged");
    unsafe { ibv_ack_async_event(&raw mut told) };
    GONE.with(|gone| assert_eq!(gone.take().unwrap().recv().unwrap(), 0));

    // an unclaimed event goes with its queue
    let cq = create(&context, 1, null_mut(), 0);
    let qp = flushing(cq);
    (0..=room).for_each(|id| flush(&qp, id));
    assert!(is_readable(fd));
    drop(qp);
    assert_eq!((unsafe { ibv_destroy_cq(cq) }, is_readable(fd)), (0, false));
    assert_eq!(async_event(&context).err(), Some(libc::EAGAIN));
}

thread_local! {
    /// Result of a destroying thread.
    static GONE: std::cell::Cell<Option<mpsc::Receiver<c_int>>> =
        const { std::cell::Cell::new(None) };
}

/// Destroys a queue on a thread; true if soon done.
fn is_destroyed_at_once(cq: *mut ibv_cq) -> bool {
    let (done, gone) = mpsc::channel();
    let cq = cq as usize;
    thread::spawn(move || done.send(unsafe { ibv_destroy_cq(cq as *mut ibv_cq) }));
    let at_once = gone.recv_timeout(Duration::from_millis(50)).is_ok();
    GONE.set(Some(gone));
    at_once
}

#[test]
fn what_can_be_armed() {
    let context = Opened::new();
    let cq = create(&context, 10, null_mut(), 0);
    assert_eq!(unsafe { ibv_req_notify_cq(cq, 0) }, 0, "no channel: nobody is told");
    assert_eq!(unsafe { ibv_req_notify_cq(null_mut(), 0) }, libc::EINVAL);
    assert_eq!(unsafe { ibv_req_notify_cq((&raw mut (*cq).cqe).cast(), 0) }, libc::ENOENT);
    let handle = unsafe { (*cq).handle };
    unsafe { (*cq).handle = handle + 1 };
    assert_eq!(unsafe { ibv_req_notify_cq(cq, 0) }, libc::ENOENT, "the handle of no queue");
    unsafe { (*cq).handle = handle };
    assert_eq!(unsafe { ibv_req_notify_cq(cq, 0) }, 0);
    assert_eq!(unsafe { ibv_destroy_cq(cq) }, 0);
}

#[test]
fn an_event_for_each_arming() {
    let context = Opened::new();
    let channel = unsafe { ibv_create_comp_channel(context.0) };
    do_not_wait(unsafe { (*channel).fd });
    let cq = create(&context, 10, channel, 0);
    assert_eq!(unsafe { (*channel).refcnt }, 1);
    assert_eq!(unsafe { ibv_destroy_comp_channel(channel) }, libc::EBUSY);
    let qp = flushing(cq);

    assert_eq!(event(channel), Err(libc::EAGAIN));
    flush(&qp, 1);
    assert_eq!(event(channel), Err(libc::EAGAIN), "nobody has asked");
    assert_eq!(unsafe { ibv_req_notify_cq(cq, 0) }, 0);
    flush(&qp, 2);
    flush(&qp, 3);
    assert_eq!(event(channel), Ok(cq));
    assert_eq!(event(channel), Err(libc::EAGAIN));
    assert_eq!(unsafe { ibv_req_notify_cq(cq, 1) }, 0);
    flush(&qp, 4);
    assert_eq!(event(channel), Ok(cq));
    assert_eq!(poll(cq, 9).unwrap().len(), 4);

    // arrives between poll and arming
    flush(&qp, 9);
    assert_eq!(unsafe { ibv_req_notify_cq(cq, 0) }, 0);
    assert_eq!(event(channel), Ok(cq));
    assert_eq!(poll(cq, 9).unwrap().len(), 1);

    // an event unreported at destruction does not delay it
    assert_eq!(unsafe { ibv_req_notify_cq(cq, 0) }, 0);
    flush(&qp, 5);
    drop(qp);
    assert_eq!(unsafe { (*cq).comp_events_completed }, 0);
    unsafe { ibv_ack_cq_events(cq, 2) };
    assert_eq!(unsafe { (*cq).comp_events_completed }, 2);
    assert!(!is_destroyed_at_once(cq), "one of three events is not acknowledged");
    unsafe { ibv_ack_cq_events(cq, 1) };
    GONE.with(|gone| assert_eq!(gone.take().unwrap().recv().unwrap(), 0));
    assert!(!is_readable(unsafe { (*channel).fd }));
    assert_eq!(event(channel), Err(libc::EAGAIN));
    assert_eq!(unsafe { ibv_destroy_comp_channel(channel) }, 0);
}

#[test]
fn a_channel_of_another_context_is_none() {
    let (context, other) = (Opened::new(), Opened::new());
    let channel = unsafe { ibv_create_comp_channel(other.0) };
    assert_eq!((create(&context, 10, channel, 0), errno()), (null_mut(), libc::EBADF));
    assert_eq!(unsafe { ibv_destroy_comp_channel(channel) }, 0);
}

extern "C-unwind" fn wait(channel: *mut c_void) -> *mut c_void {
    let (mut cq, mut cq_context) = (null_mut(), null_mut());
    let done = unsafe { ibv_get_cq_event(channel.cast(), &raw mut cq, &raw mut cq_context) };
    (if done == 0 { 0 } else { errno() }) as usize as *mut c_void
}

unsafe extern "C" {
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attr: *const libc::pthread_attr_t,
        start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

fn waiting(channel: *mut ibv_comp_channel) -> libc::pthread_t {
    let mut thread = 0;
    assert_eq!(unsafe { pthread_create(&raw mut thread, null(), wait, channel.cast()) }, 0);
    thread::sleep(Duration::from_millis(50));
    thread
}

fn result(thread: libc::pthread_t) -> isize {
    let mut result = null_mut();
    assert_eq!(unsafe { libc::pthread_join(thread, &raw mut result) }, 0);
    result as isize
}

#[test]
fn a_thread_that_waits_can_be_cancelled() {
    let context = Opened::new();
    let channel = unsafe { ibv_create_comp_channel(context.0) };
    let thread = waiting(channel);
    assert_eq!(unsafe { pthread_cancel(thread) }, 0);
    assert_eq!(result(thread), -1, "PTHREAD_CANCELED");
    assert_eq!(unsafe { ibv_destroy_comp_channel(channel) }, 0, "nothing of it was in use");
}

extern "C" fn ignore(_: c_int) {}

fn handle(signal: c_int, flags: c_int) {
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ignore as *const () as usize;
    action.sa_flags = flags;
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, null_mut()) }, 0);
}

#[test]
fn a_signal_ends_the_wait_if_its_handler_says_so() {
    let context = Opened::new();
    let channel = unsafe { ibv_create_comp_channel(context.0) };
    let cq = create(&context, 10, channel, 0);
    let qp = flushing(cq);

    handle(libc::SIGUSR1, libc::SA_RESTART);
    let thread = waiting(channel);
    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(unsafe { ibv_req_notify_cq(cq, 0) }, 0);
    flush(&qp, 1);
    assert_eq!(result(thread), 0);
    unsafe { ibv_ack_cq_events(cq, 1) };

    handle(libc::SIGUSR1, 0);
    let thread = waiting(channel);
    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    assert_eq!(result(thread), libc::EINTR as isize);
    drop(qp);
    assert_eq!(unsafe { ibv_destroy_cq(cq) }, 0);
    assert_eq!(unsafe { ibv_destroy_comp_channel(channel) }, 0);
}

fn create_ex(
    context: &Opened,
    change: impl FnOnce(&mut ibv_cq_init_attr_ex),
) -> Result<*mut ibv_cq_ex, c_int> {
    let mut attr = ibv_cq_init_attr_ex { cqe: 10, ..ibv_cq_init_attr_ex::zeroed() };
    change(&mut attr);
    let cq = unsafe { ibv_create_cq_ex(context.0, &raw mut attr) };
    if cq.is_null() { Err(errno()) } else { Ok(cq) }
}

#[test]
fn a_batch_goes_from_completion_to_completion() {
    let context = Opened::new();
    let clock = || unsafe {
        let mut values = ibv_values_ex::zeroed();
        values.comp_mask = 3;
        assert_eq!(ibv_query_rt_values_ex(context.0, &raw mut values), 0);
        assert_eq!((values.comp_mask, values.raw_clock.tv_sec), (1, 0));
        values.raw_clock.tv_nsec as u64
    };
    let cq = create_ex(&context, |attr| attr.wc_flags = 0x7F | 1 << 7 | 1 << 11).unwrap();
    let qp = flushing(cq.cast());
    unsafe {
        let ex = &raw mut *cq;
        assert_eq!((*ex).start_poll.unwrap()(cq, null_mut()), libc::ENOENT);
        let before = clock();
        flush(&qp, 1);
        flush(&qp, 2);
        let after = clock();
        assert_eq!((*ex).start_poll.unwrap()(cq, null_mut()), 0);
        assert_eq!(((*ex).wr_id, (*ex).status), (1, FLUSH_ERROR));
        assert_eq!((*ex).read_qp_num.unwrap()(cq), qp.qpn().get());
        let at = (*ex).read_completion_ts.unwrap()(cq);
        assert!(before <= at && at <= after, "{before} {at} {after}");
        let age =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
                as u64
                - (*ex).read_completion_wallclock_ns.unwrap()(cq);
        assert!(age < 10_000_000_000, "{age}");

        // another thread waits for the batch's end
        let (told, done) = mpsc::channel();
        let address = cq as usize;
        let other = thread::spawn(move || {
            let cq = address as *mut ibv_cq_ex;
            let found = (*cq).start_poll.unwrap()(cq, null_mut());
            told.send(found).unwrap();
        });
        assert!(done.recv_timeout(Duration::from_millis(50)).is_err());
        assert_eq!((*ex).next_poll.unwrap()(cq), 0);
        assert_eq!((*ex).wr_id, 2);
        assert_eq!((*ex).next_poll.unwrap()(cq), libc::ENOENT);
        (*ex).end_poll.unwrap()(cq);
        assert_eq!(done.recv().unwrap(), libc::ENOENT);
        other.join().unwrap();
        drop(qp);
        assert_eq!(ibv_destroy_cq(cq.cast()), 0);
    }
}

#[test]
fn extended_queues_that_cannot_be() {
    let context = Opened::new();
    for part in [8, 10, 12] {
        assert_eq!(
            create_ex(&context, |attr| attr.wc_flags = 1 << part),
            Err(libc::EOPNOTSUPP),
            "part {part}"
        );
    }
    let ignoring_overrun = |attr: &mut ibv_cq_init_attr_ex| (attr.comp_mask, attr.flags) = (1, 2);
    assert_eq!(create_ex(&context, ignoring_overrun), Err(libc::EOPNOTSUPP));
    assert_eq!(create_ex(&context, |attr| attr.comp_mask = 4), Err(libc::EOPNOTSUPP));
    assert_eq!(
        create_ex(&context, |attr| attr.comp_mask = 2),
        Err(libc::EINVAL),
        "no parent domain"
    );
    assert_eq!(create_ex(&context, |attr| attr.cqe = 0), Err(libc::EINVAL));
    let single = create_ex(&context, |attr| (attr.comp_mask, attr.flags) = (1, 1)).unwrap();
    assert_eq!(unsafe { ibv_destroy_cq(single.cast()) }, 0);
}

#[test]
fn moderation() {
    let context = Opened::new();
    let cq = create(&context, 10, null_mut(), 0);
    let mut attr = ibv_modify_cq_attr {
        attr_mask: 1,
        moderate: ibv_moderate_cq { cq_count: 3, cq_period: 200 },
    };
    assert_eq!(unsafe { ibv_modify_cq(cq, &raw mut attr) }, 0);
    let moderation = unsafe { Cq::get(cq) }.unwrap().cq.moderation();
    assert_eq!((moderation.count, moderation.period), (3, Duration::from_micros(200)));
    for (mask, expected) in [(0, libc::EINVAL), (2, libc::EOPNOTSUPP), (3, libc::EOPNOTSUPP)] {
        attr.attr_mask = mask;
        assert_eq!(unsafe { ibv_modify_cq(cq, &raw mut attr) }, expected, "mask {mask}");
    }
    assert_eq!(unsafe { ibv_destroy_cq(cq) }, 0);
}
