//! Errors as numbers of `errno.h`.

use libc::c_int;
use roce_provider::{
    OpenError, RegionError, Unreachable,
    cm::CmError,
    link::BindError,
    transport::{
        adapter::ObjectError,
        mem::{MemoryFault, RegisterError},
        qp::{ModifyError, PostError},
        work::SrqError,
    },
};

/// One of `errno.h`, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVAL: Self = Self(libc::EINVAL);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const NOMEM: Self = Self(libc::ENOMEM);
    pub(crate) const NOTSUPP: Self = Self(libc::EOPNOTSUPP);

    /// What the system's last call in this thread has said.
    pub(crate) fn last() -> Self {
        std::io::Error::last_os_error().into()
    }
}

pub(crate) type Result<T, E = Errno> = std::result::Result<T, E>;

/// For calls that return 0 or an error's number. Callers look at `errno` too.
pub(crate) fn status(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Errno(errno)) => {
            set(errno);
            errno
        }
    }
}

/// For calls that return 0, or -1 with the error in `errno`.
pub(crate) fn minus_one(result: Result<()>) -> c_int {
    if status(result) == 0 { 0 } else { -1 }
}

/// For calls that return a number, or -1 with the error in `errno`.
pub(crate) fn value<T: From<i8>>(result: Result<T>) -> T {
    result.unwrap_or_else(|Errno(errno)| {
        set(errno);
        T::from(-1)
    })
}

/// For calls that return a pointer, or null with the error in `errno`.
pub(crate) fn pointer<T>(result: Result<*mut T>) -> *mut T {
    result.unwrap_or_else(|Errno(errno)| {
        set(errno);
        std::ptr::null_mut()
    })
}

pub(crate) fn set(errno: c_int) {
    // SAFETY: The place is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

impl From<ObjectError> for Errno {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::TooMany { .. } => Self::NOMEM,
            ObjectError::InUse => Self::BUSY,
            _ => Self::INVAL,
        }
    }
}

impl From<OpenError> for Errno {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NoSuchDevice(_) => Self(libc::ENODEV),
            OpenError::NoAddress(_) | OpenError::MtuTooSmall { .. } => Self::INVAL,
            OpenError::Bind(
                BindError::Taken(_) | BindError::Stopped { .. } | BindError::LoopbackFull,
            ) => Self(libc::EADDRINUSE),
            OpenError::Bind(BindError::NotLocal(_)) => Self(libc::EADDRNOTAVAIL),
            OpenError::Bind(BindError::System { source, .. })
            | OpenError::Capture { source, .. }
            | OpenError::System(source) => source.into(),
            _ => Self(libc::EIO),
        }
    }
}

impl From<RegisterError> for Errno {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::TooMany(_) => Self::NOMEM,
            RegisterError::InUse => Self::BUSY,
            _ => Self::INVAL,
        }
    }
}

impl From<RegionError> for Errno {
    fn from(error: RegionError) -> Self {
        match error {
            RegionError::Memory(source) => source.into(),
            RegionError::Register(error) => error.into(),
            RegionError::Unreachable(_) => Self(libc::EFAULT),
            _ => Self::INVAL,
        }
    }
}

impl From<Unreachable> for Errno {
    fn from(_: Unreachable) -> Self {
        Self(libc::EFAULT)
    }
}

impl From<MemoryFault> for Errno {
    fn from(_: MemoryFault) -> Self {
        Self(libc::EFAULT)
    }
}

impl From<ModifyError> for Errno {
    fn from(error: ModifyError) -> Self {
        if matches!(error, ModifyError::NotSupported(_)) { Self::NOTSUPP } else { Self::INVAL }
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Self {
        if matches!(error, PostError::QueueFull) { Self::NOMEM } else { Self::INVAL }
    }
}

impl From<CmError> for Errno {
    fn from(error: CmError) -> Self {
        Self(error.errno())
    }
}

impl From<SrqError> for Errno {
    fn from(_: SrqError) -> Self {
        Self::INVAL
    }
}
