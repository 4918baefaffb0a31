//! Raw packets, on a separate packet socket: a flood costs nothing of the device's receive buffer.
//! Without flows, the socket receives nothing.

#![allow(unsafe_code, reason = "what the kernel tells beside a frame has no safe interface")]

use std::{
    cell::Cell,
    ffi::c_void,
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr,
};

use rustix::io::Errno;
use socket2::Socket;

use super::{
    super::SocketOptions,
    filter,
    socket::{GSO_HEADER, GsoHeader, bind, complete_checksum, drops_of, filtered, send, set},
};
use roce_ethernet::{FrameCounters, MacAddr};

/// Room before a frame for the VLAN tag that the kernel removes.
const TAG: usize = 4;
const ADDRESSES: usize = 12;
const FRAME: usize = 18 + 40 + 65_535;
const TAG_8021Q: u16 = 0x8100;
/// Most consecutive messages without frame per call.
const LOST: usize = 64;

pub(super) struct RawPackets {
    socket: Socket,
    interface: u32,
    own: MacAddr,
    is_bound: bool,
    buffer: Vec<u8>,
    drops: Cell<u64>,
}

impl RawPackets {
    pub(super) fn open(interface: u32, own: MacAddr, options: &SocketOptions) -> io::Result<Self> {
        let socket = filtered(options, &filter::of_packets(own, false))?;
        set(&socket, libc::PACKET_AUXDATA, &1_i32)?;
        bind(&socket, interface, 0)?;
        let (buffer, drops) = (Vec::new(), Cell::new(0));
        Ok(Self { socket, interface, own, is_bound: false, buffer, drops })
    }

    pub(super) fn listen(&mut self, on: bool) -> io::Result<()> {
        self.socket.attach_filter(&filter::of_packets(self.own, on))?;
        // Unbinding waits for other processors: the filter stops reception instead.
        if on && !self.is_bound {
            self.buffer.resize(TAG + FRAME, 0);
            bind(&self.socket, self.interface, libc::ETH_P_ALL)?;
            self.is_bound = true;
        }
        Ok(())
    }

    /// Returns `false` if full.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<bool> {
        match send(&self.socket, GsoHeader::NONE, frame, &[]) {
            Err(Errno::NOBUFS) => Ok(false),
            sent => Ok(sent?),
        }
    }

    /// The next frame as on the wire, with tag and checksums.
    pub(super) fn receive(&mut self, counters: &mut FrameCounters) -> io::Result<Option<&[u8]>> {
        if !self.is_bound {
            return Ok(None);
        }
        for _ in 0..LOST {
            match self.read() {
                Ok(None) => return Ok(None),
                Ok(Some((header, length, tag))) => {
                    if header[1] != 0 {
                        counters.merged += 1;
                        continue;
                    }
                    let frame = &mut self.buffer[TAG..TAG + length];
                    complete_checksum(header, frame);
                    let Some(tag) = tag.filter(|_| length >= ADDRESSES) else {
                        return Ok(Some(&self.buffer[TAG..TAG + length]));
                    };
                    self.buffer.copy_within(TAG..TAG + ADDRESSES, 0);
                    self.buffer[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
                    return Ok(Some(&self.buffer[..TAG + length]));
                }
                Err(error) => match error.raw_os_error() {
                    // a run that the kernel cannot describe
                    Some(libc::EINVAL) => counters.merged += 1,
                    Some(libc::EINTR | libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(None)
    }

    fn read(&mut self) -> io::Result<Option<Read>> {
        let mut header = [0_u8; GSO_HEADER];
        let mut control = [0_u64; 8];
        let frame = &mut self.buffer[TAG..];
        let mut parts = [
            libc::iovec { iov_base: header.as_mut_ptr().cast::<c_void>(), iov_len: GSO_HEADER },
            libc::iovec { iov_base: frame.as_mut_ptr().cast::<c_void>(), iov_len: frame.len() },
        ];
        // SAFETY: All zero is valid for numbers and pointers. The kernel writes only to the two
        // parts and to `control`, within their lengths. All outlive the call.
        let (length, message) = unsafe {
            let mut message: libc::msghdr = mem::zeroed();
            message.msg_iov = parts.as_mut_ptr();
            message.msg_iovlen = 2;
            message.msg_control = control.as_mut_ptr().cast::<c_void>();
            message.msg_controllen = size_of_val(&control) as _;
            let length =
                libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT);
            (length, message)
        };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            let none = error.kind() == io::ErrorKind::WouldBlock;
            return if none { Ok(None) } else { Err(error) };
        };
        let Some(length) = length.checked_sub(GSO_HEADER) else { return Ok(None) };
        Ok(Some((header, length, tag(&message))))
    }

    pub(super) fn drops(&self) -> u64 {
        drops_of(&self.socket, &self.drops)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Header, length and removed tag of a frame.
type Read = ([u8; GSO_HEADER], usize, Option<[u8; TAG]>);

fn tag(message: &libc::msghdr) -> Option<[u8; TAG]> {
    // SAFETY: The kernel has written control data of the stated length. The structure is plain
    // numbers, read unaligned.
    let auxiliary = unsafe {
        let first = libc::CMSG_FIRSTHDR(ptr::from_ref(message));
        if first.is_null()
            || (*first).cmsg_level != libc::SOL_PACKET
            || (*first).cmsg_type != libc::PACKET_AUXDATA
        {
            return None;
        }
        ptr::read_unaligned(libc::CMSG_DATA(first).cast::<libc::tpacket_auxdata>())
    };
    if auxiliary.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = auxiliary.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let kind = if known { auxiliary.tp_vlan_tpid } else { TAG_8021Q };
    let ([a, b], [c, d]) = (kind.to_be_bytes(), auxiliary.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}
