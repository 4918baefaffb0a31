//! READ responses to a peer that, like rxe, drops packets behind a gap and retries on timeout.

use std::{collections::VecDeque, time::Duration};

use roce_transport::{addr::Mtu, wire::Operation as Op, work::Remote};

use crate::common::{Half, Options, Pkt, pattern, pkt};

const MTU: usize = 4096;
const STEP: Duration = Duration::from_micros(250);
/// Packets per step: 50 MB/s.
const STEP_PACKETS: usize = 3;
/// Packets queued on the path.
const QUEUE: usize = 128;
const TIMEOUT: Duration = Duration::from_millis(67);

struct Slow {
    half: Half,
    remote: Remote,
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

    fn ask(&mut self) {
        let from =
            Remote { address: self.remote.address + self.arrived.len() as u64, ..self.remote };
        let left = (self.packets - self.has()) * MTU;
        let psn = Half::THEIRS + self.has() as u32;
        self.half.send(&pkt(Op::ReadRequest, psn).reth(from, left as u32).ask());
    }

    /// True if the peer accepted anything.
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

/// The initial rate would cost 63 timeouts and seven times the time.
#[test]
fn responses_that_are_lost_come_slower() {
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

/// A long response's last packet waits up to one buffer to share a run with the next response.
#[test]
fn responses_share_a_run() {
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
