use std::{cell::UnsafeCell, sync::Arc};

use roce_provider::{DeviceMemory, copy_from_program, copy_to_program};

use super::{
    context::{ContextInner, Ctx},
    mr::{Mr, Region},
    object::{Users, impl_object},
    pd::Pd,
};
use crate::{prelude::*, translate::rights};

/// Page alignment, log2.
const LOG_PAGE: u32 = 12;

/// Copy granularity, as on a bus.
const WORD: usize = 4;

/// Bytes per copy: a peer may write the program's memory meanwhile.
const PIECE: usize = 1024;

#[repr(C)]
pub(crate) struct Dm {
    c: UnsafeCell<ibv_dm>,
    pub(crate) memory: DeviceMemory,
    ctx: Arc<ContextInner>,
    users: Users,
}

impl_object!(Dm, ibv_dm, context, handle);

impl Dm {
    pub(crate) fn new(ctx: &Ctx, memory: DeviceMemory, handle: u32) -> Self {
        let c = ibv_dm {
            context: ctx.c(),
            memcpy_to_dm: Some(ibv_memcpy_to_dm),
            memcpy_from_dm: Some(ibv_memcpy_from_dm),
            comp_mask: 0,
            handle,
        };
        Self { c: UnsafeCell::new(c), memory, ctx: ctx.inner.clone(), users: Users::default() }
    }
}

operations!(
    fn ibv_alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
        let ctx = Ctx::get(context)?;
        let attr = attr.as_ref().ok_or(Rule::NullArgument)?;
        refuse_if(attr.comp_mask != 0 || attr.log_align_req > LOG_PAGE, Rule::Members)?;
        let memory = ctx.inner.context.alloc_dm(attr.length)?;
        let handle = ctx.inner.new_handle();
        let dm = Dm::new(ctx, memory, handle).into_raw();
        ctx.inner.command_file.insert::<Dm>(handle, dm);
        Ok(dm)
    }

    fn ibv_free_dm(dm: *mut ibv_dm) -> c_int {
        call::destroy::<Dm>(dm, |object| {
            object.users.none_left()?;
            object.ctx.command_file.remove::<Dm>((*dm).handle, dm);
            Ok(())
        })
    }

    fn ibv_reg_dm_mr(
        pd: *mut ibv_pd,
        dm: *mut ibv_dm,
        offset: u64,
        length: usize,
        access: c_uint,
    ) -> *mut ibv_mr {
        let (pd, dm) = (Pd::get(pd)?, Dm::get(dm)?);
        let rights = rights::from_c(access)?;
        let start = usize::try_from(offset).map_err(|_| Rule::DeviceRange)?;
        let end = start.checked_add(length).ok_or(Rule::DeviceRange)?;
        refuse_if(access & IBV_ACCESS_ZERO_BASED == 0, Rule::ZeroBased)?;
        let region = pd.domain.register_dm(&dm.memory, start..end, rights)?;
        Ok(Mr::create_raw(pd, Region::Device(region, dm.users.add()), std::ptr::null_mut(), length))
    }

    /// `EFAULT` outside, `EINVAL` unless multiples of 4.
    fn ibv_memcpy_to_dm(dm: *mut ibv_dm, offset: u64, from: *const c_void, length: usize) -> c_int {
        let (dm, offset) = place(dm, offset, from, length)?;
        let mut piece = [0; PIECE];
        for at in (0..length).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(length - at)];
            copy_from_program(from.cast::<u8>().add(at), piece.as_mut_ptr(), piece.len())?;
            dm.memory.write_at(offset + at, piece)?;
        }
        Ok(())
    }

    /// Errors as above.
    fn ibv_memcpy_from_dm(to: *mut c_void, dm: *mut ibv_dm, offset: u64, length: usize) -> c_int {
        let (dm, offset) = place(dm, offset, to, length)?;
        let mut piece = [0; PIECE];
        for at in (0..length).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(length - at)];
            dm.memory.read_at(offset + at, piece)?;
            copy_to_program(to.cast::<u8>().add(at), piece)?;
        }
        Ok(())
    }
);

unsafe fn place<'a>(
    dm: *mut ibv_dm,
    offset: u64,
    host: *const c_void,
    length: usize,
) -> Result<(&'a Dm, usize)> {
    let dm = Dm::get(dm)?;
    let offset = usize::try_from(offset).map_err(|_| Rule::NotInside)?;
    let is_aligned = offset.is_multiple_of(WORD) && length.is_multiple_of(WORD);
    refuse_if(!is_aligned || host.is_null() && length > 0, Rule::Alignment)?;
    let end = offset.checked_add(length);
    refuse_if(end.is_none_or(|end| end > dm.memory.len()), Rule::NotInside)?;
    Ok((dm, offset))
}

calls!(
    /// Process memory: no descriptor.
    fn ibv_dm_export_dmabuf_fd(_: *mut ibv_dm) -> c_int {
        Err::<(), _>(Errno::of(Rule::NotSupported))
    }
);

#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]
mod tests {
    use std::ptr::null_mut;

    use super::*;
    use crate::{
        objects::mr::ibv_dereg_mr,
        tests::{Allocated, Opened, errno},
    };

    fn alloc(context: &Opened, length: usize, log_align_req: u32, comp_mask: u32) -> *mut ibv_dm {
        unsafe {
            ibv_alloc_dm(context.0, &mut ibv_alloc_dm_attr { length, log_align_req, comp_mask })
        }
    }

    #[test]
    fn sizes_that_are_not_to_be_had() {
        let context = Opened::new();
        let all = unsafe { Ctx::get(context.0) }.unwrap().inner.context.limits().max_dm_size;
        for (length, align, mask, expected) in [
            (0, 0, 0, libc::EINVAL),
            (all + 1, 0, 0, libc::ENOMEM),
            (64, 13, 0, libc::EINVAL),
            (64, 0, 1, libc::EINVAL),
        ] {
            assert_eq!(
                (alloc(&context, length, align, mask), errno()),
                (null_mut(), expected),
                "{length} {align} {mask}"
            );
        }
    }

    #[test]
    fn copies_stay_inside_and_start_at_words() {
        let context = Opened::new();
        let dm = alloc(&context, 64, 12, 0);
        let (to, from) = unsafe { ((*dm).memcpy_to_dm.unwrap(), (*dm).memcpy_from_dm.unwrap()) };
        let mut bytes = [0u8; 8];
        unsafe {
            assert_eq!(to(dm, 56, b"abcdefgh".as_ptr().cast(), 8), 0);
            assert_eq!(from(bytes.as_mut_ptr().cast(), dm, 56, 8), 0);
            assert_eq!(&bytes, b"abcdefgh");
            assert_eq!(to(dm, 64, std::ptr::null(), 0), 0);
            for (offset, length, expected) in [
                (60, 8, libc::EFAULT),
                (2, 4, libc::EINVAL),
                (4, 2, libc::EINVAL),
                (u64::MAX - 3, 8, libc::EFAULT),
                (64, 4, libc::EFAULT),
            ] {
                assert_eq!(to(dm, offset, bytes.as_ptr().cast(), length), expected, "{offset}");
                assert_eq!(
                    from(bytes.as_mut_ptr().cast(), dm, offset, length),
                    expected,
                    "{offset}"
                );
            }
            assert_eq!(ibv_free_dm(dm), 0);
        }
    }

    #[test]
    fn a_region_is_zero_based_and_keeps_the_memory() {
        let context = Opened::new();
        let pd = Allocated::new(&context);
        let dm = alloc(&context, 64, 0, 0);
        unsafe {
            for (offset, length, access) in
                [(0, 64, 1), (32, 33, 33), (65, 1, 33), (u64::MAX, 2, 33)]
            {
                assert_eq!(
                    (ibv_reg_dm_mr(pd.0, dm, offset, length, access), errno()),
                    (null_mut(), libc::EINVAL),
                    "{offset}"
                );
            }
            let mr = ibv_reg_dm_mr(pd.0, dm, 32, 32, 33);
            assert_eq!(((*mr).addr, (*mr).length), (null_mut(), 32));
            assert_eq!(ibv_free_dm(dm), libc::EBUSY);
            assert_eq!(ibv_dereg_mr(mr), 0);
            let nothing = ibv_reg_dm_mr(pd.0, dm, 0, 0, 33);
            assert_eq!(ibv_dereg_mr(nothing), 0);
            assert_eq!(ibv_free_dm(dm), 0);
        }
    }
}
