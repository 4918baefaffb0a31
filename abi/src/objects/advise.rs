//! `ibv_advise_mr`.

use std::slice;

use roce_provider::transport::mem::Access;

use super::{mr::Region, pd::Pd};
use crate::prelude::*;

operations!(
    /// `EFAULT` outside, `ENOENT` for an unknown key, `EPERM` for a read-only region or another
    /// domain.
    fn ibv_advise_mr(
        pd: *mut ibv_pd,
        advice: c_uint,
        flags: u32,
        parts: *mut ibv_sge,
        number: u32,
    ) -> c_int {
        let object = Pd::get(pd)?;
        // IBV_ADVISE_MR_FLAG_FLUSH waits, as every call does
        let has_others = flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0;
        refuse_if(has_others || number == 0 || parts.is_null(), Rule::Members)?;
        let is_known = matches!(
            advice,
            IBV_ADVISE_MR_ADVICE_PREFETCH
                | IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
                | IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
        );
        refuse_if(!is_known, Rule::NotSupported)?;
        let mut parts = slice::from_raw_parts(parts, number as usize).iter();
        parts.try_for_each(|part| {
            let region = Region::find(&object.ctx.command_file, (*pd).handle, part.lkey)?;
            fetch(&region, part, advice)
        })
    }
);

fn fetch(region: &Region, part: &ibv_sge, advice: c_uint) -> Result<()> {
    let Some(region) = region.memory() else { return Err(Errno::of(Rule::NoRegion)) };
    let is_read_only = !region.access().contains(Access::LOCAL_WRITE);
    refuse_if(advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE && is_read_only, Rule::NotWritable)?;
    let outside = || Errno::of(Rule::NotInside);
    let start = part
        .addr
        .checked_sub(region.address())
        .and_then(|start| usize::try_from(start).ok())
        .ok_or_else(outside)?;
    let end = start.checked_add(part.length as usize).ok_or_else(outside)?;
    // present pages need no fetch
    if advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT {
        Ok(())
    } else {
        Ok(region.prefetch(start..end)?)
    }
}

#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]
mod tests {
    use std::ptr::null_mut;

    use super::*;
    use crate::{
        layout::ibv_mr,
        objects::mr::{ibv_alloc_null_mr, ibv_dereg_mr, ibv_reg_mr},
        tests::{Allocated, Opened},
    };

    /// Two absent pages.
    fn region(pd: &Allocated, writable: bool) -> *mut ibv_mr {
        unsafe {
            let (kind, rights) =
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
            let pages = libc::mmap(null_mut(), 8192, rights, kind, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            ibv_reg_mr(pd.0, pages, 8192, if writable { 1 | 1 << 6 } else { 1 << 6 })
        }
    }

    fn free(mr: *mut ibv_mr) {
        unsafe {
            let pages = (*mr).addr;
            assert_eq!(ibv_dereg_mr(mr), 0);
            assert_eq!(libc::munmap(pages, 8192), 0);
        }
    }

    fn is_there(mr: *mut ibv_mr) -> [bool; 2] {
        let mut there = [0u8; 2];
        assert_eq!(unsafe { libc::mincore((*mr).addr, 8192, there.as_mut_ptr()) }, 0);
        there.map(|page| page & 1 == 1)
    }

    fn advise(
        pd: &Allocated,
        advice: c_uint,
        flags: u32,
        mr: *mut ibv_mr,
        range: std::ops::Range<i64>,
    ) -> c_int {
        let start = unsafe { (*mr).addr as u64 };
        let length = (range.end - range.start) as u32;
        let mut part = ibv_sge {
            addr: start.wrapping_add_signed(range.start),
            length,
            lkey: unsafe { (*mr).lkey },
        };
        unsafe { ibv_advise_mr(pd.0, advice, flags, &raw mut part, 1) }
    }

    #[test]
    fn pages_come_when_they_are_asked_for() {
        let context = Opened::new();
        let pd = Allocated::new(&context);
        let mr = region(&pd, true);
        assert_eq!(is_there(mr), [false, false]);
        assert_eq!(advise(&pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, mr, 0..8192), 0);
        assert_eq!(is_there(mr), [false, false]);
        assert_eq!(
            advise(&pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, mr, 5000..5001),
            0
        );
        assert_eq!(is_there(mr), [false, true]);
        assert_eq!(advise(&pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, mr, 0..8192), 0);
        assert_eq!(is_there(mr), [true, true]);
        free(mr);
    }

    #[test]
    fn advice_that_cannot_be_followed() {
        let context = Opened::new();
        let (pd, other) = (Allocated::new(&context), Allocated::new(&context));
        let (mr, read_only) = (region(&pd, true), region(&pd, false));
        for range in [-1..1, 8191..8193, 8193..8194] {
            assert_eq!(
                advise(&pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, mr, range.clone()),
                libc::EFAULT,
                "{range:?}"
            );
        }
        assert_eq!(advise(&pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, mr, 0..1), libc::EINVAL);
        assert_eq!(advise(&pd, 3, 0, mr, 0..1), libc::EOPNOTSUPP);
        assert_eq!(advise(&other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, mr, 0..1), libc::EPERM);
        assert_eq!(
            advise(&pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, read_only, 0..1),
            libc::EPERM
        );
        assert_eq!(advise(&pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, read_only, 0..1), 0);
        assert_eq!(
            unsafe { ibv_advise_mr(pd.0, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, null_mut(), 0) },
            libc::EINVAL
        );
        let mut unknown = ibv_sge { addr: 0, length: 1, lkey: unsafe { !(*mr).lkey } };
        assert_eq!(
            unsafe { ibv_advise_mr(pd.0, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &raw mut unknown, 1) },
            libc::ENOENT
        );
        let null = unsafe { ibv_alloc_null_mr(pd.0) };
        assert_eq!(
            advise(&pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, null, 0..1),
            libc::EINVAL,
            "it has no pages"
        );
        assert_eq!(unsafe { ibv_dereg_mr(null) }, 0);
        free(mr);
        free(read_only);
    }
}
