//! Files behind `ibv_context.cmd_fd`.
//!
//! A file carries no data, only its identity: imported contexts share the file and its object
//! numbers.

use std::{
    any::TypeId,
    collections::HashMap,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::fs::{MemfdFlags, fstat, memfd_create};

use super::device::Dev;
use crate::{prelude::*, sync::Mutex};

pub(crate) struct CommandFile {
    pub(crate) dev: &'static Dev,
    file: OwnedFd,
    next_handle: AtomicU32,
    /// Pointers, by kind and handle.
    importable: Mutex<HashMap<(TypeId, u32), usize>>,
}

/// A sandbox may refuse `memfd_create`.
fn new_file() -> io::Result<OwnedFd> {
    memfd_create(c"roce-context", MemfdFlags::CLOEXEC)
        .or_else(|_| io::pipe().map(|(reader, _)| reader.into()))
}

static COMMAND_FILES: Mutex<Vec<Weak<CommandFile>>> = Mutex::new(Vec::new());

impl CommandFile {
    pub(crate) fn new(dev: &'static Dev) -> io::Result<Arc<Self>> {
        let command_file = Arc::new(Self {
            dev,
            file: new_file()?,
            next_handle: AtomicU32::new(1),
            importable: Mutex::default(),
        });
        let mut all = COMMAND_FILES.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&command_file));
        Ok(command_file)
    }

    /// # Safety
    /// Nothing closes the descriptor during the call.
    pub(crate) unsafe fn of(descriptor: c_int) -> Option<Arc<Self>> {
        if descriptor < 0 {
            return None;
        }
        // SAFETY: By the contract; a closed descriptor gives an error.
        let wanted = identity(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
        let all = COMMAND_FILES.lock();
        all.iter().filter_map(Weak::upgrade).find(|other| identity(&other.file) == Some(wanted))
    }

    pub(crate) fn descriptor(&self) -> c_int {
        self.file.as_raw_fd()
    }

    pub(crate) fn new_handle(&self) -> u32 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn insert<T: Object>(&self, handle: u32, object: *const T::C) {
        self.importable.lock().insert((TypeId::of::<T>(), handle), object as usize);
    }

    /// Ends imports of an object, unless the handle is its original's.
    pub(crate) fn remove<T: Object>(&self, handle: u32, object: *const T::C) {
        let (mut importable, key) = (self.importable.lock(), (TypeId::of::<T>(), handle));
        if importable.get(&key) == Some(&(object as usize)) {
            importable.remove(&key);
        }
    }

    /// Runs `import` while the object lives; `ENOENT` without an object.
    pub(crate) unsafe fn import<T: Object, R>(
        &self,
        handle: u32,
        import: impl FnOnce(&T) -> R,
    ) -> Result<R> {
        let importable = self.importable.lock();
        let object = importable.get(&(TypeId::of::<T>(), handle));
        let object = *object.ok_or(Rule::NoSuchObject)?;
        T::get(object as *const T::C).map(import)
    }

    pub(crate) fn find<T: Object, R>(
        &self,
        find: impl FnMut(*const T::C) -> Option<R>,
    ) -> Option<R> {
        let importable = self.importable.lock();
        let of_kind = importable.iter().filter(|((kind, _), _)| *kind == TypeId::of::<T>());
        of_kind.map(|(_, object)| *object as *const T::C).find_map(find)
    }
}

/// Device and inode.
fn identity(descriptor: impl AsFd) -> Option<(u64, u64)> {
    fstat(descriptor).ok().map(|stat| (stat.st_dev, stat.st_ino))
}
