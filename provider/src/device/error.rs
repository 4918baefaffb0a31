//! Errors of opening a device.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::bind::BindError;

/// Error of opening a device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No such device.
    #[error(
        "device {0} does not exist; `roce devinfo` lists the devices, and udp:ADDRESS names one by \
         its address"
    )]
    NoSuchDevice(String),
    /// Invalid IP address after `udp:`.
    #[error("{0} is not an IP address; name a device like udp:192.0.2.1 or udp:2001:db8::1")]
    NoAddress(String),
    /// Invalid word in a raw device's name.
    #[error("{text}: {word:?} is wrong: {hint}")]
    RawSpec {
        /// Text from `raw:` or `xdp:` on.
        text: String,
        /// Word.
        word: String,
        /// Valid words.
        hint: String,
    },
    /// The interface cannot have a raw device.
    #[error("the interface {interface} {why}")]
    NoInterface {
        /// Interface.
        interface: String,
        /// Reason.
        why: &'static str,
    },
    /// Unusable address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The MTU is below that of path MTU 256.
    #[error(
        "the MTU {link_mtu} of {device} is too small: packets of path MTU 256 need 336 bytes; \
         raise it (ip link set DEV mtu 1500)"
    )]
    MtuTooSmall {
        /// Device.
        device: String,
        /// Interface MTU.
        link_mtu: u32,
    },
    /// The device cannot have several shards.
    #[error("{device} cannot have several shards: {why}")]
    Shards {
        /// Device.
        device: String,
        /// Reason.
        why: &'static str,
    },
    /// The capture file cannot be written.
    #[error("cannot write the capture {path}: {source}")]
    Capture {
        /// File.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
    /// The system refuses descriptors, threads or random numbers.
    #[error("cannot start the device: {0}")]
    System(#[from] io::Error),
}
