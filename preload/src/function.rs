//! Functions of other libraries, found by name.

use std::{
    cell::Cell,
    ffi::{CStr, c_void},
    mem, ptr,
    sync::{
        OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
};

/// Where a function is looked for.
#[derive(Clone, Copy)]
pub(crate) enum Library {
    /// Behind this library, in the order of the dynamic linker: the C library's.
    Next,
    Rdmacm,
}

thread_local! {
    /// True while this thread is in librdmacm, whose own calls are the C library's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// True if a call comes from librdmacm.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Calls a function of a library. A thread that is cancelled meanwhile makes no calls any more that
/// matter.
pub(crate) fn call<R>(library: Library, function: impl FnOnce() -> R) -> R {
    let before = INSIDE.replace(matches!(library, Library::Rdmacm) || is_inside());
    let result = function();
    INSIDE.set(before);
    result
}

/// librdmacm; null if there is none.
fn rdmacm() -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // SAFETY: A name that ends; it stays loaded.
        unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
            .expose_provenance()
    });
    ptr::with_exposed_provenance_mut(*library)
}

/// A function that is looked for when it is first called.
pub(crate) struct Function {
    name: &'static CStr,
    library: Library,
    found: AtomicPtr<c_void>,
}

impl Function {
    pub(crate) const fn new(name: &'static CStr, library: Library) -> Self {
        Self { name, library, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address; null if it is nowhere.
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
        // SAFETY: A library that is loaded, and a name that ends.
        let found = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        self.found.store(found, Ordering::Release);
        found
    }

    /// The function.
    ///
    /// # Safety
    /// `F` is a pointer to a function of this kind.
    pub(crate) unsafe fn get<F: Copy>(&self) -> F {
        let address = self.address();
        assert!(!address.is_null(), "{:?} is in no library", self.name);
        // SAFETY: By the contract; both are pointers.
        unsafe { mem::transmute_copy(&address) }
    }
}

/// Functions of a library, declared as in C. They may unwind: some are cancellation points.
macro_rules! functions {
    ($library:ident; $(fn $name:ident($($argument:ident: $kind:ty),*) -> $returns:ty;)*) => {
        $(
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $returns {
                static FUNCTION: $crate::function::Function = $crate::function::Function::new(
                    // SAFETY: It ends with a zero, and has none inside.
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

pub(crate) use functions;
