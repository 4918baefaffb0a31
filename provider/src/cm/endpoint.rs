//! Ids without a channel: their calls wait.

use std::time::Duration;

use super::{AddrInfo, CmError, CmEvent, CmId, CmQpAttr, EventChannel, EventKind, IdState, Status};
use crate::ProtectionDomain;

/// Unused: resolution is immediate.
const TIMEOUT: Duration = Duration::from_secs(2);

impl CmId {
    /// Creates an id without a channel (`rdma_create_ep`).
    ///
    /// Active: ready to connect. Passive: bound, for [`listen`](Self::listen) and
    /// [`get_request`](Self::get_request). With `attr`, the id or each request's id has a queue
    /// pair.
    ///
    /// # Errors
    /// Those of [`bind_addr`](Self::bind_addr), [`resolve_addr`](Self::resolve_addr),
    /// [`resolve_route`](Self::resolve_route) and [`create_qp`](Self::create_qp).
    pub fn create_ep(
        info: &AddrInfo,
        pd: Option<&ProtectionDomain>,
        attr: Option<&CmQpAttr>,
    ) -> Result<Self, CmError> {
        let id = Self::new_sync(info.port_space)?;
        id.set_qp_type(info.qp_type)?;
        if let Some(pd) = pd {
            id.set_context(pd.context())?;
        }
        if info.passive {
            if let Some(src) = info.src {
                id.bind_addr(src)?;
            }
            id.inner().listener.template = attr.map(|attr| (pd.cloned(), attr.clone()));
            return Ok(id);
        }
        let dst = info.dst.ok_or(CmError::NoDevice)?;
        id.resolve_addr(info.src, dst, TIMEOUT)?;
        id.resolve_route(TIMEOUT)?;
        if let Some(attr) = attr {
            id.create_qp(pd, attr)?;
        }
        Ok(id)
    }

    /// Waits for the next request (`rdma_get_request`); [`event`](Self::event) of the new id has
    /// the data.
    ///
    /// # Errors
    /// [`CmError::State`] if not listening or with a channel; those of
    /// [`create_qp`](Self::create_qp); [`CmError::Failed`] if the device is lost.
    pub fn get_request(&self) -> Result<Self, CmError> {
        let state = self.check(&[IdState::Listening])?;
        let channel = self.own_channel().ok_or(CmError::State(state))?;
        let event = loop {
            let event = channel.wait(None)?;
            match event.kind {
                EventKind::ConnectRequest => break event,
                EventKind::DeviceRemoval => {
                    return Err(CmError::Failed { event: event.kind, status: event.status });
                }
                _ => {}
            }
        };
        let CmEvent { id, kind, status, param, .. } = event;
        id.make_sync()?;
        id.inner().events.last = Some((kind, status, param));
        let template = self.inner().listener.template.clone();
        if let Some((pd, attr)) = template {
            id.create_qp(pd.as_ref(), &attr)?;
        }
        Ok(id)
    }

    /// Latest event of an id without a channel (`id->event`).
    #[must_use]
    pub fn event(&self) -> Option<CmEvent> {
        let (kind, status, param) = self.inner().events.last.clone()?;
        Some(CmEvent { id: self.clone(), listen_id: None, kind, status, param })
    }

    /// Channel of an id whose calls wait.
    fn own_channel(&self) -> Option<EventChannel> {
        let inner = self.inner();
        inner.events.sync.then(|| inner.events.channel.clone())
    }

    /// Without a channel, waits for a `wanted` event.
    pub(super) fn finish(&self, wanted: &[EventKind]) -> Result<(), CmError> {
        let Some(channel) = self.own_channel() else { return Ok(()) };
        loop {
            let CmEvent { kind, status, param, .. } = channel.wait(None)?;
            // of the previous connection
            if matches!(kind, EventKind::TimewaitExit | EventKind::AddrChange) {
                continue;
            }
            let done = wanted.contains(&kind) && status == Status::Success;
            self.inner().events.last = Some((kind, status, param));
            return if done { Ok(()) } else { Err(CmError::Failed { event: kind, status }) };
        }
    }
}
