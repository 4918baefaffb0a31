use crate::{
    failure::Failure,
    scenarios::{congestion, connecting, datagrams, loss, reliable, scripted, shared},
    script::Script,
    settings::Settings,
    viewer::Viewer,
    world::World,
};

/// Built-in scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Letters and hyphens.
    pub name: &'static str,
    /// Subject.
    pub title: &'static str,
    /// Number of adapters.
    pub ends: usize,
    /// Clauses of a [`FaultPlan`](roce_fabric::FaultPlan).
    pub network: &'static str,
    pub(crate) play: fn(&mut World<'_>) -> Result<(), Failure>,
}

macro_rules! scenarios {
    ($($name:literal $ends:literal $network:literal $play:path => $title:literal;)*) => {
        /// In reading order.
        pub const SCENARIOS: &[Scenario] = &[$(Scenario {
            name: $name,
            title: $title,
            ends: $ends,
            network: $network,
            play: $play,
        },)*];
    };
}

scenarios! {
    "bring-up" 2 "" reliable::bring_up => "a queue pair from RESET to RTS";
    "send" 2 "" reliable::send => "a message into a receive request";
    "write" 2 "" reliable::write => "RDMA WRITE, into the peer's memory";
    "read" 2 "drop ack nth 1" reliable::read => "RDMA READ, out of the peer's memory";
    "atomics" 2 "" reliable::atomics => "compare and swap, fetch and add";
    "loss" 2 "drop write middle nth 2" loss::nak => "a lost packet, a NAK, the retransmission";
    "timeout" 2 "drop 100% request times 3" loss::timeout => "lost requests, probes, the ACK timer";
    "rnr" 2 "" loss::not_ready => "a receiver that is not ready (RNR)";
    "duplicate-atomic" 2 "drop response nth 1" loss::duplicate_atomic => "a duplicate atomic, executed once";
    "wrong-key" 2 "" loss::wrong_key => "a wrong R_Key and its errors on both sides";
    "window" 2 "" reliable::window => "packets in flight, few acknowledgements";
    "ud" 2 "" datagrams::ud => "datagrams, and a wrong Q_Key";
    "srq" 2 "" shared::srq => "one shared receive queue, two connections";
    "xrc" 2 "" shared::xrc => "an extended reliable connection (XRC)";
    "multicast" 2 "" datagrams::multicast => "a datagram to a multicast group";
    "cm" 2 "drop qp 1 from 10.0.0.2 nth 1" connecting::cm => "a connection by CM messages, one lost";
    "congestion" 2 "rate 1gbit shared, queue 1mb, ecn 10kb..40kb 20%" congestion::two_flows => "two flows, one port, DCQCN";
    "incast" 4 "rate 1gbit, queue 1mb, ecn 10kb..40kb 20%" congestion::incast => "three senders, one receiver, one port";
    "unsignaled" 2 "" reliable::unsignaled => "unsignaled sends that block the send queue";
}

/// Connected queue pairs without requests, for a player's posts.
pub const FREE: Scenario = Scenario {
    name: "free",
    title: "two queue pairs, and requests of your own",
    ends: 2,
    network: "",
    play: reliable::free,
};

/// Plays a scenario to its end or first error. The world is that after the last drawn adapter call.
///
/// # Errors
/// An invalid network in the settings.
pub fn play<'a>(
    scenario: &Scenario,
    settings: &Settings,
    viewer: &'a mut dyn Viewer,
) -> Result<(World<'a>, Result<(), Failure>), Failure> {
    let mut world = World::new(scenario.ends, scenario.network, settings, viewer)?;
    let result = (scenario.play)(&mut world).and_then(|()| world.run_out());
    Ok((world, result))
}

/// Plays a script like [`play`]. The script's network overrides the settings', the settings' fates
/// the script's.
pub fn play_script<'a>(
    script: &Script,
    settings: &Settings,
    viewer: &'a mut dyn Viewer,
) -> Result<(World<'a>, Result<(), Failure>), Failure> {
    let mut fates = script.fates.clone();
    fates.extend(&settings.fates);
    let network = script.network.clone().or_else(|| settings.network.clone());
    let settings = Settings { fates, network, ..settings.clone() };
    let mut world = World::new(script.ends, "", &settings, viewer)?;
    let result = scripted::play(&mut world, script).and_then(|()| world.run_out());
    Ok((world, result))
}
