use std::net::{IpAddr, Ipv4Addr};

use pnet_datalink::MacAddr;
use roce_transport::time::Instant;
use smoltcp::wire::{DHCP_CLIENT_PORT, DHCP_SERVER_PORT, UdpPacket};

use super::{
    super::{
        dhcp::{Lease, LeaseError, Output},
        frame::IpPacket,
    },
    BROADCAST, Station, StationEvent,
};

impl Station {
    /// Lease.
    #[must_use]
    pub const fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Reason for a missing lease.
    #[must_use]
    pub fn lease_error(&self) -> Option<LeaseError> {
        self.dhcp.as_ref().map(|dhcp| dhcp.error())
    }

    /// Releases the lease.
    pub fn release(&mut self, now: Instant) {
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.release(now, &mut self.counters);
            self.handle_dhcp_output();
        }
    }

    pub(super) fn poll_dhcp(&mut self, now: Instant) {
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.handle_timeout(now, &mut self.counters);
            self.handle_dhcp_output();
        }
    }

    /// `false`: not a DHCP message.
    pub(super) fn handle_dhcp(
        &mut self,
        now: Instant,
        mac: MacAddr,
        packet: &IpPacket<'_>,
    ) -> bool {
        let Some(dhcp) = &mut self.dhcp else { return false };
        let Ok(udp) = UdpPacket::new_checked(packet.payload) else { return false };
        if !packet.dst.is_ipv4() || udp.dst_port() != DHCP_CLIENT_PORT {
            return false;
        }
        // Zero means no checksum.
        let is_right = udp.verify_checksum(&packet.src.into(), &packet.dst.into());
        if !is_right || udp.src_port() != DHCP_SERVER_PORT || mac.0 & 1 == 1 {
            self.counters.dhcp_bad += 1;
            return true;
        }
        let before = self.counters.dhcp_leases;
        dhcp.handle_message(now, udp.payload(), &mut self.counters);
        if dhcp.checking().is_some() || self.counters.dhcp_leases != before {
            self.server_mac = mac; // server or relay
        }
        self.handle_dhcp_output();
        true
    }

    /// True if another host claims the address being leased.
    pub(super) fn declines(&mut self, now: Instant, claimed: Ipv4Addr, by: MacAddr) -> bool {
        let Some(dhcp) = &mut self.dhcp else { return false };
        let declines = dhcp.checking() == Some(claimed);
        if declines {
            dhcp.decline(now, by, &mut self.counters);
            self.handle_dhcp_output();
        }
        declines
    }

    fn handle_dhcp_output(&mut self) {
        while let Some(output) = self.dhcp.as_mut().and_then(|dhcp| dhcp.poll()) {
            match output {
                Output::Send { to, from, bytes } => {
                    let mac = if to.is_some() { self.server_mac } else { BROADCAST };
                    let to = (to.unwrap_or(Ipv4Addr::BROADCAST), DHCP_SERVER_PORT);
                    let frame = self.to(mac).udp((from, DHCP_CLIENT_PORT), to, &bytes);
                    self.put(frame);
                }
                Output::Probe(address) => self.probe(address.into()),
                Output::Lease(lease) => self.set_lease(lease),
            }
        }
    }

    fn set_lease(&mut self, lease: Option<Lease>) {
        let before = std::mem::replace(&mut self.lease, lease).map(|lease| lease.address);
        let after = self.lease.as_ref().map(|lease| lease.address);
        if before == after {
            return; // renewed, or with other routes
        }
        if let Some(before) = before {
            self.config.addresses.retain(|own| *own != before);
            if after.map(|after| after.address) != Some(before.address) {
                self.push_event(StationEvent::LeaseLost { address: before.address });
            }
        }
        if let Some(Lease { address, server, .. }) = &self.lease {
            let (address, server) = (*address, IpAddr::from(*server));
            self.config.addresses.push(address);
            self.announce(address.address);
            self.push_event(StationEvent::Leased { address: address.address, server });
        }
    }

    /// The lease's route, else the configured gateway, else the lease's default route.
    pub(super) fn gateway(&self, to: IpAddr) -> Option<IpAddr> {
        let leased = self.lease.as_ref().and_then(|lease| lease.route(to));
        let given = self.config.gateways.iter().find(|gateway| gateway.is_ipv4() == to.is_ipv4());
        match (leased, given) {
            (Some((network, hop)), _) if network.length > 0 => Some(hop),
            (_, Some(given)) => Some(*given),
            (leased, None) => leased.map(|(_, hop)| hop),
        }
    }
}
