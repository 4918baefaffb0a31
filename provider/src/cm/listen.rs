//! Listening.

use std::net::{Ipv4Addr, SocketAddr};

use roce_transport::addr::Gid;

use super::{CmError, CmId, IdState, devices, route::Routes, shared::Listening};
use crate::Context;

/// Number of requests that may wait by default.
const BACKLOG: usize = 1024;

impl CmId {
    /// Waits for requests (`rdma_listen`): each comes as an
    /// [`EventKind::ConnectRequest`](super::EventKind::ConnectRequest) with an id of its own. At
    /// most `backlog` may wait on each address for an answer of the program, 0 for 1,024; more are
    /// dropped, so that their senders send them again.
    ///
    /// An id that is bound to no device listens on every device of this host that is open or can be
    /// opened, loopback included. An id that is not bound at all gets a free port.
    ///
    /// # Errors
    /// [`CmError::State`]; [`CmError::PortInUse`] when another id of the process has the port, or
    /// one of another process that has the same address; [`CmError::NoListenDevice`]; those of
    /// [`bind_addr`](Self::bind_addr).
    pub fn listen(&self, backlog: usize) -> Result<(), CmError> {
        let mut inner = self.inner();
        self.check(&[IdState::Idle, IdState::Bound])?;
        self.bind_any(&mut inner, Ipv4Addr::UNSPECIFIED.into())?;
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
            afonly: inner.options.afonly,
            backlog: if backlog == 0 { BACKLOG } else { backlog },
        };
        self.shared().state().listening = Some(listening);
        let mut contexts: Vec<Context> = Vec::new();
        let mut in_use = false;
        for (context, opened) in devices {
            if !context.gids().into_iter().any(|gid| !gid.is_zero() && listening.takes(gid.to_ip()))
            {
                continue;
            }
            inner.channel.attach(&context, opened);
            let index = contexts.len();
            let own = (!local.ip().is_unspecified()).then_some(local.ip());
            let result = context.inner.engine.command_shard(|shard, _| {
                let (adapter, link, routes) = shard.parts::<Routes>();
                routes.attach(self.shared(), own);
                let result = routes.listen(self.shared(), index, adapter, link);
                if result.is_err() && own.is_none() {
                    routes.detach(self.shared());
                }
                result
            });
            // another process that has the same addresses listens, or a listener of this process
            // that is not in the table of ports
            if result == Err(roce_transport::cm::ConnError::InUse) && own.is_none() {
                in_use = true;
                continue;
            }
            contexts.push(context);
            if let Err(error) = result {
                self.unlisten(&contexts, inner.device_addr.is_some());
                return Err(error.into());
            }
        }
        if contexts.is_empty() && in_use {
            return Err(CmError::PortInUse(local.port()));
        }
        if contexts.is_empty() {
            return Err(CmError::NoListenDevice("none has an address of this family".into()));
        }
        inner.listening = contexts;
        self.shared().state().state = IdState::Listening;
        Ok(())
    }

    /// The addresses that it listens on, each with its port: those of every device, loopback's
    /// among them.
    #[must_use]
    pub fn listening_addrs(&self) -> Vec<SocketAddr> {
        let inner = self.inner();
        let Some(listening) =
            self.shared().state().listening.filter(|_| !inner.listening.is_empty())
        else {
            return Vec::new();
        };
        let own = inner
            .listening
            .iter()
            .flat_map(Context::gids)
            .filter(|gid| !gid.is_zero())
            .map(Gid::to_ip);
        own.filter(|&ip| listening.takes(ip))
            .map(|ip| SocketAddr::new(ip, listening.service_id.0 as u16))
            .collect()
    }

    /// `keep`: it belongs to the device all the same.
    fn unlisten(&self, contexts: &[Context], keep: bool) {
        for context in contexts {
            context.inner.engine.command_shard(|shard, _| {
                let (adapter, link, routes) = shard.parts::<Routes>();
                routes.unlisten(self.shared(), adapter, link);
                if !keep {
                    routes.detach(self.shared());
                }
            });
        }
    }
}
