//! The host without RDMA: spinning sockets, and copies.

use std::{
    collections::{HashMap, hash_map::Entry},
    error::Error,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    figures::{Kind, Lane},
    pump::Pump,
};

/// The ring that a copy passes through, its source and destination.
const RING: usize = 256 << 10;
const MEMORY: usize = 1 << 20;
const DATAGRAM: usize = 64_000;

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const PUMP: &str = "bare UDP pump";
pub(crate) const PUMP_1024: &str = "bare UDP pump, MTU 1024";
pub(crate) const COPYING_PUMP: &str = "UDP pump, copies and ICRCs";
pub(crate) const COPYING_PUMP_1024: &str = "UDP pump, copies and ICRCs, MTU 1024";
pub(crate) const COPY: &str = "memcpy twice";
pub(crate) const UDP: &str = "UDP, spinning";

pub(crate) fn lanes() -> Vec<Lane> {
    vec![
        pump(PUMP, 4096, |payload, _| Pump::new(payload)),
        pump(PUMP_1024, 1024, |payload, _| Pump::new(payload)),
        pump(COPYING_PUMP, 4096, Pump::with_copies),
        pump(COPYING_PUMP_1024, 1024, Pump::with_copies),
        Lane::new(Kind::Throughput, "TCP, spinning", |size, time| Ok(tcp(size, time)?)),
        Lane::new(Kind::Throughput, COPY, |size, time| Ok(size as f64 / copy(size, time) / 1e9)),
        Lane {
            most: DATAGRAM,
            ..Lane::new(Kind::Latency, UDP, |size, time| Ok(udp_turns(size, time)?))
        },
        Lane::new(Kind::Latency, "TCP, spinning", |size, time| Ok(tcp_turns(size, time)?)),
        Lane::new(Kind::Latency, COPY, |size, time| Ok(copy(size, time) * 1e6)),
    ]
}

/// The packet size is the path MTU, or the message's size if smaller.
fn pump(
    name: &'static str,
    mtu: usize,
    new: fn(usize, usize) -> Result<Pump, Box<dyn Error>>,
) -> Lane {
    let mut pumps = HashMap::new();
    Lane::new(Kind::Throughput, name, move |size, time| {
        let pump = match pumps.entry(size) {
            Entry::Occupied(pump) => pump.into_mut(),
            Entry::Vacant(place) => place.insert(new(size.min(mtu), size)?),
        };
        pump.round(time)
    })
}

/// Seconds to copy a message into a ring and out to other memory.
fn copy(size: usize, time: Duration) -> f64 {
    let span = MEMORY.max(size);
    let (from, mut to, mut ring) = (vec![0xA5_u8; span], vec![0_u8; span], vec![0_u8; RING]);
    let start = Instant::now();
    let (mut count, mut at, mut hand) = (0_u64, 0, 0);
    while count.is_multiple_of(64) && start.elapsed() < time || !count.is_multiple_of(64) {
        for piece in (0..size).step_by(RING) {
            let length = RING.min(size - piece);
            if hand + length > RING {
                hand = 0;
            }
            let (here, place) = (at + piece, hand..hand + length);
            ring[place.clone()].copy_from_slice(&from[here..here + length]);
            to[here..here + length].copy_from_slice(std::hint::black_box(&ring[place]));
            hand += length;
        }
        std::hint::black_box(&mut to);
        at = if at + 2 * size > span { 0 } else { at + size };
        count += 1;
        if size >= RING && start.elapsed() >= time {
            break;
        }
    }
    start.elapsed().as_secs_f64() / count as f64
}

pub(crate) fn tcp_pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    let (there, _) = listener.accept()?;
    for stream in [&here, &there] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    Ok((here, there))
}

/// Spins; false if time is over or the peer has gone.
fn whole(
    size: usize,
    over: &dyn Fn() -> bool,
    mut step: impl FnMut(usize) -> std::io::Result<usize>,
) -> std::io::Result<bool> {
    let mut done = 0;
    while done < size {
        match step(done) {
            Ok(0) => return Ok(false),
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if over() {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Gigabytes per second.
fn tcp(size: usize, time: Duration) -> std::io::Result<f64> {
    let (mut here, mut there) = tcp_pair()?;
    let over = AtomicBool::new(false);
    let is_over = || over.load(Ordering::Relaxed);
    let start = Instant::now();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut bytes, mut arrived) = (vec![0; size.max(256 << 10)], 0_u64);
            while !is_over() {
                match there.read(&mut bytes) {
                    Ok(count) => arrived += count as u64,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(arrived)
        });
        let message = vec![0xA5; size];
        while start.elapsed() < time {
            if !whole(size, &|| start.elapsed() >= time, |done| here.write(&message[done..]))? {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        let seconds = start.elapsed().as_secs_f64();
        let arrived = receiver.join().unwrap_or(Ok(0))?;
        Ok(arrived as f64 / seconds / 1e9)
    })
}

/// How a side sends and receives.
type Calls<'a> = (
    &'a (dyn Fn(&[u8]) -> std::io::Result<usize> + Sync),
    &'a (dyn Fn(&mut [u8]) -> std::io::Result<usize> + Sync),
);

/// Median of half a round trip in µs.
fn turns(size: usize, time: Duration, here: Calls<'_>, there: Calls<'_>) -> std::io::Result<f64> {
    let over = AtomicBool::new(false);
    let is_over = || over.load(Ordering::Relaxed);
    let began = Instant::now();
    let is_late = || began.elapsed() > PATIENCE;
    let (mut ours, mut theirs) = (vec![0xA5_u8; size], vec![0_u8; size]);
    let mut turn = || -> std::io::Result<bool> {
        Ok(whole(size, &is_late, |done| here.0(&ours[done..]))?
            && whole(size, &is_late, |done| here.1(&mut ours[done..]))?)
    };
    let mut answer = || -> std::io::Result<bool> {
        Ok(whole(size, &is_over, |done| there.1(&mut theirs[done..]))?
            && whole(size, &is_over, |done| there.0(&theirs[done..]))?)
    };
    thread::scope(|scope| {
        let answers = scope.spawn(move || {
            while answer()? {}
            std::io::Result::Ok(())
        });
        let mut times = Vec::new();
        let start = Instant::now();
        let mut before = start;
        let mut failure = Ok(true);
        while before - start < time || times.is_empty() {
            failure = turn();
            if !matches!(failure, Ok(true)) {
                break;
            }
            let now = Instant::now();
            times.push((now - before).as_nanos() as u64);
            before = now;
        }
        over.store(true, Ordering::Relaxed);
        answers.join().unwrap_or(Ok(()))?;
        failure?;
        times.sort_unstable();
        let median = times.get(times.len() / 2).ok_or(ErrorKind::TimedOut)?;
        Ok(*median as f64 / 2e3)
    })
}

fn tcp_turns(size: usize, time: Duration) -> std::io::Result<f64> {
    let (here, there) = tcp_pair()?;
    turns(
        size,
        time,
        (&|bytes: &[u8]| (&here).write(bytes), &|bytes: &mut [u8]| (&here).read(bytes)),
        (&|bytes: &[u8]| (&there).write(bytes), &|bytes: &mut [u8]| (&there).read(bytes)),
    )
}

fn udp_turns(size: usize, time: Duration) -> std::io::Result<f64> {
    let bind = || UdpSocket::bind("127.0.0.1:0");
    let (here, there) = (bind()?, bind()?);
    here.connect(there.local_addr()?)?;
    there.connect(here.local_addr()?)?;
    here.set_nonblocking(true)?;
    there.set_nonblocking(true)?;
    turns(
        size,
        time,
        (&|bytes: &[u8]| here.send(bytes), &|bytes: &mut [u8]| here.recv(bytes)),
        (&|bytes: &[u8]| there.send(bytes), &|bytes: &mut [u8]| there.recv(bytes)),
    )
}
