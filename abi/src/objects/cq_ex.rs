//! Extended completion queues.

use std::{
    mem::offset_of,
    time::{Duration, SystemTime},
};

use roce_provider::{
    calls::Call,
    transport::work::{CqModeration, Wc, WcError, WcOk},
};

use super::{
    batch::Batch,
    cq::{Cq, CurrentCompletion},
    pd::Pd,
};
use crate::{
    call::DataCall,
    hooks::check::{self, Kind, python, requests, single, wake_ups},
    prelude::*,
    translate::wc,
};

/// Readable members: no VLANs or tag matching.
const SUPPORTED_WC_FLAGS: u64 = IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_FLOW_TAG
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

operations!(
    /// `EOPNOTSUPP` for unknown members and `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`.
    fn ibv_create_cq_ex(
        context: *mut ibv_context,
        attr: *mut ibv_cq_init_attr_ex,
    ) -> *mut ibv_cq_ex {
        // the program's structure may be shorter
        let length = |attr: *const ibv_cq_init_attr_ex| match (*attr).comp_mask {
            mask if mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 => size_of::<ibv_cq_init_attr_ex>(),
            mask if mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 => {
                offset_of!(ibv_cq_init_attr_ex, parent_domain)
            }
            _ => offset_of!(ibv_cq_init_attr_ex, flags),
        };
        let attr =
            read_sized(attr, ibv_cq_init_attr_ex::zeroed(), length).ok_or(Rule::NullArgument)?;
        let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
        let is_unknown = attr.wc_flags & !SUPPORTED_WC_FLAGS != 0
            || attr.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0
            || flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0;
        refuse_if(is_unknown, Rule::UnknownMask)?;
        let parent = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
            Some(Pd::get(attr.parent_domain)?)
        } else {
            None
        };
        refuse_if(parent.is_some_and(|parent| !parent.is_parent()), Rule::Members)?;
        let mut cq = Cq::new(context, attr.cqe, attr.cq_context, attr.channel, attr.comp_vector)?;
        if flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED == 0 {
            cq.batch = Batch::new(CurrentCompletion::NONE);
        }
        cq.members = attr.wc_flags;
        cq.parent = parent.map(|parent| parent.users.add());
        set_functions(cq.functions());
        let cq = cq.start();
        if flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
            single::promised(cq as usize, "it was made with IBV_CREATE_CQ_ATTR_SINGLE_THREADED");
        } else if parent.is_some() {
            single::made_with(cq as usize, attr.parent_domain as usize);
        }
        Ok(cq.cast::<ibv_cq_ex>())
    }

    fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
        let object = Cq::get(cq)?;
        let attr = attr.as_ref().ok_or(Rule::NullArgument)?;
        match attr.attr_mask {
            IBV_CQ_ATTR_MODERATE => {
                let period = Duration::from_micros(attr.moderate.cq_period.into());
                Ok(object.cq.moderate(CqModeration { count: attr.moderate.cq_count, period })?)
            }
            0 => Err(Errno::of(Rule::CqAttributes)),
            _ => Err(Errno::of(Rule::NotSupported)),
        }
    }
);

fn set_functions(cq: &mut ibv_cq_ex) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    set_readers(cq);
}

unsafe fn object<'a>(cq: *mut ibv_cq_ex) -> &'a Cq {
    &*cq.cast::<Cq>()
}

/// Reads a member, whose `flag` is its bit in `wc_flags`; 0: always there.
unsafe fn of_any<R>(
    cq: *mut ibv_cq_ex,
    call: &'static str,
    flag: u64,
    read: impl FnOnce(&Wc) -> R,
) -> R {
    let object = object(cq);
    if check::is_on() {
        check_member(object, call, flag);
    }
    read(&(*object.batch.state()).wc)
}

#[cold]
fn check_member(cq: &Cq, call: &'static str, flag: u64) {
    cq.batch.expect_begun(call);
    if cq.members & flag == flag {
        return;
    }
    let _lines = python::enter(None);
    let _call = Call::begin();
    let what = format!("{call}: wc_flags of ibv_create_cq_ex was {:#x}", cq.members);
    check::emit_here(Kind::FieldNotRequested, "read", what);
}

/// A failed completion gives 0, or an implausible value under checks.
unsafe fn of_success(
    cq: *mut ibv_cq_ex,
    call: &'static str,
    flag: u64,
    read: impl FnOnce(&WcOk) -> u32,
) -> u32 {
    of_any(cq, call, flag, |wc| match &wc.result {
        Ok(ok) => read(ok),
        Err(error) => failed_read(wc, error, call),
    })
}

#[cold]
fn failed_read(wc: &Wc, error: &WcError, call: &str) -> u32 {
    if !check::is_on() {
        return 0;
    }
    let _call = Call::begin();
    let what = format!("qp {:#x}: {call} of request {}: {}", wc.qpn.get(), wc.wr_id, error.status);
    check::emit_here(Kind::FailedCompletionRead, "read", what);
    wc::INVALID
}

/// Moves to the next completion: 0, or `ENOENT`.
unsafe fn next(call: DataCall, cq: *mut ibv_cq_ex) -> Result<c_int> {
    let object = object(cq);
    let inside = call.is_checked.then(|| single::enter(cq as usize, call.id.name()));
    let found = object.cq.poll_one();
    drop(inside);
    if call.is_checked {
        match &found {
            Some(wc) => requests::completed(object.ctx.device(), cq as usize, wc),
            None => requests::found_empty(cq as usize),
        }
        wake_ups::polled(cq as usize);
    }
    let Some(wc) = found else {
        return match object.cq.has_overrun() {
            true => Err(Errno::of(Rule::CqOverrun)),
            false => Ok(libc::ENOENT),
        };
    };
    ((*cq).wr_id, (*cq).status) = (wc.wr_id, wc::status(&wc));
    (*object.batch.state()).wc = wc;
    Ok(0)
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    if attr.as_ref().is_some_and(|attr| attr.comp_mask != 0) {
        return call::data::<()>(CallId::ibv_start_poll, |_| Err(Errno::of(Rule::UnknownPollMask)));
    }
    let batch = &object(cq).batch;
    batch.begin("ibv_start_poll"); // may wait for another thread
    let done = call::data(CallId::ibv_start_poll, move |call| next(call, cq));
    if done != 0 {
        batch.end();
    }
    done
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    object(cq).batch.expect_begun("ibv_next_poll");
    call::data(CallId::ibv_next_poll, move |call| next(call, cq))
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    let batch = &object(cq).batch;
    batch.expect_begun("ibv_end_poll");
    batch.end();
}

/// Functions of C: how they read, their member's bit, and its value.
macro_rules! readers {
    ($($by:ident $name:ident -> $type:ty, $flag:expr, $read:expr;)*) => {
        fn set_readers(cq: &mut ibv_cq_ex) {
            $(cq.$name = Some($name);)*
        }

        $(
            unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
                $by(cq, concat!("ibv_wc_", stringify!($name)), $flag, $read) as $type
            }
        )*
    };
}

readers! {
    of_success read_opcode -> c_uint, 0, |ok| wc::opcode(ok.opcode);
    of_any read_vendor_err -> u32, 0, |wc| wc.result.as_ref().err().map_or(0, wc::vendor_error);
    of_success read_byte_len -> u32, IBV_WC_EX_WITH_BYTE_LEN, |ok| {
        if check::is_on() { wc::checked_byte_len(ok) } else { ok.byte_len }
    };
    of_success read_imm_data -> u32, IBV_WC_EX_WITH_IMM, |ok| {
        if check::is_on() { wc::checked_immediate_or_key(ok) } else { wc::immediate_or_key(ok) }
    };
    of_any read_qp_num -> u32, IBV_WC_EX_WITH_QP_NUM, |wc| wc.qpn.get();
    of_success read_src_qp -> u32, IBV_WC_EX_WITH_SRC_QP, |ok| ok.src_qp.map_or(0, |qpn| qpn.get());
    of_success read_wc_flags -> c_uint, 0, wc::flags;
    of_success read_slid -> u32, IBV_WC_EX_WITH_SLID, |_| 0;
    of_success read_sl -> u8, IBV_WC_EX_WITH_SL, |ok| wc::sl(ok).into();
    of_success read_dlid_path_bits -> u8, IBV_WC_EX_WITH_DLID_PATH_BITS, |_| 0;
    of_any read_flow_tag -> u32, IBV_WC_EX_WITH_FLOW_TAG, |wc| {
        wc.result.as_ref().map_or(0, |ok| ok.flow_tag)
    };
    // ticks of `hca_core_clock`: nanoseconds
    of_any read_completion_ts -> u64, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, |wc| {
        wc.timestamp.as_nanos()
    };
}

/// Nanoseconds since 1970.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    let object = object(cq);
    let (call, flag) =
        ("ibv_wc_read_completion_wallclock_ns", IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
    let timestamp = of_any(cq, call, flag, |wc| wc.timestamp);
    let wall = object.ctx.context.query_clock().wall_time(timestamp);
    let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (*object.batch.state()).wall.of(timestamp, wall).as_nanos() as u64
}
