use std::{ffi::c_int, time::Duration};

use roce_provider::calls::Call;

use super::{
    instance, table,
    wait::{Blocking, WOULD_BLOCK, until},
};
use crate::{
    call::{self, CallId},
    errno::{Errno, Result},
    export::export,
    rule::Rule,
};

unsafe extern "C" fn rshutdown(fd: c_int, how: c_int) -> c_int {
    call::control(CallId::rshutdown, || {
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::of(Rule::SocketArgument)),
        };
        Ok(table::find(fd)?.socket.shutdown(read, write)?)
    })
}

/// Shuts down; returns the time to deliver sent data. `None`: until done, or the peer is lost.
fn begin(fd: c_int) -> Result<Option<Duration>> {
    let _call = Call::begin();
    let entry = table::find(fd)?;
    let (on, seconds) = entry.options.lock().linger;
    let _ = entry.socket.shutdown(true, true); // may be unconnected
    Ok(on.then(|| Duration::from_secs(seconds.into())))
}

fn end(fd: c_int) {
    let _call = Call::begin();
    drop(table::remove(fd));
}

/// An rsocket or an instance of `repoll_create`; else `EBADF`.
unsafe extern "C-unwind" fn rclose(fd: c_int) -> c_int {
    call::waiting(CallId::rclose, || {
        let Ok(limit) = begin(fd) else { return instance::close(fd) };
        // unsent data is lost after the limit
        let _ = until(fd, Blocking::AtMost(limit), |entry| {
            if entry.socket.is_sent() { Ok(()) } else { Err(WOULD_BLOCK) }
        });
        end(fd);
        Ok(())
    })
}

export!(rshutdown, rclose);
