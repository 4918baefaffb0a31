//! Options of an id (`rdma_set_option`).

use roce_transport::{
    cm::{ConnAttribute, PortSpace},
    qp::QpType,
};

use super::{error::CmError, id::CmId, kind::IdState};
use crate::Context;

impl CmId {
    /// Sets the device of an unbound id.
    ///
    /// # Errors
    /// [`CmError::State`].
    pub fn set_context(&self, context: &Context) -> Result<(), CmError> {
        let mut inner = self.inner();
        self.check(&[IdState::Idle])?;
        inner.context = Some(context.clone());
        Ok(())
    }

    /// Sets the queue pair type, for [`PortSpace::Ib`] (`rdma_addrinfo.ai_qp_type`).
    ///
    /// # Errors
    /// [`CmError::State`]; [`CmError::WrongService`] in a port space of another type.
    pub fn set_qp_type(&self, qp_type: QpType) -> Result<(), CmError> {
        let mut inner = self.inner();
        self.check(&[IdState::Idle])?;
        if self.port_space() != PortSpace::Ib && qp_type != inner.options.qp_type {
            return Err(CmError::WrongService(qp_type));
        }
        inner.options.qp_type = qp_type;
        Ok(())
    }

    /// Sets IPv4 TOS or IPv6 traffic class (`RDMA_OPTION_ID_TOS`), before connecting; default 0.
    pub fn set_tos(&self, tos: u8) {
        self.inner().options.tos = tos;
    }

    /// Sets both sides' acknowledge timeout (`RDMA_OPTION_ID_ACK_TIMEOUT`), before connecting.
    ///
    /// A code of 4.096 µs · 2^code, 0..=31; 0: none. Default 16 (268 ms), locally more for a slow
    /// peer.
    ///
    /// # Errors
    /// [`CmError::Range`].
    pub fn set_ack_timeout(&self, code: u8) -> Result<(), CmError> {
        if code > 31 {
            return Err(CmError::Range(ConnAttribute::AckTimeout));
        }
        self.inner().options.ack_timeout = Some(code);
        Ok(())
    }

    /// Sets the peer's RNR delay (`rdma_set_min_rnr_timer`), before connecting or accepting.
    ///
    /// A code, 0..=31, of [`rnr_timer`](roce_transport::time::rnr_timer); default 12 (0.64 ms).
    ///
    /// # Errors
    /// [`CmError::Range`].
    pub fn set_min_rnr_timer(&self, code: u8) -> Result<(), CmError> {
        if code > 31 {
            return Err(CmError::Range(ConnAttribute::MinRnrTimer));
        }
        self.inner().options.min_rnr_timer = code;
        Ok(())
    }

    /// Shares address and port with ids of this option (`RDMA_OPTION_ID_REUSEADDR`), unless one
    /// listens.
    ///
    /// # Errors
    /// [`CmError::State`] once listening; `false` only before binding.
    pub fn set_reuse_addr(&self, reuse: bool) -> Result<(), CmError> {
        let mut inner = self.inner();
        let state = self.state();
        if state == IdState::Listening || !reuse && state != IdState::Idle {
            return Err(CmError::State(state));
        }
        inner.options.reuse_addr = reuse;
        if let Some(lease) = &inner.lease {
            lease.change(|binding| binding.reuse = reuse);
        }
        Ok(())
    }

    /// Limits a wildcard binding to its family (`RDMA_OPTION_ID_AFONLY`).
    ///
    /// By default, `::` covers both families, unless `net.ipv6.bindv6only` is set.
    ///
    /// # Errors
    /// [`CmError::State`] once listening or resolved.
    pub fn set_afonly(&self, afonly: bool) -> Result<(), CmError> {
        let mut inner = self.inner();
        self.check(&[IdState::Idle, IdState::Bound])?;
        inner.options.afonly = Some(afonly);
        if let Some(lease) = &inner.lease {
            lease.change(|binding| binding.afonly = afonly);
        }
        Ok(())
    }
}
