//! Socket calls that the standard library lacks: options of UDP, and many datagrams with their
//! ancillary data at once.

#![allow(
    unsafe_code,
    reason = "sendmmsg, recvmmsg and their ancillary data have no safe interface that carries UDP_SEGMENT"
)]

use std::{
    io, mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::{AsRawFd, RawFd},
    ptr,
    sync::OnceLock,
};

use libc::{c_int, c_void};
use roce_transport::adapter::Transmit;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::link::BATCH;

/// The most that a merged run of datagrams can hold.
const BUFFER: usize = 65_536;
/// Room for the ancillary data of one message: a segment size, a traffic class and a hop limit
/// take 72 bytes.
const CONTROL: usize = 128;

// Ancillary data must be aligned like its header.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// Sets what every socket of the link needs.
///
/// `PMTUDISC_PROBE`: never fragment, as the ICRC covers "don't fragment" and the identification,
/// and ask the interface alone how large a datagram may be. `PMTUDISC_DO` would believe any ICMP
/// message that quotes addresses and port, which everybody can guess, and refuse for ten minutes
/// what a queue pair sends with its path MTU.
pub(super) fn configure(socket: &Socket, v6: bool) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    if v6 {
        socket.set_only_v6(true)?;
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
        // peers send a zero checksum, which IPv6 forbids unless the receiver agrees
        set(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
    } else {
        set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        set(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, 1)?;
    }
    // without it datagrams arrive one by one, which is only slower
    let _ = set(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    Ok(())
}

/// Lets a socket hear this interface only. Needs no privilege since Linux 5.7; interface 0 is every
/// interface.
pub(super) fn bind_to_interface(socket: &Socket, interface: u32) -> io::Result<()> {
    set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, interface.cast_signed())
}

/// Number of datagrams that the kernel cuts one buffer into: 1 where it does not, 64 in older
/// kernels, 128 in newer ones. Found out by trying, once, on a socket that sends to itself.
pub(super) fn max_segments() -> usize {
    static SEGMENTS: OnceLock<usize> = OnceLock::new();
    *SEGMENTS.get_or_init(|| {
        [128, 64].into_iter().find(|&count| try_segments(count).is_ok()).unwrap_or(1)
    })
}

fn try_segments(count: usize) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let (src, dst) = (address.ip(), address.ip());
    let run = Transmit {
        src,
        dst,
        src_port: 0,
        traffic_class: 0,
        hop_limit: 64,
        segment: 1,
        range: 0..count,
    };
    SendBuffers::default().send(&socket, &vec![0; count], &[run], |_| address)
}

fn set(fd: RawFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: The value is an int, its size is given, and the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd,
            level,
            option,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Buffers for sending, kept between calls.
#[derive(Default)]
pub(super) struct SendBuffers {
    addresses: Vec<SockAddr>,
    controls: Vec<Control>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: The pointers in `vectors` and `headers` are only used inside `send`, which fills them
// first.
unsafe impl Send for SendBuffers {}

impl SendBuffers {
    /// Sends every run from `socket`. A run that cannot be sent is skipped.
    pub(super) fn send(
        &mut self,
        socket: &Socket,
        bytes: &[u8],
        runs: &[Transmit],
        to: impl Fn(&Transmit) -> SocketAddr,
    ) -> io::Result<()> {
        self.fill(bytes, runs, to);
        let mut result = Ok(());
        let mut done = 0;
        while done < self.headers.len() {
            let rest = &mut self.headers[done..];
            // The system call itself: the C library's function is a cancellation point.
            // SAFETY: Each header points to an address, one vector and ancillary data that live in
            // `self` and in `bytes` until the call returns, with their true lengths; the kernel
            // reads all of them and writes only the headers.
            let sent = unsafe {
                libc::syscall(
                    libc::SYS_sendmmsg,
                    socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    0,
                )
            };
            match usize::try_from(sent) {
                Ok(sent) if sent > 0 => done += sent,
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        result = Err(error);
                        done += 1; // the first of the rest is what could not be sent
                    }
                }
            }
        }
        result
    }

    /// Fills the headers, each of which points to an address, a vector with the bytes of its run, and
    /// ancillary data.
    fn fill(&mut self, bytes: &[u8], runs: &[Transmit], to: impl Fn(&Transmit) -> SocketAddr) {
        self.addresses.clear();
        self.addresses.extend(runs.iter().map(|run| SockAddr::from(to(run))));
        self.controls.clear();
        self.controls.resize(runs.len(), Control([0; CONTROL]));
        self.vectors.clear();
        self.headers.clear();
        for run in runs {
            let payload = bytes.get(run.range.clone()).unwrap_or_default();
            self.vectors.push(libc::iovec {
                iov_base: payload.as_ptr().cast_mut().cast::<c_void>(),
                iov_len: payload.len(),
            });
        }
        // Each is borrowed once for all its pointers: another borrow would end those before it.
        let buffers = self.controls.iter_mut().zip(&mut self.vectors);
        for ((run, address), (control, vector)) in runs.iter().zip(&self.addresses).zip(buffers) {
            let length = ancillary(control, run);
            // SAFETY: All zero is a valid message header.
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = address.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            if length > 0 {
                header.msg_hdr.msg_control = ptr::from_mut(control).cast();
                header.msg_hdr.msg_controllen = length as _;
            }
            self.headers.push(header);
        }
    }
}

/// Writes a run's ancillary data and returns its length: the segment size of a run of several, and
/// what differs from the socket's defaults in its IP header.
fn ancillary(control: &mut Control, run: &Transmit) -> usize {
    let mut used = 0;
    if run.count() > 1 {
        put(
            control,
            &mut used,
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            &(run.segment as u16).to_ne_bytes(),
        );
    }
    let (level, class, limit) = if run.src.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
    };
    if run.traffic_class != 0 {
        put(control, &mut used, level, class, &c_int::from(run.traffic_class).to_ne_bytes());
    }
    if run.hop_limit != 64 {
        put(control, &mut used, level, limit, &c_int::from(run.hop_limit).to_ne_bytes());
    }
    used
}

const HEADER: usize = size_of::<libc::cmsghdr>();

/// Appends one item of ancillary data: header, value, padding to the header's alignment.
fn put(control: &mut Control, used: &mut usize, level: c_int, kind: c_int, value: &[u8]) {
    let length = HEADER + value.len();
    let item = &mut control.0[*used..*used + length.next_multiple_of(8)];
    let (size, rest) = item.split_at_mut(size_of::<usize>());
    size.copy_from_slice(&length.to_ne_bytes());
    rest[..4].copy_from_slice(&level.to_ne_bytes());
    rest[4..8].copy_from_slice(&kind.to_ne_bytes());
    rest[8..8 + value.len()].copy_from_slice(value);
    *used += length.next_multiple_of(8);
}

/// Source and ancillary data of a received message.
pub(super) struct Meta {
    pub(super) source: SocketAddr,
    /// Length of every datagram in it but the last.
    pub(super) segment: usize,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

/// Buffers for receiving, kept between calls.
pub(super) struct ReceiveBuffers {
    buffers: Box<[u8]>,
    controls: [Control; BATCH],
    names: [libc::sockaddr_storage; BATCH],
}

impl ReceiveBuffers {
    pub(super) fn new() -> Self {
        // SAFETY: All zero is a valid socket address storage.
        let names = unsafe { mem::zeroed() };
        Self {
            buffers: vec![0; BATCH * BUFFER].into(),
            controls: [Control([0; CONTROL]); BATCH],
            names,
        }
    }

    /// Takes a batch of messages and hands over each; returns how many there were.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        mut each: impl FnMut(&Meta, &[u8]),
    ) -> io::Result<usize> {
        // SAFETY: All zero is a valid value of both.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { mem::zeroed() };
        for (index, buffer) in self.buffers.chunks_exact_mut(BUFFER).enumerate() {
            vectors[index] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: BUFFER };
            let header = &mut headers[index].msg_hdr;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut vectors[index];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut self.controls[index]).cast();
            header.msg_controllen = CONTROL as _;
        }
        // The system call itself, as above.
        // SAFETY: Each header points to one vector, a name and ancillary data that outlive the
        // call, with their true lengths, and to nothing that another header points to.
        let count = unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut::<libc::timespec>(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        };
        for (index, header) in headers.iter().enumerate().take(count) {
            let length = header.msg_len as usize;
            let payload = &self.buffers[index * BUFFER..][..length.min(BUFFER)];
            let Some(source) = source_address(&self.names[index]) else { continue };
            let mut meta = Meta { source, segment: length, traffic_class: 0, hop_limit: 0 };
            read_ancillary(
                &self.controls[index].0[..header.msg_hdr.msg_controllen.min(CONTROL)],
                &mut meta,
            );
            each(&meta, payload);
        }
        Ok(count)
    }
}

fn source_address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: The family says that the storage, which is larger and more strictly aligned,
            // holds this.
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

/// Reads the items of ancillary data; unknown ones are passed over.
fn read_ancillary(mut rest: &[u8], meta: &mut Meta) {
    while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
        let (size, kinds) = header.split_at(size_of::<usize>());
        let length = usize::from_ne_bytes(size.try_into().unwrap_or_default());
        let int = |bytes: &[u8]| c_int::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let (level, kind) = (int(&kinds[..4]), int(&kinds[4..8]));
        let Some(value) = rest.get(HEADER..length) else { return };
        match (level, kind, value) {
            (libc::SOL_UDP, libc::UDP_GRO, value) if value.len() >= 4 => {
                meta.segment = usize::try_from(int(&value[..4])).unwrap_or(0).max(1);
            }
            (libc::IPPROTO_IP, libc::IP_TOS, [class, ..]) => meta.traffic_class = *class,
            (libc::IPPROTO_IP, libc::IP_TTL, value) if value.len() >= 4 => {
                meta.hop_limit = int(&value[..4]) as u8;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, value) if value.len() >= 4 => {
                meta.traffic_class = int(&value[..4]) as u8;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, value) if value.len() >= 4 => {
                meta.hop_limit = int(&value[..4]) as u8;
            }
            _ => {}
        }
        let Some(next) = rest.get(length.next_multiple_of(8)..) else { return };
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads what the kernel reads, by the pointers of all headers: Miri sees which are stale.
    #[test]
    fn the_pointers_of_all_headers_are_good_together() {
        let run = |hop_limit, range| Transmit {
            src: Ipv4Addr::LOCALHOST.into(),
            dst: Ipv4Addr::LOCALHOST.into(),
            src_port: 0,
            traffic_class: 0,
            hop_limit,
            segment: 2,
            range,
        };
        let runs = [run(64, 0..2), run(1, 2..6), run(2, 6..7)];
        let mut buffers = SendBuffers::default();
        for _ in 0..2 {
            buffers.fill(b"abcdefg", &runs, |run| (run.dst, 4791).into());
            let headers = buffers.headers.as_mut_ptr();
            let read = |index| {
                // SAFETY: There are as many headers as runs, and each points to what is read here.
                unsafe {
                    let header = (*headers.add(index)).msg_hdr;
                    let family = (*header.msg_name.cast::<libc::sockaddr_in>()).sin_family;
                    let vector = *header.msg_iov;
                    let bytes =
                        std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len);
                    let kind = (!header.msg_control.is_null())
                        .then(|| (*header.msg_control.cast::<libc::cmsghdr>()).cmsg_type);
                    (c_int::from(family), bytes, kind)
                }
            };
            let segments = Some(libc::UDP_SEGMENT);
            assert_eq!(read(0), (libc::AF_INET, &b"ab"[..], None));
            assert_eq!(read(1), (libc::AF_INET, &b"cdef"[..], segments));
            assert_eq!(read(2), (libc::AF_INET, &b"g"[..], Some(libc::IP_TTL)));
        }
    }
}
