//! The adapter's only port: its addresses, partitions and state.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{Adapter, PKeyTable, error::ObjectError};
use crate::{
    addr::{Gid, Mtu},
    event::Event,
    gids::RoceV1,
    ids::Qpn,
    qp::{Common, Failure, Qp, State},
    time::Instant,
};

impl Adapter {
    /// Replaces the GID table; a change of one that was not empty raises [`Event::GidChange`].
    /// Connected queue pairs keep the addresses that they were connected with.
    pub fn set_gids(&mut self, gids: Vec<Gid>) {
        let had = !self.resources.gids.entries().is_empty();
        if self.resources.gids.set(gids) && had {
            self.reports.events.push_back(Event::GidChange);
        }
    }

    /// Sets whether the even entries of the GID table are for RoCE v1.
    pub const fn set_roce_v1(&mut self, v1: RoceV1) {
        self.resources.gids.set_roce_v1(v1);
    }

    /// Data from this own address leaves from these UDP source ports from now on, that of a flow
    /// from one of them, by [`udp_source_port`](crate::addr::udp_source_port). With none it leaves
    /// from the [port](Self::set_control_port) of everything else, as messages of connection
    /// management always do.
    pub fn set_flow_ports(&mut self, address: IpAddr, ports: Vec<u16>) {
        self.resources.gids.set_flow_ports(address, ports);
        self.update_source_ports(address);
    }

    /// Sets the UDP source port of packets from this local address that use none of its [flow
    /// ports](Self::set_flow_ports). `None`: the [adapter's](super::AdapterConfig::source_port). It
    /// counts where that is a fixed one.
    pub fn set_control_port(&mut self, address: IpAddr, port: Option<u16>) {
        self.resources.gids.set_control_port(address, port);
        self.update_source_ports(address);
    }

    /// Connected queue pairs send from the ports that there are.
    fn update_source_ports(&mut self, address: IpAddr) {
        for (_, qp) in self.qps.iter_mut() {
            let Common { qpn, peer, .. } = &mut qp.common;
            if let (Some(av), Some(path)) = (&peer.av, &mut peer.path)
                && path.src == address
                && let Some(new) = self.resources.gids.path(av, *qpn, peer.qpn)
                && new.src == address
            {
                (path.src_port, path.flow) = (new.src_port, new.flow);
            }
        }
    }

    /// True if the port carries packets (`IBV_PORT_ACTIVE`), as it does in a new adapter.
    #[must_use]
    pub const fn port_is_active(&self) -> bool {
        self.port_active
    }

    /// The port's state and its greatest payload from now on. A change of the state raises
    /// [`Event::PortActive`] or [`Event::PortError`]. Queue pairs keep the path MTU that they were
    /// connected with.
    pub fn set_port(&mut self, active: bool, mtu: Mtu) {
        self.resources.gids.set_port_mtu(mtu);
        if self.port_active != active {
            self.port_active = active;
            self.reports.events.push_back(if active {
                Event::PortActive
            } else {
                Event::PortError
            });
        }
    }

    /// The link is lost for good: raises [`Event::DeviceFatal`], once, and every queue pair goes
    /// into ERR, so that no program waits for ever.
    pub fn fail(&mut self, now: Instant) {
        if core::mem::replace(&mut self.failed, true) {
            return;
        }
        self.reports.events.push_back(Event::DeviceFatal);
        for index in 0..self.sending.places() {
            if self
                .qps
                .get(index)
                .is_some_and(|qp| !matches!(qp.common.state, State::Reset | State::Err))
            {
                self.with_qp(index, now, |qp, env| qp.fail(Failure::Device, env));
            }
        }
    }

    /// A queue pair goes into ERR on request, with [`Event::QpFatal`], as one does whose adapter
    /// finds an error in it; `None`: each that is in neither RESET nor ERR. Returns how many did.
    pub fn fail_qp(&mut self, now: Instant, qpn: Option<Qpn>) -> usize {
        let mut failed = 0;
        for index in 0..self.sending.places() {
            let Some(qp) = self.qps.get(index) else { continue };
            let own = qp.common.qpn;
            if matches!(qp.common.state, State::Reset | State::Err)
                || qpn.is_some_and(|qpn| qpn != own)
            {
                continue;
            }
            self.with_qp(index, now, |qp, env| qp.fail(Failure::Injected, env));
            self.reports.events.push_back(Event::QpFatal(own));
            failed += 1;
        }
        failed
    }

    /// Raises [`Event::GidChange`] although the table is as before.
    pub fn announce_gids(&mut self) {
        self.reports.events.push_back(Event::GidChange);
    }

    /// Replaces the P_Key table, and raises [`Event::PKeyChange`]. Queue pairs keep their index:
    /// they send and receive with the key that stands there now.
    ///
    /// # Errors
    /// [`ObjectError::InUse`] when a queue pair, in a state other than RESET, has an index whose
    /// entry would be gone or unused; then nothing has changed.
    pub fn set_pkeys(&mut self, pkeys: PKeyTable) -> Result<(), ObjectError> {
        let used = |qp: &Qp| qp.common.state != State::Reset;
        if self
            .qps
            .iter()
            .any(|(_, qp)| used(qp) && pkeys.get(qp.common.admission.pkey_index).is_none())
        {
            return Err(ObjectError::InUse);
        }
        for (_, qp) in self.qps.iter_mut() {
            qp.common.admission.pkey =
                pkeys.get(qp.common.admission.pkey_index).unwrap_or(qp.common.admission.pkey);
        }
        self.resources.pkeys = pkeys;
        self.reports.events.push_back(Event::PKeyChange);
        Ok(())
    }
}
