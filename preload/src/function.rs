//! Functions of other libraries, by name.

use std::{
    cell::Cell,
    ffi::{CStr, c_void},
    mem, ptr,
    sync::{
        OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
};

#[derive(Clone, Copy)]
pub(crate) enum Library {
    /// The C library, next in the dynamic linker's order.
    Next,
    Rdmacm,
}

thread_local! {
    /// True inside librdmacm, whose calls go to the C library.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// A cancelled thread's flag no longer matters.
pub(crate) fn call<R>(library: Library, function: impl FnOnce() -> R) -> R {
    let before = INSIDE.replace(matches!(library, Library::Rdmacm) || is_inside());
    let result = function();
    INSIDE.set(before);
    result
}

/// librdmacm, or null.
fn rdmacm() -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // SAFETY: A C string; the library stays loaded.
        unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
            .expose_provenance()
    });
    ptr::with_exposed_provenance_mut(*library)
}

/// Resolved on first call.
pub(crate) struct Function {
    name: &'static CStr,
    library: Library,
    found: AtomicPtr<c_void>,
}

impl Function {
    pub(crate) const fn new(name: &'static CStr, library: Library) -> Self {
        Self { name, library, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Null if missing.
    pub(crate) fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Acquire);
        if !found.is_null() {
            return found;
        }
        let library = match self.library {
            Library::Next => libc::RTLD_NEXT,
            Library::Rdmacm => rdmacm(),
        };
        if library.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: A loaded library, and a C string.
        let found = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        self.found.store(found, Ordering::Release);
        found
    }

    /// # Safety
    /// `F` is the function's pointer type.
    pub(crate) unsafe fn get<F: Copy>(&self) -> F {
        let address = self.address();
        assert!(!address.is_null(), "{:?} is in no library", self.name);
        // SAFETY: By the contract; both are pointers.
        unsafe { mem::transmute_copy(&address) }
    }
}

/// Some are cancellation points, and unwind.
macro_rules! functions {
    ($library:ident; $(fn $name:ident($($argument:ident: $kind:ty),*) -> $returns:ty;)*) => {
        $(
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $returns {
                static FUNCTION: $crate::function::Function = $crate::function::Function::new(
                    // SAFETY: `concat!` adds the only zero.
                    unsafe {
                        std::ffi::CStr::from_bytes_with_nul_unchecked(
                            concat!(stringify!($name), "\0").as_bytes(),
                        )
                    },
                    $crate::function::Library::$library,
                );
                let function: unsafe extern "C-unwind" fn($($kind),*) -> $returns = FUNCTION.get();
                $crate::function::call($crate::function::Library::$library, || {
                    function($($argument),*)
                })
            }
        )*
    };
}

/// Functions of the C library that this library replaces. Some are cancellation points, and unwind.
macro_rules! replaced {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $returns:ty $body:block
    )*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $returns $body
        )*
    };
}

pub(crate) use {functions, replaced};
