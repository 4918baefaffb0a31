//! Objects that programs hold by pointer.

use std::{cell::UnsafeCell, sync::Arc};

use crate::errno::{Errno, Result};

/// An object that starts with the structure that programs see of it.
///
/// Programs read that structure, and write some of its members, at any time; so it is only touched
/// through its pointer.
///
/// # Safety
/// `Self` is `repr(C)` and starts with `UnsafeCell<Self::C>`.
pub(crate) unsafe trait Object: Sized {
    /// Structure that programs see.
    type C;

    /// The structure that programs see.
    fn c(&self) -> *mut Self::C {
        std::ptr::from_ref(self).cast::<UnsafeCell<Self::C>>().cast_mut().cast()
    }

    /// Pointer for the program, which owns the object from then on.
    fn into_raw(self) -> *mut Self::C {
        Box::into_raw(Box::new(self)).cast()
    }

    /// The object behind a program's pointer; `EINVAL` for null.
    ///
    /// # Safety
    /// The pointer is null, or [`into_raw`](Self::into_raw) gave it and it has not been [taken
    /// back](Self::from_raw). The reference is not used beyond the call that the program has made:
    /// destroying an object during another call on it is as wrong as with any other library.
    unsafe fn get<'a>(pointer: *const Self::C) -> Result<&'a Self> {
        // SAFETY: By the contract above; the object starts where its structure does.
        unsafe { pointer.cast::<Self>().as_ref() }.ok_or(Errno::INVAL)
    }

    /// The same for a pointer that may be null.
    ///
    /// # Safety
    /// As for [`get`](Self::get).
    unsafe fn get_optional<'a>(pointer: *const Self::C) -> Option<&'a Self> {
        // SAFETY: As above.
        unsafe { pointer.cast::<Self>().as_ref() }
    }

    /// Takes the object back from the program.
    ///
    /// # Safety
    /// As for [`get`](Self::get), and the pointer, not null, is not used again.
    unsafe fn from_raw(pointer: *mut Self::C) -> Box<Self> {
        // SAFETY: By the contract above, it came from `Box::into_raw` in `into_raw`.
        unsafe { Box::from_raw(pointer.cast()) }
    }
}

/// Number of existing objects that were made from one: it cannot be destroyed while there are any.
#[derive(Default)]
pub(crate) struct Users(Arc<()>);

/// A reference that keeps an object from being destroyed.
#[derive(Clone)]
pub(crate) struct User(#[allow(dead_code, reason = "only held")] Arc<()>);

impl Users {
    /// Adds one.
    pub(crate) fn add(&self) -> User {
        User(self.0.clone())
    }

    /// `EBUSY` while there are any.
    pub(crate) fn none_left(&self) -> Result<()> {
        if Arc::strong_count(&self.0) == 1 { Ok(()) } else { Err(Errno::BUSY) }
    }
}
