//! Two flows that share a port.

use std::time::Duration;

use roce_transport::{
    addr::{Mtu, Qpn},
    work::SendWr,
};

use crate::{
    failure::Failure,
    line::Side,
    node::Options,
    world::{Shown, World},
};

const A: Side = Side::Left;

/// Time between two lines of figures.
const STEP: Duration = Duration::from_micros(500);

pub(crate) fn two_flows(world: &mut World) -> Result<(), Failure> {
    let options = Options { mtu: Mtu::B1024, traffic_class: 2, depth: 256, ..Options::default() };
    let (first, b1) = world.connect(options);
    let (second, b2) = world.connect(options);
    for (qpn, name) in [(first, "A1"), (second, "A2"), (b1, "B1"), (b2, "B2")] {
        world.name(qpn, name);
    }
    let (near, far) = (world.a.buffer(8192), world.b.buffer(8192));
    world.say(
        "A1 and A2 write to B1 and B2 through one port of 1 Gbit/s, which marks packets when its \
         queue holds more than 10 KB. Who receives a marked packet tells its sender, at most every \
         50 µs, by a congestion notification packet (CNP). The sender shrinks its window, and cuts \
         its rate (DCQCN); without notifications the rate comes back step by step. Only what \
         congestion control does is drawn.",
    )?;
    world.shown = Shown::Congestion;
    let post = |world: &mut World, qpn: Qpn, from: u64| -> Result<(), Failure> {
        for id in from..from + 100 {
            world.post_send(A, qpn, &SendWr::write(id, far.remote(0), near.sge(0, 8192)))?;
        }
        Ok(())
    };
    post(world, first, 0)?;
    post(world, second, 0)?;
    world.run_for(Duration::from_micros(700))?;
    world.say("The same for the next milliseconds, in figures:")?;
    world.shown = Shown::Nothing;
    world.figures("\n     time      A1 rate   A1 window      A2 rate   A2 window")?;
    for step in 0..10 {
        let figures = [first, second].map(|qpn| match world.a.adapter.query_qp(qpn) {
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
    let port = world.port();
    world.say(&format!(
        "The port has forwarded {} packets, marked {} and dropped {}; its queue held {} KB at most, \
         at the start, before the first notification came.",
        port.passed,
        port.marked,
        port.dropped,
        port.longest / 1000
    ))?;
    Ok(())
}
