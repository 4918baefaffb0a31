//! Writing: every datagram as Wireshark reads it.

use std::{
    borrow::Cow,
    fmt,
    io::{self, Write},
    time::Duration,
};

use pcap_file::{
    DataLink, PcapError,
    pcapng::{
        PcapNgWriter,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
        },
    },
};
use roce_transport::{
    addr::{ROCE_UDP_PORT, RoceVersion},
    wire::{NetHeader, checksum, grh},
};

/// EtherType of RoCE v1: a GRH and the transport's headers, without IP and UDP.
pub(crate) const ETHERTYPE_ROCE_V1: u16 = 0x8915;

/// Interfaces of a capture.
const IP: u32 = 0;
const ETHERNET: u32 = 1;

/// Writes raw IP packets in the format pcapng; packets of RoCE v1, which are none, in Ethernet
/// frames.
///
/// IP headers are as they were sent, or as they must have been. The identification of a received
/// IPv4 packet is the one that makes its ICRC right, else a guess.
pub struct CaptureWriter<W: Write> {
    writer: PcapNgWriter<W>,
    /// The interface of Ethernet frames is described, as the second one.
    has_ethernet: bool,
}

impl<W: Write> CaptureWriter<W> {
    /// Starts a capture.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn new(to: W) -> io::Result<Self> {
        let mut writer = PcapNgWriter::new(to).map_err(to_io)?;
        writer.write_pcapng_block(interface(DataLink::RAW)).map_err(to_io)?;
        Ok(Self { writer, has_ethernet: false })
    }

    /// Adds a datagram: its time since the Unix epoch, its headers and UDP payload, and a comment.
    ///
    /// Of a comment that is longer than a capture can hold, the beginning is kept.
    ///
    /// # Errors
    /// When the file cannot be written, or when IP carries no datagram of so many bytes.
    pub fn write(
        &mut self,
        at: Duration,
        net: &NetHeader,
        bytes: &[u8],
        comment: Option<String>,
    ) -> io::Result<()> {
        // the length of an IPv4 packet counts its header
        if bytes.len() > usize::from(u16::MAX) - if net.src.is_ipv4() { 28 } else { 8 } {
            let message = format!("no datagram has {} bytes", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let comment = comment.map(|mut comment| {
            // its length has 16 bits
            let most = usize::from(u16::MAX).min(comment.len());
            let end = (0..=most).rev().find(|&at| comment.is_char_boundary(at));
            comment.truncate(end.unwrap_or_default());
            comment
        });
        match net.frame.version() {
            RoceVersion::V1 => self.put(at, ETHERNET, v1_frame(net, bytes).into(), comment),
            RoceVersion::V2 => self.put(at, IP, ip_packet(net, bytes).into(), comment),
        }
    }

    /// Adds an Ethernet frame as it is, without a frame check sequence.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_frame(&mut self, at: Duration, frame: &[u8]) -> io::Result<()> {
        self.put(at, ETHERNET, frame.into(), None)
    }

    fn put(
        &mut self,
        at: Duration,
        interface_id: u32,
        frame: Cow<'_, [u8]>,
        comment: Option<String>,
    ) -> io::Result<()> {
        if interface_id == ETHERNET && !self.has_ethernet {
            self.writer.write_pcapng_block(interface(DataLink::ETHERNET)).map_err(to_io)?;
            self.has_ethernet = true;
        }
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp: at,
            original_len: frame.len() as u32,
            data: frame,
            options: comment
                .into_iter()
                .map(|comment| EnhancedPacketOption::Comment(comment.into()))
                .collect(),
        };
        self.writer.write_pcapng_block(block).map_err(to_io)?;
        self.writer.get_mut().flush()
    }

    /// The underlying writer.
    pub fn into_inner(self) -> W {
        self.writer.into_inner()
    }
}

impl<W: Write> fmt::Debug for CaptureWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureWriter").finish_non_exhaustive()
    }
}

fn to_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

fn interface(linktype: DataLink) -> InterfaceDescriptionBlock<'static> {
    let nanoseconds = InterfaceDescriptionOption::IfTsResol(9);
    let name = InterfaceDescriptionOption::IfName(Cow::Borrowed("roce"));
    InterfaceDescriptionBlock { linktype, snaplen: 0, options: vec![name, nanoseconds] }
}

/// The frame around a packet of RoCE v1. MAC addresses, which nobody keeps, are zero.
fn v1_frame(net: &NetHeader, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend(ETHERTYPE_ROCE_V1.to_be_bytes());
    frame.extend(grh(net, packet.len()));
    frame.extend(packet);
    frame
}

/// The IP packet around a UDP payload of RoCEv2.
#[must_use]
pub fn ip_packet(net: &NetHeader, payload: &[u8]) -> Vec<u8> {
    let header = grh(net, payload.len());
    let mut packet = header[if net.src.is_ipv4() { 20 } else { 0 }..].to_vec();
    let udp = packet.len();
    packet.extend(net.src_port.to_be_bytes());
    packet.extend(ROCE_UDP_PORT.to_be_bytes());
    packet.extend((payload.len() as u16 + 8).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    if net.src.is_ipv6() {
        let sum = udp6_checksum(&packet, udp);
        packet[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// The UDP checksum, which IPv6 asks for: over the addresses, the length, the protocol, and the
/// datagram.
fn udp6_checksum(packet: &[u8], udp: usize) -> u16 {
    let mut covered = packet[8..40].to_vec();
    covered.extend(((packet.len() - udp) as u32).to_be_bytes());
    covered.extend([0, 0, 0, 17]);
    covered.extend(&packet[udp..]);
    if covered.len() % 2 == 1 {
        covered.push(0);
    }
    match checksum(&covered) {
        0 => 0xFFFF,
        sum => sum,
    }
}
