//! The files behind the command descriptors of contexts (`ibv_context.cmd_fd`).
//!
//! Nothing is read from one and nothing written to it; what counts is which file a descriptor
//! refers to, since a copy refers to the same. Contexts that are imported by a descriptor share its
//! file with the one that it came from, and number their objects together.

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

/// The file of a context and of those that were imported from it.
pub(crate) struct CommandFile {
    pub(crate) dev: &'static Dev,
    file: OwnedFd,
    next_handle: AtomicU32,
    importable: Mutex<HashMap<u32, Importable>>,
}

/// Pointer of a program, as a number, to an object that can be imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Importable {
    Pd(usize),
    Mr(usize),
    Dm(usize),
}

/// A file that is like no other. A sandbox may refuse those of memory.
fn new_file() -> io::Result<OwnedFd> {
    match memfd_create(c"roce-context", MemfdFlags::CLOEXEC) {
        Ok(file) => Ok(file),
        Err(_) => io::pipe().map(|(reader, _)| reader.into()),
    }
}

/// Files of open contexts.
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

    /// The one that a descriptor of the program's refers to.
    ///
    /// # Safety
    /// Nothing closes the descriptor during the call.
    pub(crate) unsafe fn of(descriptor: c_int) -> Option<Arc<Self>> {
        if descriptor < 0 {
            return None;
        }
        // SAFETY: By the contract. One that is not open gives an error.
        let wanted = identity(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
        let all = COMMAND_FILES.lock();
        all.iter().filter_map(Weak::upgrade).find(|other| identity(&other.file) == Some(wanted))
    }

    pub(crate) fn descriptor(&self) -> c_int {
        self.file.as_raw_fd()
    }

    /// Number for a new object's `handle`.
    pub(crate) fn new_handle(&self) -> u32 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets an object be imported from now on.
    pub(crate) fn insert(&self, handle: u32, object: Importable) {
        self.importable.lock().insert(handle, object);
    }

    /// Lets an object no longer be imported, unless the number belongs to another, from which this
    /// one was imported.
    pub(crate) fn remove(&self, handle: u32, object: Importable) {
        let mut importable = self.importable.lock();
        if importable.get(&handle) == Some(&object) {
            importable.remove(&handle);
        }
    }

    /// Result of `import` for the object with this number, which is not destroyed meanwhile;
    /// `ENOENT` if there is none.
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

    /// First result of `find` for an object; none is destroyed meanwhile.
    pub(crate) fn find<T>(&self, find: impl FnMut(Importable) -> Option<T>) -> Option<T> {
        self.importable.lock().values().copied().find_map(find)
    }
}

/// File system and number of a file.
fn identity(descriptor: impl AsFd) -> Option<(u64, u64)> {
    fstat(descriptor).ok().map(|stat| (stat.st_dev, stat.st_ino))
}
