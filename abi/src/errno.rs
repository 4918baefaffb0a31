use libc::c_int;
use roce_provider::{
    AttachError, DeviceMemoryError, FlowError, OpenError, QueuePair, RegionError, Unreachable,
    cm::CmError,
    errnos,
    link::BindError,
    transport::{
        adapter::{McastError, ObjectError},
        explain::{Explain, Reason},
        mem::{MemoryFault, RegisterError},
        qp::{ModifyError, PostError},
        work::SrqError,
    },
};

use crate::{adapter, rule::Rule};

/// A nonzero `errno`, and its cause.
#[derive(Clone, Debug)]
pub(crate) struct Errno {
    number: c_int,
    why: Why,
}

#[derive(Clone, Debug)]
enum Why {
    /// No failure (`EAGAIN`), or explained.
    Plain,
    System,
    Rule(Rule),
    Reason(Box<Reason>),
}

impl Errno {
    pub(crate) const fn of(rule: Rule) -> Self {
        Self { number: rule.errno().0, why: Why::Rule(rule) }
    }

    pub(crate) const fn plain(number: c_int) -> Self {
        Self { number, why: Why::Plain }
    }

    pub(crate) fn because(number: c_int, reason: Reason) -> Self {
        Self { number, why: Why::Reason(Box::new(reason)) }
    }

    pub(crate) fn last() -> Self {
        std::io::Error::last_os_error().into()
    }

    pub(crate) const fn number(&self) -> c_int {
        self.number
    }

    pub(crate) fn on(self, qp: &QueuePair, call: &str) -> Self {
        if !matches!(self.why, Why::Plain) {
            qp.explain_call(call, || self.reason());
        }
        Self::plain(self.number)
    }

    pub(crate) fn explained(error: &impl Explain) -> Self {
        Self::plain(errnos::of(error))
    }

    fn reason(&self) -> Reason {
        match &self.why {
            Why::Plain | Why::System => of_system(self.number),
            Why::Rule(rule) => rule.explain(),
            Why::Reason(reason) => (**reason).clone(),
        }
    }

    pub(crate) const fn is_missing_object(&self) -> bool {
        matches!(self.why, Why::Rule(Rule::NoSuchObject | Rule::NothingToWaitFor))
    }

    /// No-op unless configured.
    #[cold]
    pub(crate) fn explain(&self, call: &str) {
        let is_failure = match self.why {
            Why::Plain => false,
            Why::System => !NO_FAILURES.contains(&self.number),
            Why::Rule(_) | Why::Reason(_) => true,
        };
        if is_failure {
            roce_provider::explain_call(call, || self.reason());
        }
    }
}

impl PartialEq for Errno {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// The program retries or continues.
const NO_FAILURES: [c_int; 5] =
    [libc::EAGAIN, libc::EINTR, libc::EINPROGRESS, libc::EALREADY, libc::EISCONN];

fn of_system(number: c_int) -> Reason {
    let advice = match number {
        libc::EMFILE | libc::ENFILE => "no descriptors are left: `ulimit -n`",
        libc::ENOMEM => "no memory is left: `ulimit -v`, memory of the host",
        libc::EACCES | libc::EPERM => "the process lacks permission: check its user and sandbox",
        libc::EBADF => "the descriptor is not open",
        libc::ENETUNREACH | libc::EHOSTUNREACH => "no route: `ip route get ADDRESS`",
        libc::ECONNREFUSED => "nothing listens at the peer's address and port",
        libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN => "the peer closed the connection",
        libc::ETIMEDOUT => "the peer does not respond",
        libc::EADDRINUSE => "another program uses the address and port: `ss -anp`",
        libc::EADDRNOTAVAIL => "this host does not have the address: `ip address`",
        _ => "the system refuses an operation of the call; errno(3) says more",
    };
    let error = std::io::Error::from_raw_os_error(number);
    Reason::new("system", &error, advice).with_errno(errnos::name(number))
}

pub(crate) type Result<T, E = Errno> = std::result::Result<T, E>;

/// Fails by `rule` if `refused`.
#[inline]
pub(crate) fn refuse_if(refused: bool, rule: Rule) -> Result<()> {
    if refused { Err(Errno::of(rule)) } else { Ok(()) }
}

pub(crate) fn set(errno: c_int) {
    // SAFETY: `errno` is thread-local.
    unsafe { *libc::__errno_location() = errno };
}

macro_rules! from_errors {
    ($($error:ty, $name:pat => $errno:expr;)*) => {
        $(
            impl From<$error> for Errno {
                fn from($name: $error) -> Self {
                    $errno
                }
            }
        )*
    };
}

from_errors! {
    Rule, rule => Self::of(rule);
    std::io::Error, error =>
        Self { number: error.raw_os_error().unwrap_or(libc::EIO), why: Why::System };
    rustix::io::Errno, error => Self { number: error.raw_os_error(), why: Why::System };
    McastError, error => Self::explained(&error);
    ModifyError, error => Self::explained(&error);
    SrqError, error => Self::explained(&error);
    // inline data and copies
    MemoryFault, _ => Self::of(Rule::Unmapped);
    Unreachable, _ => Self::of(Rule::Unmapped);
    ObjectError, error => match error {
        ObjectError::TooMany { limit, .. } => Self::plain(adapter::too_many(limit)),
        ObjectError::Size { .. } => Self::plain(adapter::size()),
        error => Self::explained(&error),
    };
    RegisterError, error => match error {
        RegisterError::TooMany(limit) => Self::plain(adapter::too_many(limit)),
        error => Self::explained(&error),
    };
    RegionError, error => match error {
        RegionError::Memory(source) => Self::plain(Self::from(source).number),
        RegionError::Register(error) => error.into(),
        error => Self::explained(&error),
    };
    DeviceMemoryError, error => match error {
        DeviceMemoryError::Region(error) => error.into(),
        DeviceMemoryError::Missing => Self::plain(adapter::too_many(0)),
        DeviceMemoryError::Size { length: 1.., limit, .. } => Self::plain(adapter::too_many(limit)),
        error => Self::explained(&error),
    };
    FlowError, error => match error {
        FlowError::Interface(source) => Self::plain(Self::from(source).number),
        error => Self::explained(&error),
    };
    AttachError, error => match error {
        AttachError::Join { source, .. } => source.into(),
        error => Self::explained(&error),
    };
    PostError, error => Self::plain(match error {
        PostError::QueueFull | PostError::QueueOfZero => libc::ENOMEM,
        _ => libc::EINVAL,
    });
}

impl From<OpenError> for Errno {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NoSuchDevice(_) => Self::plain(libc::ENODEV),
            OpenError::NoAddress(_) | OpenError::MtuTooSmall { .. } => Self::plain(libc::EINVAL),
            OpenError::Bind(
                BindError::Taken(_)
                | BindError::OtherUser { .. }
                | BindError::Stopped { .. }
                | BindError::Full(_)
                | BindError::Service { .. }
                | BindError::LoopbackFull
                | BindError::NoLoopbackLeft { .. },
            ) => Self::plain(libc::EADDRINUSE),
            OpenError::Bind(BindError::NotLocal(_) | BindError::LoopbackDown) => {
                Self::plain(libc::EADDRNOTAVAIL)
            }
            OpenError::Bind(BindError::NoIpv6 { .. }) => Self::plain(libc::EAFNOSUPPORT),
            OpenError::Bind(
                BindError::System { source, .. } | BindError::NoDoor { source, .. },
            )
            | OpenError::Capture { source, .. }
            | OpenError::System(source) => Self::plain(Self::from(source).number),
            _ => Self::plain(libc::EIO),
        }
    }
}

impl From<CmError> for Errno {
    fn from(error: CmError) -> Self {
        use CmError::{Modify, Object, Post, Region};
        let number = error.errno();
        match error {
            Object(_) | Modify(_) | Region(_) | Post(_) | CmError::Failed { .. } => {
                Self::plain(number) // by the device
            }
            error => Self::because(number, error.explain()),
        }
    }
}

#[cfg(test)]
mod tests {
    use roce_provider::{
        AttachError, RegionError,
        transport::{
            adapter::{AcceptError, ObjectKind, ObjectMismatch, ObjectSize},
            addr::{Gid, Mtu},
            cm::ConnError,
            qp::{Attribute, CountError, QpType, State},
        },
    };

    use super::*;

    #[track_caller]
    fn assert_same<E: Explain + Into<Errno>>(errors: impl IntoIterator<Item = E>) {
        for error in errors {
            let reason = error.explain();
            let name = reason.errno.unwrap_or_else(|| panic!("{reason:?}"));
            assert_eq!(Some(error.into().number()), errnos::number(name), "{reason:?}");
        }
    }

    #[test]
    fn explanations_name_the_number_that_the_call_gives() {
        let (qp_type, from, to) = (QpType::Rc, State::Reset, State::Rts);
        let what = ObjectSize::MaxSendSge;
        assert_same([
            ObjectError::TooMany { what: ObjectKind::QueuePair, limit: 1 },
            ObjectError::Size { what, least: 1, limit: 2 },
            ObjectError::Held(1),
            ObjectError::Overrun,
            ObjectError::GidIndex(1),
            ObjectError::RoceV1(0),
            ObjectError::Unknown,
            ObjectError::Mismatch(ObjectMismatch::XrcSrq),
            ObjectError::InUse,
        ]);
        let attribute = Attribute::Timeout;
        assert_same([
            ModifyError::UnknownQp,
            ModifyError::IllegalTransition { qp_type, from, to },
            ModifyError::StillDraining,
            ModifyError::WrongService(qp_type),
            ModifyError::CqOverrun,
            ModifyError::PKeyIndex(1),
            ModifyError::NotTaken { attribute, qp_type, from, to },
            ModifyError::NotSupported(Attribute::AltPath),
            ModifyError::OtherState(State::Err),
            ModifyError::MulticastPeer(Gid::default()),
            ModifyError::GidIndex(1),
            ModifyError::RoceV1(0),
            ModifyError::PathMtu { asked: Mtu::B4096, port: Mtu::B1024 },
            ModifyError::Range { attribute, limit: 31 },
        ]);
        assert_same([
            PostError::UnknownQp,
            PostError::State(State::Reset),
            PostError::UnknownSrq,
            PostError::SharedQueue,
            PostError::NoSuchQueue(qp_type),
            PostError::RemoteSrq,
            PostError::QueueFull,
            PostError::QueueOfZero,
            PostError::TooManySges { limit: 1 },
            PostError::TooManyReadSges { limit: 1 },
            PostError::NoAtomics,
            PostError::InlineTooLong { limit: 1 },
            PostError::InlineRead,
            PostError::NoBytes,
            PostError::TooLong,
            PostError::WrongOperation(qp_type),
        ]);
        let registering = [
            RegisterError::UnknownPd,
            RegisterError::RemoteWithoutLocalWrite,
            RegisterError::NotPersistent,
            RegisterError::AddressOverflow,
            RegisterError::TooMany(1),
            RegisterError::Deregistered,
            RegisterError::InUse,
        ];
        assert_same(registering);
        assert_same(registering.map(RegionError::Register));
        let unreachable = Unreachable { address: 1, write: true };
        assert_same([unreachable]);
        assert_same([RegionError::Unreachable(unreachable)]);
        assert_same([
            SrqError::UnknownSrq,
            SrqError::Size(1),
            SrqError::Posted(1),
            SrqError::Limit(1),
        ]);
        let groups = [
            McastError::UnknownQp,
            McastError::WrongService(qp_type),
            McastError::NotMulticast(Gid::default()),
            McastError::TooManyGroups { limit: 1 },
            McastError::TooManyMembers { limit: 1 },
            McastError::NotAttached(Gid::default()),
        ];
        assert_same(groups);
        assert_same(groups.map(AttachError::Adapter));
        let connecting = [
            ConnError::Unknown,
            ConnError::InUse,
            ConnError::PrivateData(1),
            ConnError::TooMany(1),
            ConnError::OwnId,
            ConnError::NoRoute,
        ];
        assert_same(connecting.map(CmError::from));
        assert_same(connecting.map(|error| CmError::from(AcceptError::Connection(error))));
        assert_same([
            CmError::NoDevice,
            CmError::NoQueuePair,
            CmError::HasQueuePair,
            CmError::PortInUse(1),
            CmError::PortOverlap(1),
            CmError::PortPrivileged(1),
            CmError::NoPort,
            CmError::WrongService(qp_type),
            CmError::NoListenDevice(String::new()),
        ]);
        assert_eq!(CountError::Counted.explain().errno, Some("EBUSY"));
    }

    #[test]
    fn what_goes_on_is_no_failure() {
        for number in NO_FAILURES {
            let error = Errno::from(std::io::Error::from_raw_os_error(number));
            assert_eq!((error.number(), Errno::plain(number) == error), (number, true));
        }
        assert_eq!(of_system(libc::EMFILE).errno, Some("EMFILE"));
    }
}
