//! `riomap`, `riowrite`.

use libc::{iovec, off_t};
use roce_provider::transport::mem::Access;

use super::{
    iovec::Cursor,
    wait::{Blocking, transfer, until},
};
use crate::prelude::*;

waiting_calls!(
    /// The offset is the address by default.
    fn riomap(
        fd: c_int,
        at: *mut c_void,
        length: usize,
        prot: c_int,
        _flags: c_int,
        offset: off_t,
    ) -> off_t {
        let is_wrong = length == 0 || prot & !libc::PROT_WRITE != 0 || offset < -1;
        refuse_if(is_wrong, Rule::SocketArgument)?;
        let offset = if offset == -1 { at.addr() as off_t } else { offset };
        let is_remote = prot & libc::PROT_WRITE != 0;
        let rights =
            if is_remote { Access::LOCAL_WRITE | Access::REMOTE_WRITE } else { Access::empty() };
        until(fd, Blocking::AtMost(None), |entry| {
            let domain = entry.socket.domain()?;
            let region = domain.register_raw(at.cast(), length, at.addr() as u64, rights)?;
            entry.socket.map(&region, at.addr(), is_remote.then_some(offset.cast_unsigned()))?;
            Ok(offset)
        })
    }

    fn riounmap(fd: c_int, at: *mut c_void, length: usize) -> c_int {
        until(fd, Blocking::AtMost(None), |entry| Ok(entry.socket.unmap(at.addr(), length)?))
    }

    /// In C it returns `size_t`, all ones on error.
    fn riowrite(fd: c_int, at: *const c_void, length: usize, offset: off_t, flags: c_int) -> isize {
        let piece = iovec { iov_base: at.cast_mut(), iov_len: length };
        let all = Cursor::new(&raw const piece, 1)?;
        let start = u64::try_from(offset).map_err(|_| Rule::SocketArgument)?;
        transfer(fd, Blocking::Sending.with(flags), all, false, |entry, next, written| {
            let to = start.wrapping_add(written as u64);
            Ok(entry.socket.write_mapped(all.1 - written, to, &mut |to| next.read(to))?)
        })
    }
);
