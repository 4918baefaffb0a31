//! `ldconfig` lists a library by its SONAME, or without SONAME by the names of its files and links.
//! This library needs two names: libibverbs.so.1 and librdmacm.so.1.

use std::ops::Range;

use crate::Failure;

const PT_DYNAMIC: u64 = 2;
const DT_NULL: u64 = 0;
const DT_SONAME: u64 = 14;
/// Tag and value.
const ENTRY: usize = 16;

/// Removes DT_SONAME from a 64-bit ELF file.
pub(crate) fn without(mut file: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let broken = "the library is no ELF file as it should be";
    let dynamic = dynamic(&file).ok_or(broken)?;
    let entries = file.get_mut(dynamic).ok_or(broken)?;
    let tag = |entry: &[u8]| number(entry, 0, 8);
    let at = entries.chunks(ENTRY).position(|entry| tag(entry) == Some(DT_SONAME));
    let end = entries.chunks(ENTRY).position(|entry| tag(entry) == Some(DT_NULL)).ok_or(broken)?;
    if let Some(at) = at.filter(|at| *at < end) {
        // Later entries move up.
        entries.copy_within((at + 1) * ENTRY..(end + 1) * ENTRY, at * ENTRY);
    }
    Ok(file)
}

fn dynamic(file: &[u8]) -> Option<Range<usize>> {
    let (table, size, count) = (number(file, 32, 8)?, number(file, 54, 2)?, number(file, 56, 2)?);
    let mut headers = (0..count).map(|index| table.checked_add(index * size));
    let header = headers.find_map(|header| {
        let header = usize::try_from(header?).ok()?;
        (number(file, header, 4)? == PT_DYNAMIC).then_some(header)
    })?;
    let start = usize::try_from(number(file, header + 8, 8)?).ok()?;
    let length = usize::try_from(number(file, header + 32, 8)?).ok()?;
    Some(start..start.checked_add(length)?)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dynamic section of these tags, each valued by position.
    fn file(tags: &[u64]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[32] = 64; // program headers: offset, size, number
        file[54] = 56;
        file[56] = 1;
        file[64] = 2;
        file[64 + 8] = 120;
        file[64 + 32] = u8::try_from(tags.len() * ENTRY).unwrap();
        for (position, tag) in tags.iter().enumerate() {
            file.extend(tag.to_le_bytes());
            file.extend((position as u64).to_le_bytes());
        }
        file
    }

    #[test]
    fn the_name_goes_and_all_else_stays() {
        let found = without(file(&[1, DT_SONAME, 5, DT_NULL, DT_NULL])).unwrap();
        let entries: Vec<_> = found[120..]
            .chunks(ENTRY)
            .map(|entry| (number(entry, 0, 8).unwrap(), number(entry, 8, 8).unwrap()))
            .collect();
        assert_eq!(entries, [(1, 0), (5, 2), (DT_NULL, 3), (DT_NULL, 3), (DT_NULL, 4)]);
        assert_eq!(without(file(&[1, DT_NULL])).unwrap(), file(&[1, DT_NULL]));
    }

    #[test]
    fn what_is_no_library_is_refused() {
        assert!(without(Vec::new()).is_err() && without(file(&[1, DT_SONAME])).is_err());
    }
}
