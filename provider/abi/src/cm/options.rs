//! Options of an id.

use std::ffi::{c_int, c_void};

use roce_provider::{calls::Call, cm::IdState, transport::qp::QpType};

use super::id::Id;
use crate::{
    errno::{self, Errno, Result},
    export::export,
    layout::{consts::*, ibv_path_data, rdma_cm_id},
    object::Object,
    rule::Rule,
};

/// Error of the kernel for an unknown option.
const UNKNOWN: Errno = Errno::of(Rule::OptionUnknown);

unsafe fn value<T: Copy>(value: *const c_void, length: usize) -> Result<T> {
    if value.is_null() || length != size_of::<T>() {
        return Err(Errno::of(Rule::Option));
    }
    Ok(value.cast::<T>().read_unaligned())
}

unsafe fn set(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    at: *const c_void,
    length: usize,
) -> Result<()> {
    let cm = Id::get(id)?.cm()?;
    match (level, option) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => cm.set_tos(value(at, length)?),
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
            cm.set_reuse_addr(value::<c_int>(at, length)? != 0)?;
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
            cm.set_afonly(value::<c_int>(at, length)? != 0)?;
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
            let code = value(at, length)?;
            if !matches!(cm.qp_type(), QpType::Rc | QpType::XrcInitiator) {
                return Err(Errno::of(Rule::Option));
            }
            cm.set_ack_timeout(code)?;
        }
        // A path that the program sets replaces one that is resolved. There is only one, which is
        // resolved again.
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => {
            if length == 0
                || !length.is_multiple_of(size_of::<ibv_path_data>())
                || cm.state() != IdState::AddrResolved
            {
                return Err(Errno::of(Rule::Option));
            }
            cm.resolve_route(std::time::Duration::ZERO)?;
        }
        _ => return Err(UNKNOWN),
    }
    Ok(())
}

unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    at: *mut c_void,
    length: usize,
) -> c_int {
    let _call = Call::begin();
    errno::minus_one("rdma_set_option", set(id, level, option, at, length))
}

export!(rdma_set_option);
