//! Functions for the calls that move data, which contexts, queue pairs and completion queues have
//! in the place of others where calls may be made to fail ([`crate::hooks::fault`]).

use std::{ffi::c_int, sync::OnceLock};

use roce_provider::{faults::CallId, transport::qp::QpType};

use crate::{
    checked,
    hooks::fault::{self, errno},
    layout::{
        ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_qp, ibv_qp_ex,
        ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc, verbs_context,
    },
    qp_ex,
};

/// Declares the functions that are called in the end, and a place for them.
macro_rules! usual {
    ($($name:ident: ($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions that programs have otherwise: with checks, if there are any.
        #[derive(Clone, Copy)]
        struct Usual {
            $($name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }
    };
}

usual! {
    poll_cq: (*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
    req_notify_cq: (*mut ibv_cq, c_int) -> c_int;
    post_send: (*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
    post_recv: (*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
    post_srq_recv: (*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
    create_cq_ex: (*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
}

static USUAL: OnceLock<Usual> = OnceLock::new();

/// The same of an extended completion queue.
#[derive(Clone, Copy)]
struct Polling {
    start_poll: unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int,
    next_poll: unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int,
}

static POLLING: OnceLock<Polling> = OnceLock::new();
static WR_COMPLETE: OnceLock<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int> = OnceLock::new();

/// What stands there: these functions are given to programs only when it does.
fn usual<T: Copy>(place: &OnceLock<T>) -> T {
    *place.get().expect("it was kept before")
}

/// The call with this name.
const fn call(name: &str) -> CallId {
    match CallId::of(name) {
        Some(call) => call,
        None => panic!("no such call"),
    }
}

const POLL_CQ: CallId = call("ibv_poll_cq");
const REQ_NOTIFY_CQ: CallId = call("ibv_req_notify_cq");
const POST_SEND: CallId = call("ibv_post_send");
const POST_RECV: CallId = call("ibv_post_recv");
const POST_SRQ_RECV: CallId = call("ibv_post_srq_recv");
const CREATE_CQ_EX: CallId = call("ibv_create_cq_ex");
const START_POLL: CallId = call("ibv_start_poll");
const NEXT_POLL: CallId = call("ibv_next_poll");
const COMPLETE: CallId = call("ibv_wr_complete");

/// Puts them into the operations of a context, in the place of those that are there.
pub(crate) fn set_operations(verbs: &mut verbs_context) {
    let ops = &mut verbs.context.ops;
    let there = (|| {
        Some(Usual {
            poll_cq: ops.poll_cq?,
            req_notify_cq: ops.req_notify_cq?,
            post_send: ops.post_send?,
            post_recv: ops.post_recv?,
            post_srq_recv: ops.post_srq_recv?,
            create_cq_ex: verbs.create_cq_ex?,
        })
    })();
    let Some(there) = there else { return };
    let _ = USUAL.set(there); // the same in all contexts
    ops.poll_cq = Some(faulted_poll_cq);
    ops.req_notify_cq = Some(faulted_req_notify_cq);
    ops.post_send = Some(faulted_post_send);
    ops.post_recv = Some(faulted_post_recv);
    ops.post_srq_recv = Some(faulted_post_srq_recv);
    verbs.create_cq_ex = Some(faulted_create_cq_ex);
}

/// Sets the functions for the requests that a queue pair is made for.
pub(crate) fn set_requests(c: &mut ibv_qp_ex, qp_type: QpType, send_ops: u64) {
    checked::set_requests(c, qp_type, send_ops);
    if let Some(there) = c.wr_complete.filter(|_| fault::are_possible()) {
        let _ = WR_COMPLETE.set(there);
        c.wr_complete = Some(faulted_wr_complete);
    }
}

unsafe extern "C" fn faulted_poll_cq(cq: *mut ibv_cq, number: c_int, wcs: *mut ibv_wc) -> c_int {
    if errno(POLL_CQ).is_some() {
        return -1;
    }
    (usual(&USUAL).poll_cq)(cq, number, wcs)
}

unsafe extern "C" fn faulted_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    errno(REQ_NOTIFY_CQ).unwrap_or_else(|| (usual(&USUAL).req_notify_cq)(cq, solicited_only))
}

/// The error of a call that posts a list, of which none is posted.
unsafe fn refused<W>(call: CallId, wr: *mut W, bad_wr: *mut *mut W) -> Option<c_int> {
    let errno = errno(call)?;
    if !bad_wr.is_null() {
        *bad_wr = wr;
    }
    Some(errno)
}

unsafe extern "C" fn faulted_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    refused(POST_SEND, wr, bad_wr).unwrap_or_else(|| (usual(&USUAL).post_send)(qp, wr, bad_wr))
}

unsafe extern "C" fn faulted_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    refused(POST_RECV, wr, bad_wr).unwrap_or_else(|| (usual(&USUAL).post_recv)(qp, wr, bad_wr))
}

unsafe extern "C" fn faulted_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    refused(POST_SRQ_RECV, wr, bad_wr)
        .unwrap_or_else(|| (usual(&USUAL).post_srq_recv)(srq, wr, bad_wr))
}

unsafe extern "C" fn faulted_create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    if errno(CREATE_CQ_EX).is_some() {
        return std::ptr::null_mut();
    }
    let cq = (usual(&USUAL).create_cq_ex)(context, attr);
    if let Some(made) = cq.as_mut()
        && let (Some(start_poll), Some(next_poll)) = (made.start_poll, made.next_poll)
    {
        let _ = POLLING.set(Polling { start_poll, next_poll });
        made.start_poll = Some(faulted_start_poll);
        made.next_poll = Some(faulted_next_poll);
    }
    cq
}

unsafe extern "C" fn faulted_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    errno(START_POLL).unwrap_or_else(|| (usual(&POLLING).start_poll)(cq, attr))
}

unsafe extern "C" fn faulted_next_poll(cq: *mut ibv_cq_ex) -> c_int {
    errno(NEXT_POLL).unwrap_or_else(|| (usual(&POLLING).next_poll)(cq))
}

/// The requests of one that fails are dropped, and its batch is over.
unsafe extern "C" fn faulted_wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let Some(errno) = errno(COMPLETE) else { return usual(&WR_COMPLETE)(qp) };
    qp_ex::wr_abort(qp);
    errno
}
