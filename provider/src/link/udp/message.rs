//! UDP socket options, and batched sending with ancillary data.

#![allow(
    unsafe_code,
    reason = "sendmmsg and its ancillary data have no safe interface that carries UDP_SEGMENT"
)]

use std::{
    io, mem,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::AsRawFd,
    ptr,
    sync::OnceLock,
};

use libc::{c_int, c_void};
use roce_transport::{adapter::Transmit, wire::FrameFields};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::{
    link::socket_option::set_option,
    notice::{OptionalFeature, is_refusal},
};

/// Bytes of ancillary data per message: segment size, traffic class and hop limit take 72, a drop
/// count 24.
pub(super) const CONTROL: usize = 128;

// Aligned like `cmsghdr`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control(pub(super) [u8; CONTROL]);

/// UDP socket of the address's family.
pub(super) fn new_socket(address: IpAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address((address, 0).into()), Type::DGRAM, Some(Protocol::UDP))
}

pub(super) fn configure(socket: &Socket, v6: bool) -> io::Result<()> {
    configure_sending(socket, v6)?;
    let set = |level, option| set_option(socket, level, option, &1_i32);
    if v6 {
        IPV6_RECVTCLASS.ask(socket.set_recv_tclass_v6(true));
        IPV6_RECVHOPLIMIT.ask(socket.set_recv_hoplimit_v6(true));
        // Peers send a zero checksum, which IPv6 forbids unless the receiver agrees.
        UDP_NO_CHECK6_RX.ask(set(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX));
    } else {
        IP_RECVTOS.ask(socket.set_recv_tos_v4(true));
        IP_RECVTTL.ask(set(libc::IPPROTO_IP, libc::IP_RECVTTL));
    }
    UDP_GRO.ask(set(libc::SOL_UDP, libc::UDP_GRO));
    SO_RXQ_OVFL.ask(set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL));
    Ok(())
}

/// A system may lack these options: gVisor lacks `UDP_SEGMENT`, `UDP_GRO` and an `IP_MTU_DISCOVER`
/// that forbids fragmentation.
macro_rules! optional {
    ($($($name:ident)+ $without:literal;)*) => {
        $($(pub(super) static $name: OptionalFeature =
            OptionalFeature::new(stringify!($name), $without);)+)*
    };
}

optional! {
    IPV6_RECVTCLASS "ECN marks over IPv6 are not visible";
    IPV6_RECVHOPLIMIT "IPv6 packets are shown with hop limit 64";
    UDP_NO_CHECK6_RX "packets of rxe and of adapters do not arrive over IPv6";
    IP_RECVTOS "ECN marks over IPv4 are not visible";
    IP_RECVTTL "IPv4 packets are shown with TTL 64";
    UDP_GRO "packets are received singly, which is slower";
    UDP_SEGMENT "packets are sent singly, which is slower";
    SO_RCVBUF "receive buffers keep their size";
    SO_SNDBUF "send buffers keep their size";
    SO_ATTACH_FILTER "datagrams to source ports take memory until they are dropped";
    SO_RXQ_OVFL "packets that a full receive buffer drops are not counted";
    IP_MTU_DISCOVER
        "over IPv4, only roce takes packets from here; rxe and adapters count a wrong ICRC";
    IPV6_MTU_DISCOVER "packets over IPv6 may be fragmented";
    IP_MULTICAST_IF IP_MULTICAST_LOOP IP_MULTICAST_TTL
    IPV6_MULTICAST_IF IPV6_MULTICAST_LOOP IPV6_MULTICAST_HOPS
        "packets to multicast groups may not reach their members";
}

/// Adds the option's name to the error.
pub(super) fn named(option: &str, result: io::Result<()>) -> io::Result<()> {
    result.map_err(|error| {
        io::Error::new(error.kind(), format!("the system refuses {option}: {error}"))
    })
}

/// `PMTUDISC_PROBE` never fragments, since the ICRC covers DF and identification, and ignores path
/// MTUs from ICMP. With `PMTUDISC_DO`, forged ICMP with guessable addresses and port fails
/// full-size packets for ten minutes.
pub(super) fn configure_sending(socket: &Socket, v6: bool) -> io::Result<()> {
    if v6 {
        named("IPV6_V6ONLY", socket.set_only_v6(true))?;
        let result = sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE);
        IPV6_MTU_DISCOVER.ask(result.map_err(io::Error::from));
    } else {
        let result = sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE);
        IP_MTU_DISCOVER.ask(result.map_err(io::Error::from));
    }
    Ok(())
}

pub(super) fn socket_address(address: IpAddr, interface: u32, port: u16) -> SocketAddr {
    match address {
        IpAddr::V4(v4) => SocketAddrV4::new(v4, port).into(),
        IpAddr::V6(v6) => {
            let scope = if v6.is_unicast_link_local() { interface } else { 0 };
            SocketAddrV6::new(v6, port, 0, scope).into()
        }
    }
}

/// Multicast leaves by `own`'s interface, loops back to this host, and has unicast's hop limit.
/// Without multicast on the interface, sends fail and are counted.
pub(super) fn configure_multicast(socket: &Socket, own: IpAddr, interface: u32) {
    let results = match own {
        IpAddr::V4(own) => [
            (&IP_MULTICAST_IF, socket.set_multicast_if_v4(&own)),
            (&IP_MULTICAST_LOOP, socket.set_multicast_loop_v4(true)),
            (&IP_MULTICAST_TTL, socket.set_multicast_ttl_v4(64)),
        ],
        IpAddr::V6(_) => [
            (&IPV6_MULTICAST_IF, socket.set_multicast_if_v6(interface)),
            (&IPV6_MULTICAST_LOOP, socket.set_multicast_loop_v6(true)),
            (&IPV6_MULTICAST_HOPS, socket.set_multicast_hops_v6(64)),
        ],
    };
    for (option, result) in results {
        // An interface without multicast gives another error.
        option.ask(result.or_else(|error| if is_refusal(&error) { Err(error) } else { Ok(()) }));
    }
}

/// Most segments of a send: 1 without `UDP_SEGMENT`, 64 before Linux 6.9, 128 since. Probed once.
pub(super) fn max_segments() -> usize {
    static SEGMENTS: OnceLock<usize> = OnceLock::new();
    *SEGMENTS.get_or_init(|| {
        let Ok(socket) = connected_to_itself() else { return 1 };
        // Ask first: a system without UDP ancillary data may ignore the segment size.
        let is_known = set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, &0_i32);
        let mut result = Ok(());
        for count in [128, 64].into_iter().filter(|_| is_known.is_ok()) {
            result = send_run(&socket, &vec![0; count], 1);
            if result.is_ok() {
                return count;
            }
        }
        UDP_SEGMENT.ask(is_known.and(result));
        1
    })
}

fn connected_to_itself() -> io::Result<Socket> {
    let socket = new_socket(Ipv4Addr::LOCALHOST.into())?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.connect(&socket.local_addr()?)?;
    Ok(socket)
}

pub(super) fn send_run(socket: &Socket, bytes: &[u8], segment: usize) -> io::Result<()> {
    let address = socket.peer_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let run = Transmit {
        src: address.ip(),
        dst: address.ip(),
        src_port: 0,
        traffic_class: 0,
        hop_limit: 64,
        frame: FrameFields::default(),
        segment,
        range: 0..bytes.len(),
    };
    match SendBuffers::default().send(socket, bytes, &[run], |_| address)? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

#[derive(Default)]
pub(super) struct SendBuffers {
    /// In the kernel's form, rebuilt only on change.
    addresses: Vec<(SocketAddr, SockAddr)>,
    /// Only the last write is read.
    controls: Vec<Control>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: Only `send` uses the pointers in `vectors` and `headers`, and fills them first.
unsafe impl Send for SendBuffers {}

impl SendBuffers {
    /// Sends the first runs without blocking; 0: the socket is full.
    ///
    /// # Errors
    /// If the first cannot be sent.
    pub(super) fn send(
        &mut self,
        socket: &Socket,
        bytes: &[u8],
        runs: &[Transmit],
        to: impl Fn(&Transmit) -> SocketAddr,
    ) -> io::Result<usize> {
        self.fill(bytes, runs, to);
        // The wrapper in glibc is a cancellation point, and the caller holds a lock.
        // SAFETY: Each header points to an address, a vector and ancillary data in `self` and
        // `bytes`, with their true lengths. The kernel writes only the headers.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendmmsg,
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        transferred(sent)
    }

    fn fill(&mut self, bytes: &[u8], runs: &[Transmit], to: impl Fn(&Transmit) -> SocketAddr) {
        for (index, run) in runs.iter().enumerate() {
            let address = to(run);
            match self.addresses.get_mut(index) {
                Some((known, _)) if *known == address => {}
                Some(other) => *other = (address, address.into()),
                None => self.addresses.push((address, address.into())),
            }
        }
        if self.controls.len() < runs.len() {
            self.controls.resize(runs.len(), Control([0; CONTROL]));
        }
        self.vectors.clear();
        self.headers.clear();
        for run in runs {
            let payload = run.payload(bytes);
            self.vectors.push(libc::iovec {
                iov_base: payload.as_ptr().cast_mut().cast::<c_void>(),
                iov_len: payload.len(),
            });
        }
        // One borrow each: another would invalidate its pointers.
        let buffers = self.controls.iter_mut().zip(&mut self.vectors);
        for ((run, (_, address)), (control, vector)) in
            runs.iter().zip(&self.addresses).zip(buffers)
        {
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

/// Messages that a system call has sent or received.
pub(super) fn transferred(count: libc::c_long) -> io::Result<usize> {
    usize::try_from(count).or_else(|_| {
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
            _ => Err(error),
        }
    })
}

/// Writes the segment size of several datagrams, and IP fields that differ from the socket's
/// defaults. Returns the length.
fn ancillary(control: &mut Control, run: &Transmit) -> usize {
    let mut used = 0;
    if run.count() > 1 {
        let segment = (run.segment as u16).to_ne_bytes();
        put(control, &mut used, libc::SOL_UDP, libc::UDP_SEGMENT, &segment);
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

pub(super) const HEADER: usize = size_of::<libc::cmsghdr>();

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Miri finds stale pointers.
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
            frame: FrameFields::default(),
        };
        let runs = [run(64, 0..2), run(1, 2..6), run(2, 6..7)];
        let mut buffers = SendBuffers::default();
        for _ in 0..2 {
            buffers.fill(b"abcdefg", &runs, |run| (run.dst, 4791).into());
            let headers = buffers.headers.as_mut_ptr();
            let read = |index| {
                // SAFETY: Each run has a header, which points to what is read here.
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
