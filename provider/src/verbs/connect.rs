//! Connecting a queue pair to a peer whose address, number and PSN are known.

use roce_transport::{
    addr::{AddressVector, Gid, Mtu, Qpn},
    mem::Access,
    psn::Psn,
    qp::{
        Init, ModifyError, PeerAttr, QpInfo, QpType, RequesterAttr, ResponderAttr, Rtr, Rts, State,
    },
};
use thiserror::Error;

use super::queue_pair::QueuePair;

/// End of a connection, as its peer must know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// Address of the device.
    pub gid: Gid,
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// First PSN that the queue pair sends.
    pub psn: Psn,
}

/// Error of connecting a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The device has no GID of the peer's address family.
    #[error("this device has no address of the same family as the peer's {0}")]
    NoAddress(Gid),
    /// A transition was refused.
    #[error(transparent)]
    Modify(#[from] ModifyError),
}

impl QueuePair {
    /// This end of a connection, with the device's address at `gid_index`. `None` if there is no
    /// such address.
    #[must_use]
    pub fn endpoint(&self, gid_index: u16) -> Option<Endpoint> {
        let gid = self.context().gids().get(usize::from(gid_index)).copied()?;
        Some(Endpoint { gid, qpn: self.qpn(), psn: self.inner.psn })
    }

    /// Moves a new queue pair, RC or XRC, to RTS: path MTU of the port, all remote rights, 16 READs
    /// each way, acknowledge timeout 14 (67 ms), 7 retries, no limit on "receiver not ready" (timer
    /// 12, 0.64 ms). The peer must do the same with this side's [`endpoint`](Self::endpoint). The
    /// peer of an XRC initiator is a target, and vice versa.
    ///
    /// # Errors
    /// [`ConnectError::NoAddress`]; [`ConnectError::Modify`] if the queue pair is not in RESET or
    /// of another service (all `EINVAL`). A queue pair that was in RESET still is.
    pub fn connect_to(&self, peer: Endpoint) -> Result<(), ConnectError> {
        self.connect_with_mtu(peer, self.context().active_mtu())
    }

    /// [`connect_to`](Self::connect_to) with a path MTU, which must be the same at both ends.
    ///
    /// # Errors
    /// As above.
    pub fn connect_with_mtu(&self, peer: Endpoint, path_mtu: Mtu) -> Result<(), ConnectError> {
        let context = self.context();
        let wants_v4 = peer.gid.to_ip().is_ipv4();
        let own = context.find_gid(|gid| gid.to_ip().is_ipv4() == wants_v4);
        let sgid_index = own.ok_or(ConnectError::NoAddress(peer.gid))?;
        let QpInfo { qp_type, state, .. } = self.query();
        let access = Access::REMOTE_CHANGE
            | Access::REMOTE_READ
            | Access::FLUSH_GLOBAL
            | Access::FLUSH_PERSISTENT;
        if matches!(qp_type, QpType::Uc | QpType::Ud | QpType::RawPacket) {
            return Err(ModifyError::WrongService(qp_type).into());
        }
        let peer = PeerAttr {
            dest_qpn: peer.qpn,
            path_mtu,
            rq_psn: peer.psn,
            av: AddressVector::new(peer.gid, sgid_index),
        };
        let responder = ResponderAttr { max_dest_rd_atomic: 16, min_rnr_timer: 12 };
        let requester =
            RequesterAttr { timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 16 };
        let rtr = Rtr::new(qp_type, peer, responder);
        let rts = Rts::new(qp_type, self.inner.psn, requester);
        self.to_init(Init { access, ..Init::default() })?;
        self.to_rtr(rtr).and_then(|()| self.to_rts(rts)).or_else(|error| {
            if state == State::Reset {
                self.to_reset()?;
            }
            Err(error.into())
        })
    }
}
