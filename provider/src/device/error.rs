//! Errors of opening a device.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::bind::BindError;

/// Error of opening a device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No device has this name.
    #[error(
        "device {0} does not exist; `roce devinfo` lists the devices, and udp:ADDRESS names one by \
         its address"
    )]
    NoSuchDevice(String),
    /// The text after `udp:` is not an IP address.
    #[error("{0} is not an IP address; name a device like udp:192.0.2.1 or udp:2001:db8::1")]
    NoAddress(String),
    /// A raw device's name has an invalid word.
    #[error("{text}: {word:?} is wrong: {hint}")]
    RawSpec {
        /// Text from `raw:` or `xdp:` on.
        text: String,
        /// The word.
        word: String,
        /// Valid words.
        hint: String,
    },
    /// The interface cannot have a raw device.
    #[error("the interface {interface} {why}")]
    NoInterface {
        /// The interface.
        interface: String,
        /// The reason.
        why: &'static str,
    },
    /// An address cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The MTU is below the smallest path MTU's need.
    #[error(
        "the MTU {link_mtu} of {device} is too small: packets of path MTU 256 need 336 bytes; \
         raise it (ip link set DEV mtu 1500)"
    )]
    MtuTooSmall {
        /// The device.
        device: String,
        /// MTU of its interface.
        link_mtu: u32,
    },
    /// The device cannot have several shards.
    #[error("{device} cannot have several shards: {why}")]
    Shards {
        /// The device.
        device: String,
        /// The reason.
        why: &'static str,
    },
    /// The capture file cannot be written.
    #[error("cannot write the capture {path}: {source}")]
    Capture {
        /// The file.
        path: PathBuf,
        /// Error that the system returned.
        source: io::Error,
    },
    /// The system refuses descriptors, threads or random numbers.
    #[error("cannot start the device: {0}")]
    System(#[from] io::Error),
}
