//! Opening of an AF_XDP socket.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    thread::sleep,
    time::Duration,
};

use roce_transport::time::Instant;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt,
        xdp::{
            SocketAddrXdp, SocketAddrXdpFlags as Flags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
            XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags,
        },
    },
    thread::{CapabilitySet, capabilities},
};
use tracing::{info, warn};

use super::{
    super::super::{SocketOptions, socket_option::set_option},
    Consumer, Memory, Producer, Sending, XdpSocket, bpf,
    program::{self, FrameLimits},
    ring::Ring,
};
use crate::bind::XdpRefusal;
use roce_ethernet::StationConfig;

/// `XDP_PACKET_HEADROOM`.
const HEADROOM: usize = 256;
const ETHERNET: usize = 22;
const ONE_PAGE: usize = 3_400;
/// Receive chunks: default, least, most.
const ARRIVING: usize = 4_096;
const ARRIVING_LIMITS: [usize; 2] = [256, 32_768];
const SENDING: usize = 1_024;
/// Unsent bytes that the kernel may hold.
const SEND_BUFFER: usize = 16 << 20;
/// Missing in libc; equal on all processors but two.
const SO_BUSY_POLL: i32 = 46;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
/// Retry interval and count: the kernel releases a queue shortly after its socket closes.
const RETRY: (Duration, u32) = (Duration::from_millis(20), 50);
/// Packets per round of busy polling.
const BUDGET: i32 = 64;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum XdpMode {
    /// The fastest supported mode.
    #[default]
    Fastest,
    /// The interface accesses the device's memory, or opening fails.
    ZeroCopy,
    /// The kernel copies, behind a program in the driver.
    Copy,
    /// The kernel copies, behind a program in front of its network stack.
    Generic,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct XdpOptions {
    pub(crate) queue: u32,
    pub(crate) mode: XdpMode,
    /// Busy polling time in µs, in place of interrupts.
    pub(crate) busy: Option<u32>,
}

type Result<T> = std::result::Result<T, XdpRefusal>;

impl XdpSocket {
    /// Opens a socket for IP packets up to `mtu` bytes, beside a packet socket.
    pub(in super::super) fn open(
        (name, interface): (&str, u32),
        mtu: u32,
        config: &StationConfig,
        options: &SocketOptions,
        xdp: XdpOptions,
    ) -> Result<Self> {
        check_queue(name, xdp.queue)?;
        let max_len = mtu as usize + ETHERNET;
        // Only tap drivers pass uncut runs, those of virtual machines.
        let gso = fs::exists(format!("/sys/class/net/{name}/tun_flags")).unwrap_or(false);
        let frames = FrameLimits { max_len, multi_buffer: max_len > ONE_PAGE, gso };
        let chunk = if max_len + HEADROOM <= 2_048 { 2_048 } else { 4_096 };
        let socket = new_socket()?;
        if let Some(time) = xdp.busy {
            poll_busily(&socket, time)?;
        }
        let asked = options.receive_buffer.map_or(ARRIVING, |bytes| bytes / chunk);
        let [least, most] = ARRIVING_LIMITS;
        let asked = asked.clamp(least, most).next_power_of_two();
        let (memory, mut free, rx_chunks) = register(&socket, asked, chunk)?;
        let sizes = [rx_chunks as u32, SENDING as u32];
        let (mut fill, rx, tx, completion) =
            rings(&socket, sizes).map_err(|source| system("the rings", source))?;
        for chunk in free.split_off(SENDING) {
            fill.push(chunk.give());
        }
        fill.submit();
        // Frames count until received. Without CAP_NET_ADMIN, the kernel's limit applies.
        let forced = sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER);
        let _ = forced.or_else(|_| sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER));
        bind_to(&socket, interface, xdp, frames)?;
        let (program, in_driver) = put_program(&socket, interface, config, xdp, frames)?;
        let zero_copy = sockopt::xdp_options(&socket)
            .is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY));
        let queue = xdp.queue;
        info!(interface = name, queue, zero_copy, in_driver, room = rx_chunks, "AF_XDP");
        let multi_buffer = frames.multi_buffer;
        let sending = Sending { tx, completion, free, multi_buffer, is_new: false, stalled: None };
        Ok(Self {
            _program: program,
            socket,
            memory,
            fill,
            rx,
            sending,
            held: None,
            whole: Vec::new(),
            rx_chunks,
            is_busy_polled: xdp.busy.is_some(),
            look: Instant::ZERO,
        })
    }
}

/// Without sysfs, binding reports a missing queue.
fn check_queue(interface: &str, queue: u32) -> Result<()> {
    let Ok(entries) = fs::read_dir(format!("/sys/class/net/{interface}/queues")) else {
        return Ok(());
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let count = names.filter(|name| name.starts_with("rx-")).count() as u32;
    if count > 0 && queue >= count {
        return Err(XdpRefusal::NoQueue { queue, count });
    }
    if count > 1 {
        warn!(
            interface,
            count,
            queue,
            "packets that arrive at another queue take the slower packet socket; `ethtool -L \
             {interface} combined 1` leaves one queue"
        );
    }
    Ok(())
}

fn new_socket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).map_err(|error| match error {
        Errno::AFNOSUPPORT | Errno::INVAL => XdpRefusal::NoKernel,
        Errno::PERM | Errno::ACCESS => XdpRefusal::Capability("CAP_NET_RAW"),
        error => system("the socket", error.into()),
    })
}

fn poll_busily(socket: &OwnedFd, time: u32) -> Result<()> {
    let time = time.min(i32::MAX.cast_unsigned()).cast_signed();
    let options = [(SO_PREFER_BUSY_POLL, 1), (SO_BUSY_POLL, time), (SO_BUSY_POLL_BUDGET, BUDGET)];
    for (option, value) in options {
        let set = set_option(socket, libc::SOL_SOCKET, option, &value);
        set.map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => XdpRefusal::Capability("CAP_NET_ADMIN"),
            _ => system("busy polling", source),
        })?;
    }
    Ok(())
}

/// Registers `asked` receive chunks, or as many as the process may lock. A closed device's memory
/// counts a little longer.
fn register(
    socket: &OwnedFd,
    asked: usize,
    chunk: usize,
) -> Result<(Memory, Vec<super::Chunk>, usize)> {
    let (mut rx_chunks, mut waits) = (asked, 0);
    loop {
        let (memory, chunks) =
            Memory::new(SENDING + rx_chunks, chunk).map_err(|source| system("memory", source))?;
        match sockopt::set_xdp_umem_reg(socket, memory.registration()) {
            Ok(()) => return Ok((memory, chunks, rx_chunks)),
            Err(Errno::NOBUFS) if rx_chunks > ARRIVING_LIMITS[0] => rx_chunks /= 2,
            Err(Errno::NOBUFS) if waits < RETRY.1 => {
                sleep(RETRY.0);
                (rx_chunks, waits) = (asked, waits + 1);
            }
            Err(Errno::NOBUFS) => return Err(XdpRefusal::LockedMemory),
            Err(error) => return Err(system("memory", error.into())),
        }
    }
}

type Rings = (Producer<u64>, Consumer<super::XdpDesc>, Producer<super::XdpDesc>, Consumer<u64>);

fn rings(socket: &OwnedFd, [arriving, sending]: [u32; 2]) -> io::Result<Rings> {
    sockopt::set_xdp_umem_fill_ring_size(socket, arriving)?;
    sockopt::set_xdp_umem_completion_ring_size(socket, sending)?;
    sockopt::set_xdp_rx_ring_size(socket, arriving)?;
    sockopt::set_xdp_tx_ring_size(socket, sending)?;
    let offsets = sockopt::xdp_mmap_offsets(socket)?;
    let socket = socket.as_fd();
    Ok((
        Producer(Ring::new(socket, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, arriving)?),
        Consumer(Ring::new(socket, XDP_PGOFF_RX_RING, offsets.rx, arriving)?),
        Producer(Ring::new(socket, XDP_PGOFF_TX_RING, offsets.tx, sending)?),
        Consumer(Ring::new(socket, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, sending)?),
    ))
}

fn bind_to(socket: &OwnedFd, interface: u32, xdp: XdpOptions, frames: FrameLimits) -> Result<()> {
    let mut flags = match xdp.mode {
        XdpMode::Fastest => Flags::empty(), // the kernel tries zero copy first
        XdpMode::ZeroCopy => Flags::XDP_ZEROCOPY,
        XdpMode::Copy | XdpMode::Generic => Flags::XDP_COPY,
    };
    flags |= Flags::XDP_USE_NEED_WAKEUP;
    if frames.multi_buffer {
        flags |= Flags::XDP_USE_SG;
    }
    let queue = xdp.queue;
    let address = SocketAddrXdp::new(flags, interface, queue);
    let mut result = bind(socket, &address);
    for _ in 0..RETRY.1 {
        if result != Err(Errno::BUSY) {
            break;
        }
        sleep(RETRY.0);
        result = bind(socket, &address);
    }
    result.map_err(|error| match error {
        Errno::BUSY => XdpRefusal::QueueTaken(queue),
        Errno::OPNOTSUPP | Errno::INVAL if xdp.mode == XdpMode::ZeroCopy => XdpRefusal::NoZeroCopy,
        Errno::INVAL if frames.multi_buffer => XdpRefusal::LongFrames,
        error => system("the socket", error.into()),
    })
}

/// Returns the attachment, and whether the program is in the driver.
fn put_program(
    socket: &OwnedFd,
    interface: u32,
    config: &StationConfig,
    xdp: XdpOptions,
    frames: FrameLimits,
) -> Result<(OwnedFd, bool)> {
    let denied = |what, source: io::Error| match source.raw_os_error() {
        Some(libc::EPERM) => missing_right(),
        Some(libc::ENOSYS) => XdpRefusal::NoKernel,
        _ => system(what, source),
    };
    let no_map = |source| denied("a BPF map", source);
    let map = bpf::map(xdp.queue + 1).map_err(no_map)?;
    bpf::insert(map.as_fd(), xdp.queue, socket.as_fd()).map_err(no_map)?;
    let attach = |in_driver: bool| {
        // In front of the stack, runs arrive uncut.
        let frames = FrameLimits { gso: frames.gso || !in_driver, ..frames };
        let instructions = program::of(config, frames, map.as_raw_fd());
        let loaded = bpf::load(&instructions, frames.multi_buffer);
        let program = loaded.map_err(|source| match source.raw_os_error() {
            Some(libc::EINVAL) if frames.multi_buffer => XdpRefusal::LongFrames,
            _ => denied("the BPF program", source),
        })?;
        let attached = bpf::attach(program.as_fd(), interface, in_driver);
        attached.map(|link| (link, in_driver)).map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => XdpRefusal::Attached,
            Some(libc::EOPNOTSUPP) if in_driver => XdpRefusal::NoDriver,
            _ => denied("the BPF program", source),
        })
    };
    match xdp.mode {
        XdpMode::Generic => attach(false),
        XdpMode::ZeroCopy | XdpMode::Copy => attach(true),
        XdpMode::Fastest => match attach(true) {
            Err(error @ (XdpRefusal::NoDriver | XdpRefusal::System { .. })) => {
                attach(false).map_err(|_| error)
            }
            attached => attached,
        },
    }
}

fn missing_right() -> XdpRefusal {
    let own = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    // CAP_SYS_ADMIN stands for both
    if own.contains(CapabilitySet::SYS_ADMIN) {
        return XdpRefusal::UserNamespace;
    }
    let needed = [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), (CapabilitySet::BPF, "CAP_BPF")];
    match needed.into_iter().find(|(capability, _)| !own.contains(*capability)) {
        Some((_, name)) => XdpRefusal::Capability(name),
        None => XdpRefusal::UserNamespace,
    }
}

fn system(what: &'static str, source: io::Error) -> XdpRefusal {
    XdpRefusal::System { what, source }
}
