//! Listening.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use roce_transport::addr::Gid;

use super::{
    CmError, CmId, IdState, devices,
    route::{self, CmDispatcher},
    shared::Listening,
};
use crate::Context;

const BACKLOG: usize = 1024;

impl CmId {
    /// Listens (`rdma_listen`). Each request is a
    /// [`EventKind::ConnectRequest`](super::EventKind::ConnectRequest) with a new id.
    ///
    /// Up to `backlog` requests wait per address (0: 1,024). Further requests are dropped, and
    /// retried by the peer.
    ///
    /// An id without a device listens on every device, and on later addresses. An unbound id gets a
    /// free port.
    ///
    /// # Errors
    /// [`CmError::State`]; [`CmError::PortInUse`]; [`CmError::PortOverlap`] for a wildcard;
    /// [`CmError::NoListenDevice`]; those of [`bind_addr`](Self::bind_addr).
    pub fn listen(&self, backlog: usize) -> Result<(), CmError> {
        let mut inner = self.inner();
        self.check(&[IdState::Idle, IdState::Bound])?;
        self.bind_any(&mut inner, None)?;
        let (Some(lease), Some(local)) = (&inner.lease, inner.local) else {
            return Err(CmError::NoDevice);
        };
        let devices = match (&inner.device_addr, &inner.context) {
            (Some(own), _) => vec![(own.context.clone(), false)],
            (None, Some(context)) => vec![(context.clone(), false)],
            (None, None) => devices::all()?,
        };
        lease.listen()?;
        let listening = Listening {
            qp_type: inner.options.qp_type,
            service_id: self.port_space().service(local.port()),
            address: local.ip(),
            afonly: inner.options.afonly == Some(true),
            backlog: if backlog == 0 { BACKLOG } else { backlog },
        };
        self.shared().state().listening = Some(listening);
        let mut contexts: Vec<Context> = Vec::new();
        // true: the id listens there, on one of the devices
        let mut listened = BTreeMap::<IpAddr, bool>::new();
        let own = (!local.ip().is_unspecified()).then_some(local.ip());
        let mut result = Ok(());
        for (context, opened) in devices {
            // addresses may come later
            inner.events.channel.attach(&context, opened);
            let index = contexts.len();
            let refused = route::claim(&context.inner.engine, listening);
            let here = context.inner.engine.command_shard(|shard, _| {
                let (adapter, link, dispatcher) = shard.parts::<CmDispatcher>();
                dispatcher.attach(self.shared(), own, index);
                dispatcher.listen(self.shared(), adapter, link, &refused)
            });
            contexts.push(context);
            match here {
                Ok(here) => {
                    here.into_iter()
                        .for_each(|(ip, is_on)| *listened.entry(ip).or_default() |= is_on);
                }
                Err(error) => {
                    result = Err(error.into());
                    break;
                }
            }
        }
        // another process listens, or an id outside the port table
        if listened.values().any(|is_on| !is_on) {
            let port = local.port();
            result = Err(own.map_or(CmError::PortOverlap(port), |_| CmError::PortInUse(port)));
        }
        if let Err(error) = result {
            self.shared().state().listening = None;
            route::unlisten(self.shared(), &contexts, inner.device_addr.is_some());
            return Err(error);
        }
        inner.listener.devices = contexts;
        self.shared().state().state = IdState::Listening;
        Ok(())
    }

    /// Listening addresses and ports of all devices.
    #[must_use]
    pub fn listening_addrs(&self) -> Vec<SocketAddr> {
        let inner = self.inner();
        let Some(listening) =
            self.shared().state().listening.filter(|_| !inner.listener.devices.is_empty())
        else {
            return Vec::new();
        };
        let mut own = Vec::new();
        for ip in inner.listener.devices.iter().flat_map(Context::gids).map(Gid::to_ip) {
            if !ip.is_unspecified() && listening.takes(ip) && !own.contains(&ip) {
                own.push(ip);
            }
        }
        own.into_iter().map(|ip| SocketAddr::new(ip, listening.service_id.0 as u16)).collect()
    }
}
