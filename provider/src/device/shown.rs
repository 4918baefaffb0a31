//! Devices under a profile's names, with its attributes.

use roce_transport::{
    adapter::{Limits, RoceV1},
    addr::Gid,
};

use super::{Device, Kind};
use crate::{
    port::{GidLayout, PortAttr},
    profile::Profile,
    verbs::DeviceAttr,
};
use roce_ethernet::StationConfig;

impl Profile {
    /// Renames devices as the profile's; `fill` adds loopback devices up to its number.
    #[must_use]
    pub fn shown(&self, devices: Vec<Device>, fill: bool) -> Vec<Device> {
        let least = self.number("device.devices").filter(|_| fill).unwrap_or(0) as usize;
        let missing = least.saturating_sub(devices.len());
        let more = (0..missing).filter_map(|_| Device::named("roce_lo").ok());
        let pattern = self.text("device.names").unwrap_or("roce_{}");
        (0_usize..)
            .zip(devices.into_iter().chain(more))
            .map(|(index, device)| Device {
                name: pattern.replace("{}", &index.to_string()),
                ..device
            })
            .collect()
    }
}

impl Device {
    pub(super) fn gid_layout(&self, profile: Option<&Profile>) -> GidLayout {
        let layout = profile.map_or_else(GidLayout::default, Profile::gid_layout);
        if self.speaks_roce_v1() { GidLayout { v1: RoceV1::Used, ..layout } } else { layout }
    }

    pub(super) const fn speaks_roce_v1(&self) -> bool {
        matches!(self.kind, Kind::Raw(StationConfig { roce_v1: true, .. }, _))
    }

    /// [GID table](Self::gids) under this profile.
    #[must_use]
    pub fn gids_as(&self, profile: Option<&Profile>) -> Vec<Gid> {
        self.gid_layout(profile).table(self.addresses.iter().map(|address| address.ip))
    }

    /// [Port](Self::port) under this profile.
    #[must_use]
    pub fn port_as(&self, profile: Option<&Profile>) -> PortAttr {
        profile.map_or(self.port(), |profile| profile.port(self.port()))
    }

    /// [Attributes](Self::attributes) under this profile.
    #[must_use]
    pub fn attributes_as(&self, profile: Option<&Profile>) -> DeviceAttr {
        let limits = Limits::default();
        let mut attr = self.attributes(profile.map_or(limits, |profile| profile.limits(limits)));
        profile.iter().for_each(|profile| profile.apply(&mut attr));
        attr
    }
}
