//! `ibv_wc`.

use std::ffi::c_uint;

use roce_provider::transport::work::{Cause, GrhArea, Wc, WcError, WcOk, WcOpcode};

use crate::{
    adapter,
    layout::{consts::*, ibv_wc},
};

/// `place` may be uninitialized and unaligned.
pub(crate) unsafe fn write(place: *mut ibv_wc, wc: &Wc) {
    let mut c =
        ibv_wc { wr_id: wc.wr_id, qp_num: wc.qpn.get(), status: status(wc), ..ibv_wc::zeroed() };
    match &wc.result {
        Ok(ok) => {
            c.opcode = opcode(ok.opcode);
            c.byte_len = ok.byte_len;
            c.imm_data = immediate_or_key(ok);
            c.src_qp = ok.src_qp.map_or(0, |qpn| qpn.get());
            c.wc_flags = flags(ok);
            c.pkey_index = ok.pkey_index;
            c.sl = sl(ok);
        }
        Err(error) => c.vendor_err = vendor_error(error),
    }
    place.write_unaligned(c);
}

/// Value of undefined members under checks: no opcode, no plausible length.
pub(crate) const INVALID: u32 = 0xBAD0_BAD0;

/// Undefined members are [`INVALID`].
pub(crate) unsafe fn write_checked(place: *mut ibv_wc, wc: &Wc) {
    write(place, wc);
    let mut c = place.read_unaligned();
    if let Ok(ok) = &wc.result {
        (c.byte_len, c.imm_data) = (checked_byte_len(ok), checked_immediate_or_key(ok));
    } else {
        (c.opcode, c.byte_len, c.imm_data, c.src_qp) = (INVALID, INVALID, INVALID, INVALID);
        (c.wc_flags, c.pkey_index, c.slid) = (INVALID, INVALID as u16, INVALID as u16);
        (c.sl, c.dlid_path_bits) = (INVALID as u8, INVALID as u8);
    }
    place.write_unaligned(c);
}

/// Bytes received, read or changed; undefined for sends.
pub(crate) fn checked_byte_len(ok: &WcOk) -> u32 {
    match ok.opcode {
        WcOpcode::Recv
        | WcOpcode::RecvRdmaWithImm
        | WcOpcode::RdmaRead
        | WcOpcode::CompSwap
        | WcOpcode::FetchAdd => ok.byte_len,
        _ => INVALID,
    }
}

/// Undefined without `IBV_WC_WITH_IMM` and `IBV_WC_WITH_INV`.
pub(crate) fn checked_immediate_or_key(ok: &WcOk) -> u32 {
    if ok.immediate.is_none() && ok.invalidated.is_none() { INVALID } else { immediate_or_key(ok) }
}

pub(crate) fn status(wc: &Wc) -> c_uint {
    wc.result.as_ref().map_or_else(|error| error.status as c_uint, |_| IBV_WC_SUCCESS)
}

pub(crate) fn opcode(opcode: WcOpcode) -> c_uint {
    match opcode {
        WcOpcode::Send => IBV_WC_SEND,
        WcOpcode::RdmaWrite => IBV_WC_RDMA_WRITE,
        WcOpcode::RdmaRead => IBV_WC_RDMA_READ,
        WcOpcode::CompSwap => IBV_WC_COMP_SWAP,
        WcOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        WcOpcode::BindMw => IBV_WC_BIND_MW,
        WcOpcode::LocalInv => IBV_WC_LOCAL_INV,
        WcOpcode::Flush => IBV_WC_FLUSH,
        WcOpcode::AtomicWrite => IBV_WC_ATOMIC_WRITE,
        WcOpcode::Recv => IBV_WC_RECV,
        WcOpcode::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

pub(crate) fn flags(ok: &WcOk) -> c_uint {
    let flag = |set: bool, flag: c_uint| if set { flag } else { 0 };
    let is_receive = matches!(ok.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
    flag(ok.grh.is_some() || is_receive && adapter::receives_have_grh(), IBV_WC_GRH)
        | flag(ok.immediate.is_some(), IBV_WC_WITH_IMM)
        | flag(ok.invalidated.is_some(), IBV_WC_WITH_INV)
}

/// A datagram's packet type, as ConnectX reports and UCX reads: 8 for UDP, plus 1 for IPv6 or 2 for
/// IPv4; 0 for RoCE v1.
pub(crate) fn sl(ok: &WcOk) -> u8 {
    match ok.grh {
        None | Some(GrhArea::GlobalRoute) => 0,
        Some(GrhArea::Ipv6) => 8 | 1,
        Some(GrhArea::Ipv4) => 8 | 2,
    }
}

/// Immediate data in network byte order, or the invalidated key.
pub(crate) fn immediate_or_key(ok: &WcOk) -> u32 {
    let immediate = ok.immediate.map(|immediate| u32::from_ne_bytes(immediate.0));
    immediate.or(ok.invalidated.map(|key| key.0)).unwrap_or(0)
}

/// The second byte is the responder's syndrome.
pub(crate) fn vendor_error(error: &WcError) -> u32 {
    match error.cause {
        Cause::Flushed => 0,
        Cause::Access(_) => 1,
        Cause::Responder(syndrome) => 2 | u32::from(syndrome.to_wire()) << 8,
        Cause::NoResponse { .. } => 3,
        Cause::TooLong { .. } => 4,
        Cause::Bind(_) => 5,
        Cause::NotAWord { .. } => 6,
        Cause::NoReadsAllowed => 7,
        Cause::ResponseMismatch => 8,
        Cause::Refused(_) => 9,
        Cause::NoRoute => 10,
        Cause::ForeignAddressHandle => 11,
        Cause::WrongOperation => 12,
        Cause::Injected => 13,
        Cause::TooShort { .. } => 14,
    }
}

#[cfg(test)]
mod tests {
    use roce_provider::transport::{
        addr::Qpn,
        mem::RKey,
        time::Instant,
        wire::{Immediate, NakCode, Syndrome},
        work::WcStatus,
    };

    use super::*;

    fn c(result: Result<WcOk, WcError>) -> ibv_wc {
        written(result, write)
    }

    fn written(result: Result<WcOk, WcError>, write: unsafe fn(*mut ibv_wc, &Wc)) -> ibv_wc {
        let wc = Wc { wr_id: 77, qpn: Qpn::new(0x123456), timestamp: Instant::ZERO, result };
        let mut place = std::mem::MaybeUninit::uninit();
        // SAFETY: `write` initializes all.
        unsafe {
            write(place.as_mut_ptr(), &wc);
            place.assume_init()
        }
    }

    #[test]
    fn a_datagram() {
        let wc = c(Ok(WcOk {
            immediate: Some(Immediate([1, 2, 3, 4])),
            src_qp: Some(Qpn::new(9)),
            pkey_index: 5,
            grh: Some(GrhArea::Ipv6),
            ..WcOk::new(WcOpcode::Recv, 140)
        }));
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.qp_num),
            (77, 0, 128, 140, 0x123456)
        );
        assert_eq!((wc.src_qp, wc.pkey_index, wc.wc_flags, wc.vendor_err, wc.sl), (9, 5, 3, 0, 9));
        assert_eq!(wc.imm_data.to_ne_bytes(), [1, 2, 3, 4], "in network byte order");
        assert_eq!((wc.slid, wc.dlid_path_bits), (0, 0));
    }

    #[test]
    fn an_invalidated_key_stands_in_place_of_the_immediate_in_host_order() {
        let wc = c(Ok(WcOk { invalidated: Some(RKey(0xABCD)), ..WcOk::new(WcOpcode::Recv, 0) }));
        assert_eq!((wc.wc_flags, wc.imm_data), (8, 0xABCD));
    }

    #[test]
    fn opcodes_have_the_numbers_of_c() {
        use WcOpcode::{
            AtomicWrite, BindMw, CompSwap, FetchAdd, Flush, LocalInv, RdmaRead, RdmaWrite, Recv,
            RecvRdmaWithImm, Send,
        };
        let all = [
            (Send, 0),
            (RdmaWrite, 1),
            (RdmaRead, 2),
            (CompSwap, 3),
            (FetchAdd, 4),
            (BindMw, 5),
            (LocalInv, 6),
            (Flush, 8),
            (AtomicWrite, 9),
            (Recv, 128),
            (RecvRdmaWithImm, 129),
        ];
        for (ours, number) in all {
            assert_eq!(opcode(ours), number, "{ours:?}");
        }
    }

    #[test]
    fn what_a_failure_does_not_say_is_recognized_in_checked_programs() {
        let failed = WcError { status: WcStatus::WrFlushErr, cause: Cause::Flushed };
        let wc = written(Err(failed), write_checked);
        assert_eq!((wc.wr_id, wc.qp_num, wc.status, wc.vendor_err), (77, 0x123456, 5, 0));
        for invalid in [wc.opcode, wc.byte_len, wc.imm_data, wc.src_qp, wc.wc_flags] {
            assert_eq!(invalid, 0xBAD0_BAD0);
        }
        assert_eq!(
            (wc.pkey_index, wc.slid, wc.sl, wc.dlid_path_bits),
            (0xBAD0, 0xBAD0, 0xD0, 0xD0)
        );
        let succeeded = WcOk::new(WcOpcode::Recv, 9);
        let wc = written(Ok(succeeded), write_checked);
        assert_eq!((wc.opcode, wc.byte_len, wc.imm_data, wc.sl), (128, 9, 0xBAD0_BAD0, 0));
        let sent = written(Ok(WcOk::new(WcOpcode::Send, 9)), write_checked);
        assert_eq!((sent.opcode, sent.byte_len), (0, 0xBAD0_BAD0));
        let read = written(Ok(WcOk::new(WcOpcode::RdmaRead, 9)), write_checked);
        assert_eq!(read.byte_len, 9);
    }

    #[test]
    fn failures_say_what_lies_behind_them() {
        let said = Cause::Responder(Syndrome::Nak(NakCode::RemoteAccessError));
        let wc = c(Err(WcError { status: WcStatus::RemAccessErr, cause: said }));
        assert_eq!((wc.wr_id, wc.qp_num, wc.status, wc.vendor_err), (77, 0x123456, 10, 0x6202));
        assert_eq!((wc.opcode, wc.byte_len, wc.wc_flags, wc.imm_data), (0, 0, 0, 0));
        let wc = c(Err(WcError { status: WcStatus::WrFlushErr, cause: Cause::Flushed }));
        assert_eq!((wc.status, wc.vendor_err), (5, 0));
        let wc = c(Err(WcError {
            status: WcStatus::RetryExcErr,
            cause: Cause::NoResponse { tries: 7 },
        }));
        assert_eq!((wc.status, wc.vendor_err), (12, 3));
    }
}
