//! Errors of calls.

use std::{io, net::IpAddr};

use roce_transport::{
    adapter::{AcceptError, ObjectError},
    cm::{ConnAttribute, ConnError},
    qp::{ModifyError, QpType},
};
use thiserror::Error;

use super::kind::{EventKind, IdState, Status};
use crate::{
    AttachError, BadWorkRequest, ChannelError, OpenError, RegionError, errnos, link::BindError,
};

/// Refused call. Only [`Failed`](Self::Failed) changes state.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "an error's comment describes its fields")]
pub enum CmError {
    /// Wrong state (`EINVAL`).
    #[error("not possible in state {0:?}")]
    State(IdState),
    /// No device (`EINVAL`).
    #[error("the id has no device; call bind_addr or resolve_addr first")]
    NoDevice,
    /// No queue pair (`EINVAL`).
    #[error("the id has no queue pair; call create_qp first")]
    NoQueuePair,
    /// A queue pair exists (`EINVAL`).
    #[error("the id already has a queue pair; call destroy_qp first")]
    HasQueuePair,
    /// Wrong transport service (`EINVAL`).
    #[error("not possible for {0} queue pairs")]
    WrongService(QpType),
    /// Another id of this process, or a listener at a shared address, has the port (`EADDRINUSE`).
    #[error("port {0} is in use")]
    PortInUse(u16),
    /// The port overlaps a binding to all addresses (`EADDRNOTAVAIL`).
    #[error("port {0} is in use at one of the addresses; choose another port")]
    PortOverlap(u16),
    /// Ports below `net.ipv4.ip_unprivileged_port_start` need `CAP_NET_BIND_SERVICE` (`EACCES`).
    #[error(
        "port {0} is privileged; use a port from 1024, or give the program CAP_NET_BIND_SERVICE"
    )]
    PortPrivileged(u16),
    /// No free ephemeral port (`EADDRNOTAVAIL`).
    #[error("all ephemeral ports (32768 to 60999) are in use; destroy unused ids, or bind a port")]
    NoPort,
    /// Different address families (`EAFNOSUPPORT`).
    #[error("{0} is of another address family than the id's address")]
    Family(IpAddr),
    /// Unsuitable address (`EINVAL`).
    #[error("address {0} is invalid for this call")]
    Address(IpAddr),
    /// The device lacks the address (`EADDRNOTAVAIL`).
    #[error("the device has no address {0}; `roce devinfo` lists its addresses")]
    NotOfDevice(IpAddr),
    /// No device can listen (`ENODEV`).
    #[error("cannot open a device to listen on: {0}")]
    NoListenDevice(String),
    /// The device cannot be opened (`EADDRINUSE` if another program has the address, else
    /// `ENODEV`).
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Too much private data (`EINVAL`).
    #[error("more than {0} bytes of private data")]
    PrivateData(usize),
    /// Number too large (`EINVAL`).
    #[error("{0} is out of range")]
    Range(ConnAttribute),
    /// The protocol refuses.
    #[error(transparent)]
    Protocol(ConnError),
    /// An object cannot be made (`EINVAL`, or `ENOMEM` for too many).
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A queue pair cannot be moved (`EINVAL`).
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// Memory cannot be registered (`ENOMEM`, `EINVAL`).
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A request cannot be posted (`EINVAL`, or `ENOMEM` for a full queue).
    #[error(transparent)]
    Post(#[from] BadWorkRequest),
    /// Not a member of the group (`EADDRNOTAVAIL`).
    #[error("not a member of {0}")]
    NotJoined(IpAddr),
    /// Already a member (`EADDRINUSE`).
    #[error("already a member of {0}")]
    Joined(IpAddr),
    /// Failed operation of an id without a channel: event of the failure, and reason.
    #[error("{event}: {status}")]
    Failed { event: EventKind, status: Status },
    /// Failed name resolution, or another system error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<ConnError> for CmError {
    fn from(error: ConnError) -> Self {
        match error {
            ConnError::PrivateData(limit) => Self::PrivateData(limit),
            ConnError::Range(attribute) => Self::Range(attribute),
            other => Self::Protocol(other),
        }
    }
}

impl From<AcceptError> for CmError {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Connection(error) => error.into(),
            AcceptError::QueuePair(error) => Self::Modify(error),
        }
    }
}

impl From<ChannelError> for CmError {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::TimedOut => Self::Io(io::ErrorKind::TimedOut.into()),
            ChannelError::Io(error) => Self::Io(error),
        }
    }
}

impl CmError {
    /// `errno` of the C interface.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Open(error) => open_errno(error),
            Self::Region(RegionError::Memory(error)) => {
                error.raw_os_error().unwrap_or(libc::ENOMEM)
            }
            Self::Failed { status: Status::Errno(errno), .. } => *errno,
            Self::Failed { .. } => libc::ECONNREFUSED,
            Self::Io(error) if error.kind() == io::ErrorKind::TimedOut => libc::ETIMEDOUT,
            Self::Io(error) => error.raw_os_error().unwrap_or(libc::EIO),
            other => errnos::of(other),
        }
    }
}

pub(super) fn open_errno(error: &OpenError) -> i32 {
    match error {
        OpenError::Bind(BindError::System { source, .. } | BindError::NoDoor { source, .. })
        | OpenError::System(source) => source.raw_os_error().unwrap_or(libc::ENODEV),
        other => match errnos::of(other) {
            of_address @ (libc::EADDRINUSE | libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT) => {
                of_address
            }
            _ => libc::ENODEV,
        },
    }
}

pub(super) fn attach_errno(error: &AttachError) -> i32 {
    match error {
        AttachError::Adapter(error) => errnos::of(error),
        AttachError::Join { source, .. } => source.raw_os_error().unwrap_or(libc::EADDRNOTAVAIL),
    }
}
