//! Target: verbs on two adapters, legal or not, with lost, duplicated and reordered packets.
//!
//! A step is a byte for its verb and operands.
//!
//! Invariants: a refused call changes nothing. Every request completes at most once, in order, and
//! not after its queue pair's reset or destruction. Memory without a writer or registration is
//! unchanged. Finally all objects can be destroyed, and as many made as the limits allow.

mod objects;
mod requests;
mod side;

use std::{collections::VecDeque, time::Duration};

use roce_transport::{
    event::{Disposition, DropReason},
    time::Instant,
    wire::{Datagram, NetHeader},
};

use crate::input::Input;
use side::Side;

/// More only cost time.
const STEPS_MAX: usize = 300;
/// Far more than all requests and responses take.
const BURST_MAX: usize = 10_000;
const IN_FLIGHT_MAX: usize = 256;

/// Coverage of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Depth {
    /// Successful calls.
    pub accepted: u64,
    /// Refused calls.
    pub refused: u64,
    /// Requests completed with success.
    pub succeeded: u64,
    /// Requests completed in error.
    pub failed: u64,
}

/// Runs `data` with and without header prediction.
pub fn verbs(data: &[u8]) -> Depth {
    let [predicted, general] = [true, false].map(|header_prediction| play(data, header_prediction));
    assert!(predicted == general, "header prediction changes something");
    predicted.0
}

fn play(data: &[u8], header_prediction: bool) -> (Depth, Vec<(NetHeader, Vec<u8>)>) {
    let mut input = Input::new(data);
    let mut run = Run::new(header_prediction);
    input.play(STEPS_MAX, |input| {
        run.step(input);
        run.check();
    });
    run.finish()
}

struct Run {
    sides: [Side; 2],
    now: Instant,
    /// Per side.
    in_flight: [VecDeque<(NetHeader, Vec<u8>)>; 2],
    sent: Vec<(NetHeader, Vec<u8>)>,
}

impl Run {
    fn new(header_prediction: bool) -> Self {
        let sides = [1, 2].map(|number| Side::new(number, header_prediction));
        let now = Instant::from_nanos(1_000_000);
        Self { sides, now, in_flight: Default::default(), sent: Vec::new() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let [verb, argument] = input.array();
        let (which, now) = (usize::from(verb >> 7), self.now);
        let other = self.sides[1 - which].known();
        let side = &mut self.sides[which];
        match verb & 0x1F {
            0 => side.alloc_pd(),
            1 => side.dealloc_pd(argument),
            2 | 3 => side.register(argument, input),
            4 => side.unregister(argument, input),
            5 => side.alloc_window(argument),
            6 => side.dealloc_window(argument),
            7 => side.create_cq(argument),
            8 => side.destroy_cq(argument),
            9 => side.create_srq(argument, input),
            10 => side.change_srq(argument, input),
            11 | 12 => side.create_qp(argument, input),
            13 => side.destroy_qp(argument),
            14 => side.modify(argument, now, &other, input),
            15..=17 => self.connect(argument, input),
            18..=22 => side.post_send(argument, now, &other, input),
            23 | 24 => side.post_recv(argument, now, input),
            25 => self.pass_time(argument),
            26 => match input.byte() & 3 {
                0 => side.address_handle(argument, &other),
                1 => side.xrc(argument),
                2 => side.multicast(argument, input),
                _ => side.change_cq(argument, input),
            },
            27 => self.transmit(which),
            28 | 29 => {
                self.transmit(0);
                self.transmit(1);
                self.deliver(usize::from(argument & 1), argument);
            }
            _ => self.deliver_all(),
        }
    }

    /// From RESET, each to the other's.
    fn connect(&mut self, argument: u8, input: &mut Input<'_>) {
        let [first, second, how] = input.array();
        let numbers = [self.sides[0].nth_qp(first), self.sides[1].nth_qp(second)];
        let [Some(a), Some(b)] = numbers else { return };
        for (side, own, peer) in [(0, a, b), (1, b, a)] {
            let ip = self.sides[1 - side].ip;
            self.sides[side].bring_up(own, (ip, peer), how, self.now);
        }
        if argument & 1 == 0 {
            self.deliver_all();
        }
    }

    fn transmit(&mut self, which: usize) {
        let mut count = 0;
        loop {
            let Side { adapter, buffer, .. } = &mut self.sides[which];
            buffer.clear();
            adapter.poll_transmit(self.now, buffer);
            if buffer.is_empty() {
                return;
            }
            for (net, bytes) in buffer.datagrams() {
                count += 1;
                self.sent.push((net, bytes.to_vec()));
                let to = &mut self.in_flight[1 - which];
                if to.len() < IN_FLIGHT_MAX {
                    to.push_back((net, bytes.to_vec()));
                }
            }
            assert!(count <= BURST_MAX, "sending does not come to an end");
        }
    }

    /// Perhaps reordered, duplicated or lost.
    fn deliver(&mut self, to: usize, how: u8) {
        let queue = &mut self.in_flight[to];
        let index = if how & 0x80 == 0 { 0 } else { usize::from(how >> 4 & 7) };
        let Some((net, bytes)) = queue.remove(index) else { return };
        match how >> 1 & 7 {
            0 => return,
            1 => queue.push_back((net, bytes.clone())),
            _ => {}
        }
        self.receive(to, &net, &bytes);
    }

    fn receive(&mut self, to: usize, net: &NetHeader, bytes: &[u8]) {
        let disposition = self.sides[to]
            .adapter
            .handle_datagram(self.now, &Datagram::new(net, bytes))
            .disposition;
        let damaged = matches!(
            disposition,
            Disposition::Dropped(DropReason::Icrc | DropReason::TooShort | DropReason::Padding)
        );
        assert!(!damaged, "an adapter sent what another cannot read: {disposition}");
    }

    fn deliver_all(&mut self) {
        for _ in 0..BURST_MAX {
            for which in 0..2 {
                self.transmit(which);
            }
            let next = [0, 1].map(|to: usize| self.in_flight[to].pop_front());
            if next.iter().all(Option::is_none) {
                return;
            }
            for (to, packet) in next.into_iter().enumerate() {
                if let Some((net, bytes)) = packet {
                    self.receive(to, &net, &bytes);
                }
            }
            self.check();
        }
        panic!("the two talk without end");
    }

    fn pass_time(&mut self, how: u8) {
        let timers = self.sides.iter_mut().filter_map(|side| side.adapter.poll_timeout());
        self.now = match timers.min() {
            Some(at) if how & 1 == 0 => at.max(self.now),
            _ => self.now.plus(Duration::from_micros(u64::from(how) * 8)),
        };
        for side in &mut self.sides {
            side.adapter.handle_timeout(self.now);
            assert!(
                side.adapter.poll_timeout().is_none_or(|at| at > self.now),
                "what was due is due again"
            );
        }
    }

    fn check(&mut self) {
        for side in &mut self.sides {
            side.check();
        }
    }

    fn finish(mut self) -> (Depth, Vec<(NetHeader, Vec<u8>)>) {
        let mut depth = Depth::default();
        for which in 0..2 {
            self.transmit(which);
            self.sides[which].check();
            self.sides[which].tear_down(self.now);
            let its = self.sides[which].depth;
            depth.accepted += its.accepted;
            depth.refused += its.refused;
            depth.succeeded += its.succeeded;
            depth.failed += its.failed;
        }
        (depth, self.sent)
    }
}
