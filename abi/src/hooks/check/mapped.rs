use std::{
    ffi::{CStr, c_int, c_void},
    ops::Range,
    path::Path,
    ptr,
    sync::LazyLock,
};

pub(super) fn caller() -> String {
    let mut caller = 0;
    backtrace::trace(|frame| {
        caller = frame.ip() as usize;
        OWN.contains(&caller)
    });
    module(caller).0
}

/// Addresses of this library.
pub(super) static OWN: LazyLock<Range<usize>> = LazyLock::new(|| {
    struct Search {
        wanted: usize,
        found: Range<usize>,
    }

    unsafe extern "C" fn look(
        object: *mut libc::dl_phdr_info,
        _: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: The linker passes an object and the search below.
        let (object, search) = unsafe { (&*object, &mut *search.cast::<Search>()) };
        for at in 0..usize::from(object.dlpi_phnum) {
            // SAFETY: `at` is in bounds.
            let part = unsafe { &*object.dlpi_phdr.add(at) };
            let start = object.dlpi_addr as usize + part.p_vaddr as usize;
            let range = start..start + part.p_memsz as usize;
            if part.p_type == libc::PT_LOAD && range.contains(&search.wanted) {
                search.found = range;
                return 1;
            }
        }
        0
    }

    let mut search = Search { wanted: caller as fn() -> String as usize, found: 0..0 };
    // SAFETY: `look` expects a `Search`.
    unsafe { libc::dl_iterate_phdr(Some(look), ptr::from_mut(&mut search).cast()) };
    // linked statically, every address would be this library's
    let is_shared = module(search.wanted).0.contains(".so");
    if is_shared { search.found } else { 0..0 }
});

/// Mapped file and offset.
pub(super) fn module(address: usize) -> (String, usize) {
    // SAFETY: Zeros are valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is writable.
    let known = unsafe { libc::dladdr(address as *const c_void, &raw mut info) } != 0;
    if !known || info.dli_fname.is_null() {
        return ("?".to_owned(), address);
    }
    // SAFETY: The name lives as long as the object is mapped.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    let name = Path::new(&*path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    (name, address.wrapping_sub(info.dli_fbase as usize))
}
