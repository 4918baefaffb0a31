use std::io;

use rustix::io::Errno;

use roce_provider::cm::{CmError, CmEvent, EventKind, Status};

pub(super) fn of_cm(error: &CmError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

pub(super) fn of_system(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

pub(super) fn reason(event: &CmEvent) -> Errno {
    match (event.kind(), event.status()) {
        (EventKind::Rejected, _) => Errno::CONNREFUSED,
        (_, Status::Errno(errno)) => Errno::from_raw_os_error(errno),
        // accepted, but by no rsocket
        (EventKind::Established, _) => Errno::PROTO,
        _ => Errno::CONNRESET,
    }
}
