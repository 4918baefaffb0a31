//! Fetching memory before it is needed.

use std::{
    ffi::{c_int, c_uint},
    slice,
};

use roce_provider::transport::mem::Access;

use crate::{
    errno::{self, Errno, Result},
    layout::verbs::{ibv_pd, ibv_sge},
    mr::Region,
    object::Object,
    pd::Pd,
};

/// `IBV_ADVISE_MR_ADVICE_PREFETCH`, `IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE`, `IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT`.
const PREFETCH: c_uint = 0;
const PREFETCH_WRITE: c_uint = 1;
const PREFETCH_NO_FAULT: c_uint = 2;

/// `IBV_ADVISE_MR_FLAG_FLUSH`: to wait until the pages are there, which is done in any case.
const FLUSH: u32 = 1;

/// `ibv_advise_mr`. `EFAULT` for what is not inside its region, `ENOENT` for an unknown key, `EPERM` for one of another protection
/// domain or of a region that is not for writing.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_uint,
    flags: u32,
    parts: *mut ibv_sge,
    number: u32,
) -> c_int {
    let advise = || {
        let object = Pd::get(pd)?;
        if flags & !FLUSH != 0 || number == 0 || parts.is_null() {
            return Err(Errno::INVAL);
        }
        if !matches!(advice, PREFETCH | PREFETCH_WRITE | PREFETCH_NO_FAULT) {
            return Err(Errno::NOTSUPP);
        }
        let mut parts = slice::from_raw_parts(parts, number as usize).iter();
        parts.try_for_each(|part| {
            let region = object.home.family.region((*pd).handle, part.lkey)?;
            fetch(&region, part, advice)
        })
    };
    errno::status(advise())
}

fn fetch(region: &Region, part: &ibv_sge, advice: c_uint) -> Result<()> {
    let Some(region) = region.memory() else { return Err(Errno::INVAL) };
    if advice == PREFETCH_WRITE && !region.access().contains(Access::LOCAL_WRITE) {
        return Err(Errno(libc::EPERM));
    }
    let outside = Errno(libc::EFAULT);
    let start = part.addr.checked_sub(region.address()).and_then(|start| usize::try_from(start).ok()).ok_or(outside)?;
    let end = start.checked_add(part.length as usize).filter(|&end| end <= region.len()).ok_or(outside)?;
    // what is there already needs no fetching
    if advice == PREFETCH_NO_FAULT { Ok(()) } else { Ok(region.prefetch(start..end)?) }
}
