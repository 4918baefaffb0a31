//! A pump of datagrams through sockets, without a protocol: what the links of two devices carry at
//! most.

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

/// BTH of a packet in the middle of a WRITE, and the ICRC behind its payload.
const BTH: usize = 12;
const ICRC: usize = 4;
/// RETH of the first packet of a WRITE.
const RETH: usize = 16;

const HEADERS: usize = BTH + ICRC;
/// Bytes and datagrams of a run, as the kernel takes them in one call.
const RUN_BYTES: usize = 65_487;
const RUN_DATAGRAMS: usize = 64;
/// Bytes that the pump may be ahead of its other side.
const WINDOW: usize = 512 << 10;
/// Bytes of memory that is copied from and to.
const MEMORY: usize = 1 << 20;

/// The sockets alone, or with what any adapter has to do with each byte.
pub(crate) struct Pump {
    /// Memory of the sender and of the receiver, from and to which payloads are copied, with an
    /// ICRC of each.
    memory: Option<[Vec<u8>; 2]>,
    sender: UdpLink,
    receiver: UdpLink,
    bytes: Vec<u8>,
    payload: usize,
    /// The runs that one call sends.
    runs: Vec<Transmit>,
    /// Datagrams of a call, and datagrams that the sender may be ahead.
    count: u64,
    window: u64,
}

impl Pump {
    /// The same, which copies payloads from memory and to memory, and computes and checks their
    /// ICRCs. A message of several packets is a call, and its first packet is longer, unless it is
    /// long.
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

    /// With so many bytes in a datagram, besides headers.
    pub(crate) fn new(payload: usize) -> Result<Self, Box<dyn Error>> {
        Self::of(payload, (RUN_BYTES / (HEADERS + payload)).clamp(1, RUN_DATAGRAMS), 0)
    }

    /// With so many packets in a call, of which the first has so many bytes more.
    fn of(payload: usize, packets: usize, more: usize) -> Result<Self, Box<dyn Error>> {
        let bind = || UdpLink::bind_loopback(None, Locality::Network, SocketOptions::default());
        let (sender, receiver) = (bind()?, bind()?);
        let [src, dst] = [sender.addresses()[0], receiver.addresses()[0]];
        let datagram = HEADERS + payload;
        let bytes = vec![0xA5; packets * datagram + more];
        let mut runs = Vec::new();
        let mut start = 0;
        while start < bytes.len() {
            // a shorter one ends a run
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
        // small ones take more of the socket's buffer than they have
        let window = (WINDOW / datagram.max(1024)).max(2 * packets) as u64;
        let count = packets as u64;
        Ok(Self { memory: None, sender, receiver, bytes, payload, runs, count, window })
    }

    /// Gigabytes of payload per second that arrived in one round. The sender stays at most
    /// a window ahead of the receiver, so that the socket's buffer does not overflow.
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

/// Places of payloads in memory, one behind the other and from the beginning again.
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
