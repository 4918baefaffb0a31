//! Captures: every datagram of a device, as Wireshark reads them.

use std::{
    borrow::Cow,
    fmt,
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
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
    addr::ROCE_UDP_PORT,
    event::Disposition,
    wire::{NetHeader, checksum, grh},
};
use rustix::{fs::OFlags, io::Errno};

use crate::fabric::Direction;

/// A datagram on its way between adapter and link.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Time of day, since the Unix epoch.
    pub at: Duration,
    /// Direction, seen from the device.
    pub direction: Direction,
    /// Network header.
    pub net: &'a NetHeader,
    /// UDP payload, BTH to ICRC.
    pub bytes: &'a [u8],
    /// Disposition of a received datagram.
    pub disposition: Option<Disposition>,
}

/// Sees every datagram of a device. Called under the device's lock: it must be quick and must not
/// use the device.
pub trait Observer: Send {
    /// A datagram passed.
    fn observe(&mut self, observed: &Observed<'_>);
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

/// Writes a pcapng file of raw IP packets. What became of a received packet is its comment.
///
/// IP headers are as they were sent, or as they must have been: the identification of a received
/// IPv4 packet is the one that makes its ICRC right, or a guess where that is unknown.
pub struct Capture {
    writer: PcapNgWriter<BufWriter<File>>,
}

impl Capture {
    /// Starts a capture in a new file, which its user alone can read, or in one that is
    /// overwritten.
    ///
    /// # Errors
    /// When the file cannot be written, or is a link: who made that says what is overwritten. Links
    /// in /dev and /proc, such as /dev/stdout, are the system's, and followed.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::to(open_file(path.as_ref(), true)?)
    }

    /// Starts a capture in an empty file.
    pub(super) fn to(file: File) -> io::Result<Self> {
        let mut writer = PcapNgWriter::new(BufWriter::new(file)).map_err(to_io)?;
        let nanoseconds = InterfaceDescriptionOption::IfTsResol(9);
        let name = InterfaceDescriptionOption::IfName(Cow::Borrowed("roce"));
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: 0,
            options: vec![name, nanoseconds],
        };
        writer.write_pcapng_block(interface).map_err(to_io)?;
        Ok(Self { writer })
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
        let frame = ip_packet(net, bytes);
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: at,
            original_len: frame.len() as u32,
            data: frame.into(),
            options: comment
                .into_iter()
                .map(|comment| EnhancedPacketOption::Comment(comment.into()))
                .collect(),
        };
        self.writer.write_pcapng_block(block).map_err(to_io)?;
        self.writer.get_mut().flush()
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

impl Observer for Capture {
    fn observe(&mut self, observed: &Observed<'_>) {
        let comment = observed.disposition.map(|disposition| disposition.to_string());
        // A full disk must not stop the adapter; the file ends where it was full.
        let _ = self.write(observed.at, observed.net, observed.bytes, comment);
    }
}

/// Opens a capture's file, which is made for its user alone if there is none: packets have keys and
/// contents of memory in them. A link is refused with one line.
pub(super) fn open_file(path: &Path, truncate: bool) -> io::Result<File> {
    let flags = if is_the_systems(path) { OFlags::empty() } else { OFlags::NOFOLLOW };
    let mut options = File::options();
    options.write(true).create(true).truncate(truncate).mode(0o600);
    let flags = (flags | OFlags::CLOEXEC).bits().cast_signed();
    options.custom_flags(flags).open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => link_refused(),
        _ => error,
    })
}

/// What is said of a link: others may have made it, and it would choose what is overwritten.
pub(super) fn link_refused() -> io::Error {
    let message = "it is a link, and what that leads to is not overwritten; name the file itself";
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Whether a link by this path would be one of the system's own, such as /dev/stdout or
/// /proc/self/fd/3.
pub(super) fn is_the_systems(path: &Path) -> bool {
    let place = path.parent().and_then(|place| fs::canonicalize(place).ok());
    place.is_some_and(|place| place == Path::new("/dev") || place.starts_with("/proc"))
}

fn to_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// The IP packet around a UDP payload.
fn ip_packet(net: &NetHeader, payload: &[u8]) -> Vec<u8> {
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
