//! A pump of datagrams through sockets: the bound of two links, without a protocol.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use roce::{
    link::{Link, Locality, SocketOptions, UdpLink},
    transport::{
        adapter::Transmit,
        time::Instant as Moment,
        wire::{FrameFields, icrc, verify_icrc},
    },
};

/// Headers of a WRITE Middle packet.
const BTH: usize = 12;
const ICRC: usize = 4;
/// In a WRITE First packet.
const RETH: usize = 16;

const HEADERS: usize = BTH + ICRC;
/// Maximum run of one call.
const RUN_BYTES: usize = 65_487;
const RUN_DATAGRAMS: usize = 64;
/// Bytes that the sender may be ahead.
const WINDOW: usize = 512 << 10;
/// Bytes copied from and to.
const MEMORY: usize = 1 << 20;

/// Sockets alone, or with an adapter's work per byte.
pub(crate) struct Pump {
    /// Memory of sender and receiver, to copy payloads and compute ICRCs.
    memory: Option<[Vec<u8>; 2]>,
    sender: UdpLink,
    receiver: UdpLink,
    bytes: Vec<u8>,
    payload: usize,
    /// Runs of a call.
    runs: Vec<Transmit>,
    /// Datagrams of a call, and of the window.
    count: u64,
    window: u64,
}

impl Pump {
    /// Also copies payloads, and computes and checks ICRCs. A call sends one message of several
    /// packets, the first packet longer, unless the message is long.
    #[allow(dead_code, reason = "one of the benchmarks has only the other")]
    pub(crate) fn with_copies(payload: usize, message: usize) -> Result<Self, Box<dyn Error>> {
        let memory = Some([vec![0xA5; MEMORY], vec![0; MEMORY]]);
        let packets = message.div_ceil(payload);
        let pump = match (2 * payload..=WINDOW / 2).contains(&message) {
            true => Self::of(payload, packets, RETH)?,
            false => Self::new(payload)?,
        };
        Ok(Self { memory, ..pump })
    }

    /// `payload`: bytes of a datagram without headers.
    pub(crate) fn new(payload: usize) -> Result<Self, Box<dyn Error>> {
        Self::of(payload, (RUN_BYTES / (HEADERS + payload)).clamp(1, RUN_DATAGRAMS), 0)
    }

    /// `packets` in a call, the first with `more` bytes.
    fn of(payload: usize, packets: usize, more: usize) -> Result<Self, Box<dyn Error>> {
        let bind = || UdpLink::bind_loopback(None, Locality::Network, SocketOptions::default());
        let (sender, receiver) = (bind()?, bind()?);
        let [src, dst] = [sender.addresses()[0], receiver.addresses()[0]];
        let datagram = HEADERS + payload;
        let bytes = vec![0xA5; packets * datagram + more];
        let mut runs = Vec::new();
        let mut start = 0;
        while start < bytes.len() {
            // a shorter datagram ends a run
            let (segment, most) = match (start, more) {
                (0, 1..) => (datagram + more, more + 2 * datagram),
                _ => (datagram, (RUN_BYTES / datagram).min(RUN_DATAGRAMS) * datagram),
            };
            let range = start..bytes.len().min(start + most);
            start = range.end;
            runs.push(Transmit {
                src,
                dst,
                src_port: 4791,
                traffic_class: 0,
                hop_limit: 64,
                segment,
                range,
                frame: FrameFields::default(),
            });
        }
        // small datagrams take more buffer than their length
        let window = (WINDOW / datagram.max(1024)).max(2 * packets) as u64;
        let count = packets as u64;
        Ok(Self { memory: None, sender, receiver, bytes, payload, runs, count, window })
    }

    /// Gigabytes of payload per second. The sender stays within the window: the socket's buffer
    /// must not overflow.
    pub(crate) fn round(&mut self, time: Duration) -> Result<f64, Box<dyn Error>> {
        let (arrived, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let Self { sender, receiver, bytes, runs, count, window, .. } = self;
        let (count, window, payload) = (*count, *window, self.payload);
        let (mut from, mut to) = match &mut self.memory {
            Some([from, to]) => (Some(Places::new(from, payload)), Some(Places::new(to, payload))),
            None => (None, None),
        };
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut arrivals = 0;
                    let _ = receiver.receive(Moment::ZERO, &mut |datagram| {
                        arrivals += 1;
                        if let Some(to) = &mut to {
                            assert!(verify_icrc(datagram.net, datagram.bytes).is_some());
                            let end = datagram.bytes.len() - ICRC;
                            to.next().copy_from_slice(&datagram.bytes[end - payload..end]);
                        }
                    });
                    arrived.fetch_add(arrivals, Ordering::Relaxed);
                }
            });
            let (mut sent, mut lost) = (0_u64, 0_u64);
            let mut moved = Instant::now();
            while start.elapsed() < time {
                let ahead = (sent - lost).saturating_sub(arrived.load(Ordering::Relaxed));
                if ahead + count > window {
                    if moved.elapsed() > Duration::from_millis(2) {
                        lost += ahead; // the socket's buffer was full
                    }
                    continue;
                }
                moved = Instant::now();
                if let Some(from) = &mut from {
                    for run in &*runs {
                        let datagrams = bytes[run.range.clone()].chunks_mut(run.segment);
                        for (index, datagram) in datagrams.enumerate() {
                            let end = datagram.len() - ICRC;
                            datagram[end - payload..end].copy_from_slice(from.next());
                            if let Some((body, tail)) = datagram.split_last_chunk_mut::<ICRC>() {
                                *tail = icrc(&run.net_header(index), body).to_le_bytes();
                            }
                        }
                    }
                }
                let _ = sender.send(Moment::ZERO, bytes, runs);
                sent += count;
            }
            over.store(true, Ordering::Relaxed);
        });
        let payload = arrived.load(Ordering::Relaxed) as f64 * self.payload as f64;
        Ok(payload / start.elapsed().as_secs_f64() / 1e9)
    }
}

/// Successive places in memory, as a ring.
struct Places<'a> {
    memory: &'a mut [u8],
    payload: usize,
    at: usize,
}

impl<'a> Places<'a> {
    fn new(memory: &'a mut [u8], payload: usize) -> Self {
        Self { memory, payload, at: 0 }
    }

    fn next(&mut self) -> &mut [u8] {
        if self.at + self.payload > self.memory.len() {
            self.at = 0;
        }
        self.at += self.payload;
        &mut self.memory[self.at - self.payload..self.at]
    }
}
