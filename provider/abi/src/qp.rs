//! Queue pairs.

use std::{
    cell::UnsafeCell,
    ffi::{c_int, c_uint},
    sync::{Arc, Mutex},
};

use roce_provider::{
    QpInitAttr, QueuePair,
    transport::{
        addr::Gid,
        qp::{QpCaps, QpInfo, QpType, Quirks, State},
    },
};

use crate::{
    ah,
    context::{Ctx, Home},
    cq::Cq,
    errno::{self, Errno, Result},
    export::export,
    layout::verbs::{
        ibv_ah_attr, ibv_context, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex,
        ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_sge,
    },
    mcast,
    modify::{self, RATE_LIMIT, STATE},
    object::{Object, User},
    pd::Pd,
    port,
    qp_ex::{self, Batch},
    srq::Srq,
    xrc::{Target, Xrcd},
};

/// A queue pair as programs hold it.
#[repr(C)]
pub(crate) struct Qp {
    c: UnsafeCell<ibv_qp_ex>,
    pub(crate) qp: QueuePair,
    pub(crate) qp_type: QpType,
    pub(crate) caps: QpCaps,
    home: Arc<Home>,
    /// The multicast groups that it was attached to.
    pub(crate) groups: Mutex<Vec<Gid>>,
    /// What the program makes by `ibv_wr_start` and its kin.
    pub(crate) batch: Batch,
    sq_sig_all: bool,
    target: Option<Arc<Target>>,
    _made_from: Vec<User>,
}

// SAFETY: `repr(C)`, and it starts with its cell, which holds a structure that starts with that
// one.
unsafe impl Object for Qp {
    type C = ibv_qp;
}

/// A queue pair that has been made, and what of it programs see.
struct New {
    qp: QueuePair,
    target: Option<Arc<Target>>,
    made_from: Vec<User>,
    sq_sig_all: bool,
}

/// `enum ibv_qp_type`.
pub(crate) fn qp_type(number: c_uint) -> Result<QpType> {
    match number {
        2 => Ok(QpType::Rc),
        3 => Ok(QpType::Uc),
        4 => Ok(QpType::Ud),
        9 => Ok(QpType::XrcInitiator),
        10 => Ok(QpType::XrcTarget),
        8 | 0xFF => Err(Errno::NOTSUPP), // IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER
        _ => Err(Errno::INVAL),
    }
}

const fn type_number(qp_type: QpType) -> c_uint {
    match qp_type {
        QpType::Rc => 2,
        QpType::Uc => 3,
        QpType::Ud => 4,
        QpType::XrcInitiator => 9,
        QpType::XrcTarget => 10,
    }
}

/// `enum ibv_qp_state`.
pub(crate) fn state_number(state: State) -> c_uint {
    State::ALL.iter().position(|&other| other == state).map_or(0, |number| number as c_uint)
}

/// As much as is given without being asked for.
const MAX_INLINE_GIVEN: u32 = 512;
pub(crate) const PD: u32 = 1;
const XRCD: u32 = 1 << 1;
const CREATE_FLAGS: u32 = 1 << 2;
const SEND_OPS_FLAGS: u32 = 1 << 6;

impl Qp {
    unsafe fn hand_out_new(
        new: New,
        home: &Arc<Home>,
        attr: &ibv_qp_init_attr_ex,
        context: *mut ibv_context,
    ) -> *mut ibv_qp {
        let New { qp, target, made_from, sq_sig_all } = new;
        let QpInfo { qpn, qp_type, caps, .. } = qp.query();
        let mut c = ibv_qp_ex::zeroed();
        c.qp_base = ibv_qp {
            context,
            qp_context: attr.qp_context,
            pd: attr.pd,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            handle: home.new_handle(),
            qp_num: qpn.get(),
            state: state_number(State::Reset),
            qp_type: type_number(qp_type),
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            cond: libc::PTHREAD_COND_INITIALIZER,
            events_completed: 0,
        };
        let send_ops = (attr.comp_mask & SEND_OPS_FLAGS != 0).then_some(attr.send_ops_flags);
        if let Some(send_ops) = send_ops {
            qp_ex::set_operations(&mut c, qp_type, send_ops);
        }
        let qp = Self {
            c: UnsafeCell::new(c),
            qp,
            qp_type,
            caps,
            home: home.clone(),
            groups: Mutex::default(),
            batch: Batch::new(send_ops.is_some()),
            sq_sig_all,
            target,
            _made_from: made_from,
        };
        let qp = qp.hand_out();
        // one that is opened a second time in the same context tells its events by the first
        home.named().qps.entry(qpn.get()).or_insert(qp as usize);
        qp
    }
}

/// Makes a queue pair in RESET from what C says of it, and writes its sizes back.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp> {
    if attr.comp_mask & !(PD | XRCD | CREATE_FLAGS | SEND_OPS_FLAGS) != 0 {
        return Err(Errno::NOTSUPP);
    }
    if attr.comp_mask & CREATE_FLAGS != 0 && attr.create_flags != 0 {
        return Err(Errno::NOTSUPP);
    }
    let qp_type = qp_type(attr.qp_type)?;
    let mut min_inline = 0;
    if attr.comp_mask & SEND_OPS_FLAGS != 0 {
        qp_ex::check_operations(qp_type, attr.send_ops_flags)?;
        min_inline = qp_ex::inline_needed(attr.send_ops_flags);
    }
    if qp_type == QpType::XrcTarget {
        return create_target(context, attr);
    }
    let pd = if attr.comp_mask & PD != 0 { Pd::get(attr.pd)? } else { return Err(Errno::INVAL) };
    let send_cq = Cq::get(attr.send_cq)?;
    let is_initiator = qp_type == QpType::XrcInitiator;
    let recv_cq = if is_initiator { send_cq } else { Cq::get(attr.recv_cq)? };
    let srq = Srq::get_optional(attr.srq);
    let ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } =
        attr.cap;
    // Room for an element is room for as many bytes, and devices of this kind give it: programs
    // send inline without having asked.
    let room = max_send_sge.saturating_mul(size_of::<ibv_sge>() as u32).min(MAX_INLINE_GIVEN);
    let max_inline_data = max_inline_data.max(min_inline).max(room);
    let mut caps = QpCaps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data };
    if is_initiator || srq.is_some() {
        (caps.max_recv_wr, caps.max_recv_sge) = (0, 0);
    }
    let sq_sig_all = attr.sq_sig_all != 0;
    let qp = pd.domain.create_qp(&QpInitAttr {
        qp_type,
        send_cq: send_cq.cq.clone(),
        recv_cq: recv_cq.cq.clone(),
        srq: srq.map(|srq| srq.srq.clone()),
        caps,
        sq_sig_all,
        quirks: Quirks::default(),
    })?;
    attr.cap = cap(&caps);
    let mut made_from = vec![pd.users.add(), send_cq.users.add(), recv_cq.users.add()];
    made_from.extend(srq.map(|srq| srq.users.add()));
    Ok(Qp::hand_out_new(New { qp, target: None, made_from, sq_sig_all }, &pd.home, attr, context))
}

unsafe fn create_target(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp> {
    let xrcd =
        if attr.comp_mask & XRCD != 0 { Xrcd::get(attr.xrcd)? } else { return Err(Errno::INVAL) };
    let target = xrcd.create_target()?;
    attr.cap = cap(&target.qp.query().caps);
    let none = ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        comp_mask: attr.comp_mask,
        send_ops_flags: attr.send_ops_flags,
        ..ibv_qp_init_attr_ex::zeroed()
    };
    Ok(hand_out_target(target, xrcd, &none, context))
}

unsafe fn hand_out_target(
    target: Arc<Target>,
    xrcd: &Xrcd,
    attr: &ibv_qp_init_attr_ex,
    context: *mut ibv_context,
) -> *mut ibv_qp {
    let made_from = vec![xrcd.users.add()];
    let new = New { qp: target.qp.clone(), target: Some(target), made_from, sq_sig_all: false };
    Qp::hand_out_new(new, &xrcd.home, attr, context)
}

const OPEN_NUM: u32 = 1;
const OPEN_XRCD: u32 = 1 << 1;
const OPEN_CONTEXT: u32 = 1 << 2;
const OPEN_TYPE: u32 = 1 << 3;

pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    let open = || -> Result<_> {
        let attr = attr.as_ref().ok_or(Errno::INVAL)?;
        let needed = OPEN_NUM | OPEN_XRCD | OPEN_TYPE;
        if attr.comp_mask & !(needed | OPEN_CONTEXT) != 0 {
            return Err(Errno::NOTSUPP);
        }
        if attr.comp_mask & needed != needed || qp_type(attr.qp_type)? != QpType::XrcTarget {
            return Err(Errno::INVAL);
        }
        let xrcd = Xrcd::get(attr.xrcd)?;
        let target = xrcd.find_target(attr.qp_num).ok_or(Errno::INVAL)?;
        let mut new = ibv_qp_init_attr_ex::zeroed();
        if attr.comp_mask & OPEN_CONTEXT != 0 {
            new.qp_context = attr.qp_context;
        }
        let qp = hand_out_target(target, xrcd, &new, context);
        (*qp).state = state_number(Qp::get(qp)?.qp.query().state);
        Ok(qp)
    };
    errno::pointer(open())
}

/// The longer structure with what the shorter one says.
pub(crate) fn with_pd(attr: &ibv_qp_init_attr, pd: *mut ibv_pd) -> ibv_qp_init_attr_ex {
    let ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } = *attr;
    let zeroed = ibv_qp_init_attr_ex::zeroed();
    ibv_qp_init_attr_ex {
        qp_context,
        send_cq,
        recv_cq,
        srq,
        cap,
        qp_type,
        sq_sig_all,
        comp_mask: PD,
        pd,
        ..zeroed
    }
}

unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let make = || -> Result<_> {
        let mut full = with_pd(attr.as_ref().ok_or(Errno::INVAL)?, pd);
        let qp = create(Pd::get(pd)?.context(), &mut full)?;
        (*attr).cap = full.cap;
        Ok(qp)
    };
    errno::pointer(make())
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    errno::pointer(
        Ctx::get(context).and_then(|_| create(context, attr.as_mut().ok_or(Errno::INVAL)?)),
    )
}

pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let free = Qp::get(qp).and_then(|object| {
        if !mcast::groups(object).is_empty() {
            return Err(Errno::BUSY);
        }
        let qpn = object.qp.qpn().get();
        if object.target.as_ref().is_none_or(|target| Arc::strong_count(target) == 1) {
            object.qp.discard_completions();
        }
        object.home.forget(qp as usize, |named| {
            if named.qps.get(&qpn) == Some(&(qp as usize)) {
                named.qps.remove(&qpn);
            }
        });
        Ok(())
    });
    errno::status(free.map(|()| drop(Qp::take_back(qp))))
}

const fn cap(caps: &QpCaps) -> ibv_qp_cap {
    let QpCaps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = *caps;
    ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
}

/// What a queue pair tells of itself, as C has it.
pub(crate) fn attributes(info: &QpInfo) -> ibv_qp_attr {
    let state = state_number(info.state);
    ibv_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        path_mtu: port::mtu(info.path_mtu),
        path_mig_state: modify::path_migration_number(info.path_migration),
        qkey: info.qkey.0,
        rq_psn: info.rq_psn.get(),
        sq_psn: info.sq_psn.get(),
        dest_qp_num: info.dest_qpn.get(),
        qp_access_flags: info.access.bits(),
        cap: cap(&info.caps),
        ah_attr: info.av.map_or(ibv_ah_attr::zeroed(), |av| ah::attributes(&av)),
        pkey_index: info.pkey_index,
        sq_draining: info.sq_draining.into(),
        max_rd_atomic: info.max_rd_atomic,
        max_dest_rd_atomic: info.max_dest_rd_atomic,
        min_rnr_timer: info.min_rnr_timer,
        port_num: 1,
        timeout: info.timeout,
        retry_cnt: info.retry_cnt,
        rnr_retry: info.rnr_retry,
        ..ibv_qp_attr::zeroed()
    }
}

unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    errno::status(Qp::get(qp).and_then(|object| {
        if mask as u32 >= RATE_LIMIT {
            return Err(Errno::NOTSUPP);
        }
        let mask = mask as u32;
        let found = attributes(&object.qp.query());
        *attr.as_mut().ok_or(Errno::INVAL)? = found;
        if mask & STATE != 0 {
            (*qp).state = found.qp_state;
        }
        if let Some(init) = init.as_mut() {
            let ibv_qp { qp_context, send_cq, recv_cq, srq, qp_type, .. } = *qp;
            let sq_sig_all = object.sq_sig_all.into();
            *init = ibv_qp_init_attr {
                qp_context,
                send_cq,
                recv_cq,
                srq,
                cap: found.cap,
                qp_type,
                sq_sig_all,
            };
        }
        Ok(())
    }))
}

export!(ibv_create_qp, ibv_destroy_qp, ibv_query_qp);
