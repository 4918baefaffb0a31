//! Counters of a link.

use std::{net::IpAddr, ops::AddAssign, time::Duration};

use roce_transport::event::Counter;
use serde::{Deserialize, Serialize};

use crate::{
    clock,
    ethernet::{FrameCounters, Lease, Prefix},
};

/// Totals of a link since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LinkCounters {
    /// Calls that sent something.
    pub send_calls: u64,
    /// Runs of datagrams handed to the link.
    pub sent_runs: u64,
    /// Of these, runs that went to another device of this host through shared memory.
    pub shared_runs: u64,
    /// Send requests that waited for those that the program posted right behind them, to leave with
    /// the same call.
    pub corked: u64,
    /// Datagrams forwarded to other processes of this host that have the same address.
    pub forwarded: u64,
    /// Runs of datagrams that could not be sent.
    pub send_errors: u64,
    /// Times that the link was full, so that what was to be sent waited.
    pub full: u64,
    /// Message of the last of these errors.
    pub last_send_error: Option<String>,
    /// Datagrams that arrived and found no room in the receive buffers of the link's own sockets.
    pub socket_drops: u64,
    /// Calls that could not read the link.
    pub receive_errors: u64,
    /// Addresses of the interface that came but could not be used.
    pub bind_errors: u64,
    /// Message of the last of these errors.
    pub last_bind_error: Option<String>,
    /// Longest time that the device's lock was held, in nanoseconds; posts, and polls that find
    /// fewer messages than a batch, count only where packets go through sockets.
    pub longest_hold: u64,
    /// Times that the device's lock was held for more than 200 µs.
    pub long_holds: u64,
    /// Frames that a flow of a raw packet queue pair drops.
    pub flow_dropped: u64,
    /// Frames that no flow of a raw packet queue pair takes, while there are flows.
    pub flow_unmatched: u64,
    /// Those of frames.
    pub frames: FrameCounters,
    /// The address that a server has leased to the device.
    pub lease: Option<LeasedAddress>,
}

/// An address that a DHCP server has leased to a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeasedAddress {
    /// The address.
    pub address: IpAddr,
    /// Length of its network.
    pub length: u8,
    /// The server.
    pub server: IpAddr,
    /// Time until which it may be used, unless the server grants more, since the Unix epoch.
    pub until: Duration,
}

impl LeasedAddress {
    pub(crate) fn of(lease: &Lease) -> Self {
        let Prefix { address, length } = lease.address;
        Self { address, length, server: lease.server.into(), until: clock::wall(lease.until) }
    }
}

impl AddAssign for LinkCounters {
    /// The counters of two links of one device.
    fn add_assign(&mut self, other: Self) {
        let Self {
            send_calls,
            sent_runs,
            shared_runs,
            corked,
            forwarded,
            send_errors,
            full,
            last_send_error,
            socket_drops,
            receive_errors,
            bind_errors,
            last_bind_error,
            longest_hold,
            long_holds,
            flow_dropped,
            flow_unmatched,
            frames,
            lease,
        } = other;
        self.send_calls += send_calls;
        self.sent_runs += sent_runs;
        self.shared_runs += shared_runs;
        self.corked += corked;
        self.forwarded += forwarded;
        self.send_errors += send_errors;
        self.full += full;
        self.last_send_error = self.last_send_error.take().or(last_send_error);
        self.socket_drops += socket_drops;
        self.receive_errors += receive_errors;
        self.bind_errors += bind_errors;
        self.last_bind_error = self.last_bind_error.take().or(last_bind_error);
        self.longest_hold = self.longest_hold.max(longest_hold);
        self.long_holds += long_holds;
        self.flow_dropped += flow_dropped;
        self.flow_unmatched += flow_unmatched;
        self.frames += frames;
        self.lease = self.lease.take().or(lease);
    }
}

impl LinkCounters {
    /// Every counter, in a fixed order.
    pub fn named(&self) -> impl Iterator<Item = Counter> + use<> {
        [
            ("link_send_calls", "Calls that sent something.", self.send_calls),
            (
                "link_sent_runs",
                "Runs of datagrams handed to the link, each with one call's worth of segments.",
                self.sent_runs,
            ),
            (
                "link_shared_runs",
                "Of these, runs that went to another device of this host through shared memory.",
                self.shared_runs,
            ),
            (
                "link_corked",
                "Send requests that waited for those posted right behind them, to leave with one call.",
                self.corked,
            ),
            (
                "link_forwarded",
                "Datagrams forwarded to other processes of this host that have the same address.",
                self.forwarded,
            ),
            ("link_send_errors", "Runs of datagrams that could not be sent.", self.send_errors),
            (
                "link_full",
                "Times that the link was full, so that what was to be sent waited.",
                self.full,
            ),
            (
                "link_socket_drops",
                "Datagrams lost in our own socket: its receive buffer had no room.",
                self.socket_drops,
            ),
            ("link_receive_errors", "Calls that could not read the link.", self.receive_errors),
            (
                "link_bind_errors",
                "Addresses of the interface that came but could not be used.",
                self.bind_errors,
            ),
            (
                "link_longest_hold",
                "Longest time that the device's lock was held, in nanoseconds.",
                self.longest_hold,
            ),
            (
                "link_long_holds",
                "Times that the device's lock was held for more than 200 µs.",
                self.long_holds,
            ),
            (
                "flow_dropped",
                "Frames that a flow of a raw packet queue pair drops.",
                self.flow_dropped,
            ),
            (
                "flow_unmatched",
                "Frames that no flow of a raw packet queue pair takes, while there are flows.",
                self.flow_unmatched,
            ),
        ]
        .into_iter()
        .map(|(name, explanation, value)| Counter { name, explanation, value })
        .chain(self.frames.named())
    }
}
