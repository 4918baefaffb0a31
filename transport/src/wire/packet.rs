//! A whole packet: the UDP payload of a RoCEv2 datagram.

use thiserror::Error;

use super::{
    header::{
        Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Immediate, InvalidateEth, Reth, XrcEth,
    },
    opcode::{Extension, Opcode, Operation, Service},
};
use crate::psn::Psn;

/// Bytes of the invariant CRC at a packet's end.
pub const ICRC_LEN: usize = 4;

/// The most bytes that a BTH and what follows it take before the payload: BTH, XRCETH and
/// AtomicETH.
pub const HEADERS_MAX: usize = Bth::LEN + XrcEth::LEN + AtomicEth::LEN;

/// The most bytes of a packet that this transport sends: headers, 4,096 bytes of payload, ICRC.
pub const PACKET_MAX: usize = HEADERS_MAX + 4096 + ICRC_LEN;

/// Number of zero bytes that follow a payload so that it ends on a multiple of four.
#[must_use]
pub const fn padding(payload: usize) -> usize {
    payload.wrapping_neg() & 3
}

/// The headers that follow the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is named after the headers it holds")]
pub enum Ext {
    None,
    Imm(Immediate),
    Ieth(InvalidateEth),
    Reth(Reth),
    RethImm(Reth, Immediate),
    Aeth(Aeth),
    AethAtomicAck(Aeth, AtomicAckEth),
    Atomic(AtomicEth),
    FethReth(Feth, Reth),
    Deth(Deth),
    DethImm(Deth, Immediate),
}

impl Ext {
    /// Kind of these headers.
    #[must_use]
    pub const fn extension(&self) -> Extension {
        match self {
            Self::None => Extension::None,
            Self::Imm(_) => Extension::Imm,
            Self::Ieth(_) => Extension::Ieth,
            Self::Reth(_) => Extension::Reth,
            Self::RethImm(..) => Extension::RethImm,
            Self::Aeth(_) => Extension::Aeth,
            Self::AethAtomicAck(..) => Extension::AethAtomicAck,
            Self::Atomic(_) => Extension::Atomic,
            Self::FethReth(..) => Extension::FethReth,
            Self::Deth(_) => Extension::Deth,
            Self::DethImm(..) => Extension::DethImm,
        }
    }

    /// The immediate data, where there is some.
    #[must_use]
    pub const fn immediate(&self) -> Option<Immediate> {
        match self {
            Self::Imm(imm) | Self::RethImm(_, imm) | Self::DethImm(_, imm) => Some(*imm),
            _ => None,
        }
    }

    /// The RETH, where there is one.
    #[must_use]
    pub const fn reth(&self) -> Option<Reth> {
        match self {
            Self::Reth(reth) | Self::RethImm(reth, _) | Self::FethReth(_, reth) => Some(*reth),
            _ => None,
        }
    }

    /// The AETH, where there is one.
    #[must_use]
    pub const fn aeth(&self) -> Option<Aeth> {
        match self {
            Self::Aeth(aeth) | Self::AethAtomicAck(aeth, _) => Some(*aeth),
            _ => None,
        }
    }

    fn parse(extension: Extension, b: &mut &[u8]) -> Option<Self> {
        Some(match extension {
            Extension::None => Self::None,
            Extension::Imm => Self::Imm(Immediate(*take(b)?)),
            Extension::Ieth => Self::Ieth(InvalidateEth::parse(take(b)?)),
            Extension::Reth => Self::Reth(Reth::parse(take(b)?)),
            Extension::RethImm => Self::RethImm(Reth::parse(take(b)?), Immediate(*take(b)?)),
            Extension::Aeth => Self::Aeth(Aeth::parse(take(b)?)),
            Extension::AethAtomicAck => {
                Self::AethAtomicAck(Aeth::parse(take(b)?), AtomicAckEth::parse(take(b)?))
            }
            Extension::Atomic => Self::Atomic(AtomicEth::parse(take(b)?)),
            Extension::FethReth => Self::FethReth(Feth::parse(take(b)?), Reth::parse(take(b)?)),
            Extension::Deth => Self::Deth(Deth::parse(take(b)?)),
            Extension::DethImm => Self::DethImm(Deth::parse(take(b)?), Immediate(*take(b)?)),
        })
    }

    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::None => {}
            Self::Imm(imm) => out.put(&imm.0),
            Self::Ieth(ieth) => out.put(&ieth.encode()),
            Self::Reth(reth) => out.put(&reth.encode()),
            Self::RethImm(reth, imm) => {
                out.put(&reth.encode());
                out.put(&imm.0);
            }
            Self::Aeth(aeth) => out.put(&aeth.encode()),
            Self::AethAtomicAck(aeth, value) => {
                out.put(&aeth.encode());
                out.put(&value.encode());
            }
            Self::Atomic(atomic) => out.put(&atomic.encode()),
            Self::FethReth(feth, reth) => {
                out.put(&feth.encode());
                out.put(&reth.encode());
            }
            Self::Deth(deth) => out.put(&deth.encode()),
            Self::DethImm(deth, imm) => {
                out.put(&deth.encode());
                out.put(&imm.0);
            }
        }
    }
}

/// The first bytes of what is left.
fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(head)
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// Opcodes of packets that have no header behind the BTH, and do not end a message.
const MIDDLES: [u8; 5] = [
    Opcode::known(Service::Rc, Operation::SendMiddle).to_wire(),
    Opcode::known(Service::Rc, Operation::WriteMiddle).to_wire(),
    Opcode::known(Service::Uc, Operation::SendMiddle).to_wire(),
    Opcode::known(Service::Uc, Operation::WriteMiddle).to_wire(),
    Opcode::known(Service::Rc, Operation::ReadResponseMiddle).to_wire(),
];

/// Opcodes of [`Single`].
const SEND_ONLY: u8 = Opcode::known(Service::Rc, Operation::SendOnly).to_wire();
const SEND_ONLY_IMM: u8 = Opcode::known(Service::Rc, Operation::SendOnlyImm).to_wire();
const WRITE_ONLY: u8 = Opcode::known(Service::Rc, Operation::WriteOnly).to_wire();
const WRITE_ONLY_IMM: u8 = Opcode::known(Service::Rc, Operation::WriteOnlyImm).to_wire();
const READ_RESPONSE_ONLY: u8 = Opcode::known(Service::Rc, Operation::ReadResponseOnly).to_wire();
const ACKNOWLEDGE: u8 = Opcode::known(Service::Rc, Operation::Acknowledge).to_wire();

/// A packet of RC that is a whole message or response, of the kinds that are most common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single<'a> {
    pub(crate) kind: SingleKind,
    pub(crate) bth: Bth,
    /// Of a SEND or a WRITE.
    pub(crate) immediate: Option<Immediate>,
    pub(crate) payload: &'a [u8],
}

/// Kind of such a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SingleKind {
    Send,
    Write(Reth),
    ReadResponse,
    /// Positive.
    Acknowledge,
}

impl<'a> Single<'a> {
    /// `None`: it may be any other packet, or none.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (bth, rest) = bytes.split_first_chunk::<{ Bth::LEN }>()?;
        let (mut padded, _) = rest.split_last_chunk::<ICRC_LEN>()?;
        let kind = match bth[0] {
            SEND_ONLY | SEND_ONLY_IMM => SingleKind::Send,
            WRITE_ONLY | WRITE_ONLY_IMM => SingleKind::Write(Reth::parse(take(&mut padded)?)),
            opcode @ (READ_RESPONSE_ONLY | ACKNOWLEDGE) => {
                let aeth: &[u8; Aeth::LEN] = take(&mut padded)?;
                let is_positive = aeth[0] >> 5 == 0;
                match opcode {
                    _ if !is_positive => return None,
                    READ_RESPONSE_ONLY => SingleKind::ReadResponse,
                    _ if padded.is_empty() => SingleKind::Acknowledge,
                    _ => return None,
                }
            }
            _ => return None,
        };
        let immediate = match bth[0] {
            SEND_ONLY_IMM | WRITE_ONLY_IMM => Some(Immediate(*take(&mut padded)?)),
            _ => None,
        };
        let pad = usize::from(bth[1] >> 4 & 3);
        let payload = padded.get(..padded.len().checked_sub(pad)?)?;
        if bth[1] & 0x0F != 0 || padded.len() % 4 != 0 {
            return None;
        }
        Some(Self { kind, bth: Bth::parse(bth, Opcode::from_wire(bth[0])?), immediate, payload })
    }
}

/// A BTH and the headers that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    bth: Bth,
    xrceth: Option<XrcEth>,
    ext: Ext,
}

impl Headers {
    /// These headers, or `None` when `ext` is not what the opcode calls for, or it calls for an
    /// XRCETH.
    #[must_use]
    pub fn new(bth: Bth, ext: Ext) -> Option<Self> {
        Self::checked(bth, None, ext)
    }

    /// The headers of a request of XRC; `None` for another opcode, or when `ext` is not what it
    /// calls for.
    #[must_use]
    pub fn xrc(bth: Bth, xrceth: XrcEth, ext: Ext) -> Option<Self> {
        Self::checked(bth, Some(xrceth), ext)
    }

    fn checked(bth: Bth, xrceth: Option<XrcEth>, ext: Ext) -> Option<Self> {
        let fits = bth.opcode.extension() == ext.extension()
            && bth.opcode.has_xrceth() == xrceth.is_some();
        fits.then_some(Self { bth, xrceth, ext })
    }

    /// For packets that this transport builds itself, whose opcode and headers agree by
    /// construction.
    pub(crate) fn built(bth: Bth, ext: Ext) -> Self {
        debug_assert_eq!(bth.opcode.extension(), ext.extension(), "{}", bth.opcode);
        Self { bth, xrceth: None, ext }
    }

    /// The same with the XRCETH that a request of XRC has, and nothing else.
    pub(crate) fn naming(self, xrceth: Option<XrcEth>) -> Self {
        debug_assert_eq!(self.bth.opcode.has_xrceth(), xrceth.is_some(), "{}", self.bth.opcode);
        Self { xrceth, ..self }
    }

    /// The base transport header.
    #[must_use]
    pub const fn bth(&self) -> &Bth {
        &self.bth
    }

    /// The XRCETH, which every request of XRC has.
    #[must_use]
    pub const fn xrceth(&self) -> Option<XrcEth> {
        self.xrceth
    }

    /// Bytes that follow them.
    #[must_use]
    pub const fn ext(&self) -> &Ext {
        &self.ext
    }

    /// Writes the headers of a packet with `payload` bytes of payload to the start of `out`, and
    /// returns their length.
    ///
    /// # Panics
    /// When `out` is shorter than the headers; [`HEADERS_MAX`] bytes are always enough.
    pub fn encode(&self, payload: usize, out: &mut [u8]) -> usize {
        let mut writer = Writer { out, at: 0 };
        writer.put(&self.bth.encode(padding(payload) as u8));
        if let Some(xrceth) = self.xrceth {
            writer.put(&xrceth.encode());
        }
        self.ext.encode(&mut writer);
        writer.at
    }

    /// The same, without padding, for packets that are all alike but for the PSN, and have no
    /// headers behind the BTH but the XRCETH.
    pub(crate) fn of_middles(&self) -> MiddleHeaders {
        debug_assert_eq!(self.ext, Ext::None);
        let mut bytes = [0; MiddleHeaders::MAX];
        let (bth, xrceth) = bytes.split_at_mut(Bth::LEN);
        bth.copy_from_slice(&self.bth.encode(0));
        if let Some(it) = self.xrceth {
            xrceth.copy_from_slice(&it.encode());
        }
        MiddleHeaders { bytes, has_xrceth: self.xrceth.is_some() }
    }
}

/// Headers of packets from the middle of a message, as they are written but for the PSN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MiddleHeaders {
    bytes: [u8; Self::MAX],
    has_xrceth: bool,
}

impl MiddleHeaders {
    const MAX: usize = Bth::LEN + XrcEth::LEN;

    /// Writes them with a PSN to the start of `out`, and returns what is behind them, where what
    /// was is overwritten in part.
    ///
    /// # Panics
    /// When `out` is shorter than BTH and XRCETH.
    pub(crate) fn write<'a>(&self, psn: Psn, out: &'a mut [u8]) -> &'a mut [u8] {
        out[..Self::MAX].copy_from_slice(&self.bytes);
        out[Bth::PSN..Bth::LEN].copy_from_slice(&psn.get().to_be_bytes()[1..]);
        &mut out[if self.has_xrceth { Self::MAX } else { Bth::LEN }..]
    }
}

/// Fault of bytes that should be a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum ParseError {
    /// Fewer bytes than its headers and the ICRC take.
    #[error("shorter than its headers")]
    TooShort,
    /// Not a multiple of four bytes, or a pad count larger than the payload.
    #[error("length and pad count do not fit")]
    Padding,
    /// An opcode that is reserved, or of a service not spoken here.
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// A transport version other than 0.
    #[error("unknown transport version {0}")]
    Version(u8),
}

/// A parsed packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The headers.
    pub headers: Headers,
    /// The payload, without its padding.
    pub payload: &'a [u8],
    /// The invariant CRC as it came, in the order of [`icrc`](super::icrc).
    pub icrc: u32,
}

impl<'a> Packet<'a> {
    /// Parses a UDP payload, BTH to ICRC.
    ///
    /// # Errors
    /// A [`ParseError`] for every byte string that is no packet of this transport. The ICRC is not
    /// checked here, because it covers headers that are not in `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (bth, _) = bytes.split_first_chunk::<{ Bth::LEN }>().ok_or(ParseError::TooShort)?;
        let opcode = Opcode::from_wire(bth[0]).ok_or(ParseError::Opcode(bth[0]))?;
        match bth[1] & 0x0F {
            0 => {}
            version => return Err(ParseError::Version(version)),
        }
        let (body, icrc) = bytes.split_last_chunk::<ICRC_LEN>().ok_or(ParseError::TooShort)?;
        let mut padded = body.get(Bth::LEN..).ok_or(ParseError::TooShort)?;
        let xrceth = match opcode.has_xrceth() {
            true => Some(XrcEth::parse(take(&mut padded).ok_or(ParseError::TooShort)?)),
            false => None,
        };
        let ext = Ext::parse(opcode.extension(), &mut padded).ok_or(ParseError::TooShort)?;
        let pad = usize::from(bth[1] >> 4 & 3);
        let length = padded.len().checked_sub(pad).ok_or(ParseError::Padding)?;
        if padded.len() % 4 != 0 {
            return Err(ParseError::Padding);
        }
        let headers = Headers { bth: Bth::parse(bth, opcode), xrceth, ext };
        Ok(Self { headers, payload: &padded[..length], icrc: u32::from_le_bytes(*icrc) })
    }

    /// BTH and payload of a middle packet of a SEND, a WRITE or a READ response in RC or UC. `None`
    /// for every other packet, and if it asks for an acknowledgement.
    pub(crate) fn parse_middle(bytes: &'a [u8]) -> Option<(Bth, &'a [u8])> {
        if !MIDDLES.contains(bytes.first()?) {
            return None;
        }
        let (bth, rest) = bytes.split_first_chunk::<{ Bth::LEN }>()?;
        let (payload, _) = rest.split_last_chunk::<ICRC_LEN>()?;
        let asks = bth[8] & 0x80 != 0;
        let is_padded = bth[1] & 0x3F != 0 || payload.len() % 4 != 0; // or of another version
        if asks || is_padded {
            return None;
        }
        Some((Bth::parse(bth, Opcode::from_wire(bth[0])?), payload))
    }

    /// The PSN and the payload of a packet that is, but for these, like one [from the
    /// middle](Self::parse_middle) of a message, and as long.
    pub(crate) fn parse_like(before: &[u8], bytes: &'a [u8]) -> Option<(Psn, &'a [u8])> {
        let (bth, rest) = bytes.split_first_chunk::<{ Bth::LEN }>()?;
        let (payload, _) = rest.split_last_chunk::<ICRC_LEN>()?;
        let is_like = bytes.len() == before.len() && before.starts_with(&bth[..Bth::PSN]);
        is_like.then(|| (Bth::psn_of(bth), payload))
    }

    /// Writes the whole packet, padding and ICRC included, to the start of `out`, and returns its
    /// length.
    ///
    /// # Panics
    /// When `out` is too short: [`HEADERS_MAX`], the padded payload and [`ICRC_LEN`] are always
    /// enough.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let headers = self.headers.encode(self.payload.len(), out);
        let mut writer = Writer { out, at: headers };
        writer.put(self.payload);
        writer.put(&[0; 3][..padding(self.payload.len())]);
        writer.put(&self.icrc.to_le_bytes());
        writer.at
    }
}
