//! Devices on a simulated network.

use std::net::IpAddr;

use roce_transport::addr::Mtu;

use super::{Device, OpenError, OpenOptions};
use crate::{link::Fabric, verbs::Context};

impl Fabric {
    /// Opens a device with this address and MTU 4096.
    ///
    /// # Errors
    /// [`OpenError::Bind`] if another device has the address; [`OpenError::System`],
    /// [`OpenError::Capture`].
    pub fn open(&self, address: IpAddr, options: OpenOptions) -> Result<Context, OpenError> {
        let link = self.link(address)?;
        Device::with_link(&format!("fabric:{address}"), link, Mtu::B4096, options)
    }
}
