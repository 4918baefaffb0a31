//! Posting by calls: `ibv_wr_start`, calls that make requests, and `ibv_wr_complete`, which posts
//! all of them or none.

use std::{
    cell::UnsafeCell,
    ffi::{c_int, c_void},
    sync::{Condvar, Mutex, PoisonError},
};

use roce_provider::transport::{
    addr::{QKey, Qpn},
    mem::RKey,
    qp::QpType,
    work::{Data, Placement, SendOp, SendWr, SrqId},
};

use crate::{
    ah::Ah,
    errno::{self, Errno, Result},
    export::export,
    layout::verbs::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_sge},
    mw,
    object::Object,
    post::{flags, immediate, inline, remote, sges},
    qp::Qp,
};

/// `ibv_qp_create_send_ops_flags`.
const RDMA_WRITE: u64 = 1;
const RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
const SEND: u64 = 1 << 2;
const SEND_WITH_IMM: u64 = 1 << 3;
const RDMA_READ: u64 = 1 << 4;
const ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
const ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
const LOCAL_INV: u64 = 1 << 7;
const BIND_MW: u64 = 1 << 8;
const SEND_WITH_INV: u64 = 1 << 9;
const FLUSH: u64 = 1 << 11;
const ATOMIC_WRITE: u64 = 1 << 12;

/// The requests that a service has.
const fn operations(qp_type: QpType) -> u64 {
    let datagram = SEND | SEND_WITH_IMM;
    let connection = datagram | RDMA_WRITE | RDMA_WRITE_WITH_IMM | LOCAL_INV | BIND_MW;
    let atomic = ATOMIC_CMP_AND_SWP | ATOMIC_FETCH_AND_ADD | ATOMIC_WRITE;
    match qp_type {
        QpType::Ud => datagram,
        QpType::Uc => connection,
        QpType::Rc | QpType::XrcInitiator => {
            connection | RDMA_READ | atomic | SEND_WITH_INV | FLUSH
        }
        QpType::XrcTarget => 0,
    }
}

/// `EOPNOTSUPP` for requests that the service does not have.
pub(crate) const fn check_operations(qp_type: QpType, send_ops: u64) -> Result<()> {
    if send_ops & !operations(qp_type) == 0 { Ok(()) } else { Err(Errno::NOTSUPP) }
}

/// Bytes that these requests carry inline whatever the program asks for: an atomic WRITE is given
/// its eight.
pub(crate) const fn inline_needed(send_ops: u64) -> u32 {
    if send_ops & ATOMIC_WRITE != 0 { 8 } else { 0 }
}

/// What is between `ibv_wr_start` and `ibv_wr_complete`, for one thread at a time.
pub(crate) struct Batch {
    /// Whether the queue pair was made for this.
    is_extended: bool,
    taken: Mutex<bool>,
    free: Condvar,
    requests: UnsafeCell<Requests>,
}

/// What has been made so far. After an error nothing more is.
#[derive(Default)]
struct Requests {
    wrs: Vec<SendWr>,
    error: Option<Errno>,
}

impl Batch {
    pub(crate) fn new(is_extended: bool) -> Self {
        Self {
            is_extended,
            taken: Mutex::default(),
            free: Condvar::new(),
            requests: UnsafeCell::default(),
        }
    }

    fn take(&self) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        *self.free.wait_while(taken, |taken| *taken).unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn give_back(&self) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.free.notify_one();
    }

    /// The requests of whoever has taken the batch.
    #[allow(clippy::mut_from_ref, reason = "by contract: see below")]
    unsafe fn requests(&self) -> &mut Requests {
        // SAFETY: C demands that only who has started a batch makes requests and completes it, in
        // one thread; and the reference does not outlive the call.
        unsafe { &mut *self.requests.get() }
    }
}

/// The functions for the requests that a program wants to make.
pub(crate) fn set_operations(c: &mut ibv_qp_ex, qp_type: QpType, send_ops: u64) {
    let wants = |operation: u64| send_ops & operation != 0;
    c.wr_start = Some(wr_start);
    c.wr_complete = Some(wr_complete);
    c.wr_abort = Some(wr_abort);
    c.wr_set_sge = Some(wr_set_sge);
    c.wr_set_sge_list = Some(wr_set_sge_list);
    c.wr_set_inline_data = Some(wr_set_inline_data);
    c.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    if qp_type == QpType::Ud {
        c.wr_set_ud_addr = Some(wr_set_ud_addr);
    }
    if qp_type == QpType::XrcInitiator {
        c.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    }
    if wants(RDMA_WRITE) {
        c.wr_rdma_write = Some(wr_rdma_write);
    }
    if wants(RDMA_WRITE_WITH_IMM) {
        c.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    }
    if wants(SEND) {
        c.wr_send = Some(wr_send);
    }
    if wants(SEND_WITH_IMM) {
        c.wr_send_imm = Some(wr_send_imm);
    }
    if wants(RDMA_READ) {
        c.wr_rdma_read = Some(wr_rdma_read);
    }
    if wants(ATOMIC_CMP_AND_SWP) {
        c.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    }
    if wants(ATOMIC_FETCH_AND_ADD) {
        c.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    }
    if wants(LOCAL_INV) {
        c.wr_local_inv = Some(wr_local_inv);
    }
    if wants(BIND_MW) {
        c.wr_bind_mw = Some(wr_bind_mw);
    }
    if wants(SEND_WITH_INV) {
        c.wr_send_inv = Some(wr_send_inv);
    }
    if wants(FLUSH) {
        c.wr_flush = Some(wr_flush);
    }
    if wants(ATOMIC_WRITE) {
        c.wr_atomic_write = Some(wr_atomic_write);
    }
}

unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    Qp::get(qp).map_or(std::ptr::null_mut(), |object| {
        if object.batch.is_extended { qp.cast() } else { std::ptr::null_mut() }
    })
}

/// The object behind a pointer that the program got from `ibv_qp_to_qp_ex`.
unsafe fn object<'a>(qp: *mut ibv_qp_ex) -> &'a Qp {
    &*qp.cast()
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    object(qp).batch.take();
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let Qp { batch, qp, .. } = object(qp);
    let Requests { wrs, error } = batch.requests();
    let result = match error.take() {
        Some(error) => Err(error),
        None => qp.post_send_all(wrs).map_err(|failed| failed.error.into()),
    };
    wrs.clear();
    batch.give_back();
    errno::status(result)
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    let batch = &object(qp).batch;
    let Requests { wrs, error } = batch.requests();
    wrs.clear();
    *error = None;
    batch.give_back();
}

/// Makes a request, of which other calls give the bytes and where it goes. Its number and flags are
/// what the program has set before the call.
unsafe fn make(qp: *mut ibv_qp_ex, op: impl FnOnce() -> Result<SendOp>) {
    let requests = object(qp).batch.requests();
    if requests.error.is_none() {
        let wr = || -> Result<_> {
            let (op, flags) = (op()?, flags((*qp).wr_flags)?);
            Ok(SendWr { wr_id: (*qp).wr_id, op, data: Data::empty(), flags, remote_srq: None })
        };
        match wr() {
            Ok(wr) => requests.wrs.push(wr),
            Err(error) => requests.error = Some(error),
        }
    }
}

/// Says more of the request that was made last.
unsafe fn amend(qp: *mut ibv_qp_ex, amend: impl FnOnce(&Qp, &mut SendWr) -> Result<()>) {
    let qp = object(qp);
    let requests = qp.batch.requests();
    if requests.error.is_none() {
        requests.error =
            requests.wrs.last_mut().ok_or(Errno::INVAL).and_then(|wr| amend(qp, wr)).err();
    }
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    make(qp, || Ok(SendOp::Send { immediate: None }));
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm_data: u32) {
    make(qp, || Ok(SendOp::Send { immediate: immediate(imm_data) }));
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    make(qp, || Ok(SendOp::SendInvalidate { rkey: RKey(rkey) }));
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, address: u64) {
    make(qp, || Ok(SendOp::Write { remote: remote(address, rkey), immediate: None }));
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, address: u64, imm_data: u32) {
    make(qp, || {
        Ok(SendOp::Write { remote: remote(address, rkey), immediate: immediate(imm_data) })
    });
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, address: u64) {
    make(qp, || Ok(SendOp::Read { remote: remote(address, rkey) }));
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    compare: u64,
    swap: u64,
) {
    make(qp, || Ok(SendOp::CompareSwap { remote: remote(address, rkey), compare, swap }));
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, address: u64, add: u64) {
    make(qp, || Ok(SendOp::FetchAdd { remote: remote(address, rkey), add }));
}

unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    word: *const c_void,
) {
    make(qp, || Ok(SendOp::AtomicWrite { remote: remote(address, rkey) }));
    amend(qp, |qp, wr| {
        wr.data = inline([(word.cast(), 8)].into_iter(), qp.caps.max_inline_data)?;
        Ok(())
    });
}

/// `enum ibv_selectivity_level`.
const RANGE: u8 = 0;
const WHOLE: u8 = 1;

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    make(qp, || {
        let placement = Placement::from_bits(placement)
            .filter(|kinds| !kinds.is_empty())
            .ok_or(Errno::INVAL)?;
        let length = u32::try_from(length).map_err(|_| Errno::INVAL)?;
        if !matches!(level, RANGE | WHOLE) {
            return Err(Errno::INVAL);
        }
        Ok(SendOp::Flush {
            remote: remote(address, rkey),
            length,
            placement,
            whole: level == WHOLE,
        })
    });
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    make(qp, || Ok(SendOp::LocalInvalidate { rkey: RKey(rkey) }));
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    make(qp, || Ok(SendOp::BindWindow(mw::bind(mw, rkey, info.as_ref().ok_or(Errno::INVAL)?)?)));
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    amend(qp, |_, wr| {
        let to = Ah::get(ah)?.handle.to(Qpn::new(qpn), QKey(qkey));
        let (SendOp::Send { immediate } | SendOp::SendTo { immediate, .. }) = wr.op else {
            return Err(Errno::INVAL);
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
        let pieces = if count == 0 { &[] } else { std::slice::from_raw_parts(list, count) };
        wr.data = inline(
            pieces.iter().map(|piece| (piece.addr.cast_const().cast(), piece.length)),
            qp.caps.max_inline_data,
        )?;
        Ok(())
    });
}

export!(ibv_qp_to_qp_ex);
