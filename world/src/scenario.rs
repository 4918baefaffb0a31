//! The scenarios by name.

use crate::{
    failure::Failure,
    scenarios::{congestion, connecting, datagrams, loss, reliable, scripted, shared},
    script::Script,
    settings::Settings,
    viewer::Viewer,
    world::World,
};

/// A lesson of a page.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name, of letters and hyphens.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Faults of the network, behind a comma.
    pub(crate) faults: &'static str,
    pub(crate) play: fn(&mut World<'_>) -> Result<(), Failure>,
}

macro_rules! scenarios {
    ($($name:literal $faults:literal $play:path => $title:literal;)*) => {
        /// Every scenario, in the order in which one reads them.
        pub const SCENARIOS: &[Scenario] = &[$(Scenario {
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

/// Two connected queue pairs, and nothing that is posted: for what a player posts.
pub const FREE: Scenario = Scenario {
    name: "free",
    title: "two queue pairs, and requests of your own",
    faults: "",
    play: reliable::free,
};

/// Plays a scenario, and what the settings add, to its end or to the first error, the viewer's
/// included. Returns the world as it is then. The state is that after the adapter's call whose lines
/// were drawn last.
///
/// # Errors
/// When the settings name a network that cannot be read.
pub fn play<'a>(
    scenario: &Scenario,
    settings: &Settings,
    viewer: &'a mut dyn Viewer,
) -> Result<(World<'a>, Result<(), Failure>), Failure> {
    let mut world = World::new(scenario.faults, settings, viewer)?;
    let result = (scenario.play)(&mut world).and_then(|()| world.run_out());
    Ok((world, result))
}

/// Plays a script, as [`play`] does a scenario. Where both say something of the network, the script
/// is right; where both say something of a datagram, the settings are.
///
/// # Errors
/// When the settings name a network that cannot be read.
pub fn play_script<'a>(
    script: &Script,
    settings: &Settings,
    viewer: &'a mut dyn Viewer,
) -> Result<(World<'a>, Result<(), Failure>), Failure> {
    let mut fates = script.fates.clone();
    fates.extend(&settings.fates);
    let network = script.network.clone().or_else(|| settings.network.clone());
    let settings = Settings { fates, network, ..settings.clone() };
    let mut world = World::new("", &settings, viewer)?;
    let result = scripted::play(&mut world, script).and_then(|()| world.run_out());
    Ok((world, result))
}
