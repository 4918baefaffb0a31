//! Values of `errno.h`, by name and error.

use libc::c_int;
use roce_transport::explain::Explain;

macro_rules! numbers {
    ($($name:ident)*) => {
        const NUMBERS: &[(&str, c_int)] = &[$((stringify!($name), libc::$name),)*];
    };
}

numbers! {
    E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF EBUSY ECANCELED
    ECONNABORTED ECONNREFUSED ECONNRESET EDESTADDRREQ EEXIST EFAULT EFBIG EHOSTDOWN EHOSTUNREACH
    EINPROGRESS EINTR EINVAL EIO EISCONN EMFILE EMSGSIZE ENETDOWN ENETRESET ENETUNREACH ENFILE
    ENOBUFS ENODATA ENODEV ENOENT ENOMEM ENOPROTOOPT ENOSPC ENOSYS ENOTCONN ENOTSUP ENOTTY ENXIO
    EOPNOTSUPP EOVERFLOW EPERM EPIPE EPROTO EPROTONOSUPPORT EPROTOTYPE ERANGE EREMOTEIO ESTALE
    ETIME ETIMEDOUT EWOULDBLOCK EXDEV
}

/// Number of a name.
#[must_use]
pub fn number(name: &str) -> Option<c_int> {
    NUMBERS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, number)| *number)
}

/// Errno of an error's explanation.
#[must_use]
pub fn of(error: &impl Explain) -> c_int {
    error.explain().errno.and_then(number).unwrap_or(libc::EINVAL)
}

/// Name of a number.
#[must_use]
pub fn name(number: c_int) -> &'static str {
    NUMBERS.iter().find(|(_, known)| *known == number).map_or("errno", |(name, _)| name)
}
