//! Polling, and arming for events.

use std::ffi::{c_int, c_uint};

use roce_provider::calls::Call;

use crate::{
    cq::{self, Cq},
    cq_ex,
    hooks::check::{self, Finding, Kind, Stack, records, requests, wake_ups},
    layout::{ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc},
    object::Object,
    translate::wc,
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
    let done = cq::poll_each(object, number, wcs, |place, wc| {
        requests::completed(object.ctx.device(), cq as usize, wc);
        wc::write_checked(place, wc);
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
    let kind = cq::notify_kind(solicited_only);
    wake_ups::armed(cq as usize, kind, requests::pending(cq as usize));
    // as the specification has it: who counts on what network adapters do besides finds that out
    cq::arm(cq, |queue| queue.req_notify(kind))
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
        set_readers(&mut *cq);
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

/// Functions that read parts of completions, of which those that have failed have none.
macro_rules! readers {
    ($($checked:ident of $field:ident: $function:literal, $type:ty;)*) => {
        fn set_readers(cq: &mut ibv_cq_ex) {
            $(cq.$field = Some($checked);)*
        }

        $(unsafe extern "C" fn $checked(cq: *mut ibv_cq_ex) -> $type {
            if is_valid(cq, $function) { cq_ex::$field(cq) } else { wc::INVALID as $type }
        })*
    };
}

readers! {
    checked_read_opcode of read_opcode: "ibv_wc_read_opcode", c_uint;
    checked_read_byte_len of read_byte_len: "ibv_wc_read_byte_len", u32;
    checked_read_imm_data of read_imm_data: "ibv_wc_read_imm_data", u32;
    checked_read_src_qp of read_src_qp: "ibv_wc_read_src_qp", u32;
    checked_read_wc_flags of read_wc_flags: "ibv_wc_read_wc_flags", c_uint;
    checked_read_slid of read_slid: "ibv_wc_read_slid", u32;
    checked_read_sl of read_sl: "ibv_wc_read_sl", u8;
    checked_read_dlid_path_bits of read_dlid_path_bits: "ibv_wc_read_dlid_path_bits", u8;
}

/// True if the completion that the program is at has succeeded; else it is told.
unsafe fn is_valid(cq: *mut ibv_cq_ex, function: &str) -> bool {
    let wc = &(*(*cq.cast::<Cq>()).batch.state()).wc;
    let Err(error) = &wc.result else { return true };
    let _call = Call::begin();
    check::tell(&Finding {
        kind: Kind::FailedCompletionRead,
        what: format!(
            "qp {:#x}: {function} of request {}: {}",
            wc.qpn.get(),
            wc.wr_id,
            error.status
        ),
        stacks: vec![("read", Stack::here())],
    });
    false
}
