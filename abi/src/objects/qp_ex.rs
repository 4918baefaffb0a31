//! `ibv_wr_start` to `ibv_wr_complete`, which posts all requests or none.

use roce_provider::{
    calls::Call,
    transport::{
        addr::{QKey, Qpn},
        mem::RKey,
        qp::{PostError, QpType},
        work::{Data, Placement, SendFlags, SendOp, SendWr, SrqId},
    },
};

use super::{
    ah::Ah,
    mw,
    qp::{Qp, Requests},
};
use crate::{
    hooks::check::{
        self, python, records,
        request::Request,
        requests::{self as checks, Queue},
        single::{self, Inside},
    },
    prelude::*,
    translate::wr::{elements, flags, immediate, inline, remote, sges},
};

const fn operations(qp_type: QpType) -> u64 {
    let datagram = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    let connection = datagram
        | IBV_QP_EX_WITH_RDMA_WRITE
        | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | IBV_QP_EX_WITH_LOCAL_INV
        | IBV_QP_EX_WITH_BIND_MW;
    let atomic = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_ATOMIC_WRITE;
    match qp_type {
        QpType::Ud => datagram,
        QpType::Uc => connection,
        QpType::Rc | QpType::XrcInitiator => {
            connection
                | IBV_QP_EX_WITH_RDMA_READ
                | atomic
                | IBV_QP_EX_WITH_SEND_WITH_INV
                | IBV_QP_EX_WITH_FLUSH
        }
        QpType::RawPacket => IBV_QP_EX_WITH_SEND,
        QpType::XrcTarget => 0,
    }
}

/// `EOPNOTSUPP` if the service lacks an operation.
pub(crate) const fn check_operations(qp_type: QpType, send_ops: u64) -> Result<()> {
    if send_ops & !operations(qp_type) == 0 { Ok(()) } else { Err(Errno::of(Rule::SendOperations)) }
}

/// Inline bytes needed: 8 for atomic WRITE.
pub(crate) const fn inline_needed(send_ops: u64) -> u32 {
    if send_ops & IBV_QP_EX_WITH_ATOMIC_WRITE != 0 { 8 } else { 0 }
}

pub(crate) fn set_operations(c: &mut ibv_qp_ex, qp_type: QpType, send_ops: u64) {
    let wants = |operation: u64| send_ops & operation != 0;
    c.wr_start = Some(wr_start);
    c.wr_complete = Some(wr_complete);
    c.wr_abort = Some(wr_abort);
    c.wr_set_sge = Some(wr_set_sge);
    c.wr_set_sge_list = Some(wr_set_sge_list);
    c.wr_set_inline_data = Some(wr_set_inline_data);
    c.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    c.wr_set_ud_addr = (qp_type == QpType::Ud).then_some(wr_set_ud_addr);
    c.wr_set_xrc_srqn = (qp_type == QpType::XrcInitiator).then_some(wr_set_xrc_srqn);
    c.wr_bind_mw = wants(IBV_QP_EX_WITH_BIND_MW).then_some(wr_bind_mw);
    c.wr_flush = wants(IBV_QP_EX_WITH_FLUSH).then_some(wr_flush);
    c.wr_atomic_write = wants(IBV_QP_EX_WITH_ATOMIC_WRITE).then_some(wr_atomic_write);
    set_plain(c, send_ops);
}

unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    Qp::trust(qp).map_or(std::ptr::null_mut(), |object| {
        if object.is_extended { qp.cast() } else { std::ptr::null_mut() }
    })
}

unsafe fn object<'a>(qp: *mut ibv_qp_ex) -> &'a Qp {
    &*qp.cast()
}

/// For the batch's thread.
unsafe fn requests<'a>(qp: &Qp) -> &'a mut Requests {
    // SAFETY: C allows only the batch's thread to call, and the reference ends with the call.
    unsafe { &mut *qp.batch.state() }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    let _inside = if check::is_on() { starting(qp as usize) } else { None };
    object(qp).batch.begin("ibv_wr_start"); // may wait for another thread
}

/// Reports a start in a child, or beside another thread.
#[cold]
fn starting(qp: usize) -> Option<Inside> {
    let _lines = python::enter(None);
    let _call = Call::begin();
    records::used(qp, "ibv_wr_start");
    single::enter(qp, "ibv_wr_start")
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let object = object(qp);
    object.batch.expect_begun("ibv_wr_complete");
    let status = call::data(CallId::ibv_wr_complete, move |call| {
        let _inside = call.is_checked.then(|| single::enter(qp as usize, call.id.name()));
        let Requests { wrs, keys, error } = requests(object);
        if let Some(error) = error.take() {
            return Err(error.on(&object.qp, &refused(wrs)));
        }
        let post = |wrs: &[SendWr]| object.qp.post_send_all(wrs).map_err(|failed| failed.error);
        if call.is_checked {
            let made = wrs.iter().map(|wr| Request::send(wr, object.sq_sig_all, None, 0)).collect();
            checks::post(Queue::Send(object.key()), call.id.name(), (made, true), |room| {
                let posted = if wrs.len() > room { Err(PostError::QueueFull) } else { post(wrs) };
                (if posted.is_ok() { wrs.len() } else { 0 }, posted)
            })?;
        } else {
            post(wrs)?;
        }
        keys.iter().for_each(|&(mw, rkey)| mw::set_rkey(mw, rkey));
        Ok(())
    });
    end(object); // posted requests have left the batch
    status
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    let object = object(qp);
    object.batch.expect_begun("ibv_wr_abort");
    end(object);
}

unsafe fn end(object: &Qp) {
    let Requests { wrs, keys, error } = requests(object);
    keys.clear();
    wrs.clear();
    *error = None;
    object.batch.end();
}

/// The last request of a batch, which an error ends.
#[cold]
fn refused(wrs: &[SendWr]) -> String {
    let (call, number) = (CallId::ibv_wr_complete.name(), wrs.len());
    match wrs.last() {
        None => call.to_owned(),
        Some(last) => format!("{call} {}, request {number} of its batch", last.wr_id),
    }
}

/// Later calls set data and destination. A refused request counts, and is not posted.
unsafe fn push(qp: *mut ibv_qp_ex, op: impl FnOnce() -> Result<SendOp>) {
    let requests = requests(object(qp));
    if requests.error.is_some() {
        return;
    }
    let made = op().and_then(|op| Ok((op, flags((*qp).wr_flags)?)));
    let (op, flags) = made.unwrap_or_else(|error| {
        requests.error = Some(error);
        (SendOp::Send { immediate: None }, SendFlags::empty())
    });
    let (wr_id, data) = ((*qp).wr_id, Data::empty());
    requests.wrs.push(SendWr { wr_id, op, data, flags, remote_srq: None });
}

unsafe fn amend(qp: *mut ibv_qp_ex, amend: impl FnOnce(&Qp, &mut SendWr) -> Result<()>) {
    let qp = object(qp);
    let requests = requests(qp);
    if requests.error.is_none() {
        requests.error = requests
            .wrs
            .last_mut()
            .ok_or(Errno::of(Rule::NotPosting))
            .and_then(|wr| amend(qp, wr))
            .err();
    }
}

/// Functions of C that only push an operation, and the bits that ask for them.
macro_rules! plain {
    ($($flag:ident $name:ident($($argument:ident: $type:ty),*) => $op:expr;)*) => {
        fn set_plain(c: &mut ibv_qp_ex, send_ops: u64) {
            $(c.$name = (send_ops & $flag != 0).then_some($name);)*
        }

        $(
            unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $($argument: $type),*) {
                push(qp, || Ok($op));
            }
        )*
    };
}

plain! {
    IBV_QP_EX_WITH_SEND wr_send() => SendOp::Send { immediate: None };
    IBV_QP_EX_WITH_SEND_WITH_IMM wr_send_imm(imm_data: u32) =>
        SendOp::Send { immediate: immediate(imm_data) };
    IBV_QP_EX_WITH_SEND_WITH_INV wr_send_inv(rkey: u32) =>
        SendOp::SendInvalidate { rkey: RKey(rkey) };
    IBV_QP_EX_WITH_RDMA_WRITE wr_rdma_write(rkey: u32, address: u64) =>
        SendOp::Write { remote: remote(address, rkey), immediate: None };
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        wr_rdma_write_imm(rkey: u32, address: u64, imm_data: u32) =>
        SendOp::Write { remote: remote(address, rkey), immediate: immediate(imm_data) };
    IBV_QP_EX_WITH_RDMA_READ wr_rdma_read(rkey: u32, address: u64) =>
        SendOp::Read { remote: remote(address, rkey) };
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        wr_atomic_cmp_swp(rkey: u32, address: u64, compare: u64, swap: u64) =>
        SendOp::CompareSwap { remote: remote(address, rkey), compare, swap };
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        wr_atomic_fetch_add(rkey: u32, address: u64, add: u64) =>
        SendOp::FetchAdd { remote: remote(address, rkey), add };
    IBV_QP_EX_WITH_LOCAL_INV wr_local_inv(rkey: u32) =>
        SendOp::LocalInvalidate { rkey: RKey(rkey) };
}

unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    word: *const c_void,
) {
    push(qp, || Ok(SendOp::AtomicWrite { remote: remote(address, rkey) }));
    amend(qp, |qp, wr| {
        wr.data = inline([(word.cast(), 8)].into_iter(), qp.caps.max_inline_data)?;
        Ok(())
    });
}

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    push(qp, || {
        let placement = Placement::from_bits(placement)
            .filter(|kinds| !kinds.is_empty())
            .ok_or(Rule::NotPosting)?;
        let length = u32::try_from(length).map_err(|_| Rule::SgeCount)?;
        refuse_if(!matches!(level, IBV_FLUSH_RANGE | IBV_FLUSH_MR), Rule::NotPosting)?;
        Ok(SendOp::Flush {
            remote: remote(address, rkey),
            length,
            placement,
            whole: level == IBV_FLUSH_MR,
        })
    });
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    let mut key = None;
    push(qp, || {
        let bind = mw::bind(mw, rkey, info.as_ref().ok_or(Rule::NullArgument)?)?;
        key = Some((mw, bind.rkey));
        Ok(SendOp::BindWindow(bind))
    });
    requests(object(qp)).keys.extend(key);
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    amend(qp, |_, wr| {
        let to = Ah::trust(ah)?.handle.to(Qpn::new(qpn), QKey(qkey));
        let (SendOp::Send { immediate } | SendOp::SendTo { immediate, .. }) = wr.op else {
            return Err(Errno::of(Rule::NotPosting));
        };
        wr.op = SendOp::SendTo { to, immediate };
        Ok(())
    });
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, number: u32) {
    amend(qp, |_, wr| {
        if !wr.op.is_local() {
            wr.remote_srq = Some(SrqId::new(number));
        }
        Ok(())
    });
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    wr_set_sge_list(qp, 1, &ibv_sge { addr, length, lkey });
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    amend(qp, |qp, wr| {
        wr.data = Data::Sges(sges(list, count, qp.caps.max_send_sge)?);
        Ok(())
    });
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    wr_set_inline_data_list(qp, 1, &ibv_data_buf { addr, length });
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    amend(qp, |qp, wr| {
        wr.data = inline(
            elements(list, count).map(|piece| (piece.addr.cast_const().cast(), piece.length)),
            qp.caps.max_inline_data,
        )?;
        Ok(())
    });
}

export!(ibv_qp_to_qp_ex);
