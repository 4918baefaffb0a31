//! Completions, as C has them.

use std::ffi::c_uint;

use roce_provider::transport::work::{Cause, Wc, WcError, WcOk, WcOpcode};

use crate::layout::verbs::ibv_wc;

/// `IBV_WC_SUCCESS`.
const SUCCESS: c_uint = 0;

/// `IBV_WC_GRH`, `IBV_WC_WITH_IMM`, `IBV_WC_WITH_INV`.
const GRH: c_uint = 1;
const WITH_IMM: c_uint = 1 << 1;
const WITH_INV: c_uint = 1 << 3;

/// Writes all of a completion to a place of the program's, which may hold anything.
pub(crate) unsafe fn write(place: *mut ibv_wc, wc: &Wc) {
    let mut c = ibv_wc { wr_id: wc.wr_id, qp_num: wc.qpn.get(), status: status(wc), ..ibv_wc::zeroed() };
    match &wc.result {
        Ok(ok) => {
            c.opcode = opcode(ok.opcode);
            c.byte_len = ok.byte_len;
            c.imm_data = immediate_or_key(ok);
            c.src_qp = ok.src_qp.map_or(0, |qpn| qpn.get());
            c.wc_flags = flags(ok);
            c.pkey_index = ok.pkey_index;
        }
        Err(error) => c.vendor_err = vendor_error(error),
    }
    place.write(c);
}

/// `ibv_wc_status`.
pub(crate) fn status(wc: &Wc) -> c_uint {
    wc.result.as_ref().map_or_else(|error| error.status as c_uint, |_| SUCCESS)
}

/// `ibv_wc_opcode`.
pub(crate) fn opcode(opcode: WcOpcode) -> c_uint {
    match opcode {
        WcOpcode::Send => 0,
        WcOpcode::RdmaWrite => 1,
        WcOpcode::RdmaRead => 2,
        WcOpcode::CompSwap => 3,
        WcOpcode::FetchAdd => 4,
        WcOpcode::BindMw => 5,
        WcOpcode::LocalInv => 6,
        WcOpcode::Flush => 8,
        WcOpcode::AtomicWrite => 9,
        WcOpcode::Recv => 128,
        WcOpcode::RecvRdmaWithImm => 129,
    }
}

/// `ibv_wc_flags`.
pub(crate) fn flags(ok: &WcOk) -> c_uint {
    let flag = |set: bool, flag: c_uint| if set { flag } else { 0 };
    flag(ok.grh, GRH) | flag(ok.immediate.is_some(), WITH_IMM) | flag(ok.invalidated.is_some(), WITH_INV)
}

/// The immediate data, in network byte order, or the key that was invalidated, in the host's: they share a place.
pub(crate) fn immediate_or_key(ok: &WcOk) -> u32 {
    let immediate = ok.immediate.map(|immediate| u32::from_ne_bytes(immediate.0));
    immediate.or(ok.invalidated.map(|key| key.0)).unwrap_or(0)
}

/// What lies behind a failure, for those who look closer: the place of the cause in the list of [`Cause`], and in the next byte
/// what the responder said. 0 for what was merely flushed.
pub(crate) fn vendor_error(error: &WcError) -> u32 {
    match error.cause {
        Cause::Flushed => 0,
        Cause::Access(_) => 1,
        Cause::Responder(syndrome) => 2 | u32::from(syndrome.to_wire()) << 8,
        Cause::NoAnswer { .. } => 3,
        Cause::TooLong { .. } => 4,
        Cause::Bind(_) => 5,
        Cause::NotAWord { .. } => 6,
        Cause::NoReadsAllowed => 7,
        Cause::ResponseMismatch => 8,
        Cause::Refused(_) => 9,
        Cause::NoRoute => 10,
    }
}
