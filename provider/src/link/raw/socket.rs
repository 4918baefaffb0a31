//! The packet socket. A header before each frame (`PACKET_VNET_HDR`) has a run's segment size: the
//! kernel segments sent runs, this link received runs.

#![allow(
    unsafe_code,
    reason = "the options and the address of packet sockets have no safe interface"
)]

use std::{
    cell::Cell,
    ffi::c_int,
    fs, io,
    io::IoSlice,
    mem,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use roce_transport::{adapter::Transmit, addr::Gid, wire::checksum};
use rustix::{
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg},
};
use smoltcp::wire::DHCP_CLIENT_PORT;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::{
    super::{
        SocketOptions,
        socket_option::{option, set_option},
    },
    filter,
};
use roce_ethernet::{FrameCounters, MacAddr, Membership, StationConfig, group_mac, memberships};

/// Length of `struct virtio_net_hdr`.
pub(super) const GSO_HEADER: usize = 10;
/// Longest IP packet in a frame, with the header.
const MESSAGE: usize = GSO_HEADER + 18 + 40 + 65_535;
const UDP: usize = 8;
/// Datagrams per run (`UDP_MAX_SEGMENTS` before Linux 6.9).
const SEGMENTS: usize = 64;

/// `struct virtio_net_hdr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GsoHeader([u8; GSO_HEADER]);

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM` and `VIRTIO_NET_HDR_GSO_UDP_L4`.
const NEEDS_CHECKSUM: u8 = 1;
const UDP_RUN: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ECN`, a flag beside the kind.
const ECN: u8 = 0x80;

impl GsoHeader {
    pub(super) const NONE: Self = Self([0; GSO_HEADER]);

    /// Sets the UDP checksum to the pseudo header's sum: the kernel completes each datagram's.
    fn of_run(run: &Transmit, headers: &mut [u8], payload: usize) -> Self {
        let udp = headers.len() - UDP;
        let sum = pseudo_sum(run.src, run.dst, UDP + payload);
        headers[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        let mut header = [0; GSO_HEADER];
        header[0] = NEEDS_CHECKSUM;
        header[1] = UDP_RUN;
        let fields = [headers.len(), run.segment, udp, 6];
        for (to, value) in header[2..].chunks_mut(2).zip(fields) {
            to.copy_from_slice(&(value as u16).to_ne_bytes());
        }
        Self(header)
    }

    /// As [`Arrived::segment`].
    fn segment(self) -> Option<usize> {
        let size = u16::from_ne_bytes([self.0[4], self.0[5]]);
        (self.0[1] & !ECN == UDP_RUN && size > 0).then_some(size.into())
    }
}

/// UDP's pseudo header sum (RFC 768, RFC 8200 section 8.1), folded, not complemented. The prefix of
/// a mapped IPv4 address adds nothing.
fn pseudo_sum(src: IpAddr, dst: IpAddr, length: usize) -> u16 {
    let mut header = [0; 40];
    header[..16].copy_from_slice(&Gid::from(src).0);
    header[16..32].copy_from_slice(&Gid::from(dst).0);
    header[32..36].copy_from_slice(&(length as u32).to_be_bytes());
    header[39] = 17;
    !checksum(&header)
}

/// 1 before Linux 6.2, whose packet sockets lack UDP runs.
fn max_segments() -> usize {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 2) { SEGMENTS } else { 1 }
}

pub(super) struct Arrived<'a> {
    pub(super) frame: &'a [u8],
    /// Payload length of each datagram but the last; `None`: a single datagram.
    pub(super) segment: Option<usize>,
    /// The device's VLAN tag is removed.
    pub(super) untagged: bool,
}

/// An interface down or gone is no error: the port reports it.
pub(super) type Received<'a> = io::Result<Option<Arrived<'a>>>;

pub(super) struct PacketSocket {
    socket: Socket,
    buffer: Box<[u8]>,
    /// Most datagrams per run.
    pub(super) segments: usize,
    drops: Cell<u64>,
}

impl PacketSocket {
    pub(super) fn open(
        interface: u32,
        config: &StationConfig,
        options: &SocketOptions,
    ) -> io::Result<Self> {
        let socket = filtered(options, &filter::of(config))?;
        for mac in memberships(config) {
            join(&socket, interface, mac)?;
        }
        bind(&socket, interface, libc::ETH_P_ALL)?;
        let segments = options.segments.unwrap_or(SEGMENTS).clamp(1, max_segments());
        Ok(Self { socket, buffer: vec![0; MESSAGE].into(), segments, drops: Cell::new(0) })
    }

    /// Returns `false` if full; on an error, the frame is lost.
    pub(super) fn send(&self, head: &[u8], rest: &[u8]) -> io::Result<bool> {
        Ok(send(&self.socket, GsoHeader::NONE, head, rest)?)
    }

    /// `headers` are the first datagram's. Returns `false` if full; on an error, the run is lost.
    pub(super) fn send_run(
        &self,
        run: &Transmit,
        headers: &mut [u8],
        payload: &[u8],
    ) -> io::Result<bool> {
        let gso = if run.count() > 1 {
            GsoHeader::of_run(run, headers, payload.len())
        } else {
            GsoHeader::NONE
        };
        Ok(send(&self.socket, gso, headers, payload)?)
    }

    pub(super) fn receive(&mut self, counters: &mut FrameCounters) -> Received<'_> {
        // At most one of each error.
        for _ in 0..4 {
            match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    let message = &mut self.buffer[..length];
                    let Some((header, frame)) = message.split_first_chunk_mut() else { break };
                    let segment = GsoHeader(*header).segment();
                    if is_for_dhcp(*header, frame) {
                        complete_checksum(*header, frame);
                    }
                    let untagged = !filter::is_tagged(frame);
                    return Ok(Some(Arrived { frame, segment, untagged }));
                }
                Err(Errno::AGAIN) => break,
                // A run that the kernel cannot describe: UDP before Linux 6.2.
                Err(Errno::INVAL) => counters.unread += 1,
                Err(Errno::INTR | Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// In bytes.
    pub(super) fn receive_buffer(&self) -> Option<usize> {
        self.socket.recv_buffer_size().ok()
    }

    pub(super) fn drops(&self) -> u64 {
        drops_of(&self.socket, &self.drops)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Unbound packet socket.
fn new_socket() -> io::Result<Socket> {
    // protocol 0 receives nothing until bound
    Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))
}

/// Unbound packet socket with a filter, buffers and [`GsoHeader`]s.
pub(super) fn filtered(options: &SocketOptions, filter: &[SockFilter]) -> io::Result<Socket> {
    let socket = new_socket()?;
    socket.set_nonblocking(true)?;
    options.set_receive_buffer(&socket);
    SocketOptions::set_send_buffer(&socket);
    socket.attach_filter(filter)?;
    set(&socket, libc::PACKET_VNET_HDR, &1_i32)?;
    Ok(socket)
}

/// Returns `false` if full.
pub(super) fn send(
    socket: &Socket,
    gso: GsoHeader,
    head: &[u8],
    rest: &[u8],
) -> rustix::io::Result<bool> {
    let parts = [IoSlice::new(&gso.0), IoSlice::new(head), IoSlice::new(rest)];
    let mut none = SendAncillaryBuffer::default();
    match sendmsg(socket, &parts, &mut none, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        sent => sent.map(|_| true),
    }
}

/// Completes a checksum that a local sender left to its interface.
pub(super) fn complete_checksum(header: [u8; GSO_HEADER], frame: &mut [u8]) {
    if header[0] & NEEDS_CHECKSUM == 0 {
        return;
    }
    let field = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let (start, at) = (field(6), field(6) + field(8));
    let Some(covered) = frame.get(start..) else { return };
    let sum = match checksum(covered) {
        0 => 0xFFFF, // 0 means none in UDP; elsewhere both are equal
        sum => sum,
    };
    if let Some(to) = frame.get_mut(at..at + 2) {
        to.copy_from_slice(&sum.to_be_bytes());
    }
}

/// DHCP clients check the UDP checksum; RoCE receivers do not.
fn is_for_dhcp(header: [u8; GSO_HEADER], frame: &[u8]) -> bool {
    let udp = usize::from(u16::from_ne_bytes([header[6], header[7]]));
    frame.get(udp + 2..udp + 4) == Some(&DHCP_CLIENT_PORT.to_be_bytes())
}

/// `so_far` keeps the sum: reading resets the kernel's counter.
pub(super) fn drops_of(socket: &Socket, so_far: &Cell<u64>) -> u64 {
    // SAFETY: `PACKET_STATISTICS` gives a `tpacket_stats`, plain numbers.
    let statistics: io::Result<libc::tpacket_stats> =
        unsafe { option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS) };
    let new = statistics.map_or(0, |statistics| statistics.tp_drops.into());
    so_far.set(so_far.get() + new);
    so_far.get()
}

/// Makes the interface accept a group's frames while open; receives nothing.
pub(super) fn member(group: IpAddr, interface: u32) -> io::Result<Socket> {
    let mac = group_mac(group).ok_or(io::ErrorKind::InvalidInput)?;
    membership(Membership::Address(mac), interface)
}

/// Makes the interface accept more frames while open; receives nothing.
pub(super) fn membership(membership: Membership, interface: u32) -> io::Result<Socket> {
    let socket = new_socket()?;
    match membership {
        Membership::Address(mac) => join(&socket, interface, mac)?,
        Membership::Groups => add(&socket, interface, libc::PACKET_MR_ALLMULTI, [0; 6])?,
        Membership::Everything => add(&socket, interface, libc::PACKET_MR_PROMISC, [0; 6])?,
    }
    Ok(socket)
}

fn join(socket: &Socket, interface: u32, mac: MacAddr) -> io::Result<()> {
    let kind = if mac.0 & 1 == 1 { libc::PACKET_MR_MULTICAST } else { libc::PACKET_MR_UNICAST };
    add(socket, interface, kind, mac.octets())
}

fn add(socket: &Socket, interface: u32, kind: c_int, mac: [u8; 6]) -> io::Result<()> {
    let mut address = [0; 8];
    address[..6].copy_from_slice(&mac);
    let request = libc::packet_mreq {
        mr_ifindex: interface.cast_signed(),
        mr_type: kind as u16,
        mr_alen: 6,
        mr_address: address,
    };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, &request)
}

pub(super) fn set<T>(socket: &Socket, name: c_int, value: &T) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, name, value)
}

/// `protocol` selects received frames: `ETH_P_ALL` all, 0 none.
pub(super) fn bind(socket: &Socket, interface: u32, protocol: c_int) -> io::Result<()> {
    // SAFETY: All zero is valid for plain numbers. The kernel reads the structure's bytes.
    let result = unsafe {
        let mut address: libc::sockaddr_ll = mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (protocol as u16).to_be();
        address.sll_ifindex = interface.cast_signed();
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast::<libc::sockaddr>(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_completed() {
        // A 1-byte datagram from 10.0.0.1 to 10.0.0.2 with the pseudo header's sum as checksum.
        let pseudo: u16 = 0x0A00 + 1 + 0x0A00 + 2 + 17 + 9;
        let [high, low] = pseudo.to_be_bytes();
        let mut frame = vec![0xEE; 34];
        frame.extend([0x12, 0x34, 0x56, 0x78, 0, 9, high, low, 0xAB]);
        let mut header = [0; GSO_HEADER];
        header[0] = NEEDS_CHECKSUM;
        header[6..8].copy_from_slice(&34_u16.to_ne_bytes());
        header[8..10].copy_from_slice(&6_u16.to_ne_bytes());
        complete_checksum(header, &mut frame);
        let words: u32 = [0x1234, 0x5678, 9, 0xAB00].iter().sum::<u32>() + u32::from(pseudo);
        let expected = !((words & 0xFFFF) + (words >> 16)) as u16;
        assert_eq!(frame[40..42], expected.to_be_bytes());
        let before = frame.clone();
        header[6..8].copy_from_slice(&400_u16.to_ne_bytes());
        complete_checksum(header, &mut frame);
        assert_eq!(frame, before, "a place outside the frame");
    }
}
