//! The scenarios by name.

use super::{
    scenarios::{congestion, connecting, datagrams, loss, reliable, shared},
    world::World,
};
use crate::failure::Failure;

/// A lesson of a page.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Faults of the network, behind a comma.
    pub(super) faults: &'static str,
    pub(super) play: fn(&mut World) -> Result<(), Failure>,
}

macro_rules! scenarios {
    ($($name:literal $faults:literal $play:path => $title:literal;)*) => {
        /// Every scenario, in the order in which one reads them.
        pub(super) const ALL: &[Scenario] = &[$(Scenario {
            name: $name,
            title: $title,
            faults: $faults,
            play: $play,
        },)*];
    };
}

scenarios! {
    "bring-up" "" reliable::bring_up => "a queue pair from RESET to RTS";
    "send" "" reliable::send => "a message into a receive request";
    "write" "" reliable::write => "RDMA WRITE, into the peer's memory";
    "read" ", drop ack nth 1" reliable::read => "RDMA READ, out of the peer's memory";
    "atomics" "" reliable::atomics => "compare and swap, fetch and add";
    "loss" ", drop write middle nth 2" loss::nak => "a lost packet, a NAK, and all behind it again";
    "timeout" ", drop 100% request times 3" loss::timeout => "lost requests, probes and the acknowledge timer";
    "rnr" "" loss::not_ready => "a receiver that is not ready (RNR)";
    "duplicate-atomic" ", drop response nth 1" loss::duplicate_atomic => "an atomic that comes twice and is carried out once";
    "wrong-key" "" loss::wrong_key => "a wrong R_Key, and what follows on both sides";
    "window" "" reliable::window => "many packets under way, and few acknowledgements";
    "ud" "" datagrams::ud => "datagrams, and a wrong Q_Key";
    "srq" "" shared::srq => "one shared receive queue, two connections";
    "xrc" "" shared::xrc => "an extended reliable connection (XRC)";
    "multicast" "" datagrams::multicast => "a datagram to a multicast group";
    "cm" ", drop qp 1 from 10.0.0.2 nth 1" connecting::cm => "a connection by messages, one of them lost";
    "congestion" ", rate 1gbit shared, queue 1mb, ecn 10kb..40kb 20%" congestion::two_flows => "two flows, one port, DCQCN";
    "unsignaled" "" reliable::unsignaled => "unsignaled sends that block the send queue";
}

/// The scenario of this name.
pub(super) fn find(name: &str) -> Result<&'static Scenario, Failure> {
    ALL.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
        format!("there is no scenario {name:?}; `roce demo --list` shows all of them").into()
    })
}
