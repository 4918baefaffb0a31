//! Posting work requests: lists of C's, translated one by one while they are posted. They may be at
//! any address: some programs have them in packed structures, and the stock libraries take them
//! there.

use std::ffi::c_int;

use roce_provider::transport::{
    addr::{QKey, Qpn},
    mem::RKey,
    qp::QpType,
    work::{Data, RecvWr, SendOp, SendWr, SrqId, UdDestination},
};

use crate::{
    ah::Ah,
    errno::{self, Errno, Result},
    layout::{UdPart, consts::*, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq},
    mw,
    object::Object,
    qp::Qp,
    rule::Rule,
    srq::Srq,
    translate::wr::{flags, immediate, inline, list, remote, sges},
};

unsafe fn destination(ud: UdPart) -> Result<UdDestination> {
    Ok(Ah::trust(ud.ah)?.handle.to(Qpn::new(ud.remote_qpn), QKey(ud.remote_qkey)))
}

/// Operation of a request, by its opcode (`enum ibv_wr_opcode`).
unsafe fn operation(qp_type: QpType, wr: &ibv_send_wr) -> Result<SendOp> {
    let target = || {
        let part = wr.wr.rdma;
        remote(part.remote_addr, part.rkey)
    };
    let send = |immediate| -> Result<_> {
        Ok(match qp_type {
            QpType::Ud => SendOp::SendTo { to: destination(wr.wr.ud)?, immediate },
            _ => SendOp::Send { immediate },
        })
    };
    Ok(match wr.opcode {
        IBV_WR_RDMA_WRITE => SendOp::Write { remote: target(), immediate: None },
        IBV_WR_RDMA_WRITE_WITH_IMM => {
            SendOp::Write { remote: target(), immediate: immediate(wr.imm_data) }
        }
        IBV_WR_SEND => send(None)?,
        IBV_WR_SEND_WITH_IMM => send(immediate(wr.imm_data))?,
        IBV_WR_RDMA_READ => SendOp::Read { remote: target() },
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            let part = wr.wr.atomic;
            SendOp::CompareSwap {
                remote: remote(part.remote_addr, part.rkey),
                compare: part.compare_add,
                swap: part.swap,
            }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            let part = wr.wr.atomic;
            SendOp::FetchAdd { remote: remote(part.remote_addr, part.rkey), add: part.compare_add }
        }
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate { rkey: RKey(wr.imm_data) },
        IBV_WR_BIND_MW => {
            let part = wr.bind_mw;
            SendOp::BindWindow(mw::bind(part.mw, part.rkey, &part.bind_info)?)
        }
        IBV_WR_SEND_WITH_INV => SendOp::SendInvalidate { rkey: RKey(wr.imm_data) },
        IBV_WR_TSO | IBV_WR_DRIVER1 => return Err(Errno::of(Rule::OtherOpcode)),
        IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite { remote: target() },
        _ => return Err(Errno::of(Rule::Opcode)),
    })
}

unsafe fn send_wr(qp: &Qp, wr: &ibv_send_wr) -> Result<SendWr> {
    let flags = flags(wr.send_flags)?;
    let op = operation(qp.qp_type, wr)?;
    let count = usize::try_from(wr.num_sge).map_err(|_| Errno::of(Rule::SgeCount))?;
    let (first, limit) = (wr.sg_list, qp.caps.max_send_sge);
    let data = if op.is_bare() {
        Data::empty() // the rest of the request is the window's
    } else if wr.send_flags & IBV_SEND_INLINE != 0 {
        let pieces =
            list(first, count, limit)?.map(|sge| (sge.addr as *const u8, sge.length as usize));
        inline(pieces, qp.caps.max_inline_data)?
    } else {
        Data::Sges(sges(first, count, limit)?)
    };
    let names_srq = qp.qp_type == QpType::XrcInitiator && !op.is_local();
    let remote_srq = names_srq.then(|| SrqId::new(wr.qp_type.remote_srqn));
    Ok(SendWr { wr_id: wr.wr_id, op, data, flags, remote_srq })
}

unsafe fn recv_wr(wr: &ibv_recv_wr, limit: u32) -> Result<RecvWr> {
    let count = usize::try_from(wr.num_sge).map_err(|_| Errno::of(Rule::SgeCount))?;
    Ok(RecvWr { wr_id: wr.wr_id, sges: sges(wr.sg_list, count, limit)? })
}

/// Status of posting a list. The first request that failed is written to `bad_wr`.
unsafe fn posted<W>(
    call: &str,
    result: Result<()>,
    stopped_at: *mut W,
    bad_wr: *mut *mut W,
) -> c_int {
    if result.is_err() && !bad_wr.is_null() {
        bad_wr.write_unaligned(stopped_at);
    }
    errno::status(call, result)
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let mut next = wr;
    let result = Qp::trust(qp).and_then(|qp| {
        let posted = qp.qp.post_send_with(|post| {
            while !next.is_null() {
                let c = next.read_unaligned();
                let wr = send_wr(qp, &c)?;
                post(&wr)?;
                if let SendOp::BindWindow(bind) = wr.op {
                    (*c.bind_mw.mw).rkey = bind.rkey.0;
                }
                next = c.next;
            }
            Ok(())
        });
        posted.map_err(|error: Errno| error.on(&qp.qp, "ibv_post_send"))
    });
    posted("ibv_post_send", result, next, bad_wr)
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut next = wr;
    let result = Qp::trust(qp).and_then(|qp| {
        let posted = qp.qp.post_recv_with(|post| {
            while !next.is_null() {
                // none have those that receive from a shared queue, which is said then
                let c = next.read_unaligned();
                post(&recv_wr(&c, qp.caps.max_recv_sge.max(1))?)?;
                next = c.next;
            }
            Ok(())
        });
        posted.map_err(|error: Errno| error.on(&qp.qp, "ibv_post_recv"))
    });
    posted("ibv_post_recv", result, next, bad_wr)
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut next = wr;
    let result = Srq::trust(srq).and_then(|srq| {
        srq.srq.post_recv_with(|post| {
            while !next.is_null() {
                let c = next.read_unaligned();
                post(&recv_wr(&c, srq.max_sge)?)?;
                next = c.next;
            }
            Ok(())
        })
    });
    posted("ibv_post_srq_recv", result, next, bad_wr)
}
