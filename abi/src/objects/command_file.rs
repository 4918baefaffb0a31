//! Files behind `ibv_context.cmd_fd`.
//!
//! A file carries no data, only its identity: imported contexts share the file and its object
//! numbers.

use std::{
    collections::HashMap,
    ffi::c_int,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::fs::{MemfdFlags, fstat, memfd_create};

use super::device::Dev;
use crate::{
    errno::{Errno, Result},
    rule::Rule,
    sync::Mutex,
};

pub(crate) struct CommandFile {
    pub(crate) dev: &'static Dev,
    file: OwnedFd,
    next_handle: AtomicU32,
    importable: Mutex<HashMap<u32, Importable>>,
}

/// Pointers, as numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Importable {
    Pd(usize),
    Mr(usize),
    Dm(usize),
}

/// A sandbox may refuse `memfd_create`.
fn new_file() -> io::Result<OwnedFd> {
    match memfd_create(c"roce-context", MemfdFlags::CLOEXEC) {
        Ok(file) => Ok(file),
        Err(_) => io::pipe().map(|(reader, _)| reader.into()),
    }
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

    pub(crate) fn insert(&self, handle: u32, object: Importable) {
        self.importable.lock().insert(handle, object);
    }

    /// Ends imports of an object, unless the handle is its original's.
    pub(crate) fn remove(&self, handle: u32, object: Importable) {
        let mut importable = self.importable.lock();
        if importable.get(&handle) == Some(&object) {
            importable.remove(&handle);
        }
    }

    /// Runs `import` while the object lives; `ENOENT` without an object.
    pub(crate) fn import<T>(
        &self,
        handle: u32,
        import: impl FnOnce(Importable) -> Option<T>,
    ) -> Result<T> {
        self.importable
            .lock()
            .get(&handle)
            .copied()
            .and_then(import)
            .ok_or(Errno::of(Rule::NoSuchObject))
    }

    pub(crate) fn find<T>(&self, find: impl FnMut(Importable) -> Option<T>) -> Option<T> {
        self.importable.lock().values().copied().find_map(find)
    }
}

/// Device and inode.
fn identity(descriptor: impl AsFd) -> Option<(u64, u64)> {
    fstat(descriptor).ok().map(|stat| (stat.st_dev, stat.st_ino))
}
