//! Answers to READs of a peer that drops what comes behind a gap, and asks again when its timer
//! fires, as the kernel's rxe does.

use std::{collections::VecDeque, time::Duration};

use roce_transport::{addr::Mtu, wire::Operation as Op, work::Remote};

use crate::common::{Half, Options, Pkt, pattern, pkt};

const MTU: usize = 4096;
const STEP: Duration = Duration::from_micros(250);
/// Packets that the way to the peer lets through in a step: 50 MB/s.
const STEP_PACKETS: usize = 3;
/// Packets that wait on the way at most.
const QUEUE: usize = 128;
const TIMEOUT: Duration = Duration::from_millis(67);

/// The peer, and the way to it.
struct Slow {
    half: Half,
    remote: Remote,
    /// Packets that it wants, and those of them that it has.
    packets: usize,
    arrived: Vec<u8>,
    way: VecDeque<Pkt>,
    lost: usize,
}

impl Slow {
    fn new(bytes: &[u8]) -> Self {
        let mut half = Half::new(Options { mtu: Mtu::B4096, ..Options::default() });
        let buffer = half.buffer(bytes.len());
        buffer.put(0, bytes);
        let remote = buffer.remote(0);
        let packets = bytes.len() / MTU;
        Self { half, remote, packets, arrived: Vec::new(), way: VecDeque::new(), lost: 0 }
    }

    fn has(&self) -> usize {
        self.arrived.len() / MTU
    }

    /// It asks for what is missing.
    fn ask(&mut self) {
        let from =
            Remote { address: self.remote.address + self.arrived.len() as u64, ..self.remote };
        let left = (self.packets - self.has()) * MTU;
        let psn = Half::THEIRS + self.has() as u32;
        self.half.send(&pkt(Op::ReadRequest, psn).reth(from, left as u32).ask());
    }

    /// One step of the time: a turn of the adapter, and what the way lets through. True if
    /// something arrived that the peer takes.
    fn step(&mut self) -> bool {
        self.half.advance(STEP);
        for packet in self.half.take_turn() {
            if self.way.len() < QUEUE {
                self.way.push_back(packet);
            } else {
                self.lost += 1;
            }
        }
        let before = self.has();
        for packet in self.way.drain(..self.way.len().min(STEP_PACKETS)).collect::<Vec<_>>() {
            if packet.psn == Half::THEIRS + self.has() as u32 {
                self.arrived.extend(&packet.payload);
            }
        }
        self.has() > before
    }
}

/// At the rate at which they leave at first the peer would wait for its timer 63 times, and for all
/// of them seven times as long as they take.
#[test]
fn answers_that_are_lost_come_slower() {
    let bytes = pattern(1, 8192 * MTU);
    let mut peer = Slow::new(&bytes);
    peer.ask();
    let (mut time, mut silent, mut timeouts) = (Duration::ZERO, Duration::ZERO, 0);
    while peer.has() < peer.packets {
        silent = if peer.step() { Duration::ZERO } else { silent + STEP };
        time += STEP;
        if silent >= TIMEOUT {
            silent = Duration::ZERO;
            timeouts += 1;
            peer.ask();
        }
    }
    assert!(peer.arrived == bytes);
    let least = STEP * (peer.packets / STEP_PACKETS) as u32;
    assert!(time < least * 3, "{time:?} instead of {least:?}, {timeouts} timeouts");
    assert!(timeouts < 16, "{timeouts}");
    assert!(peer.lost < 5 * peer.packets, "{} lost", peer.lost);
}

/// The last packet of a long answer is as long as the first of the next one, and leaves with it if
/// that is asked for meanwhile. It does not wait for more than a transmit buffer.
#[test]
fn answers_share_a_run() {
    const PACKETS: usize = 18;
    let mut half = Half::new(Options { mtu: Mtu::B4096, ..Options::default() });
    let buffer = half.buffer(3 * PACKETS * MTU);
    for read in 0..3 {
        let (psn, length) = (Half::THEIRS + (read * PACKETS) as u32, PACKETS * MTU);
        let from = buffer.remote(read * length);
        half.send(&pkt(Op::ReadRequest, psn).reth(from, length as u32).ask());
        let waited = usize::from(read > 0);
        assert_eq!(half.take_turn().len(), waited + PACKETS - 1);
        let run = half.node.transmit.runs()[0].count();
        assert_eq!(run, waited + 2, "the last of the one, the first and the second of the next");
    }
    assert_eq!(half.take_turn().len(), 1, "nothing follows");
    assert!(half.take_turn().is_empty());
}
