//! The GID table, and paths from it to peers.

use alloc::{collections::BTreeMap, vec::Vec};
use core::net::IpAddr;

use crate::{
    addr::{AddressVector, Gid, Mtu, RoceVersion, udp_source_port},
    ids::Qpn,
    wire::{FrameFields, Grh, IcrcFlow, Ident, NetHeader},
};

/// UDP source port of outgoing packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SourcePort {
    /// Fixed, except for [flow ports](crate::adapter::Adapter::set_flow_ports).
    Fixed(u16),
    /// By [`udp_source_port`].
    PerFlow,
}

/// Headers of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    pub(crate) net: NetHeader,
    pub(crate) flow: Option<IcrcFlow>,
}

/// RoCE v1 entries of a GID table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RoceV1 {
    /// None.
    #[default]
    Absent,
    /// Even entries are RoCE v1, as in hardware, but cannot send.
    Shown,
    /// Even entries are RoCE v1 and can send.
    Used,
}

/// GID table of the only port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GidTable {
    gids: Vec<Gid>,
    pub(crate) v1: RoceV1,
    pub(crate) port_mtu: Mtu,
    source_port: SourcePort,
    /// Source ports of data.
    flow_ports: BTreeMap<IpAddr, Vec<u16>>,
    /// Source port of other packets.
    control_ports: BTreeMap<IpAddr, u16>,
}

impl GidTable {
    pub(crate) const fn new(port_mtu: Mtu, source_port: SourcePort) -> Self {
        Self {
            gids: Vec::new(),
            v1: RoceV1::Absent,
            port_mtu,
            source_port,
            flow_ports: BTreeMap::new(),
            control_ports: BTreeMap::new(),
        }
    }

    /// True if the table changed.
    pub(crate) fn set(&mut self, gids: Vec<Gid>) -> bool {
        let changed = self.gids != gids;
        self.gids = gids;
        changed
    }

    /// Without ports, data uses the control port.
    pub(crate) fn set_flow_ports(&mut self, address: IpAddr, ports: Vec<u16>) {
        if ports.is_empty() {
            self.flow_ports.remove(&address);
        } else {
            self.flow_ports.insert(address, ports);
        }
    }

    /// `None` restores the adapter's port.
    pub(crate) fn set_control_port(&mut self, address: IpAddr, port: Option<u16>) {
        match port {
            Some(port) => self.control_ports.insert(address, port),
            None => self.control_ports.remove(&address),
        };
    }

    pub(crate) fn has_flow_ports(&self) -> bool {
        !self.flow_ports.is_empty()
    }

    /// Every entry; zero is unused.
    #[must_use]
    pub fn entries(&self) -> &[Gid] {
        &self.gids
    }

    /// MTU of the port.
    #[must_use]
    pub const fn port_mtu(&self) -> Mtu {
        self.port_mtu
    }

    /// RoCE version of an entry.
    #[must_use]
    pub const fn version(&self, index: u16) -> RoceVersion {
        match self.v1 {
            RoceV1::Shown | RoceV1::Used if index.is_multiple_of(2) => RoceVersion::V1,
            _ => RoceVersion::V2,
        }
    }

    /// First matching RoCEv2 entry.
    pub fn position(&self, is_it: impl FnMut(Gid) -> bool) -> Option<u16> {
        self.position_of(RoceVersion::V2, is_it)
    }

    /// First usable matching entry of this version.
    pub fn position_of(
        &self,
        version: RoceVersion,
        mut is_it: impl FnMut(Gid) -> bool,
    ) -> Option<u16> {
        let mut usable = (0..)
            .zip(&self.gids)
            .filter(|(index, _)| self.version(*index) == version && !self.is_only_shown(*index));
        usable.find(|(_, gid)| !gid.is_zero() && is_it(**gid)).map(|(index, _)| index)
    }

    /// True for an entry that cannot send.
    pub(crate) const fn is_only_shown(&self, index: u16) -> bool {
        matches!((self.version(index), self.v1), (RoceVersion::V1, RoceV1::Shown))
    }

    pub(crate) fn contains(&self, gid: Gid) -> bool {
        !gid.is_zero() && self.gids.contains(&gid)
    }

    /// Path back to the sender of a datagram (`ibv_init_ah_from_wc`). Replies to multicast leave
    /// from the family's first address. The ECN mark is cleared. `None` for other destinations.
    #[must_use]
    pub fn reply_path(&self, grh: &Grh) -> Option<AddressVector> {
        let position = |is_it: &dyn Fn(Gid) -> bool| self.position_of(grh.version, is_it);
        let exact = position(&|gid| gid == grh.dst.into());
        let of_family = || position(&|gid| gid.to_ip().is_ipv4() == grh.dst.is_ipv4());
        let index = exact.or_else(|| grh.dst.is_multicast().then(of_family).flatten())?;
        let mark = u8::from(grh.traffic_class & 3 == 3); // CE becomes ECT(0)
        let traffic_class = grh.traffic_class & !mark;
        let Grh { src, flow_label, .. } = *grh;
        Some(AddressVector { flow_label, traffic_class, ..AddressVector::new(src.into(), index) })
    }

    /// `None` for an unusable index or another address family.
    pub(crate) fn path(&self, av: &AddressVector, local: Qpn, remote: Qpn) -> Option<Path> {
        let usable = |gid: &&Gid| !gid.is_zero() && !self.is_only_shown(av.sgid_index);
        let own = self.gids.get(usize::from(av.sgid_index)).filter(usable)?;
        let (src, dst) = (own.to_ip(), av.dgid.to_ip());
        let by_flow = udp_source_port(av.flow_label, local, remote);
        // a packet filter may match the port of CM messages
        let ports = self.flow_ports.get(&src).filter(|_| local != Qpn::GSI);
        let src_port = match (ports, self.source_port) {
            (Some(ports), _) => ports[usize::from(by_flow) % ports.len()],
            (None, SourcePort::Fixed(port)) => *self.control_ports.get(&src).unwrap_or(&port),
            (None, SourcePort::PerFlow) => by_flow,
        };
        let hop_limit = if av.hop_limit == 0 { 64 } else { av.hop_limit };
        let traffic_class = av.traffic_class;
        let frame = FrameFields::new(self.version(av.sgid_index), av.service_level, av.flow_label);
        let ident = Ident::Likely(0);
        let net = NetHeader { src, dst, src_port, traffic_class, hop_limit, ident, frame };
        (src.is_ipv4() == dst.is_ipv4()).then(|| Path { net, flow: IcrcFlow::of(&net) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_have_ports_and_the_gsi_has_not() {
        let [own, peer]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let mut gids = GidTable::new(Mtu::B1024, SourcePort::Fixed(4791));
        gids.set(Vec::from([own.into()]));
        let port = |gids: &GidTable, qpn| {
            let av = AddressVector::new(peer.into(), 0);
            gids.path(&av, Qpn::new(qpn), Qpn::new(qpn)).map(|path| path.net.src_port)
        };
        assert_eq!(port(&gids, 0x11), Some(4791));
        gids.set_flow_ports(own, Vec::from([61_000, 61_001]));
        assert_eq!(port(&gids, 0x11), Some(61_001), "49441 is odd");
        assert_eq!(port(&gids, Qpn::GSI.get()), Some(4791));
        gids.set_control_port(own, Some(61_002));
        assert_eq!(port(&gids, Qpn::GSI.get()), Some(61_002));
        assert_eq!(port(&gids, 0x11), Some(61_001));
        gids.set_flow_ports(own, Vec::new());
        assert_eq!(port(&gids, 0x11), Some(61_002));
        gids.set_control_port(own, None);
        assert_eq!(port(&gids, 0x11), Some(4791));
    }
}
