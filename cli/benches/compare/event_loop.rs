//! Two event loops in two threads, one message per connection in flight.

use std::{
    error::Error,
    io::{self, ErrorKind, Read, Write},
    mem::MaybeUninit,
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use roce::{
    Access, CompletionChannel, CompletionQueue, Device, MemoryRegion, NotifyKind, OpenOptions,
    QpInitAttr, QpType, QueuePair, RecvWr, SendWr,
};
use rustix::{
    event::{Timespec, epoll},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use super::{
    figures::{Kind, Lane},
    yardsticks::tcp_pair,
};

pub(crate) const SHARED: &str = "roce, shared memory";
pub(crate) const SOCKETS: &str = "roce, sockets";
pub(crate) const TCP: &str = "TCP";
pub(crate) const SHARED_ONE: &str = "roce, shared memory, on one processor";
pub(crate) const SOCKETS_ONE: &str = "roce, sockets, on one processor";
pub(crate) const TCP_ONE: &str = "TCP, on one processor";

const SIZE: usize = 64;
/// Uncounted: an adapter learns how its program waits.
const WARM: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(10);
const RECEIVED: u64 = 0;
const SENT: u64 = 1;

type Failure = Box<dyn Error + Send + Sync>;

pub(crate) fn lanes() -> Vec<Lane> {
    let ours = |name, sockets_only, is_pinned| {
        lane(name, is_pinned, move |connections, time| {
            turns(sides(connections, sockets_only)?, time)
        })
    };
    let tcp = |name, is_pinned| {
        lane(name, is_pinned, |connections, time| {
            let pairs: io::Result<Vec<_>> = (0..connections).map(|_| tcp_pair()).collect();
            let (here, there) = pairs?.into_iter().unzip();
            turns([here, there], time)
        })
    };
    vec![
        ours(SHARED, false, false),
        ours(SOCKETS, true, false),
        tcp(TCP, false),
        ours(SHARED_ONE, false, true),
        ours(SOCKETS_ONE, true, true),
        tcp(TCP_ONE, true),
    ]
}

fn lane(
    name: &'static str,
    is_pinned: bool,
    measure: impl Fn(usize, Duration) -> Result<f64, Failure> + 'static,
) -> Lane {
    Lane::new(Kind::EventLoop, name, move |connections, time| {
        let _pinned = is_pinned.then(Pinned::new).transpose()?;
        measure(connections, time).map_err(|error| error as Box<dyn Error>)
    })
}

/// Pins this thread and its children to one processor.
struct Pinned(CpuSet);

impl Pinned {
    fn new() -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let last = (0..CpuSet::MAX_CPU).rev().find(|&processor| before.is_set(processor));
        let mut one = CpuSet::new();
        one.set(last.unwrap_or_default());
        sched_setaffinity(None, &one)?;
        Ok(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

trait End: Send {
    fn descriptor(&self) -> BorrowedFd<'_>;

    fn send(&mut self) -> Result<(), Failure>;

    /// Returns the number of messages.
    fn take(&mut self) -> Result<usize, Failure>;
}

fn turns<E: End>([mut here, mut there]: [Vec<E>; 2], time: Duration) -> Result<f64, Failure> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let peer = scope.spawn(|| serve(&mut there, || !over.load(Ordering::Relaxed)));
        let began = Instant::now();
        here.iter_mut().try_for_each(E::send)?;
        let warm = serve(&mut here, || began.elapsed() < WARM);
        let start = Instant::now();
        let count = warm.and_then(|_| serve(&mut here, || start.elapsed() < time));
        let seconds = start.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        peer.join().map_err(|_| "the peer has panicked")??;
        Ok(count? as f64 / seconds / 1e3)
    })
}

/// Echoes messages while `goes_on`, and returns their number.
fn serve<E: End>(ends: &mut [E], goes_on: impl Fn() -> bool) -> Result<u64, Failure> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, end) in ends.iter().enumerate() {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&epoll, end.descriptor(), data, epoll::EventFlags::IN)?;
    }
    let mut events = [const { MaybeUninit::uninit() }; 64];
    let mut count = 0;
    while goes_on() {
        let (ready, _) = epoll::wait(&epoll, &mut events, Some(&Timespec::try_from(LOOK)?))?;
        for event in ready {
            let end = &mut ends[event.data.u64() as usize];
            for _ in 0..end.take()? {
                count += 1;
                end.send()?;
            }
        }
    }
    Ok(count)
}

impl End for TcpStream {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn send(&mut self) -> Result<(), Failure> {
        Ok(self.write_all(&[0xA5; SIZE])?)
    }

    fn take(&mut self) -> Result<usize, Failure> {
        match self.read(&mut [0; SIZE]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Ok(0) => Ok(0),
            Ok(SIZE) => Ok(1),
            Ok(_) => Err("a message has come in pieces".into()),
            Err(error) => Err(error.into()),
        }
    }
}

struct Side {
    qp: QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
    memory: MemoryRegion,
}

fn sides(connections: usize, sockets_only: bool) -> Result<[Vec<Side>; 2], Failure> {
    let device = Device::named("roce_lo")?;
    let open = || device.open(OpenOptions { sockets_only, ..OpenOptions::default() });
    let contexts = [open()?, open()?];
    let mut sides = [Vec::new(), Vec::new()];
    for _ in 0..connections {
        for (context, sides) in contexts.iter().zip(&mut sides) {
            let pd = context.alloc_pd()?;
            let channel = context.create_channel()?;
            let cq = context.create_cq(64, Some(&channel))?;
            let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq))?;
            let memory = pd.allocate(2 * SIZE, Access::LOCAL_WRITE)?;
            sides.push(Side { qp, cq, channel, memory });
        }
        let [Some(here), Some(there)] = sides.each_ref().map(|sides| sides.last()) else {
            return Err("no connection".into());
        };
        for (side, other) in [(here, there), (there, here)] {
            side.qp.connect_to(other.qp.endpoint(0).ok_or("no address")?)?;
            side.receive()?;
            side.cq.req_notify(NotifyKind::Next);
        }
    }
    Ok(sides)
}

impl Side {
    fn receive(&self) -> Result<(), Failure> {
        Ok(self.qp.post_recv(&[RecvWr::new(RECEIVED, [self.memory.sge(0..SIZE)])])?)
    }
}

impl End for Side {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn send(&mut self) -> Result<(), Failure> {
        Ok(self.qp.post_send(&[SendWr::send(SENT, self.memory.sge(SIZE..2 * SIZE))])?)
    }

    fn take(&mut self) -> Result<usize, Failure> {
        match self.channel.poll() {
            Some(_) => self.channel.count_use(|| true),
            None if self.channel.serve().is_some() => {}
            None => return Ok(0),
        }
        self.cq.req_notify(NotifyKind::Next);
        let mut count = 0;
        while let Some(completion) = self.cq.poll_one() {
            completion.result?;
            if completion.wr_id == RECEIVED {
                self.receive()?;
                count += 1;
            }
        }
        Ok(count)
    }
}
