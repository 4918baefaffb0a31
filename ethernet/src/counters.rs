//! Counters of frames.

use std::ops::AddAssign;

use roce_transport::event::Counter;

macro_rules! frame_counters {
    ($($field:ident, $name:literal, $doc:literal;)*) => {
        /// Counters of a link that builds its own frames; zero for others.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        #[non_exhaustive]
        pub struct FrameCounters { $(#[doc = $doc] pub $field: u64,)* }

        impl AddAssign for FrameCounters {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }

        impl FrameCounters {
            /// Returns every counter in a fixed order.
            pub fn named(&self) -> impl Iterator<Item = Counter> + use<> {
                [$(Counter { name: $name, explanation: $doc, value: self.$field },)*].into_iter()
            }
        }
    };
}

frame_counters! {
    truncated, "frame_truncated", "Frames that are shorter than their headers say.";
    vlan_stack, "frame_vlan_stack", "Frames with more than one VLAN tag, or half of one.";
    other_vlan, "frame_other_vlan", "Frames of a VLAN that is not the device's.";
    not_for_us, "frame_not_for_us", "Frames for another MAC or IP address.";
    other_protocol, "frame_other_protocol", "Frames of a protocol that the device does not speak.";
    bad_ip, "frame_bad_ip", "IP headers that cannot be: version, lengths, IPv4 checksum, extension headers.";
    fragments, "frame_fragments", "IP fragments, which are never put together.";
    bad_udp, "frame_bad_udp", "RoCE packets whose UDP length or source address cannot be.";
    bad_arp, "frame_bad_arp", "ARP, ICMP, IGMP, neighbour and listener discovery messages that break a rule of theirs.";
    resolved, "neighbor_resolved", "Neighbours that have told their MAC address.";
    unanswered, "neighbor_unanswered", "Neighbours that have not answered three questions.";
    moved, "neighbor_moved", "Neighbours that have another MAC address than before.";
    table_full, "neighbor_table_full", "Addresses that were not asked for because too many others are.";
    waiting_lost, "neighbor_waiting_lost", "Datagrams lost because the MAC address of the next hop was not found, or not in time.";
    no_route, "frame_no_route", "Datagrams for another network when there is no gateway.";
    answered, "frame_answered", "ARP, neighbour discovery and echo requests that were answered.";
    group_queries, "group_queries", "Questions of routers and switches for multicast groups.";
    group_reports, "group_reports", "Messages about multicast groups that were sent to routers and switches.";
    conflicts, "address_conflicts", "Frames by which another host claims an address of the device.";
    dhcp_leases, "dhcp_leases", "Times that a DHCP server has granted an address, or more time for it.";
    dhcp_lost, "dhcp_lost", "Leased addresses that were given up: refused by the server, run out, or given back.";
    dhcp_refused, "dhcp_refused", "Times that a DHCP server has refused an address.";
    dhcp_declined, "dhcp_declined", "Addresses that a DHCP server has granted and another host has.";
    dhcp_bad, "dhcp_bad", "Messages of DHCP servers that break a rule, or grant what cannot be used.";
    dhcp_unused, "dhcp_unused", "Messages of DHCP servers that came too late, or from a second server.";
    path_mtu, "frame_path_mtu", "Routers' reports that a packet of the device was too long for the path.";
    pauses, "frame_pauses", "Pause frames, of everything or of priorities, that were obeyed.";
    paused, "frame_paused", "Datagrams and raw packets that waited for the end of a pause.";
    unread, "frame_unread", "Runs of datagrams that the kernel could not hand over.";
    xdp_no_chunk, "xdp_no_chunk", "Frames that an AF_XDP socket had no memory for, or that were too long for it.";
    xdp_ring_full, "xdp_ring_full", "Frames that the ring of an AF_XDP socket had no room for.";
    xdp_fill_empty, "xdp_fill_empty", "Times that an interface found no free memory in the ring of an AF_XDP socket.";
    xdp_invalid, "xdp_invalid", "Entries in rings of an AF_XDP socket that the kernel has refused.";
    merged, "frame_merged", "Frames for raw packet queue pairs that the kernel has merged into one that no wire carries.";
}
