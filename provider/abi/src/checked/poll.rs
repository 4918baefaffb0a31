//! Polling, and arming for events.

use std::ffi::c_int;

use roce_provider::{calls::Call, transport::work::NotifyKind};

use crate::{
    check::{self, records, requests, wake_ups},
    cq::{self, Cq},
    cq_ex,
    layout::{ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc},
    object::Object,
};

pub(super) unsafe extern "C" fn checked_poll_cq(
    cq: *mut ibv_cq,
    number: c_int,
    wcs: *mut ibv_wc,
) -> c_int {
    let _call = Call::begin();
    if records::used(cq as usize, "ibv_poll_cq") {
        return -1;
    }
    let Ok(object) = Cq::trust(cq) else { return cq::poll_cq(cq, number, wcs) };
    let done = cq::poll_each(object, number, wcs, |wc| {
        requests::completed(object.ctx.device(), cq as usize, wc);
    });
    after(cq);
    done
}

/// What is done after each look at a queue.
fn after(cq: *mut ibv_cq) {
    wake_ups::polled(cq as usize);
    check::tell_postponed();
}

pub(super) unsafe extern "C" fn checked_req_notify_cq(
    cq: *mut ibv_cq,
    solicited_only: c_int,
) -> c_int {
    let _call = Call::begin();
    if records::used(cq as usize, "ibv_req_notify_cq") {
        return libc::EINVAL;
    }
    let kind = if solicited_only == 0 { NotifyKind::Next } else { NotifyKind::Solicited };
    wake_ups::armed(cq as usize, kind, requests::pending(cq as usize));
    cq::req_notify_cq(cq, solicited_only)
}

pub(super) unsafe extern "C" fn checked_create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let _call = Call::begin();
    let cq = cq_ex::create_cq_ex(context, attr);
    if !cq.is_null() {
        (*cq).start_poll = Some(checked_start_poll);
        (*cq).next_poll = Some(checked_next_poll);
    }
    cq
}

unsafe extern "C" fn checked_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let done = cq_ex::start_poll(cq, attr); // waits, perhaps, for the batch of another thread
    note(cq, done);
    done
}

unsafe extern "C" fn checked_next_poll(cq: *mut ibv_cq_ex) -> c_int {
    let done = cq_ex::next_poll(cq);
    note(cq, done);
    done
}

/// Notes the completion that the program is at.
unsafe fn note(cq: *mut ibv_cq_ex, done: c_int) {
    let _call = Call::begin();
    let object = &*cq.cast::<Cq>();
    if done == 0 {
        let wc = &(*object.batch.state()).wc;
        requests::completed(object.ctx.device(), cq as usize, wc);
    }
    after(cq.cast());
}
