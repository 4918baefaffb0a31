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

/// End of a connection, as known to its peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// Device address.
    pub gid: Gid,
    /// Queue pair number.
    pub qpn: Qpn,
    /// First PSN sent.
    pub psn: Psn,
}

/// Error of connecting a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No GID of the peer's family.
    #[error(
        "the device has no address of the family of the peer's {0}; choose another device or \
         address"
    )]
    NoAddress(Gid),
    /// Refused transition.
    #[error(transparent)]
    Modify(#[from] ModifyError),
}

impl QueuePair {
    /// This end, with the GID at `gid_index`; `None` without one.
    #[must_use]
    pub fn endpoint(&self, gid_index: u16) -> Option<Endpoint> {
        let gid = self.context().gids().get(usize::from(gid_index)).copied()?;
        Some(Endpoint { gid, qpn: self.qpn(), psn: self.inner.psn })
    }

    /// Moves a new RC or XRC queue pair to RTS; the peer does the same with this
    /// [`endpoint`](Self::endpoint).
    ///
    /// The port's path MTU, all remote rights, 16 READs each way, timeout 14 (67 ms), 7 retries,
    /// unlimited RNR retries (timer 12, 0.64 ms). An XRC initiator's peer is a target.
    ///
    /// # Errors
    /// [`ConnectError::NoAddress`]; [`ConnectError::Modify`] outside RESET or for another service
    /// (all `EINVAL`). A queue pair in RESET stays there.
    pub fn connect_to(&self, peer: Endpoint) -> Result<(), ConnectError> {
        self.connect_with_mtu(peer, self.context().active_mtu())
    }

    /// Like [`connect_to`](Self::connect_to), with a path MTU, equal at both ends.
    ///
    /// # Errors
    /// As for [`connect_to`](Self::connect_to).
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
