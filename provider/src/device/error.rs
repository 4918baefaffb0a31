//! Errors of opening a device.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::bind::BindError;

/// Error of opening a device.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "an error's comment describes its fields")]
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
    /// Invalid word in a raw device's name, the text from `raw:` or `xdp:` on. `hint`: valid words.
    #[error("{text}: {word:?} is wrong: {hint}")]
    RawSpec { text: String, word: String, hint: String },
    /// The interface cannot have a raw device.
    #[error("the interface {interface} {why}")]
    NoInterface { interface: String, why: &'static str },
    /// Unusable address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The interface's MTU is below that of path MTU 256.
    #[error(
        "the MTU {link_mtu} of {device} is too small: packets of path MTU 256 need 336 bytes; \
         raise it (ip link set DEV mtu 1500)"
    )]
    MtuTooSmall { device: String, link_mtu: u32 },
    /// The device cannot have several shards.
    #[error("{device} cannot have several shards: {why}")]
    Shards { device: String, why: &'static str },
    /// The capture file cannot be written.
    #[error("cannot write the capture {path}: {source}")]
    Capture { path: PathBuf, source: io::Error },
    /// The system refuses descriptors, threads or random numbers.
    #[error("cannot start the device: {0}")]
    System(#[from] io::Error),
}
