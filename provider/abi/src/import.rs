//! Importing contexts and their objects by number: in the process that made them.
//!
//! A context's command descriptor leads to nothing; what counts is which file it is, since a copy
//! is of the same file. Contexts that were imported from one another are a family: their objects
//! are numbered together.

use std::{
    collections::HashMap,
    ffi::c_int,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{
    context::Ctx,
    device::Dev,
    dm::Dm,
    errno::{self, Errno, Result},
    export::export,
    layout::verbs::{ibv_context, ibv_dm, ibv_mr, ibv_pd},
    mr::{Mr, Region},
    object::Object,
    pd::Pd,
};

/// What a context has in common with those that were imported from it.
pub(crate) struct Family {
    pub(crate) dev: &'static Dev,
    command: OwnedFd,
    handles: AtomicU32,
    importable: Mutex<HashMap<u32, Importable>>,
}

/// A program's pointer to an object that can be imported.
#[derive(PartialEq, Eq)]
pub(crate) enum Importable {
    Pd(usize),
    Mr(usize),
    Dm(usize),
}

/// Families that exist.
static FAMILIES: Mutex<Vec<Weak<Family>>> = Mutex::new(Vec::new());

impl Family {
    pub(crate) fn new(dev: &'static Dev) -> io::Result<Arc<Self>> {
        // SAFETY: A name that ends.
        let command = unsafe { libc::memfd_create(c"roce-context".as_ptr(), libc::MFD_CLOEXEC) };
        if command == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: Nobody else has it.
        let command = unsafe { OwnedFd::from_raw_fd(command) };
        let family = Arc::new(Self {
            dev,
            command,
            handles: AtomicU32::new(1),
            importable: Mutex::default(),
        });
        let mut families = lock(&FAMILIES);
        families.retain(|family| family.strong_count() > 0);
        families.push(Arc::downgrade(&family));
        Ok(family)
    }

    /// The one whose descriptor this is a copy of.
    fn of(command: c_int) -> Option<Arc<Self>> {
        let file = file(command)?;
        let families = lock(&FAMILIES);
        families
            .iter()
            .filter_map(Weak::upgrade)
            .find(|family| self::file(family.command()) == Some(file))
    }

    pub(crate) fn command(&self) -> c_int {
        self.command.as_raw_fd()
    }

    /// A number for a new object's `handle`.
    pub(crate) fn new_handle(&self) -> u32 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on the object can be imported.
    pub(crate) fn offer(&self, handle: u32, object: Importable) {
        lock(&self.importable).insert(handle, object);
    }

    /// The object can no longer be imported, unless the number belongs to another, from which this
    /// one was imported.
    pub(crate) fn withdraw(&self, handle: u32, object: &Importable) {
        let mut importable = lock(&self.importable);
        if importable.get(&handle) == Some(object) {
            importable.remove(&handle);
        }
    }

    /// What `find` makes of the object with this number, which cannot go meanwhile; `ENOENT` if
    /// there is none.
    fn import<T>(&self, handle: u32, find: impl FnOnce(&Importable) -> Option<T>) -> Result<T> {
        lock(&self.importable).get(&handle).and_then(find).ok_or(Errno(libc::ENOENT))
    }

    /// The memory region with this local key that was registered in the protection domain with this
    /// number. `ENOENT`: there is no such key; `EPERM`: it is of another domain.
    pub(crate) unsafe fn region(&self, pd_handle: u32, lkey: u32) -> Result<Region> {
        for object in lock(&self.importable).values() {
            let Importable::Mr(mr) = object else { continue };
            let mr = *mr as *const ibv_mr;
            if (*mr).lkey == lkey {
                let same_domain = (*(*mr).pd).handle == pd_handle;
                return if same_domain {
                    Ok(Mr::get(mr)?.shared())
                } else {
                    Err(Errno(libc::EPERM))
                };
            }
        }
        Err(Errno(libc::ENOENT))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which file a descriptor is of.
fn file(descriptor: c_int) -> Option<(u64, u64)> {
    // SAFETY: All bytes zero are a value of it.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: A place of ours; a descriptor that is none gives an error.
    let done = unsafe { libc::fstat(descriptor, &raw mut about) };
    (done == 0).then_some((about.st_dev, about.st_ino))
}

/// The descriptor belongs to the context from then on.
unsafe extern "C" fn ibv_import_device(command: c_int) -> *mut ibv_context {
    let import = || {
        let family = Family::of(command).ok_or(Errno::INVAL)?;
        Ctx::open(family.dev, family.dev.open_or_down(), family, Some(command))
    };
    errno::pointer(import())
}

unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    let import = |ctx: &Ctx| {
        let domain = ctx.home.family.import(handle, |object| match object {
            Importable::Pd(pd) => Some(Pd::get(*pd as *const ibv_pd).ok()?.domain.clone()),
            _ => None,
        })?;
        Ok(Pd::with_handle(ctx, domain, handle).hand_out())
    };
    errno::pointer(Ctx::get(context).and_then(import))
}

unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    if !pd.is_null() {
        drop(Pd::take_back(pd));
    }
}

/// Where its memory lies is not known to who imports it.
unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    let import = |pd: &Pd| {
        let (region, length) = pd.home.family.import(handle, |object| match object {
            Importable::Mr(mr) => {
                let mr = *mr as *const ibv_mr;
                Some((Mr::get(mr).ok()?.shared(), (*mr).length))
            }
            _ => None,
        })?;
        Ok(Mr::with_handle(pd, region, std::ptr::null_mut(), length, handle).hand_out())
    };
    errno::pointer(Pd::get(pd).and_then(import))
}

unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    if !mr.is_null() {
        drop(Mr::take_back(mr));
    }
}

unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    let import = |ctx: &Ctx| {
        let memory = ctx.home.family.import(handle, |object| match object {
            Importable::Dm(dm) => Some(Dm::get(*dm as *const ibv_dm).ok()?.memory.clone()),
            _ => None,
        })?;
        Ok(Dm::new(ctx, memory, handle).hand_out())
    };
    errno::pointer(Ctx::get(context).and_then(import))
}

unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    if !dm.is_null() {
        drop(Dm::take_back(dm));
    }
}

export!(
    ibv_import_device,
    ibv_import_pd,
    ibv_unimport_pd,
    ibv_import_mr,
    ibv_unimport_mr,
    ibv_import_dm,
    ibv_unimport_dm
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
        context::ibv_close_device,
        dm,
        layout::verbs::ibv_alloc_dm_attr,
        mr::{alloc_null_mr, ibv_dereg_mr, ibv_reg_mr},
        pd::ibv_dealloc_pd,
        testing::{Allocated, Opened, errno},
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
            let dm = dm::alloc_dm(
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

            // of another kind, of another context, of nobody
            assert_eq!(
                (ibv_import_pd(imported, (*mr).handle), errno()),
                (null_mut(), libc::ENOENT)
            );
            assert_eq!((ibv_import_mr(pd_2, (*dm).handle), errno()), (null_mut(), libc::ENOENT));
            assert_eq!((ibv_import_dm(other.0, (*dm).handle), errno()), (null_mut(), libc::ENOENT));
            assert_eq!((ibv_import_dm(imported, 9999), errno()), (null_mut(), libc::ENOENT));

            // what only stands for an object goes without it, and does not take its number
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
            assert_eq!(dm::free_dm(dm), 0);
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
    fn a_region_of_nothing_can_be_imported_too() {
        let context = Opened::new();
        let pd = Allocated::new(&context);
        unsafe {
            let null = alloc_null_mr(pd.0);
            let again = ibv_import_mr(pd.0, (*null).handle);
            assert_eq!((*again).lkey, (*null).lkey);
            ibv_unimport_mr(again);
            assert_eq!(ibv_dereg_mr(null), 0);
        }
    }
}
