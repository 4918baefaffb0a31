use alloc::{collections::BTreeMap, vec::Vec};

use thiserror::Error;

use super::config::Limits;
use crate::{addr::Gid, qp::QpType};

/// Attach or detach error; nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum McastError {
    /// No such queue pair (`EINVAL`).
    #[error("no such queue pair")]
    UnknownQp,
    /// Not a UD queue pair (`EINVAL`).
    #[error("{0} queue pairs cannot join multicast groups; use a UD queue pair")]
    WrongService(QpType),
    /// Not a multicast address (`EINVAL`).
    #[error("{0} is not a multicast address")]
    NotMulticast(Gid),
    /// Too many groups (`ENOMEM`).
    #[error("too many multicast groups; at most {limit}")]
    TooManyGroups {
        /// Limit.
        limit: usize,
    },
    /// Too many members (`ENOMEM`).
    #[error("too many queue pairs in the multicast group; at most {limit}")]
    TooManyMembers {
        /// Limit.
        limit: usize,
    },
    /// Not a member (`EINVAL`).
    #[error("the queue pair is not attached to {0}")]
    NotAttached(Gid),
}

#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<Gid, Vec<usize>>);

impl Groups {
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

    /// Leaves the group empty until [`put_back`](Self::put_back).
    pub(super) fn take(&mut self, group: Gid) -> Vec<usize> {
        self.0.get_mut(&group).map(core::mem::take).unwrap_or_default()
    }

    pub(super) fn put_back(&mut self, group: Gid, members: Vec<usize>) {
        self.0.insert(group, members);
    }
}
