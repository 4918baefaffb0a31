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
    /// Replaces the GID table; [`Event::GidChange`] unless it was empty.
    pub fn set_gids(&mut self, gids: Vec<Gid>) {
        let had = !self.resources.gids.entries().is_empty();
        if self.resources.gids.set(gids) && had {
            self.reports.events.push_back(Event::GidChange);
        }
    }

    /// Sets the GID table's RoCE v1 entries.
    pub const fn set_roce_v1(&mut self, v1: RoceV1) {
        self.resources.gids.v1 = v1;
    }

    /// Sets UDP source ports of data from this address, by [flow](crate::addr::udp_source_port);
    /// none: the [control port](Self::set_control_port).
    pub fn set_flow_ports(&mut self, address: IpAddr, ports: Vec<u16>) {
        self.resources.gids.set_flow_ports(address, ports);
        self.update_source_ports(address);
    }

    /// Sets the UDP source port of other packets; `None`: the
    /// [adapter's](super::AdapterConfig::source_port). Effective if that is fixed.
    pub fn set_control_port(&mut self, address: IpAddr, port: Option<u16>) {
        self.resources.gids.set_control_port(address, port);
        self.update_source_ports(address);
    }

    fn update_source_ports(&mut self, address: IpAddr) {
        for (_, qp) in self.qps.iter_mut() {
            let Common { qpn, peer, .. } = &mut qp.common;
            if let (Some(av), Some(path)) = (&peer.av, &mut peer.path)
                && path.net.src == address
                && let Some(new) = self.resources.gids.path(av, *qpn, peer.qpn)
                && new.net.src == address
            {
                (path.net.src_port, path.flow) = (new.net.src_port, new.flow);
            }
        }
    }

    /// True if the port is up (`IBV_PORT_ACTIVE`), as initially.
    #[must_use]
    pub const fn port_is_active(&self) -> bool {
        self.port_active
    }

    /// Sets state and MTU, with [`Event::PortActive`] or [`Event::PortError`].
    pub fn set_port(&mut self, active: bool, mtu: Mtu) {
        self.resources.gids.port_mtu = mtu;
        if self.port_active != active {
            self.port_active = active;
            let event = if active { Event::PortActive } else { Event::PortError };
            self.reports.events.push_back(event);
        }
    }

    /// Fails the link for good: [`Event::DeviceFatal`] once, every queue pair to ERR.
    pub fn fail(&mut self, now: Instant) {
        if core::mem::replace(&mut self.failed, true) {
            return;
        }
        self.reports.events.push_back(Event::DeviceFatal);
        for index in 0..self.sending.places() {
            if self.qps.get(index).is_some_and(Qp::is_alive) {
                self.with_qp(index, now, |qp, env| qp.fail(Failure::Device, env));
            }
        }
    }

    /// Moves a queue pair, or all, to ERR with [`Event::QpFatal`]; returns how many.
    pub fn fail_qp(&mut self, now: Instant, qpn: Option<Qpn>) -> usize {
        let mut failed = 0;
        for index in 0..self.sending.places() {
            let Some(qp) = self.qps.get(index) else { continue };
            let own = qp.common.qpn;
            if !qp.is_alive() || qpn.is_some_and(|qpn| qpn != own) {
                continue;
            }
            self.with_qp(index, now, |qp, env| qp.fail(Failure::Injected, env));
            self.reports.events.push_back(Event::QpFatal(own));
            failed += 1;
        }
        failed
    }

    /// Raises [`Event::GidChange`].
    pub fn announce_gids(&mut self) {
        self.reports.events.push_back(Event::GidChange);
    }

    /// Replaces the P_Key table, with [`Event::PKeyChange`].
    ///
    /// # Errors
    /// [`ObjectError::InUse`] if a queue pair outside RESET would lose its key; nothing changes.
    pub fn set_pkeys(&mut self, pkeys: PKeyTable) -> Result<(), ObjectError> {
        let lacks_key = |Common { state, admission, .. }: &Common| {
            *state != State::Reset && pkeys.get(admission.pkey_index).is_none()
        };
        if self.qps.iter().any(|(_, qp)| lacks_key(&qp.common)) {
            return Err(ObjectError::InUse);
        }
        for (_, Qp { common: Common { admission, .. }, .. }) in self.qps.iter_mut() {
            admission.pkey = pkeys.get(admission.pkey_index).unwrap_or(admission.pkey);
        }
        self.resources.pkeys = pkeys;
        self.reports.events.push_back(Event::PKeyChange);
        Ok(())
    }
}
