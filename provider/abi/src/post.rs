//! Posting work requests: lists of C's, translated one by one while they are posted.

use std::ffi::{c_int, c_uint};

use roce_provider::transport::{
    addr::{QKey, Qpn},
    mem::{LKey, RKey},
    qp::QpType,
    wire::Immediate,
    work::{Data, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, SgeList, SrqId, UdDestination},
};

use crate::{
    ah::Ah,
    errno::{self, Errno, Result},
    layout::verbs::{UdPart, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq},
    mw,
    object::Object,
    qp::Qp,
    srq::Srq,
};

/// `IBV_SEND_INLINE`; `IBV_SEND_FENCE`, `IBV_SEND_SIGNALED` and `IBV_SEND_SOLICITED` have the same
/// numbers here.
const INLINE: c_uint = 1 << 3;

/// The modifiers of a send request, without `IBV_SEND_INLINE`. There are no checksums to compute
/// (`IBV_SEND_IP_CSUM`).
pub(crate) fn flags(flags: c_uint) -> Result<SendFlags> {
    SendFlags::from_bits(flags & !INLINE).ok_or(Errno::INVAL)
}

pub(crate) const fn immediate(network_order: u32) -> Option<Immediate> {
    Some(Immediate(network_order.to_ne_bytes()))
}

pub(crate) const fn remote(address: u64, rkey: u32) -> Remote {
    Remote { address, rkey: RKey(rkey) }
}

const fn sge(c: &ibv_sge) -> Sge {
    Sge { lkey: LKey(c.lkey), address: c.addr, length: c.length }
}

/// A list of so many elements, of which there may be no more than `limit`.
unsafe fn list<'a>(first: *const ibv_sge, count: usize, limit: u32) -> Result<&'a [ibv_sge]> {
    match count {
        0 => Ok(&[]),
        _ if count > limit as usize || first.is_null() => Err(Errno::INVAL),
        _ => Ok(std::slice::from_raw_parts(first, count)),
    }
}

pub(crate) unsafe fn sges(first: *const ibv_sge, count: usize, limit: u32) -> Result<SgeList> {
    Ok(list(first, count, limit)?.iter().map(sge).collect())
}

/// Copies pieces of the program's memory, which may be `limit` bytes together.
pub(crate) unsafe fn inline(
    pieces: impl Iterator<Item = (*const u8, usize)> + Clone,
    limit: u32,
) -> Result<Data> {
    let length = pieces.clone().try_fold(0usize, |sum, (_, length)| sum.checked_add(length));
    if length.is_none_or(|length| length > limit as usize) {
        return Err(Errno::INVAL);
    }
    let mut bytes = smallvec::SmallVec::new();
    for (start, length) in pieces.filter(|&(_, length)| length > 0) {
        bytes.extend_from_slice(std::slice::from_raw_parts(start, length));
    }
    Ok(Data::Inline(bytes))
}

unsafe fn destination(ud: UdPart) -> Result<UdDestination> {
    Ok(Ah::get(ud.ah)?.handle.to(Qpn::new(ud.remote_qpn), QKey(ud.remote_qkey)))
}

/// `enum ibv_wr_opcode`, and what goes with each.
unsafe fn operation(qp_type: QpType, wr: *const ibv_send_wr) -> Result<SendOp> {
    let place = || {
        let part = (*wr).wr.rdma;
        remote(part.remote_addr, part.rkey)
    };
    let send = |immediate| -> Result<_> {
        Ok(match qp_type {
            QpType::Ud => SendOp::SendTo { to: destination((*wr).wr.ud)?, immediate },
            _ => SendOp::Send { immediate },
        })
    };
    Ok(match (*wr).opcode {
        0 => SendOp::Write { remote: place(), immediate: None },
        1 => SendOp::Write { remote: place(), immediate: immediate((*wr).imm_data) },
        2 => send(None)?,
        3 => send(immediate((*wr).imm_data))?,
        4 => SendOp::Read { remote: place() },
        5 => {
            let part = (*wr).wr.atomic;
            SendOp::CompareSwap {
                remote: remote(part.remote_addr, part.rkey),
                compare: part.compare_add,
                swap: part.swap,
            }
        }
        6 => {
            let part = (*wr).wr.atomic;
            SendOp::FetchAdd { remote: remote(part.remote_addr, part.rkey), add: part.compare_add }
        }
        7 => SendOp::LocalInvalidate { rkey: RKey((*wr).imm_data) },
        8 => {
            let part = (*wr).bind_mw;
            SendOp::BindWindow(mw::bind(part.mw, part.rkey, &part.bind_info)?)
        }
        9 => SendOp::SendInvalidate { rkey: RKey((*wr).imm_data) },
        10 | 11 => return Err(Errno::NOTSUPP), // IBV_WR_TSO, IBV_WR_DRIVER1
        15 => SendOp::AtomicWrite { remote: place() },
        _ => return Err(Errno::INVAL),
    })
}

unsafe fn send_wr(qp: &Qp, wr: *const ibv_send_wr) -> Result<SendWr> {
    let flags = flags((*wr).send_flags)?;
    let op = operation(qp.qp_type, wr)?;
    let count = usize::try_from((*wr).num_sge).map_err(|_| Errno::INVAL)?;
    let (list, limit) = ((*wr).sg_list, qp.caps.max_send_sge);
    let data = if op.is_bare() {
        Data::empty() // what else the request holds is the window's
    } else if (*wr).send_flags & INLINE != 0 {
        let pieces = self::list(list, count, limit)?
            .iter()
            .map(|sge| (sge.addr as *const u8, sge.length as usize));
        inline(pieces, qp.caps.max_inline_data)?
    } else {
        Data::Sges(sges(list, count, limit)?)
    };
    let names_srq = qp.qp_type == QpType::XrcInitiator && !op.is_local();
    let remote_srq = names_srq.then(|| SrqId::new((*wr).qp_type.remote_srqn));
    Ok(SendWr { wr_id: (*wr).wr_id, op, data, flags, remote_srq })
}

unsafe fn recv_wr(wr: *const ibv_recv_wr, limit: u32) -> Result<RecvWr> {
    let count = usize::try_from((*wr).num_sge).map_err(|_| Errno::INVAL)?;
    Ok(RecvWr { wr_id: (*wr).wr_id, sges: sges((*wr).sg_list, count, limit)? })
}

/// Tells the program how posting a list went: which request was the first that failed.
unsafe fn posted<W>(result: Result<()>, stopped_at: *mut W, bad_wr: *mut *mut W) -> c_int {
    if result.is_err() && !bad_wr.is_null() {
        *bad_wr = stopped_at;
    }
    errno::status(result)
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let mut next = wr;
    let result = Qp::get(qp).and_then(|qp| {
        qp.qp.post_send_with(|post| {
            while !next.is_null() {
                post(&send_wr(qp, next)?)?;
                next = (*next).next;
            }
            Ok(())
        })
    });
    posted(result, next, bad_wr)
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut next = wr;
    let result = Qp::get(qp).and_then(|qp| {
        qp.qp.post_recv_with(|post| {
            while !next.is_null() {
                post(&recv_wr(next, qp.caps.max_recv_sge)?)?;
                next = (*next).next;
            }
            Ok(())
        })
    });
    posted(result, next, bad_wr)
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut next = wr;
    let result = Srq::get(srq).and_then(|srq| {
        srq.srq.post_recv_with(|post| {
            while !next.is_null() {
                post(&recv_wr(next, srq.max_sge)?)?;
                next = (*next).next;
            }
            Ok(())
        })
    });
    posted(result, next, bad_wr)
}
