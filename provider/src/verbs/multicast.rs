//! Queue pairs in multicast groups.

use std::io;

use roce_transport::{adapter::McastError, addr::Gid};
use thiserror::Error;

use super::queue_pair::QueuePair;

/// Error of attaching a queue pair to a multicast group. Nothing has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The adapter refuses.
    #[error(transparent)]
    Adapter(#[from] McastError),
    /// The link cannot join the group.
    #[error("cannot join {group}: {source}")]
    Join {
        /// The group.
        group: Gid,
        /// Error of the system.
        source: io::Error,
    },
}

impl QueuePair {
    /// Attaches a datagram queue pair to a multicast group (`ibv_attach_mcast`; there is no LID
    /// here): an IPv6 multicast address, or an IPv4 one, mapped. From now on it receives datagrams
    /// to the group with the destination queue pair
    /// [`Qpn::MULTICAST`](roce_transport::addr::Qpn::MULTICAST) and its own Q_Key, its own
    /// datagrams included. The device leaves the group with the last queue pair that is detached or
    /// dropped.
    ///
    /// # Errors
    /// [`AttachError::Adapter`] for another service, or an address that is no group (`EINVAL`), and
    /// for too many groups or members (`ENOMEM`); [`AttachError::Join`] if the link cannot join
    /// (the error of the system).
    pub fn attach_mcast(&self, group: Gid) -> Result<(), AttachError> {
        let attached = self.inner.engine().join_group(
            group.to_ip(),
            |adapter| adapter.attach_mcast(self.qpn(), group),
            |adapter| {
                let _ = adapter.detach_mcast(self.qpn(), group);
            },
        );
        let joined = attached
            .map_err(AttachError::from)
            .and_then(|joined| joined.map_err(|source| AttachError::Join { group, source }));
        self.context().explained("ibv_attach_mcast", joined)
    }

    /// Detaches a queue pair from a multicast group (`ibv_detach_mcast`).
    ///
    /// # Errors
    /// [`McastError::NotAttached`], [`McastError::WrongService`] (both `EINVAL`).
    pub fn detach_mcast(&self, group: Gid) -> Result<(), McastError> {
        let left = self.inner.engine().leave_groups(|adapter| {
            let is_last = adapter.detach_mcast(self.qpn(), group)?;
            Ok(is_last.then(|| group.to_ip()).into_iter().collect())
        });
        self.context().explained("ibv_detach_mcast", left)
    }
}
