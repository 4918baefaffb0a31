//! Errors of taking an address.

use std::{io, net::IpAddr};

use thiserror::Error;

/// Reason why an address cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another program has the port.
    #[error(
        "port 4791 on {0} is taken: rdma_rxe is loaded, or a roce device has this address that does \
         not share it, or whose process is stopped; unload it (rmmod rdma_rxe), close the other or \
         have it go on, or choose another address (udp:ADDRESS) or device, such as roce_lo"
    )]
    Taken(IpAddr),
    /// The address is not (or not yet) one of this host's.
    #[error("{0} is not an address of this host; `roce devinfo` lists those that can be used")]
    NotLocal(IpAddr),
    /// Every address of 127.0.0.0/24 is in use.
    #[error(
        "port 4791 is taken on every address from 127.0.0.1 to 127.0.0.254; close some of the \
         programs that use them"
    )]
    LoopbackFull,
    /// Any other error of the system.
    #[error("cannot open UDP port 4791 on {address}: {source}")]
    System {
        /// The address.
        address: IpAddr,
        /// Error of the system.
        source: io::Error,
    },
}
