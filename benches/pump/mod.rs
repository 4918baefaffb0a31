//! A pump of datagrams through sockets, and nothing else: what the links of two devices carry at
//! most.

use std::{
    error::Error,
    net::IpAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use roce::{
    link::{Link, Locality, SocketOptions, UdpLink},
    transport::{adapter::Transmit, time::Instant as Moment, wire::FrameFields},
};

/// BTH and ICRC of a packet in the middle of a WRITE.
const HEADERS: usize = 12 + 4;
/// Bytes and datagrams of a run, as the kernel takes them in one call.
const RUN_BYTES: usize = 65_487;
const RUN_DATAGRAMS: usize = 64;
/// Bytes that the pump may be ahead of its other side.
const WINDOW: usize = 512 << 10;

/// The sockets alone.
pub(crate) struct Pump {
    sender: UdpLink,
    receiver: UdpLink,
    addresses: [IpAddr; 2],
    bytes: Vec<u8>,
    payload: usize,
    /// Datagrams of a run, and datagrams that the sender may be ahead.
    run: u64,
    window: u64,
}

impl Pump {
    /// With so many bytes in a datagram, besides headers.
    pub(crate) fn new(payload: usize) -> Result<Self, Box<dyn Error>> {
        let bind = || UdpLink::bind_loopback(None, Locality::Network, SocketOptions::default());
        let (sender, receiver) = (bind()?, bind()?);
        let addresses = [sender.addresses()[0], receiver.addresses()[0]];
        let datagram = HEADERS + payload;
        let run = (RUN_BYTES / datagram).clamp(1, RUN_DATAGRAMS);
        // small ones take more of the socket's buffer than they have
        let window = (WINDOW / datagram.max(1024)).max(2 * run) as u64;
        let bytes = vec![0xA5; run * datagram];
        Ok(Self { sender, receiver, addresses, bytes, payload, run: run as u64, window })
    }

    /// Gigabytes of payload per second that arrived in one round. The sender stays at most
    /// a window ahead of the receiver, so that the socket's buffer does not overflow.
    pub(crate) fn round(&mut self, time: Duration) -> Result<f64, Box<dyn Error>> {
        let [src, dst] = self.addresses;
        let run = Transmit {
            src,
            dst,
            src_port: 4791,
            traffic_class: 0,
            hop_limit: 64,
            segment: HEADERS + self.payload,
            range: 0..self.bytes.len(),
            frame: FrameFields::default(),
        };
        let (arrived, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let Self { sender, receiver, bytes, run: count, window, .. } = self;
        let (count, window) = (*count, *window);
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut arrivals = 0;
                    let _ = receiver.receive(Moment::ZERO, &mut |_| arrivals += 1);
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
                let _ = sender.send(Moment::ZERO, bytes, std::slice::from_ref(&run));
                sent += count;
            }
            over.store(true, Ordering::Relaxed);
        });
        let payload = arrived.load(Ordering::Relaxed) as f64 * self.payload as f64;
        Ok(payload / start.elapsed().as_secs_f64() / 1e9)
    }
}
