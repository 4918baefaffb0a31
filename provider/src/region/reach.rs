//! Checks that memory exists, unchanged.

#![allow(unsafe_code, reason = "madvise of memory that is not ours")]

use std::{fs, io, ops::Range};

/// Longest range to populate, as pinning would; gigabytes take seconds.
const POPULATED: usize = 4 << 20;

/// Else returns the first bad address, as far as known.
pub(super) fn check(range: Range<usize>, write: bool) -> Result<(), usize> {
    let check = if range.len() <= POPULATED { populate_or_check } else { check_mappings };
    check(range, write)
}

/// Populates a range where possible; errors as for [`check`].
pub(super) fn populate_or_check(range: Range<usize>, write: bool) -> Result<(), usize> {
    if range.is_empty() {
        return Ok(());
    }
    populate(&range, write).or_else(|_| check_mappings(range, write))
}

fn check_mappings(range: Range<usize>, write: bool) -> Result<(), usize> {
    match fs::read_to_string("/proc/self/maps") {
        Ok(maps) => check_maps(&maps, range, write),
        Err(_) => match populate(&range, write) {
            // an old system without /proc: requests will fail
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            Err(_) => Err(range.start),
            Ok(()) => Ok(()),
        },
    }
}

fn populate(range: &Range<usize>, write: bool) -> io::Result<()> {
    let start = range.start - range.start % rustix::param::page_size();
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: populating changes no byte
    let result = unsafe { libc::madvise(start as *mut libc::c_void, range.end - start, advice) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Checks a range against `/proc/self/maps`, which is sorted.
fn check_maps(maps: &str, range: Range<usize>, write: bool) -> Result<(), usize> {
    let mut at = range.start;
    for Mapping { area, readable, writable, of_file } in maps.lines().filter_map(Mapping::parse) {
        if area.end <= at {
            continue;
        }
        if area.start > at || !readable || write && !writable {
            return Err(at);
        }
        let end = area.end.min(range.end);
        // a file shorter than the mapping lacks its end
        if of_file
            && populate(&(end - 1..end), false)
                .is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT))
        {
            return Err(end - 1);
        }
        at = end;
        if at == range.end {
            return Ok(());
        }
    }
    Err(at)
}

struct Mapping {
    area: Range<usize>,
    readable: bool,
    writable: bool,
    of_file: bool,
}

impl Mapping {
    /// Parses `start-end rwxp offset device inode path`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?;
        let inode = fields.nth(2)?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(Self {
            area: number(start)?..number(end)?,
            readable: rights.starts_with('r'),
            writable: rights.as_bytes().get(1) == Some(&b'w'),
            of_file: inode != "0",
        })
    }
}
