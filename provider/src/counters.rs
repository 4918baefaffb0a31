//! Counters of a link.

use std::{net::IpAddr, ops::AddAssign, time::Duration};

use roce_transport::event::Counter;
use serde::{Deserialize, Serialize};

use crate::clock;
use roce_ethernet::{FrameCounters, Lease, Prefix};

macro_rules! link_counters {
    ($($field:ident, $name:literal, $doc:literal;)*) => {
        /// Totals of a link since opening.
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct LinkCounters {
            $(#[doc = $doc] pub $field: u64,)*
            /// Latest message of `send_errors`.
            pub last_send_error: Option<String>,
            /// Latest message of `bind_errors`.
            pub last_bind_error: Option<String>,
            /// Frame counters.
            pub frames: FrameCounters,
            /// Leased address.
            pub lease: Option<LeasedAddress>,
        }

        impl AddAssign for LinkCounters {
            fn add_assign(&mut self, other: Self) {
                let longest_hold = self.longest_hold.max(other.longest_hold);
                $(self.$field += other.$field;)*
                self.longest_hold = longest_hold;
                self.last_send_error = self.last_send_error.take().or(other.last_send_error);
                self.last_bind_error = self.last_bind_error.take().or(other.last_bind_error);
                self.frames += other.frames;
                self.lease = self.lease.take().or(other.lease);
            }
        }

        impl LinkCounters {
            /// All counters in a fixed order.
            pub fn named(&self) -> impl Iterator<Item = Counter> + use<> {
                [$(Counter { name: $name, explanation: $doc, value: self.$field },)*]
                    .into_iter()
                    .chain(self.frames.named())
            }
        }
    };
}

link_counters! {
    send_calls, "link_send_calls", "Calls that sent packets.";
    sent_runs, "link_sent_runs",
        "Runs of datagrams handed to the link, each with one call's worth of segments.";
    shared_runs, "link_shared_runs",
        "Of these, runs that went to another device of this host through shared memory.";
    corked, "link_corked",
        "Send requests corked: they waited for the next posts, to leave with one call.";
    forwarded, "link_forwarded",
        "Datagrams forwarded to other processes of this host that have the same address.";
    send_errors, "link_send_errors", "Runs of datagrams that could not be sent.";
    full, "link_full", "Times that the link was full and packets waited.";
    socket_drops, "link_socket_drops",
        "Datagrams dropped by the socket: its receive buffer was full.";
    receive_errors, "link_receive_errors", "Calls that could not read the link.";
    bind_errors, "link_bind_errors", "New addresses of the interface that were unusable.";
    longest_hold, "link_longest_hold",
        "Longest time that the device's lock was held, in nanoseconds. Posts, and polls that \
         find fewer messages than a batch, count only where packets go through sockets.";
    long_holds, "link_long_holds", "Times that the device's lock was held for more than 200 µs.";
    flow_dropped, "flow_dropped", "Frames that a flow of a raw packet queue pair drops.";
    flow_unmatched, "flow_unmatched",
        "Frames that no flow of a raw packet queue pair takes, while there are flows.";
}

/// Address leased by a DHCP server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeasedAddress {
    /// Address.
    pub address: IpAddr,
    /// Prefix length.
    pub length: u8,
    /// DHCP server.
    pub server: IpAddr,
    /// End of the lease since the Unix epoch.
    pub until: Duration,
}

impl LeasedAddress {
    pub(crate) fn of(lease: &Lease) -> Self {
        let Prefix { address, length } = lease.address;
        Self { address, length, server: lease.server.into(), until: clock::wall(lease.until) }
    }
}
