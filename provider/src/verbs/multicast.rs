use std::io;

use roce_transport::{adapter::McastError, addr::Gid};
use thiserror::Error;

use super::queue_pair::QueuePair;

/// Error of attaching to a multicast group; nothing changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Refused by the adapter.
    #[error(transparent)]
    Adapter(#[from] McastError),
    /// The link cannot join.
    #[error("cannot join {group}: {source}")]
    Join {
        /// The group.
        group: Gid,
        /// System error.
        source: io::Error,
    },
}

impl QueuePair {
    /// Attaches a UD queue pair to a multicast group, IPv6 or mapped IPv4 (`ibv_attach_mcast`,
    /// without LID).
    ///
    /// The queue pair receives datagrams to the group with
    /// [`Qpn::MULTICAST`](roce_transport::addr::Qpn::MULTICAST) and its Q_Key, its own included.
    /// The device leaves the group with the last queue pair.
    ///
    /// # Errors
    /// [`AttachError::Adapter`] for another service or no group (`EINVAL`), or too many groups or
    /// members (`ENOMEM`); [`AttachError::Join`] if the link cannot join (system's error).
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

    /// Detaches from a multicast group (`ibv_detach_mcast`).
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
