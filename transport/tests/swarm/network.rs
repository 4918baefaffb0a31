use std::time::Duration;

use roce_fabric::{Bottleneck, Conditions, Identification, Marking, Network, Receiver};
use roce_transport::event::DropReason;

use super::dice::Dice;

pub fn network(dice: &mut Dice, seed: u64) -> Network {
    let perfect = dice.one_in(6);
    let share = |dice: &mut Dice, most: u32| {
        let share = if dice.one_in(2) { 0.0 } else { f64::from(dice.below(most + 1)) / 1000.0 };
        if perfect { 0.0 } else { share }
    };
    let conditions = Conditions {
        loss: share(dice, 80),
        duplication: share(dice, 200),
        reordering: share(dice, 50),
        corruption: share(dice, 30),
        ecn: share(dice, 100),
        delay: Duration::from_micros(dice.range(1, 20).into()),
        jitter: Duration::from_micros(if perfect { 0 } else { dice.pick(&[0, 0, 1, 30]) }),
        reorder_by: Duration::from_micros(50),
        bottleneck: dice.one_in(3).then(|| bottleneck(dice, perfect)),
        receiver: (!perfect && dice.one_in(4)).then(|| Receiver {
            time: Duration::from_nanos(dice.pick(&[200, 1000, 4000])),
            buffer: dice.pick(&[8 << 10, 64 << 10, 212_992]),
        }),
    };
    let mut network = Network::new(conditions, seed);
    // else IPv4's ICRC is too weak for an exact oracle
    if conditions.corruption == 0.0 {
        network.set_identification(dice.pick(&[
            Identification::Known,
            Identification::Guessed,
            Identification::Hidden,
        ]));
    }
    network
}

/// A full queue drains within an acknowledge timeout; a perfect one drops nothing.
fn bottleneck(dice: &mut Dice, perfect: bool) -> Bottleneck {
    let (rate, queue) = dice.pick(&[
        (1_000_000_000, 8 << 10),
        (1_000_000_000, 64 << 10),
        (10_000_000_000, 16 << 10),
        (10_000_000_000, 256 << 10),
        (40_000_000_000, u64::MAX),
    ]);
    let (rate, queue) = if perfect { (40_000_000_000, u64::MAX) } else { (rate, queue) };
    let min = dice.pick(&[0, 4 << 10, 16 << 10]);
    let marking = Marking { min, max: 4 * min, most: dice.pick(&[0.01, 0.1, 1.0]) };
    Bottleneck {
        shared: dice.one_in(4),
        queue,
        marking: dice.one_in(2).then_some(marking),
        ..Bottleneck::new(rate)
    }
}

pub fn loses_nothing(network: &Network) -> bool {
    let Conditions { loss, corruption, bottleneck, receiver, .. } = *network.faults().conditions();
    let is_roomy = bottleneck.is_none_or(|port| port.queue == u64::MAX) && receiver.is_none();
    loss == 0.0 && corruption == 0.0 && is_roomy
}

/// Each packet arrives once, in order.
pub fn is_perfect(network: &Network) -> bool {
    let Conditions { duplication, reordering, jitter, .. } = *network.faults().conditions();
    loses_nothing(network) && duplication == 0.0 && reordering == 0.0 && jitter.is_zero()
}

/// Drops before the ICRC check.
pub const CORRUPTED: &[DropReason] = &[
    DropReason::Icrc,
    DropReason::TooShort,
    DropReason::Padding,
    DropReason::UnknownOpcode,
    DropReason::TransportVersion,
    DropReason::UnknownQp,
    DropReason::WrongService,
    DropReason::WrongRole,
    DropReason::QpState,
    DropReason::PKey,
];

/// Drops while one end is gone or reconnected.
pub const ALONE: &[DropReason] = &[
    DropReason::QpState,
    DropReason::UnknownQp,
    DropReason::ResponseOutsideWindow,
    DropReason::UnexpectedResponse,
];

/// Drops without acknowledgements.
pub const UNRELIABLE: &[DropReason] =
    &[DropReason::MessageBroken, DropReason::NoReceiveRequest, DropReason::RequestRefused];
