//! Posting.

use std::{ffi::c_int, ptr};

use roce_provider::{
    calls::Call,
    transport::work::{Data, SendFlags, SendOp, SendWr, SgeList},
};

use crate::{
    hooks::check::{
        order::{Deed, Order, RemoteUse},
        records,
        requests::{self, Queue, Request},
        watch::Role,
    },
    layout::{consts::*, ibv_qp, ibv_qp_ex, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq},
    object::Object,
    post,
    qp::Qp,
    qp_ex,
    srq::Srq,
    translate::wr,
};

/// More elements than any queue takes: a longer list is refused.
const MOST_ELEMENTS: u32 = 1024;

/// The operation of a request by its opcode, and what it does with its memory.
const fn operation(opcode: u32) -> (&'static str, Option<Role>) {
    match opcode {
        IBV_WR_RDMA_WRITE => ("RDMA WRITE", Some(Role::Send)),
        IBV_WR_RDMA_WRITE_WITH_IMM => ("RDMA WRITE with immediate", Some(Role::Send)),
        IBV_WR_SEND => ("SEND", Some(Role::Send)),
        IBV_WR_SEND_WITH_IMM => ("SEND with immediate", Some(Role::Send)),
        IBV_WR_SEND_WITH_INV => ("SEND with invalidate", Some(Role::Send)),
        IBV_WR_RDMA_READ => ("RDMA READ", Some(Role::Read)),
        IBV_WR_ATOMIC_CMP_AND_SWP => ("compare and swap", Some(Role::Read)),
        IBV_WR_ATOMIC_FETCH_AND_ADD => ("fetch and add", Some(Role::Read)),
        IBV_WR_ATOMIC_WRITE => ("ATOMIC WRITE", Some(Role::Send)),
        _ => ("request", None),
    }
}

/// The same for one that was made by calls.
const fn made(op: &SendOp) -> (&'static str, Option<Role>) {
    match op {
        SendOp::Write { .. } => operation(IBV_WR_RDMA_WRITE),
        SendOp::Read { .. } => operation(IBV_WR_RDMA_READ),
        SendOp::CompareSwap { .. } => operation(IBV_WR_ATOMIC_CMP_AND_SWP),
        SendOp::FetchAdd { .. } => operation(IBV_WR_ATOMIC_FETCH_AND_ADD),
        SendOp::AtomicWrite { .. } => operation(IBV_WR_ATOMIC_WRITE),
        SendOp::Send { .. } | SendOp::SendTo { .. } | SendOp::SendInvalidate { .. } => {
            operation(IBV_WR_SEND)
        }
        _ => ("request", None),
    }
}

/// What is done with the peer's memory by an operation; `None`: nothing that is at an address.
const fn deed(opcode: u32) -> Option<Deed> {
    match opcode {
        IBV_WR_RDMA_READ => Some(Deed::Read),
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_ATOMIC_WRITE => Some(Deed::Write),
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => Some(Deed::Atomic),
        _ => None,
    }
}

/// The peer's memory of a request.
unsafe fn remote(wr: &ibv_send_wr, sges: &SgeList) -> Option<RemoteUse> {
    let deed = deed(wr.opcode)?;
    let start = if deed == Deed::Atomic {
        let part = wr.wr.atomic;
        wr::remote(part.remote_addr, part.rkey)
    } else {
        let part = wr.wr.rdma;
        wr::remote(part.remote_addr, part.rkey)
    };
    Some(RemoteUse { start, length: length(sges), deed })
}

/// The same for one that was made by calls.
fn remote_made(op: &SendOp, sges: &SgeList) -> Option<RemoteUse> {
    let (start, deed) = match op {
        SendOp::Read { remote } => (*remote, Deed::Read),
        SendOp::Write { remote, .. } | SendOp::AtomicWrite { remote } => (*remote, Deed::Write),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            (*remote, Deed::Atomic)
        }
        _ => return None,
    };
    Some(RemoteUse { start, length: length(sges), deed })
}

fn length(sges: &SgeList) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

/// The elements of a request; none of a list that is refused.
unsafe fn sges(first: *const ibv_sge, count: c_int) -> SgeList {
    wr::sges(first, count as usize, MOST_ELEMENTS).unwrap_or_default()
}

unsafe fn send(qp: &Qp, wr: &ibv_send_wr) -> Request {
    let (name, role) = operation(wr.opcode);
    let flags = wr.send_flags;
    let sges = sges(wr.sg_list, wr.num_sge);
    let is_inline = flags & IBV_SEND_INLINE != 0;
    let flags = SendFlags::from_bits_truncate(flags);
    let order = Order {
        is_fenced: flags.contains(SendFlags::FENCE),
        is_inline,
        remote: remote(wr, &sges),
        ..Order::default()
    };
    Request {
        wr_id: wr.wr_id,
        name,
        role: role.filter(|_| !is_inline),
        sges,
        is_signaled: qp.sq_sig_all || flags.contains(SendFlags::SIGNALED),
        order,
    }
}

fn send_made(qp: &Qp, wr: &SendWr) -> Request {
    let (name, role) = made(&wr.op);
    let sges = match &wr.data {
        Data::Sges(sges) => sges.clone(),
        _ => SgeList::default(),
    };
    let is_signaled = qp.sq_sig_all || wr.flags.contains(SendFlags::SIGNALED);
    let order = Order {
        is_fenced: wr.flags.contains(SendFlags::FENCE),
        remote: remote_made(&wr.op, &sges),
        ..Order::default()
    };
    Request { wr_id: wr.wr_id, name, role, sges, is_signaled, order }
}

unsafe fn receive(wr: &ibv_recv_wr) -> Request {
    Request {
        wr_id: wr.wr_id,
        name: "receive",
        role: Some(Role::Receive),
        sges: sges(wr.sg_list, wr.num_sge),
        is_signaled: true,
        order: Order::default(),
    }
}

/// A list of C's, whose elements lead to the next ones.
unsafe fn walk<W>(first: *mut W, next: fn(*mut W) -> *mut W) -> impl Iterator<Item = *mut W> {
    let there = |wr: *mut W| (!wr.is_null()).then_some(wr);
    std::iter::successors(there(first), move |wr| there(next(*wr)))
}

/// Number of requests in front of the one at which posting has stopped.
unsafe fn taken<W>(
    status: c_int,
    first: *mut W,
    stopped_at: *mut W,
    next: fn(*mut W) -> *mut W,
) -> usize {
    walk(first, next).take_while(|wr| status == 0 || *wr != stopped_at).count()
}

/// Posts a list with `post`, which is given a place for the request at which it stops.
unsafe fn post_list<W>(
    queue: Queue,
    call: &'static str,
    list: Vec<Request>,
    (first, bad_wr): (*mut W, *mut *mut W),
    next: fn(*mut W) -> *mut W,
    post: impl FnOnce(*mut *mut W) -> c_int,
) -> c_int {
    requests::post(queue, call, list, || {
        let mut stopped_at = ptr::null_mut();
        let status = post(&raw mut stopped_at);
        if status != 0 && !bad_wr.is_null() {
            bad_wr.write_unaligned(stopped_at);
        }
        (taken(status, first, stopped_at, next), status)
    })
}

/// Status of a call on an object that has been destroyed: told, and refused.
unsafe fn refuse<W>(wr: *mut W, bad_wr: *mut *mut W) -> c_int {
    if !bad_wr.is_null() {
        bad_wr.write_unaligned(wr);
    }
    libc::EINVAL
}

pub(super) unsafe extern "C" fn checked_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let _call = Call::begin();
    if records::used(qp as usize, "ibv_post_send") {
        return refuse(wr, bad_wr);
    }
    let Ok(object) = Qp::trust(qp) else { return post::post_send(qp, wr, bad_wr) };
    let next = |wr: *mut ibv_send_wr| wr.read_unaligned().next;
    let list = walk(wr, next).map(|wr| send(object, &wr.read_unaligned())).collect();
    post_list(Queue::Send(object.key()), "ibv_post_send", list, (wr, bad_wr), next, |stopped_at| {
        post::post_send(qp, wr, stopped_at)
    })
}

pub(super) unsafe extern "C" fn checked_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let _call = Call::begin();
    if records::used(qp as usize, "ibv_post_recv") {
        return refuse(wr, bad_wr);
    }
    let Ok(object) = Qp::trust(qp) else { return post::post_recv(qp, wr, bad_wr) };
    let next = |wr: *mut ibv_recv_wr| wr.read_unaligned().next;
    let list = walk(wr, next).map(|wr| receive(&wr.read_unaligned())).collect();
    post_list(
        Queue::Receive(object.key()),
        "ibv_post_recv",
        list,
        (wr, bad_wr),
        next,
        |stopped_at| post::post_recv(qp, wr, stopped_at),
    )
}

pub(super) unsafe extern "C" fn checked_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let _call = Call::begin();
    if records::used(srq as usize, "ibv_post_srq_recv") {
        return refuse(wr, bad_wr);
    }
    if Srq::trust(srq).is_err() {
        return post::post_srq_recv(srq, wr, bad_wr);
    }
    let next = |wr: *mut ibv_recv_wr| wr.read_unaligned().next;
    let list = walk(wr, next).map(|wr| receive(&wr.read_unaligned())).collect();
    post_list(
        Queue::Shared(srq as usize),
        "ibv_post_srq_recv",
        list,
        (wr, bad_wr),
        next,
        |stopped_at| post::post_srq_recv(srq, wr, stopped_at),
    )
}

pub(super) unsafe extern "C" fn checked_wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let _call = Call::begin();
    let object = &*qp.cast::<Qp>();
    // SAFETY: Only the thread that has begun the batch completes it.
    let list: Vec<_> = (*object.batch.state()).wrs.iter().map(|wr| send_made(object, wr)).collect();
    let number = list.len();
    requests::post(Queue::Send(object.key()), "ibv_wr_complete", list, || {
        let status = qp_ex::wr_complete(qp);
        (if status == 0 { number } else { 0 }, status)
    })
}
