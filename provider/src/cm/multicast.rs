//! Multicast groups of datagram ids.

use std::net::IpAddr;

use roce_transport::{
    addr::{AddressVector, Gid, Qpn},
    qp::QpType,
};

use super::{
    CmError, CmId, EventKind, IdState, Status, UDP_QKEY, UdParam, error::attach_errno, param::Param,
};

/// Kind of membership (`RDMA_MC_JOIN_FLAG_…`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum JoinFlags {
    /// Send and receive.
    #[default]
    FullMember,
    /// Send only.
    SendOnlyFullMember,
}

impl CmId {
    /// Joins a multicast group (`rdma_join_multicast`), with the queue pair if any, and reports by
    /// IGMP or MLD.
    ///
    /// [`MulticastJoin`](EventKind::MulticastJoin) has the destination;
    /// [`MulticastError`](EventKind::MulticastError) reports failure.
    ///
    /// # Errors
    /// [`CmError::State`] without a device; [`CmError::WrongService`] unless UD;
    /// [`CmError::Address`] if not multicast; [`CmError::Family`]; [`CmError::Joined`]; without a
    /// channel, [`CmError::Failed`].
    pub fn join_multicast(&self, group: IpAddr) -> Result<(), CmError> {
        self.join_multicast_ex(group, JoinFlags::FullMember)
    }

    /// Joins with a kind of membership (`rdma_join_multicast_ex`).
    ///
    /// # Errors
    /// As for [`join_multicast`](Self::join_multicast).
    pub fn join_multicast_ex(&self, group: IpAddr, flags: JoinFlags) -> Result<(), CmError> {
        let mut inner = self.inner();
        self.check(&[
            IdState::Bound,
            IdState::AddrResolved,
            IdState::RouteResolved,
            IdState::Established,
        ])?;
        if inner.options.qp_type != QpType::Ud {
            return Err(CmError::WrongService(inner.options.qp_type));
        }
        if !group.is_multicast() {
            return Err(CmError::Address(group));
        }
        let device_addr = inner.device_addr()?;
        if device_addr.ip.is_ipv4() != group.is_ipv4() {
            return Err(CmError::Family(group));
        }
        if inner.groups.contains_key(&group) {
            return Err(CmError::Joined(group));
        }
        let sgid_index = device_addr.sgid_index().ok_or(CmError::NotOfDevice(device_addr.ip))?;
        let queues = inner.queues.as_ref().filter(|_| flags == JoinFlags::FullMember);
        let attached = queues.map(|queues| queues.qp.attach_mcast(group.into()));
        let (kind, status, param) = match attached {
            Some(Err(error)) => {
                (EventKind::MulticastError, Status::Errno(attach_errno(&error)), Param::None)
            }
            attached => {
                let mut av = AddressVector::new(Gid::from(group), sgid_index);
                av.traffic_class = inner.options.tos;
                inner.groups.insert(group, attached.is_some());
                let ud =
                    UdParam { private_data: Vec::new(), av, qpn: Qpn::MULTICAST, qkey: UDP_QKEY };
                (EventKind::MulticastJoin, Status::Success, Param::Ud(ud))
            }
        };
        drop(inner);
        self.shared().emit(kind, status, param);
        self.finish(&[EventKind::MulticastJoin])
    }

    /// True if joined.
    #[must_use]
    pub fn is_member(&self, group: IpAddr) -> bool {
        self.inner().groups.contains_key(&group)
    }

    /// Leaves a multicast group (`rdma_leave_multicast`).
    ///
    /// # Errors
    /// [`CmError::NotJoined`].
    pub fn leave_multicast(&self, group: IpAddr) -> Result<(), CmError> {
        let mut inner = self.inner();
        let attached = inner.groups.remove(&group).ok_or(CmError::NotJoined(group))?;
        if let Some(queues) = inner.queues.as_ref().filter(|_| attached) {
            let _ = queues.qp.detach_mcast(group.into()); // may be detached already
        }
        Ok(())
    }
}
