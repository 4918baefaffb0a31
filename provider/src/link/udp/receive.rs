//! Batched receiving with ancillary data, and receive buffer drops.

#![allow(
    unsafe_code,
    reason = "recvmmsg and its ancillary data have no safe interface that carries UDP_GRO"
)]

use std::{
    io, mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::AsRawFd,
    slice,
};

use libc::c_int;
use memmap2::{Advice, MmapMut};
use socket2::Socket;

use super::message::{CONTROL, Control, HEADER, transferred};
use crate::link::{BATCH, socket_option::option};

const LONGEST: usize = 65_536;
/// Distance between message buffers. Off page alignment: aligned starts compete for cache lines.
const STRIDE: usize = LONGEST + 4096 + 64;
/// Least messages per call: each may have [`LONGEST`] bytes.
const MIN_MESSAGES: usize = 4;
/// Most messages per call. The kernel merges no datagrams with zero UDP checksums (rxe, adapters).
const MAX_MESSAGES: usize = 64;
/// Approximate bytes per call: they stay in the cache until handed over.
const CACHE_BYTES: usize = 256 << 10;
/// Bytes that end a batch: the next request or ACK leaves while the peer still has work.
const BATCH_BYTES: usize = 64 << 10;

pub(super) struct Meta {
    pub(super) source: SocketAddr,
    pub(super) ancillary: Ancillary,
    /// The receive buffer was filling.
    pub(super) congested: bool,
}

/// Ancillary data of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ancillary {
    /// Length of each datagram but the last.
    pub segment: usize,
    /// IP traffic class.
    pub traffic_class: u8,
    /// IP hop limit.
    pub hop_limit: u8,
    /// The kernel's drop count at arrival, if nonzero.
    pub drops: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Overflow {
    /// The kernel's last count.
    seen: u32,
    pub(super) dropped: u64,
}

impl Overflow {
    /// Starts at the kernel's count, without losses of a previous owner process.
    pub(super) fn of(socket: &Socket) -> Self {
        let seen = MemInfo::of(socket).map_or(0, |info| info.drops);
        Self { seen, dropped: 0 }
    }

    #[cfg(test)]
    pub(super) fn waiting(socket: &Socket) -> Option<u32> {
        MemInfo::of(socket).map(|info| info.waiting)
    }

    /// Returns whether the kernel's count grew.
    const fn update(&mut self, count: u32) -> bool {
        // A datagram that was queued earlier carries an older count.
        let grown = count.wrapping_sub(self.seen).cast_signed();
        if grown <= 0 {
            return false;
        }
        self.seen = count;
        self.dropped += grown as u64;
        true
    }
}

/// `SO_MEMINFO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MemInfo {
    /// Queued bytes, with the kernel's overhead.
    waiting: u32,
    room: u32,
    drops: u32,
}

impl MemInfo {
    fn of(socket: &Socket) -> Option<Self> {
        // SAFETY: `SO_MEMINFO` gives numbers of 32 bits.
        let words = unsafe { option::<[u32; 9]>(socket, libc::SOL_SOCKET, libc::SO_MEMINFO) };
        let [waiting, room, .., drops] = words.ok()?;
        Some(Self { waiting, room, drops })
    }
}

#[derive(Clone, Copy)]
struct Slot {
    name: libc::sockaddr_storage,
    control: Control,
    vector: libc::iovec,
}

pub(super) struct ReceiveBuffers {
    headers: Vec<libc::mmsghdr>,
    /// Reached only through the headers.
    _slots: Vec<Slot>,
    /// As above. Unused pages are never touched.
    _memory: MmapMut,
    ask: usize,
}

// SAFETY: The pointers in `headers` and `_slots` lead to memory that the value owns.
unsafe impl Send for ReceiveBuffers {}

impl ReceiveBuffers {
    pub(super) fn new() -> io::Result<Self> {
        let mut memory = MmapMut::map_anon(MAX_MESSAGES * STRIDE)?;
        // Most of a huge page would stay unused.
        let _ = memory.advise(Advice::NoHugePage);
        // SAFETY: All zero is valid for each field.
        let mut slots: Vec<Slot> = vec![unsafe { mem::zeroed() }; MAX_MESSAGES];
        let (bytes, first) = (memory.as_mut_ptr(), slots.as_mut_ptr());
        let header = |index: usize| {
            // SAFETY: `index` is below the number of slots and strides. Only these pointers access
            // both from here on, so they stay valid.
            unsafe {
                let slot = first.add(index);
                (*slot).vector =
                    libc::iovec { iov_base: bytes.add(index * STRIDE).cast(), iov_len: LONGEST };
                // All zero is a valid message header.
                let mut header: libc::mmsghdr = mem::zeroed();
                header.msg_hdr.msg_name = (&raw mut (*slot).name).cast();
                header.msg_hdr.msg_iov = &raw mut (*slot).vector;
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = (&raw mut (*slot).control).cast();
                header
            }
        };
        let headers = (0..MAX_MESSAGES).map(header).collect();
        Ok(Self { headers, _slots: slots, _memory: memory, ask: MIN_MESSAGES })
    }

    /// Hands over a batch; returns at least [`BATCH`] while messages are left.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        overflow: &mut Overflow,
        mut each: impl FnMut(&Meta, &[u8]),
    ) -> io::Result<usize> {
        let (mut total, mut bytes) = (0, 0);
        let mut nearly_full = None;
        loop {
            let asked = self.ask;
            let count = self.take(socket, overflow, &mut nearly_full, &mut |meta, payload| {
                bytes += payload.len();
                each(meta, payload);
            })?;
            total += count;
            if count < asked {
                return Ok(total);
            }
            if total >= BATCH || bytes >= BATCH_BYTES {
                return Ok(total.max(BATCH));
            }
        }
    }

    /// One system call. `nearly_full`: the receive buffer is filling, if known.
    fn take(
        &mut self,
        socket: &Socket,
        overflow: &mut Overflow,
        nearly_full: &mut Option<bool>,
        each: &mut impl FnMut(&Meta, &[u8]),
    ) -> io::Result<usize> {
        let asked = self.ask;
        for header in &mut self.headers[..asked] {
            // Reset the lengths that the kernel overwrote.
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = CONTROL as _;
        }
        // The wrapper in glibc is a cancellation point, and this runs under the engine's lock.
        // SAFETY: Each header has its own vector, name and ancillary data, with their true lengths.
        // All outlive the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                asked,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut::<libc::timespec>(),
            )
        };
        let count = transferred(count)?;
        if count == asked && nearly_full.is_none() {
            let is_nearly_full = |info: MemInfo| info.waiting > info.room / 4 * 3;
            *nearly_full = Some(MemInfo::of(socket).is_some_and(is_nearly_full));
        }
        let mut longest = 1;
        for header in self.headers.iter().take(count) {
            let length = (header.msg_len as usize).min(LONGEST);
            let message = &header.msg_hdr;
            // SAFETY: The value owns name, ancillary data and bytes. They are initialised, and
            // nothing writes them until the next call.
            let (name, control, payload) = unsafe {
                (
                    &*message.msg_name.cast::<libc::sockaddr_storage>(),
                    &(*message.msg_control.cast::<Control>()).0,
                    slice::from_raw_parts((*message.msg_iov).iov_base.cast::<u8>(), length),
                )
            };
            let Some(source) = source_address(name) else { continue };
            #[allow(clippy::unnecessary_cast, reason = "an `u32` in musl")]
            let length_of_control = message.msg_controllen as usize;
            let control = &control[..length_of_control.min(CONTROL)];
            let ancillary = read_ancillary(control, length);
            if ancillary.drops.is_some_and(|drops| overflow.update(drops)) {
                *nearly_full = Some(true);
            }
            let congested = nearly_full.unwrap_or(false);
            longest = longest.max(length);
            each(&Meta { source, ancillary, congested }, payload);
        }
        let wanted = if count == asked { 2 * asked } else { asked };
        self.ask = wanted.min(CACHE_BYTES / longest).clamp(MIN_MESSAGES, MAX_MESSAGES);
        Ok(count)
    }
}

fn source_address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: The family states the type; the storage is larger and more strictly aligned.
            let v4 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(address, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: As above.
            let v6 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let address = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(address, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Parses ancillary data; skips unknown items.
#[must_use]
pub fn read_ancillary(mut rest: &[u8], length: usize) -> Ancillary {
    let mut said = Ancillary { segment: length, ..Ancillary::default() };
    while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
        let (size, kinds) = header.split_at(size_of::<usize>());
        let length = usize::from_ne_bytes(size.try_into().unwrap_or_default());
        let int = |bytes: &[u8]| bytes.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes));
        let Some(value) = rest.get(HEADER..length) else { break };
        match (int(kinds).unwrap_or_default(), int(&kinds[4..]).unwrap_or_default(), int(value)) {
            (libc::IPPROTO_IP, libc::IP_TOS, _) => {
                said.traffic_class = value.first().copied().unwrap_or(said.traffic_class);
            }
            (libc::SOL_UDP, libc::UDP_GRO, Some(size)) => {
                said.segment = usize::try_from(size).unwrap_or(0).max(1);
            }
            (libc::IPPROTO_IP, libc::IP_TTL, Some(limit))
            | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, Some(limit)) => {
                said.hop_limit = limit as u8;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, Some(class)) => {
                said.traffic_class = class as u8;
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, Some(drops)) => {
                said.drops = Some(drops.cast_unsigned());
            }
            _ => {}
        }
        let Some(next) = rest.get(length.next_multiple_of(8)..) else { break };
        rest = next;
    }
    said
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Protocol, Type};

    use super::*;
    use crate::link::udp::message;

    fn pair(room: usize) -> (Socket, Socket) {
        let [receiver, sender] = [room, 1 << 20].map(|room| {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
            socket.set_recv_buffer_size(room).unwrap();
            message::configure(&socket, false).unwrap();
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
            socket
        });
        sender.connect(&receiver.local_addr().unwrap()).unwrap();
        (receiver, sender)
    }

    /// All arrivals: first byte, length, flag.
    fn drain(
        buffers: &mut ReceiveBuffers,
        socket: &Socket,
        overflow: &mut Overflow,
    ) -> Vec<(u8, usize, bool)> {
        let mut all = Vec::new();
        loop {
            let count = buffers.receive(socket, overflow, |meta, payload| {
                for datagram in payload.chunks(meta.ancillary.segment.max(1)) {
                    all.push((datagram[0], datagram.len(), meta.congested));
                }
            });
            if count.unwrap() < BATCH {
                let mut left = 0;
                buffers.receive(socket, overflow, |_, _| left += 1).unwrap();
                assert_eq!(left, 0, "fewer than a batch, and there was more");
                return all;
            }
        }
    }

    #[test]
    fn any_number_of_single_datagrams_comes_in_order() {
        let (receiver, sender) = pair(4 << 20);
        let (mut buffers, mut overflow) = (ReceiveBuffers::new().unwrap(), Overflow::of(&receiver));
        for count in [0, 1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 200] {
            let sizes: Vec<usize> = (0..count).map(|index| 1 + index * 37 % 4200).collect();
            for (index, &size) in sizes.iter().enumerate() {
                sender.send(&vec![index as u8; size]).unwrap();
            }
            let wanted: Vec<_> =
                sizes.iter().enumerate().map(|(index, &size)| (index as u8, size, false)).collect();
            assert_eq!(drain(&mut buffers, &receiver, &mut overflow), wanted, "{count} datagrams");
        }
        assert_eq!(overflow.dropped, 0);
    }

    #[test]
    fn runs_among_single_datagrams_come_whole() {
        let (receiver, sender) = pair(4 << 20);
        let (mut buffers, mut overflow) = (ReceiveBuffers::new().unwrap(), Overflow::of(&receiver));
        for _ in 0..100 {
            sender.send(&[1]).unwrap();
        }
        assert_eq!(drain(&mut buffers, &receiver, &mut overflow).len(), 100);
        assert_eq!(buffers.ask, MAX_MESSAGES, "many at once, since they were single");
        let segment = message::max_segments().min(15);
        let mut wanted = Vec::new();
        for run in 0..24 {
            let bytes = vec![run; segment * 4096];
            message::send_run(&sender, &bytes, 4096).unwrap();
            wanted.extend(vec![(run, 4096, false); segment]);
            if run % 5 == 0 {
                sender.send(&[run; 9]).unwrap();
                wanted.push((run, 9, false));
            }
        }
        assert_eq!(drain(&mut buffers, &receiver, &mut overflow), wanted);
        assert!(segment == 1 || buffers.ask == MIN_MESSAGES, "few, since they were long");
    }

    #[test]
    fn a_batch_ends_after_a_portion() {
        let (receiver, sender) = pair(4 << 20);
        let (mut buffers, mut overflow) = (ReceiveBuffers::new().unwrap(), Overflow::of(&receiver));
        for _ in 0..40 {
            sender.send(&[0; 32_000]).unwrap();
        }
        let (mut batches, mut total) = (Vec::new(), 0);
        while total < 40 {
            let mut bytes = 0;
            let count = buffers.receive(&receiver, &mut overflow, |_, payload| {
                (bytes, total) = (bytes + payload.len(), total + 1);
            });
            assert!(total == 40 || count.unwrap() >= BATCH, "there are more");
            batches.push(bytes);
        }
        let most = BATCH_BYTES + CACHE_BYTES;
        assert!(batches.iter().all(|&bytes| bytes < most), "{batches:?}");
        assert!(batches.len() >= 4, "{batches:?}");
    }

    #[test]
    fn a_buffer_that_fills_is_seen_and_its_losses_are_counted() {
        let (receiver, sender) = pair(200_000);
        let (mut buffers, mut overflow) = (ReceiveBuffers::new().unwrap(), Overflow::of(&receiver));
        let send = |count: usize| {
            for _ in 0..count {
                sender.send(&[7; 1024]).unwrap();
            }
        };
        send(16);
        let quiet = drain(&mut buffers, &receiver, &mut overflow);
        assert_eq!((quiet.len(), quiet.iter().any(|datagram| datagram.2)), (16, false));
        let room = receiver.recv_buffer_size().unwrap();
        let fits = room / (1024 + 1280); // an skb of this size, as the kernel counts it
        send(fits * 9 / 10);
        let fuller = drain(&mut buffers, &receiver, &mut overflow);
        assert!(fuller.first().unwrap().2, "more than three quarters are taken");
        assert!(!fuller.last().unwrap().2, "by then there is room again");
        assert_eq!((fuller.len(), overflow.dropped), (fits * 9 / 10, 0));
        let sent = fits * 3;
        send(sent);
        let kept = drain(&mut buffers, &receiver, &mut overflow).len();
        assert!(kept < sent, "not all of {sent} fit");
        // The kernel reports a loss with the next datagram.
        send(1);
        let after = drain(&mut buffers, &receiver, &mut overflow);
        assert_eq!((after, overflow.dropped), (vec![(7, 1024, true)], (sent - kept) as u64));
        send(1);
        let after = drain(&mut buffers, &receiver, &mut overflow);
        assert_eq!((after, overflow.dropped), (vec![(7, 1024, false)], (sent - kept) as u64));
        // A new owner counts from there.
        let mut later = Overflow::of(&receiver);
        send(sent);
        let kept = drain(&mut buffers, &receiver, &mut later).len();
        send(1);
        drain(&mut buffers, &receiver, &mut later);
        assert_eq!(later.dropped, (sent - kept) as u64);
    }

    #[test]
    fn the_count_of_losses_wraps() {
        let mut overflow = Overflow { seen: u32::MAX - 1, dropped: 5 };
        assert!(overflow.update(3) && !overflow.update(3) && !overflow.update(2));
        assert_eq!(overflow.dropped, 10);
    }
}
