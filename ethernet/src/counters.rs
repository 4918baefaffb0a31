use std::ops::AddAssign;

use roce_transport::event::Counter;

macro_rules! frame_counters {
    ($($field:ident, $name:literal, $doc:literal;)*) => {
        /// Frame counters of a link that builds its own frames; zero for others.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        #[non_exhaustive]
        pub struct FrameCounters { $(#[doc = $doc] pub $field: u64,)* }

        impl AddAssign for FrameCounters {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }

        impl FrameCounters {
            /// Every counter in a fixed order.
            pub fn named(&self) -> impl Iterator<Item = Counter> + use<> {
                [$(Counter { name: $name, explanation: $doc, value: self.$field },)*].into_iter()
            }
        }
    };
}

/// Selects the counter of a refused frame.
pub(super) type Unused = fn(&mut FrameCounters) -> &mut u64;
pub(super) type Handled<T = ()> = Result<T, Unused>;

pub(super) fn refuse_if(refused: bool, counter: Unused) -> Handled {
    if refused { Err(counter) } else { Ok(()) }
}

pub(super) const TRUNCATED: Unused = |counters| &mut counters.truncated;
pub(super) const VLAN_STACK: Unused = |counters| &mut counters.vlan_stack;
pub(super) const OTHER_VLAN: Unused = |counters| &mut counters.other_vlan;
pub(super) const NOT_FOR_US: Unused = |counters| &mut counters.not_for_us;
pub(super) const OTHER_PROTOCOL: Unused = |counters| &mut counters.other_protocol;
pub(super) const BAD_IP: Unused = |counters| &mut counters.bad_ip;
pub(super) const FRAGMENTS: Unused = |counters| &mut counters.fragments;
pub(super) const BAD_UDP: Unused = |counters| &mut counters.bad_udp;
pub(super) const BAD_ARP: Unused = |counters| &mut counters.bad_arp;

frame_counters! {
    truncated, "frame_truncated", "Frames that are shorter than their headers say.";
    vlan_stack, "frame_vlan_stack", "Frames with more than one VLAN tag, or half of one.";
    other_vlan, "frame_other_vlan", "Frames of a VLAN that is not the device's.";
    not_for_us, "frame_not_for_us", "Frames for another MAC or IP address.";
    other_protocol, "frame_other_protocol", "Frames of a protocol that the device does not speak.";
    bad_ip, "frame_bad_ip", "Invalid IP headers: version, lengths, IPv4 checksum, extension headers.";
    fragments, "frame_fragments", "IP fragments, which are not reassembled.";
    bad_udp, "frame_bad_udp", "RoCE packets with an invalid UDP length or source address.";
    bad_arp, "frame_bad_arp", "Invalid messages of ARP, ICMP, IGMP, neighbour or listener discovery.";
    resolved, "neighbor_resolved", "Neighbours whose MAC address was resolved.";
    unanswered, "neighbor_unanswered", "Neighbours that did not reply to three requests.";
    moved, "neighbor_moved", "Neighbours whose MAC address changed.";
    table_full, "neighbor_table_full", "Addresses not resolved because the neighbour table is full.";
    waiting_lost, "neighbor_waiting_lost", "Datagrams dropped because the next hop's MAC address was not resolved, or too late.";
    no_route, "frame_no_route", "Datagrams for another network when there is no gateway.";
    answered, "frame_answered", "Replies to ARP, neighbour discovery and echo requests.";
    group_queries, "group_queries", "Multicast group queries of routers and switches.";
    group_reports, "group_reports", "Multicast group reports sent to routers and switches.";
    conflicts, "address_conflicts", "Frames by which another host claims an address of the device.";
    dhcp_leases, "dhcp_leases", "Leases that a DHCP server granted or renewed.";
    dhcp_lost, "dhcp_lost", "Leases that ended: refused by the server, expired, or released.";
    dhcp_refused, "dhcp_refused", "DHCPNAK messages: a server refused an address.";
    dhcp_declined, "dhcp_declined", "DHCPDECLINE messages: another host has the leased address.";
    dhcp_bad, "dhcp_bad", "Invalid messages of DHCP servers, and leases that are unusable.";
    dhcp_unused, "dhcp_unused", "Messages of DHCP servers that came too late, or from a second server.";
    path_mtu, "frame_path_mtu", "ICMP messages of routers: a packet was larger than the path MTU.";
    pauses, "frame_pauses", "Pause frames obeyed, of the link or of priorities.";
    paused, "frame_paused", "Datagrams and raw packets that waited for the end of a pause.";
    unread, "frame_unread", "Runs of datagrams that the kernel could not hand over.";
    xdp_no_chunk, "xdp_no_chunk", "Frames that an AF_XDP socket had no memory for, or that were too long for it.";
    xdp_ring_full, "xdp_ring_full", "Frames that the ring of an AF_XDP socket had no room for.";
    xdp_fill_empty, "xdp_fill_empty", "Times that an interface found no free memory in the ring of an AF_XDP socket.";
    xdp_invalid, "xdp_invalid", "Entries in rings of an AF_XDP socket that the kernel has refused.";
    merged, "frame_merged", "Frames for raw packet queue pairs that the kernel has merged into one that no wire carries.";
}
