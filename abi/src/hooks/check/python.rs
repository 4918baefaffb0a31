//! Lines of a calling Python program.
//!
//! Each call reads them before it takes a lock: the interpreter may run finalizers that call this
//! library. ctypes and cffi release the GIL during calls. Only for them is the GIL taken: other
//! extensions may hold locks.

use std::{
    cell::RefCell,
    ffi::{CStr, c_char, c_int, c_void},
    mem,
    ptr::{NonNull, null_mut},
    sync::{Arc, LazyLock},
};

use roce_provider::{environment, faults::CallId};

use super::mapped;
use crate::hooks::switch::Hook;

/// Lines kept.
const DEPTH: usize = 6;
/// Shared objects: the interpreter, and its callers of C.
const OBJECTS: [&str; 2] = ["python", "libpython"];
const CALLERS: [&str; 3] = ["_ctypes", "libffi", "_cffi_backend"];

type Object = NonNull<c_void>;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Line {
    pub(super) function: Box<str>,
    pub(super) file: Box<str>,
    pub(super) line: u32,
}

thread_local! {
    static LINES: RefCell<Option<Arc<[Line]>>> = const { RefCell::new(None) };
}

/// True in the interpreter, or between it and C.
pub(super) fn is_interpreter(object: &str) -> bool {
    OBJECTS.iter().chain(&CALLERS).any(|name| object.starts_with(name))
}

/// Innermost first.
pub(super) fn lines() -> Arc<[Line]> {
    let lines = LINES.try_with(|lines| lines.try_borrow().ok()?.clone());
    lines.ok().flatten().unwrap_or_default()
}

pub(crate) struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        let _ = LINES.try_with(|lines| lines.take());
    }
}

pub(super) fn at_load() {
    if environment::is_on(environment::EXPLAIN) && PYTHON.is_some() {
        Hook::Lines.switch_on();
    }
}

pub(crate) fn enter(id: Option<CallId>) -> Option<Entered> {
    if !Hook::Checks.is_on() && !Hook::Lines.is_on() {
        return None;
    }
    let python = PYTHON.as_ref()?;
    // a poll may come before each other thread's instruction
    let is_poll = id.is_some_and(|id| id.name().contains("poll"));
    let lines = python.lines(!is_poll)?;
    LINES.try_with(|place| place.replace(Some(lines.into()))).ok().map(|_| Entered(()))
}

static PYTHON: LazyLock<Option<Python>> = LazyLock::new(Python::find);

/// Functions of Python 3.9 and later.
struct Python {
    is_initialized: unsafe extern "C" fn() -> c_int,
    /// Missing in some versions.
    is_finalizing: Option<unsafe extern "C" fn() -> c_int>,
    this_state: unsafe extern "C" fn() -> *mut c_void,
    current_state: unsafe extern "C" fn() -> *mut c_void,
    ensure: unsafe extern "C" fn() -> c_int,
    release: unsafe extern "C" fn(c_int),
    frame: unsafe extern "C" fn() -> *mut c_void,
    line: unsafe extern "C" fn(Object) -> c_int,
    code: unsafe extern "C" fn(Object) -> *mut c_void,
    back: unsafe extern "C" fn(Object) -> *mut c_void,
    attribute: unsafe extern "C" fn(Object, *const c_char) -> *mut c_void,
    text: unsafe extern "C" fn(Object) -> *const c_char,
    decrement: unsafe extern "C" fn(Object),
    /// Saves the thread's exception.
    fetch: unsafe extern "C" fn(*mut *mut c_void, *mut *mut c_void, *mut *mut c_void),
    restore: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void),
}

/// # Safety
/// The function has type `F`.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
    assert_eq!(size_of::<F>(), size_of_val(&found));
    (!found.is_null()).then(|| mem::transmute_copy(&found))
}

impl Python {
    fn find() -> Option<Self> {
        // SAFETY: Types as in Python's headers.
        unsafe {
            Some(Self {
                is_initialized: function(c"Py_IsInitialized")?,
                is_finalizing: function(c"Py_IsFinalizing")
                    .or_else(|| function(c"_Py_IsFinalizing")),
                this_state: function(c"PyGILState_GetThisThreadState")?,
                current_state: function(c"PyThreadState_GetUnchecked")
                    .or_else(|| function(c"_PyThreadState_UncheckedGet"))?,
                ensure: function(c"PyGILState_Ensure")?,
                release: function(c"PyGILState_Release")?,
                frame: function(c"PyEval_GetFrame")?,
                line: function(c"PyFrame_GetLineNumber")?,
                code: function(c"PyFrame_GetCode")?,
                back: function(c"PyFrame_GetBack")?,
                attribute: function(c"PyObject_GetAttrString")?,
                text: function(c"PyUnicode_AsUTF8")?,
                decrement: function(c"Py_DecRef")?,
                fetch: function(c"PyErr_Fetch")?,
                restore: function(c"PyErr_Restore")?,
            })
        }
    }

    /// Takes the GIL if the thread lacks it and `may_take` it.
    fn lines(&self, may_take: bool) -> Option<Vec<Line>> {
        // SAFETY: These need no GIL.
        let (this, current) = unsafe {
            if (self.is_initialized)() == 0 {
                return None;
            }
            ((self.this_state)(), (self.current_state)())
        };
        if this.is_null() {
            return None; // not a thread of Python
        }
        if this == current {
            // SAFETY: This thread has the GIL.
            return Some(unsafe { self.read() });
        }
        // SAFETY: As above.
        let ends = self.is_finalizing.is_some_and(|ends| unsafe { ends() } != 0);
        let is_by_ctypes = || {
            let caller = mapped::caller();
            CALLERS.iter().any(|name| caller.starts_with(name))
        };
        if ends || !may_take || !is_by_ctypes() {
            return None;
        }
        // SAFETY: A Python thread; neither this library nor ctypes holds a lock.
        unsafe {
            let before = (self.ensure)();
            let lines = self.read();
            (self.release)(before);
            Some(lines)
        }
    }

    /// # Safety
    /// The thread has the GIL.
    unsafe fn read(&self) -> Vec<Line> {
        let (mut kind, mut value, mut trace) = (null_mut(), null_mut(), null_mut());
        (self.fetch)(&raw mut kind, &raw mut value, &raw mut trace);
        let mut lines = Vec::with_capacity(DEPTH);
        let mut frame = Object::new((self.frame)());
        let mut is_owned = false; // the first is borrowed
        while let Some(this) = frame {
            lines.extend(self.line_of(this));
            frame = (lines.len() < DEPTH).then(|| Object::new((self.back)(this))).flatten();
            if mem::replace(&mut is_owned, true) {
                (self.decrement)(this);
            }
        }
        (self.restore)(kind, value, trace);
        lines
    }

    /// # Safety
    /// As for [`read`](Self::read).
    unsafe fn line_of(&self, frame: Object) -> Option<Line> {
        let code = Object::new((self.code)(frame))?;
        let text = |name: &CStr| {
            let value = Object::new((self.attribute)(code, name.as_ptr()));
            let text = value.map(|value| (self.text)(value)).filter(|text| !text.is_null());
            // SAFETY: A C string that lives as long as `value`.
            let copy = text.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into());
            value.into_iter().for_each(|value| (self.decrement)(value));
            if copy.is_none() {
                (self.restore)(null_mut(), null_mut(), null_mut()); // clears it
            }
            copy
        };
        let function: Option<Box<str>> = text(c"co_qualname").or_else(|| text(c"co_name"));
        let file = text(c"co_filename");
        let line = u32::try_from((self.line)(frame)).unwrap_or(0);
        (self.decrement)(code);
        Some(Line { function: function?, file: file?, line })
    }
}
