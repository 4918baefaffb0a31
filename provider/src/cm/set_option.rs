//! Options of an id (`rdma_set_option`), each with a setter of its own.

use roce_transport::{
    cm::{ConnAttribute, PortSpace},
    qp::QpType,
};

use super::{error::CmError, id::CmId, state::IdState};
use crate::Context;

impl CmId {
    /// Sets the device to use, instead of the one that fits its addresses. Before it belongs to
    /// any.
    ///
    /// # Errors
    /// [`CmError::State`].
    pub fn set_context(&self, context: &Context) -> Result<(), CmError> {
        let mut inner = self.inner();
        self.check(&[IdState::Idle])?;
        inner.context = Some(context.clone());
        Ok(())
    }

    /// The type of its queue pair, for [`PortSpace::Ib`] (`rdma_addrinfo.ai_qp_type`).
    ///
    /// # Errors
    /// [`CmError::State`]; [`CmError::WrongService`] when the port space has queue pairs of one
    /// type only.
    pub fn set_qp_type(&self, qp_type: QpType) -> Result<(), CmError> {
        let mut inner = self.inner();
        self.check(&[IdState::Idle])?;
        if self.port_space() != PortSpace::Ib && qp_type != inner.options.qp_type {
            return Err(CmError::WrongService(qp_type));
        }
        inner.options.qp_type = qp_type;
        Ok(())
    }

    /// Type of service of its packets (`RDMA_OPTION_ID_TOS`): IPv4 TOS or IPv6 traffic class. 0 by
    /// default. Before it connects.
    pub fn set_tos(&self, tos: u8) {
        self.inner().options.tos = tos;
    }

    /// The acknowledge timeout of both sides' queue pairs (`RDMA_OPTION_ID_ACK_TIMEOUT`): the code
    /// of 4.096 µs · 2^code, 0..=31; 0 means for ever. By default 16 (268 ms), and on this side
    /// more if the peer says that it takes its time to acknowledge. Before it connects.
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

    /// Time that its queue pair has the peer wait when no receive request is posted
    /// (`rdma_set_min_rnr_timer`): a code, 0..=31; see
    /// [`rnr_timer`](roce_transport::time::rnr_timer). 12 (0.64 ms) by default. Before it connects
    /// or accepts.
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

    /// True if others with this option may bind to the same address and port
    /// (`RDMA_OPTION_ID_REUSEADDR`), unless one listens. False by default.
    ///
    /// # Errors
    /// [`CmError::State`] once it listens; `false` is possible only before it is bound.
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

    /// True if an id that is bound to all addresses is bound to those of its own family only
    /// (`RDMA_OPTION_ID_AFONLY`). By default `0.0.0.0` stands for the addresses of IPv4, and `::`
    /// for those of both families, unless the system's `net.ipv6.bindv6only` says otherwise.
    ///
    /// # Errors
    /// [`CmError::State`] once it listens or is resolved.
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
