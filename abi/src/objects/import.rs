//! Importing by number within a process.

use super::{command_file::CommandFile, context::Ctx, dm::Dm, mr::Mr, pd::Pd, table};
use crate::prelude::*;

calls!(
    /// The context takes over the descriptor.
    fn ibv_import_device(command: c_int) -> *mut ibv_context {
        let command_file = CommandFile::of(command).ok_or(Rule::NotACommandFile)?;
        table::open(command_file.dev.open_or_down(), command_file, Some(command))
    }

    fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
        let ctx = Ctx::get(context)?;
        let domain = ctx.inner.command_file.import(handle, |pd: &Pd| pd.domain.clone())?;
        Ok(Pd::with_handle(ctx, domain, handle).into_raw())
    }

    fn ibv_unimport_pd(pd: *mut ibv_pd) {
        let _ = call::destroy::<Pd>(pd, |_| Ok(())); // no value in C
    }

    /// The importer does not know the memory's address.
    fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
        let pd = Pd::get(pd)?;
        let found = |mr: &Mr| (mr.shared(), (*mr.c()).length);
        let (region, length) = pd.ctx.command_file.import(handle, found)?;
        Ok(Mr::with_handle(pd, region, std::ptr::null_mut(), length, handle).into_raw())
    }

    fn ibv_unimport_mr(mr: *mut ibv_mr) {
        let _ = call::destroy::<Mr>(mr, |_| Ok(())); // no value in C
    }

    fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
        let ctx = Ctx::get(context)?;
        let memory = ctx.inner.command_file.import(handle, |dm: &Dm| dm.memory.clone())?;
        Ok(Dm::new(ctx, memory, handle).into_raw())
    }

    fn ibv_unimport_dm(dm: *mut ibv_dm) {
        let _ = call::destroy::<Dm>(dm, |_| Ok(())); // no value in C
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
        layout::ibv_alloc_dm_attr,
        objects::{
            context::ibv_close_device,
            dm,
            mr::{ibv_alloc_null_mr, ibv_dereg_mr, ibv_reg_mr},
            pd::{ibv_alloc_pd, ibv_dealloc_pd},
        },
        tests::{Allocated, Opened, errno},
    };

    fn copy(descriptor: c_int) -> c_int {
        // SAFETY: A descriptor of a context.
        unsafe { libc::dup(descriptor) }
    }

    #[test]
    fn objects_are_found_by_number_in_a_context_that_was_imported() {
        let (context, other) = (Opened::new(), Opened::new());
        let pd = Allocated::new(&context);
        let mut buffer = vec![0u8; 100];
        unsafe {
            let mr = ibv_reg_mr(pd.0, buffer.as_mut_ptr().cast(), 100, 1);
            let dm = dm::ibv_alloc_dm(
                context.0,
                &mut ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 },
            );
            let descriptor = copy((*context.0).cmd_fd);
            let imported = ibv_import_device(descriptor);
            assert_eq!((*imported).cmd_fd, descriptor);

            let pd_2 = ibv_import_pd(imported, (*pd.0).handle);
            assert_eq!(((*pd_2).handle, (*pd_2).context), ((*pd.0).handle, imported));
            let mr_2 = ibv_import_mr(pd_2, (*mr).handle);
            assert_eq!(((*mr_2).lkey, (*mr_2).rkey, (*mr_2).length), ((*mr).lkey, (*mr).rkey, 100));
            assert_eq!(((*mr_2).addr, (*mr_2).handle), (null_mut(), (*mr).handle));
            let dm_2 = ibv_import_dm(imported, (*dm).handle);
            assert_eq!((*dm).memcpy_to_dm.unwrap()(dm, 0, b"word".as_ptr().cast(), 4), 0);
            let mut word = [0u8; 4];
            assert_eq!((*dm_2).memcpy_from_dm.unwrap()(word.as_mut_ptr().cast(), dm_2, 0, 4), 0);
            assert_eq!(&word, b"word");

            // wrong kind, wrong context, no object
            assert_eq!(
                (ibv_import_pd(imported, (*mr).handle), errno()),
                (null_mut(), libc::ENOENT)
            );
            assert_eq!((ibv_import_mr(pd_2, (*dm).handle), errno()), (null_mut(), libc::ENOENT));
            assert_eq!((ibv_import_dm(other.0, (*dm).handle), errno()), (null_mut(), libc::ENOENT));
            assert_eq!((ibv_import_dm(imported, 9999), errno()), (null_mut(), libc::ENOENT));

            // freeing an import keeps the object and its number
            assert_eq!(ibv_dealloc_pd(pd_2), libc::EBUSY);
            ibv_unimport_mr(mr_2);
            ibv_unimport_pd(pd_2);
            ibv_unimport_dm(dm_2);
            let again = ibv_import_pd(imported, (*pd.0).handle);
            assert_eq!(ibv_dealloc_pd(again), 0);
            let again = ibv_import_pd(imported, (*pd.0).handle);
            assert!(!again.is_null());
            ibv_unimport_pd(again);

            let handle = (*dm).handle;
            assert_eq!(dm::ibv_free_dm(dm), 0);
            assert_eq!(
                (ibv_import_dm(imported, handle), errno()),
                (null_mut(), libc::ENOENT),
                "freed"
            );
            assert_eq!(ibv_dereg_mr(mr), 0);
            assert_eq!(ibv_close_device(imported), 0);
            assert_eq!(
                (libc::fcntl(descriptor, libc::F_GETFD), errno()),
                (-1, libc::EBADF),
                "closed with the context"
            );
        }
    }

    #[test]
    fn what_is_no_context_is_not_imported_and_stays_open() {
        let context = Opened::new();
        let event = copy(unsafe { (*context.0).async_fd });
        for descriptor in [event, -1] {
            assert_eq!(
                (unsafe { ibv_import_device(descriptor) }, errno()),
                (null_mut(), libc::EINVAL)
            );
        }
        assert_eq!(unsafe { libc::close(event) }, 0);
    }

    #[test]
    fn a_region_of_nothing_holds_no_domain() {
        let context = Opened::new();
        unsafe {
            let pd = ibv_alloc_pd(context.0);
            let null = ibv_alloc_null_mr(pd);
            assert_eq!(ibv_dealloc_pd(pd), 0);
            assert_eq!(ibv_dereg_mr(null), 0);
        }
    }

    #[test]
    fn a_region_of_nothing_can_be_imported_too() {
        let context = Opened::new();
        let pd = Allocated::new(&context);
        unsafe {
            let null = ibv_alloc_null_mr(pd.0);
            let again = ibv_import_mr(pd.0, (*null).handle);
            assert_eq!((*again).lkey, (*null).lkey);
            ibv_unimport_mr(again);
            assert_eq!(ibv_dereg_mr(null), 0);
        }
    }
}
