use std::{
    ffi::{CStr, c_void},
    fs,
    ops::Range,
    path::Path,
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
    let own = caller as fn() -> String as usize;
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let found = maps.lines().filter_map(range).find(|range| range.contains(&own));
    // linked statically, every address would be this library's
    found.filter(|_| module(own).0.contains(".so")).unwrap_or(0..0)
});

/// Addresses of a line `start-end rwxp offset device inode path`.
pub(crate) fn range(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

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
