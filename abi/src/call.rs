//! Frame of every call from C.
//!
//! 1. `ROCE_FAULT` delays or fails the call before its arguments are read.
//! 2. The call runs; checks record it after translation.
//! 3. A failure sets `errno` and is explained.
//!
//! Without hooks, step 1 costs one load.

use std::ffi::c_int;

use roce_provider::calls::Call;
pub(crate) use roce_provider::faults::CallId;

use crate::{
    errno::{self, Errno, Result},
    hooks::{
        self,
        check::{self, python, records},
        fault,
    },
    objects::object::Object,
};

pub(crate) trait Outcome {
    type C;

    fn done(self) -> Self::C;

    fn failed(value: isize) -> Self::C;
}

impl Outcome for () {
    type C = c_int;

    fn done(self) -> c_int {
        0
    }

    fn failed(value: isize) -> c_int {
        value as c_int
    }
}

impl<T> Outcome for *mut T {
    type C = Self;

    fn done(self) -> Self {
        self
    }

    fn failed(_: isize) -> Self {
        std::ptr::null_mut()
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Outcome for $number {
            type C = Self;

            fn done(self) -> Self {
                self
            }

            fn failed(value: isize) -> Self {
                value as Self
            }
        })*
    };
}

numbers!(c_int, isize, i64);

/// Exported functions of C: each body runs as a [`control`] call of this name, and gives its
/// [`Outcome`]. Without a value in C, it cannot fail.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident $arguments:tt $(-> $value:ty)? $body:block)*) => {
        $crate::call::operations! {
            $($(#[$doc])* fn $name $arguments $(-> $value)? $body)*
        }
        $crate::export::export!($($name),*);
    };
}

/// As [`calls`], [`waiting`]; these unwind when cancelled.
macro_rules! waiting_calls {
    ($($(#[$doc:meta])* fn $name:ident $arguments:tt -> $value:ty $body:block)*) => {
        $($crate::call::c_function! {
            waiting "C-unwind" $(#[$doc])* $name $arguments -> $value $body
        })*
        $crate::export::export!($($name),*);
    };
}

/// As [`calls`], reached through pointers to functions: inline functions of the headers have these
/// names.
macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident $arguments:tt $(-> $value:ty)? $body:block)*) => {
        $($crate::call::c_function! {
            control "C" $(#[$doc])* $name $arguments $(-> $value)? $body
        })*
    };
}

macro_rules! c_function {
    (
        $layer:ident $abi:tt $(#[$doc:meta])*
        $name:ident($($argument:tt: $type:ty),* $(,)?) -> $value:ty $body:block
    ) => {
        $(#[$doc])*
        pub(crate) unsafe extern $abi fn $name($($argument: $type),*) -> $value {
            $crate::call::$layer($crate::call::CallId::$name, || -> $crate::errno::Result<_> {
                $body
            })
        }
    };
    (
        control $abi:tt $(#[$doc:meta])*
        $name:ident($($argument:tt: $type:ty),* $(,)?) $body:block
    ) => {
        $(#[$doc])*
        pub(crate) unsafe extern $abi fn $name($($argument: $type),*) {
            let _call = roce_provider::calls::Call::begin();
            $body
        }
    };
}

pub(crate) use {c_function, calls, operations, waiting_calls};

/// Runs a call. A fork waits for its end or [`pause`](roce_provider::calls).
pub(crate) fn control<T: Outcome>(id: CallId, work: impl FnOnce() -> Result<T>) -> T::C {
    waiting(id, || {
        let _call = Call::begin();
        work()
    })
}

/// Destroys an object after `prepare`.
///
/// # Safety
/// As for [`Object::from_raw`].
pub(crate) unsafe fn destroy<T: Object>(
    pointer: *mut T::C,
    prepare: impl FnOnce(&T) -> Result<()>,
) -> Result<()> {
    prepare(T::get(pointer)?)?;
    drop(T::from_raw(pointer));
    Ok(())
}

/// Runs a call that may sleep, or be cancelled, between [`Call`]s.
pub(crate) fn waiting<T: Outcome>(id: CallId, work: impl FnOnce() -> Result<T>) -> T::C {
    let (_scope, verdict) = if hooks::are_on() { begin(id) } else { (None, Ok(())) };
    finish(id, verdict.and_then(|()| work()))
}

/// Runs a data-path call, which delays forks only under checks.
#[inline]
pub(crate) fn data<T: Outcome>(id: CallId, work: impl FnOnce(DataCall) -> Result<T>) -> T::C {
    // a copy without checks
    let result = match hooks::are_on() {
        false => work(DataCall { id, is_checked: false }),
        true => hooked(id, work),
    };
    finish(id, result)
}

#[cold]
#[inline(never)]
fn hooked<T>(id: CallId, work: impl FnOnce(DataCall) -> Result<T>) -> Result<T> {
    let (_scope, verdict) = begin(id);
    verdict?;
    let is_checked = check::is_on();
    let _call = is_checked.then(Call::begin); // recording takes locks
    work(DataCall { id, is_checked })
}

#[derive(Clone, Copy)]
pub(crate) struct DataCall {
    pub(crate) id: CallId,
    pub(crate) is_checked: bool,
}

impl DataCall {
    /// [Trusts](Object::trust) the pointer. Under checks, a destroyed object gives `EINVAL`.
    ///
    /// # Safety
    /// As for [`Object::trust`].
    pub(crate) unsafe fn object<'a, T: Object>(self, pointer: *const T::C) -> Result<&'a T> {
        if self.is_checked && records::used(pointer.addr(), self.id.name()) {
            return Err(Errno::plain(libc::EINVAL));
        }
        T::trust(pointer)
    }
}

/// State of the checks during a call.
type Scope = (Option<python::Entered>, records::Calling);

#[cold]
fn begin(id: CallId) -> (Option<Scope>, Result<()>) {
    (Some((python::enter(Some(id)), records::calling(id.name()))), verdict(id))
}

/// The injected error.
#[cold]
fn verdict(id: CallId) -> Result<()> {
    match fault::decide(id) {
        None => Ok(()),
        Some((number, reason)) => Err(Errno::because(number, reason)),
    }
}

#[inline]
fn finish<T: Outcome>(id: CallId, result: Result<T>) -> T::C {
    match result {
        Ok(done) => done.done(),
        Err(error) => T::failed(failure(id, &error)),
    }
}

#[cold]
fn failure(id: CallId, error: &Errno) -> isize {
    fail(id.name(), error);
    id.failing().failure.value(error.number())
}

#[cold]
pub(crate) fn fail(call: &str, error: &Errno) {
    let _call = Call::begin();
    if error.is_missing_object() {
        records::refused(call);
    }
    error.explain(call);
    errno::set(error.number());
}
