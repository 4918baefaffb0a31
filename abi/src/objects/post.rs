//! Posts lists of work requests, possibly unaligned: some programs pack structures.

use std::mem::MaybeUninit;

use roce_provider::{
    copy_from_program,
    transport::{
        addr::{QKey, Qpn},
        mem::RKey,
        qp::{PostError, QpType},
        work::{Data, RecvWr, SendOp, SendWr, SrqId, UdDestination},
    },
};

use super::{ah::Ah, mw, qp::Qp, srq::Srq};
use crate::{
    call::DataCall,
    hooks::check::{
        self, Kind,
        request::Request,
        requests::{self, Queue},
        single,
    },
    prelude::*,
    translate::wr::{flags, immediate, inline, list, remote, sges},
};

unsafe fn destination(ud: UdPart) -> Result<UdDestination> {
    Ok(Ah::trust(ud.ah)?.handle.to(Qpn::new(ud.remote_qpn), QKey(ud.remote_qkey)))
}

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
    let count = usize::try_from(wr.num_sge).map_err(|_| Rule::SgeCount)?;
    let (first, limit) = (wr.sg_list, qp.caps.max_send_sge);
    let data = if op.is_bare() {
        Data::empty() // the window uses the rest
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
    let count = usize::try_from(wr.num_sge).map_err(|_| Rule::SgeCount)?;
    Ok(RecvWr { wr_id: wr.wr_id, sges: sges(wr.sg_list, count, limit)? })
}

trait Listed: Copy {
    fn wr_id(&self) -> u64;
    fn next(&self) -> *mut Self;
}

macro_rules! listed {
    ($($wr:ident)*) => {
        $(impl Listed for $wr {
            fn wr_id(&self) -> u64 {
                self.wr_id
            }

            fn next(&self) -> *mut Self {
                self.next
            }
        })*
    };
}

listed!(ibv_send_wr ibv_recv_wr);

/// `place` ends at a failing request; under checks, unreadable requests fail.
#[inline]
unsafe fn each<W: Listed, R>(
    place: &mut *mut W,
    is_checked: bool,
    mut make: impl FnMut(&W) -> Result<R>,
    mut post: impl FnMut(&W, R) -> Result<()>,
) -> Result<()> {
    while !place.is_null() {
        let c = if is_checked { read(*place)? } else { place.read_unaligned() };
        post(&c, make(&c)?)?;
        *place = c.next();
    }
    Ok(())
}

/// Reads a request, perhaps unmapped.
unsafe fn read<W: Listed>(place: *const W) -> Result<W> {
    let mut c = MaybeUninit::<W>::uninit();
    copy_from_program(place.cast(), c.as_mut_ptr().cast(), size_of::<W>())?;
    Ok(c.assume_init())
}

#[cold]
unsafe fn refused<W: Listed>(id: CallId, first: *mut W, place: *mut W) -> String {
    let (mut at, mut number) = (first, 1);
    while at != place && !at.is_null() {
        (at, number) = (at.read_unaligned().next(), number + 1);
    }
    let wr_id = read(place).map_or_else(|_| String::new(), |c| format!(" {}", c.wr_id()));
    match number {
        1 => format!("{}{wr_id}", id.name()),
        _ => format!("{}{wr_id}, request {number} of its list", id.name()),
    }
}

#[inline]
unsafe fn posting<W>(
    id: CallId,
    first: *mut W,
    bad_wr: *mut *mut W,
    post: impl FnOnce(DataCall, &mut *mut W) -> Result<()>,
) -> c_int {
    let mut place = first;
    let status = call::data(id, |call| {
        if call.is_checked && bad_wr.is_null() {
            check::emit_here(Kind::BadWrNull, "called", id.name().to_owned());
        }
        post(call, &mut place)
    });
    if status != 0 && !bad_wr.is_null() {
        bad_wr.write_unaligned(place);
    }
    status
}

/// Longer lists are endless: no queue holds more.
const LONGEST: usize = 1 << 16;

/// Translates all, records each for the checks, then posts.
unsafe fn checked<W: Listed, R>(
    (queue, call): (Queue, DataCall),
    place: &mut *mut W,
    make: impl Fn(&W) -> Result<R>,
    describe: impl Fn(&W, &R) -> Request,
    post: impl FnOnce(&mut *mut W, &mut dyn FnMut(&W) -> Result<R>) -> Result<()>,
) -> Result<()> {
    let (mut made, mut described) = (Vec::new(), Vec::new());
    let mut at = *place;
    let stopped = each(&mut at, true, make, |c, wr| {
        described.push(describe(c, &wr));
        made.push(wr);
        if made.len() < LONGEST { Ok(()) } else { Err(Errno::plain(libc::EINVAL)) }
    });
    if stopped.is_err() && read(at).is_err() {
        let number = described.len() + 1;
        let what = format!("{}: request {number} of the list, at {at:p}", call.id.name());
        check::emit_here(Kind::RequestUnreadable, "called", what);
    }
    let (mut made, mut asked) = (made.into_iter().map(Ok).chain(stopped.err().map(Err)), 0);
    requests::post(queue, call.id.name(), (described, false), |room| {
        let result = post(place, &mut |_| {
            asked += 1;
            if asked > room {
                return Err(PostError::QueueFull.into());
            }
            // the list has grown meanwhile
            made.next().unwrap_or(Err(Errno::plain(libc::EINVAL)))
        });
        (asked - usize::from(result.is_err()), result)
    })
}

impl Qp {
    unsafe fn send(
        &self,
        place: &mut *mut ibv_send_wr,
        is_checked: bool,
        make: impl FnMut(&ibv_send_wr) -> Result<SendWr>,
    ) -> Result<()> {
        let first = *place;
        let posted = self.qp.post_send_with(|post| {
            each(place, is_checked, make, |c, wr| {
                post(&wr)?;
                if let SendOp::BindWindow(bind) = wr.op {
                    mw::set_rkey(c.bind_mw.mw, bind.rkey);
                }
                Ok(())
            })
        });
        posted.map_err(|error| error.on(&self.qp, &refused(CallId::ibv_post_send, first, *place)))
    }

    unsafe fn receive(
        &self,
        place: &mut *mut ibv_recv_wr,
        is_checked: bool,
        make: impl FnMut(&ibv_recv_wr) -> Result<RecvWr>,
    ) -> Result<()> {
        let first = *place;
        let posted =
            self.qp.post_recv_with(|post| each(place, is_checked, make, |_, wr| Ok(post(&wr)?)));
        posted.map_err(|error| error.on(&self.qp, &refused(CallId::ibv_post_recv, first, *place)))
    }
}

impl Srq {
    unsafe fn receive(
        &self,
        place: &mut *mut ibv_recv_wr,
        is_checked: bool,
        make: impl FnMut(&ibv_recv_wr) -> Result<RecvWr>,
    ) -> Result<()> {
        let first = *place;
        let posted =
            self.srq.post_recv_with(|post| each(place, is_checked, make, |_, wr| Ok(post(&wr)?)));
        posted.map_err(|error| {
            error.explain(&refused(CallId::ibv_post_srq_recv, first, *place));
            Errno::plain(error.number())
        })
    }
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    posting(CallId::ibv_post_send, wr, bad_wr, move |call, place| {
        let pointer = qp as usize;
        let qp = call.object::<Qp>(qp)?;
        let make = |c: &ibv_send_wr| send_wr(qp, c);
        if !call.is_checked {
            return qp.send(place, false, make);
        }
        let _inside = single::enter(pointer, call.id.name());
        let describe = |c: &ibv_send_wr, wr: &SendWr| {
            let inline = matches!(wr.data, Data::Inline(_)) && !wr.op.is_bare();
            let inline = inline.then(|| sges(c.sg_list, c.num_sge as usize, u32::MAX));
            let ah = if qp.qp_type == QpType::Ud { c.wr.ud.ah as usize } else { 0 };
            Request::send(wr, qp.sq_sig_all, inline.and_then(Result::ok), ah)
        };
        checked((Queue::Send(qp.key()), call), place, make, describe, |place, make| {
            qp.send(place, true, make)
        })
    })
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    posting(CallId::ibv_post_recv, wr, bad_wr, move |call, place| {
        let pointer = qp as usize;
        let qp = call.object::<Qp>(qp)?;
        // an SRQ's queue pair allows 0: posting reports that
        let max_sge = qp.caps.max_recv_sge.max(1);
        let make = |c: &ibv_recv_wr| recv_wr(c, max_sge);
        if !call.is_checked {
            return qp.receive(place, false, make);
        }
        let _inside = single::enter(pointer, call.id.name());
        let (queue, describe) = (Queue::Receive(qp.key()), |_: &_, wr: &_| Request::receive(wr));
        checked((queue, call), place, make, describe, |place, make| qp.receive(place, true, make))
    })
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    posting(CallId::ibv_post_srq_recv, wr, bad_wr, move |call, place| {
        let object = call.object::<Srq>(srq)?;
        let make = |c: &ibv_recv_wr| recv_wr(c, object.max_sge);
        if !call.is_checked {
            return object.receive(place, false, make);
        }
        let (queue, describe) = (Queue::Shared(srq as usize), |_: &_, wr: &_| Request::receive(wr));
        checked((queue, call), place, make, describe, |place, make| {
            object.receive(place, true, make)
        })
    })
}
