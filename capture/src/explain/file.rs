use std::time::Duration;

use pcap_file::{
    DataLink, PcapError,
    pcap::PcapParser,
    pcapng::{
        Block, PcapNgParser,
        blocks::{
            enhanced_packet::EnhancedPacketOption,
            interface_description::InterfaceDescriptionOption,
        },
    },
};
use thiserror::Error;

/// Unreadable capture file.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Neither format.
    #[error(
        "the file is neither pcap nor pcapng; give a capture that tcpdump, Wireshark or roce wrote"
    )]
    Format,
    /// Unknown link type.
    #[error("unknown link type {0}; capture on an Ethernet, \"any\" or loopback interface")]
    LinkType(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkKind {
    Ethernet,
    Ip,
    /// Linux cooked, of either version.
    Cooked,
    Cooked2,
    /// BSD loopback: 4 bytes of address family.
    Loopback,
    /// InfiniBand from the LRH on.
    InfiniBand,
    Erf,
}

impl LinkKind {
    fn of(link: DataLink) -> Result<Self, CaptureError> {
        Ok(match link {
            DataLink::ETHERNET => Self::Ethernet,
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Self::Ip,
            DataLink::LINUX_SLL => Self::Cooked,
            DataLink::LINUX_SLL2 => Self::Cooked2,
            DataLink::NULL | DataLink::LOOP => Self::Loopback,
            DataLink::INFINIBAND => Self::InfiniBand,
            DataLink::ERF => Self::Erf,
            // raw IP in OpenBSD and old tcpdumps
            DataLink::Unknown(12 | 14) => Self::Ip,
            other => return Err(CaptureError::LinkType(other.into())),
        })
    }
}

pub(super) struct Frame<'a> {
    pub(super) at: Duration,
    pub(super) link: LinkKind,
    pub(super) bytes: &'a [u8],
    pub(super) length: usize,
    pub(super) comment: Option<&'a str>,
}

/// Returns false if the file ends within a frame or continues with garbage.
pub(super) fn frames(file: &[u8], take: &mut dyn FnMut(Frame<'_>)) -> Result<bool, CaptureError> {
    // the first block's type is the same in either byte order
    if file.starts_with(&[0x0A, 0x0D, 0x0D, 0x0A]) { pcapng(file, take) } else { pcap(file, take) }
}

fn pcap(file: &[u8], take: &mut dyn FnMut(Frame<'_>)) -> Result<bool, CaptureError> {
    let (mut rest, parser) = PcapParser::new(file).map_err(|_| CaptureError::Format)?;
    let link = LinkKind::of(parser.header().datalink)?;
    while !rest.is_empty() {
        // the checked reader refuses packets beyond the snapshot length, which some programs write
        let Ok((next, packet)) = parser.next_raw_packet(rest) else { return Ok(false) };
        rest = next;
        let fraction = match parser.header().ts_resolution {
            pcap_file::TsResolution::MicroSecond => u64::from(packet.ts_frac) * 1000,
            pcap_file::TsResolution::NanoSecond => u64::from(packet.ts_frac),
        };
        let at = Duration::from_secs(packet.ts_sec.into()) + Duration::from_nanos(fraction);
        let (bytes, length) = (&*packet.data, packet.orig_len as usize);
        take(Frame { at, link, bytes, length, comment: None });
    }
    Ok(true)
}

fn pcapng(file: &[u8], take: &mut dyn FnMut(Frame<'_>)) -> Result<bool, CaptureError> {
    let (mut rest, mut parser) = PcapNgParser::new(file).map_err(|_| CaptureError::Format)?;
    let mut unknown = None;
    let mut any = false;
    while !rest.is_empty() {
        let (next, block) = match parser.next_block(rest) {
            Ok(next) => next,
            Err(PcapError::IncompleteBuffer) => return Ok(false),
            Err(_) => return if any { Ok(false) } else { Err(CaptureError::Format) },
        };
        rest = next;
        let (interface, ticks, bytes, length, comment) = match &block {
            Block::EnhancedPacket(packet) => (
                packet.interface_id as usize,
                packet.timestamp,
                &packet.data,
                packet.original_len as usize,
                packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(comment) => Some(&**comment),
                    _ => None,
                }),
            ),
            Block::SimplePacket(packet) => {
                (0, Duration::ZERO, &packet.data, packet.original_len as usize, None)
            }
            _ => continue,
        };
        any = true;
        let Some(interface) = parser.interfaces().get(interface) else { return Ok(false) };
        let resolution = interface.options.iter().find_map(|option| match option {
            InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
            _ => None,
        });
        match LinkKind::of(interface.linktype) {
            Ok(link) => {
                let at = time(ticks, resolution.unwrap_or(6));
                take(Frame { at, link, bytes, length, comment });
            }
            Err(error) => unknown = Some(error),
        }
    }
    match unknown {
        Some(error) if !any => Err(error),
        _ => Ok(true),
    }
}

/// Converts ticks, which the parser takes for nanoseconds.
fn time(ticks: Duration, resolution: u8) -> Duration {
    let ticks = ticks.as_nanos();
    let exponent = u32::from(resolution & 0x7F);
    let nanos = if resolution & 0x80 == 0 {
        match 9_u32.checked_sub(exponent) {
            Some(missing) => ticks.saturating_mul(10_u128.pow(missing)),
            None => ticks / 10_u128.checked_pow(exponent - 9).unwrap_or(u128::MAX),
        }
    } else {
        ticks.saturating_mul(1_000_000_000).checked_shr(exponent).unwrap_or(0)
    };
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
