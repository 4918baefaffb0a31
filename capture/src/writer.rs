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
    addr::RoceVersion,
    wire::{NetHeader, checksum, put_network_headers},
};

/// EtherType of RoCE v1: GRH and transport headers, no IP or UDP.
pub(crate) const ETHERTYPE_ROCE_V1: u16 = 0x8915;

const IP: u32 = 0;
const ETHERNET: u32 = 1;

/// Writer of pcapng: raw IP packets, and RoCE v1 in Ethernet frames.
///
/// A received IPv4 packet gets the identification that makes the ICRC right, else a guess.
pub struct CaptureWriter<W: Write> {
    writer: PcapNgWriter<W>,
    /// The Ethernet interface is written.
    has_ethernet: bool,
}

impl<W: Write> CaptureWriter<W> {
    /// Starts a capture.
    pub fn new(to: W) -> io::Result<Self> {
        let mut writer = PcapNgWriter::new(to).map_err(to_io)?;
        writer.write_pcapng_block(interface(DataLink::RAW)).map_err(to_io)?;
        Ok(Self { writer, has_ethernet: false })
    }

    /// Writes a datagram; `at` is since the Unix epoch. Long comments are truncated. Fails for
    /// sizes that IP cannot carry.
    pub fn write(
        &mut self,
        at: Duration,
        net: &NetHeader,
        bytes: &[u8],
        comment: Option<String>,
    ) -> io::Result<()> {
        // IPv4's total length includes the header
        if bytes.len() > usize::from(u16::MAX) - if net.src.is_ipv4() { 28 } else { 8 } {
            let message = format!("no datagram has {} bytes", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let comment = comment.map(|mut comment| {
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

    /// Writes an Ethernet frame, without FCS.
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

/// MAC addresses are unknown: zero.
fn v1_frame(net: &NetHeader, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend(ETHERTYPE_ROCE_V1.to_be_bytes());
    put_network_headers(&mut frame, net, packet.len());
    frame.extend(packet);
    frame
}

/// IP packet around a RoCEv2 UDP payload.
#[must_use]
pub fn ip_packet(net: &NetHeader, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    put_network_headers(&mut packet, net, payload.len());
    let udp = packet.len() - 8;
    packet.extend(payload);
    if net.src.is_ipv6() {
        // UDP checksum, mandatory in IPv6
        let length = ((packet.len() - udp) as u32).to_be_bytes();
        let covered = [&packet[8..40], &length, &[0, 0, 0, 17], &packet[udp..]].concat();
        let sum = match checksum(&covered) {
            0 => 0xFFFF,
            sum => sum,
        };
        packet[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}
