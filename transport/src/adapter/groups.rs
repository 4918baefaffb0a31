//! The table of multicast groups: which queue pairs are attached to which.

use alloc::{collections::BTreeMap, vec::Vec};

use thiserror::Error;

use super::config::Limits;
use crate::{addr::Gid, qp::QpType};

/// Reason why a queue pair cannot be attached to a group, or detached. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum McastError {
    /// There is no such queue pair (`EINVAL`).
    #[error("no such queue pair")]
    UnknownQp,
    /// Only datagram queue pairs can be members (`EINVAL`).
    #[error("only a UD queue pair can be in a multicast group, not a {0} one")]
    WrongService(QpType),
    /// The GID is no multicast address (`EINVAL`).
    #[error("{0} is no multicast address")]
    NotMulticast(Gid),
    /// As many groups exist as may (`ENOMEM`).
    #[error("no more than {limit} multicast groups can exist")]
    TooManyGroups {
        /// Number of groups that may exist.
        limit: usize,
    },
    /// The group has as many members as it may (`ENOMEM`).
    #[error("no more than {limit} queue pairs can be attached to a multicast group")]
    TooManyMembers {
        /// Number of queue pairs that may be attached.
        limit: usize,
    },
    /// The queue pair is not a member (`EINVAL`).
    #[error("the queue pair is not attached to {0}")]
    NotAttached(Gid),
}

/// Each group's members, by their places in the adapter's table, in the order in which they were
/// attached.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<Gid, Vec<usize>>);

impl Groups {
    /// Attaches a queue pair; returns true if it is the group's first member.
    pub(super) fn attach(
        &mut self,
        group: Gid,
        index: usize,
        limits: &Limits,
    ) -> Result<bool, McastError> {
        let (groups, limit) = (self.0.len(), limits.max_mcast_qp_attach);
        match self.0.get_mut(&group) {
            Some(members) if members.contains(&index) => Ok(false),
            Some(members) if members.len() >= limit => Err(McastError::TooManyMembers { limit }),
            Some(members) => {
                members.push(index);
                Ok(false)
            }
            None if groups >= limits.max_mcast_grp => {
                Err(McastError::TooManyGroups { limit: limits.max_mcast_grp })
            }
            None if limit == 0 => Err(McastError::TooManyMembers { limit }),
            None => {
                self.0.insert(group, [index].into());
                Ok(true)
            }
        }
    }

    /// Detaches a queue pair; returns true if it was the group's last member.
    pub(super) fn detach(&mut self, group: Gid, index: usize) -> Result<bool, McastError> {
        let not_attached = McastError::NotAttached(group);
        let members = self.0.get_mut(&group).ok_or(not_attached)?;
        let at = members.iter().position(|&member| member == index).ok_or(not_attached)?;
        members.remove(at);
        let last = members.is_empty();
        if last {
            self.0.remove(&group);
        }
        Ok(last)
    }

    /// Detaches a queue pair from every group.
    pub(super) fn detach_everywhere(&mut self, index: usize) {
        self.0.retain(|_, members| {
            members.retain(|&member| member != index);
            !members.is_empty()
        });
    }

    pub(super) fn contains(&self, group: Gid) -> bool {
        self.0.contains_key(&group)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Gid, &[usize])> {
        self.0.iter().map(|(group, members)| (*group, members.as_slice()))
    }

    /// Takes the members of a group out, until they are [put back](Self::put_back): while they
    /// receive, the adapter is borrowed.
    pub(super) fn take(&mut self, group: Gid) -> Vec<usize> {
        self.0.get_mut(&group).map(core::mem::take).unwrap_or_default()
    }

    /// Gives a group its members back.
    pub(super) fn put_back(&mut self, group: Gid, members: Vec<usize>) {
        self.0.insert(group, members);
    }
}
