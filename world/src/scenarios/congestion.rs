use std::time::Duration;

use roce_fabric::QueueCounters;
use roce_transport::{
    addr::{Mtu, Qpn},
    qp::QpType,
    work::SendWr,
};

use crate::{
    failure::Failure,
    line::End::{self, A, B, C, D},
    node::{Options, address},
    world::{Shown, World},
};

const STEP: Duration = Duration::from_micros(500);

/// ECN-capable (ECT).
fn options() -> Options {
    Options { mtu: Mtu::B1024, traffic_class: 2, depth: 256, ..Options::default() }
}

pub(crate) fn two_flows(world: &mut World) -> Result<(), Failure> {
    let (first, b1) = world.connect(options());
    let (second, b2) = world.connect(options());
    for (qpn, name) in [(first, "A1"), (second, "A2"), (b1, "B1"), (b2, "B2")] {
        world.name(qpn, name);
    }
    world[A].buffer(8192);
    world[B].buffer(8192);
    world.say(
        "A1 and A2 write to B1 and B2 through one port of 1 Gbit/s, which marks packets when its \
         queue holds more than 10 KB. The receiver of a marked packet sends the sender a \
         congestion notification packet (CNP), at most every 50 µs. The sender shrinks its window \
         and cuts its rate (DCQCN); without CNPs the rate recovers step by step. Only congestion \
         control is drawn.",
    )?;
    world.shown = Shown::Congestion;
    post(world, A, first, B)?;
    post(world, A, second, B)?;
    world.run_for(Duration::from_micros(700))?;
    world.say("The same for the next milliseconds, in figures:")?;
    world.shown = Shown::Nothing;
    world.figures("\n     time      A1 rate   A1 window      A2 rate   A2 window")?;
    for step in 0..10 {
        let figures = [first, second].map(|qpn| match world[A].adapter.query_qp(qpn) {
            Some(info) => {
                let rate = info
                    .rate
                    .map_or("unlimited".into(), |bits| format!("{} Mbit/s", bits / 1_000_000));
                format!("{rate:>12}  {:>8} B", info.window)
            }
            None => String::new(),
        });
        let at = 0.7 + 0.5 * f64::from(step);
        world.figures(&format!("  {at:>4.1} ms {}  {}", figures[0], figures[1]))?;
        world.run_for(STEP)?;
    }
    world.say(&format!("The port has {}", seen(world.network.port(None))))
}

pub(crate) fn incast(world: &mut World) -> Result<(), Failure> {
    let senders = [(A, "D1"), (B, "D2"), (C, "D3")].map(|(end, name)| {
        let (qpn, far) = world.connect_as([end, D], QpType::Rc, [options(); 2]);
        world.name(qpn, &end.to_string());
        world.name(far, name);
        (end, qpn)
    });
    for node in &mut world.nodes {
        node.buffer(8192);
    }
    world.say(
        "A, B and C write to D at the same time, as servers do that respond to one client \
         (incast). Each has its own link into the network; their packets share the queue of the \
         port to D, which carries 1 Gbit/s. The queue marks packets when it holds more than 10 KB. \
         D sends a CNP to each queue pair whose packet was marked. Only congestion control is \
         drawn.",
    )?;
    world.shown = Shown::Congestion;
    for (end, qpn) in senders {
        post(world, end, qpn, D)?;
    }
    world.run_for(Duration::from_micros(800))?;
    world.say(
        "No sender knows of the others; each gets CNPs for its own packets only. The next \
         milliseconds in figures, rates in Mbit/s:",
    )?;
    world.shown = Shown::Nothing;
    world.figures("\n     time        A        B        C      all")?;
    for step in 0..12 {
        let rates = senders.map(|(end, qpn)| {
            world[end].adapter.query_qp(qpn).and_then(|info| info.rate).unwrap_or_default()
                / 1_000_000
        });
        let [a, b, c] = rates.map(|rate| if rate == 0 { "-".into() } else { rate.to_string() });
        let sum: u64 = rates.iter().sum();
        let at = 0.8 + 0.5 * f64::from(step);
        world.figures(&format!("  {at:>4.1} ms {a:>8} {b:>8} {c:>8} {sum:>8}"))?;
        world.run_for(STEP)?;
    }
    let port = world.network.port(Some(address(D)));
    world.say(&format!("The port to D has {}", seen(port)))
}

fn post(world: &mut World, end: End, qpn: Qpn, to: End) -> Result<(), Failure> {
    let (near, far) = (world[end].first_buffer(), world[to].first_buffer());
    for id in 0..100 {
        world.post_send(end, qpn, &SendWr::write(id, far.remote(0), near.sge(0, 8192)))?;
    }
    Ok(())
}

fn seen(port: QueueCounters) -> String {
    format!(
        "forwarded {} packets, marked {} and dropped {}; its queue held {} KB at most, at the \
         start, before the first CNP arrived.",
        port.passed,
        port.marked,
        port.dropped,
        port.longest / 1000
    )
}
