use super::{
    header::{
        Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Immediate, InvalidateEth, Reth, XrcEth,
    },
    opcode::{Extension, Opcode, Operation},
};
use crate::{named::errors, psn::Psn};

/// Bytes of the ICRC.
pub const ICRC_LEN: usize = 4;

/// Most header bytes.
pub const HEADERS_MAX: usize = Bth::LEN + XrcEth::LEN + AtomicEth::LEN;

/// Longest packet sent.
pub const PACKET_MAX: usize = HEADERS_MAX + 4096 + ICRC_LEN;

/// Padding to a multiple of four.
#[must_use]
pub const fn padding(payload: usize) -> usize {
    payload.wrapping_neg() & 3
}

macro_rules! extended_headers {
    ($($variant:ident $(($($part:ident: $header:ident),+))?;)*) => {
        /// Extended headers.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs, reason = "each is named after the headers it holds")]
        pub enum Ext { $($variant $(($($header),+))?,)* }

        impl Ext {
            /// Kind of headers.
            #[must_use]
            pub const fn extension(&self) -> Extension {
                match self { $(Self::$variant { .. } => Extension::$variant,)* }
            }

            fn parse(extension: Extension, b: &mut &[u8]) -> Option<Self> {
                Some(match extension {
                    $(Extension::$variant => Self::$variant $(($($header::parse(take(b)?)),+))?,)*
                })
            }

            fn encode(&self, out: &mut Writer<'_>) {
                match self {
                    $(Self::$variant $(($($part),+))? => { $($(out.put(&$part.encode());)+)? })*
                }
            }
        }
    };
}

extended_headers! {
    None;
    Imm(imm: Immediate);
    Ieth(ieth: InvalidateEth);
    Reth(reth: Reth);
    RethImm(reth: Reth, imm: Immediate);
    Aeth(aeth: Aeth);
    AethAtomicAck(aeth: Aeth, value: AtomicAckEth);
    Atomic(atomic: AtomicEth);
    FethReth(feth: Feth, reth: Reth);
    Deth(deth: Deth);
    DethImm(deth: Deth, imm: Immediate);
}

impl Ext {
    /// Immediate data, if any.
    #[must_use]
    pub const fn immediate(&self) -> Option<Immediate> {
        match self {
            Self::Imm(imm) | Self::RethImm(_, imm) | Self::DethImm(_, imm) => Some(*imm),
            _ => None,
        }
    }

    /// RETH, if any.
    #[must_use]
    pub const fn reth(&self) -> Option<Reth> {
        match self {
            Self::Reth(reth) | Self::RethImm(reth, _) | Self::FethReth(_, reth) => Some(*reth),
            _ => None,
        }
    }

    /// AETH, if any.
    #[must_use]
    pub const fn aeth(&self) -> Option<Aeth> {
        match self {
            Self::Aeth(aeth) | Self::AethAtomicAck(aeth, _) => Some(*aeth),
            _ => None,
        }
    }
}

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

/// A packet that an established connection usually receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predictable<'a> {
    pub(crate) kind: Predicted,
    pub(crate) bth: Bth,
    /// Of a SEND or WRITE.
    pub(crate) immediate: Option<Immediate>,
    pub(crate) payload: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Predicted {
    /// A message of one packet.
    Send,
    Write(Reth),
    /// A response of one packet.
    ReadResponse,
    /// ACK.
    Acknowledge,
    /// Middle packet of a SEND, WRITE or READ response.
    Middle(Operation),
}

impl<'a> Predictable<'a> {
    /// `None`: another packet, or invalid.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        use Operation as Op;
        let (bth, rest) = bytes.split_first_chunk::<{ Bth::LEN }>()?;
        let (mut padded, _) = rest.split_last_chunk::<ICRC_LEN>()?;
        let opcode = Opcode::from_wire(bth[0])?;
        let kind = match opcode.operation() {
            Op::SendOnly | Op::SendOnlyImm => Predicted::Send,
            Op::WriteOnly | Op::WriteOnlyImm => Predicted::Write(Reth::parse(take(&mut padded)?)),
            operation @ (Op::ReadResponseOnly | Op::Acknowledge) => {
                let aeth: &[u8; Aeth::LEN] = take(&mut padded)?;
                let is_positive = aeth[0] >> 5 == 0;
                match operation {
                    _ if !is_positive => return None,
                    Op::ReadResponseOnly => Predicted::ReadResponse,
                    _ if padded.is_empty() => Predicted::Acknowledge,
                    _ => return None,
                }
            }
            operation @ (Op::SendMiddle | Op::WriteMiddle | Op::ReadResponseMiddle) => {
                Predicted::Middle(operation)
            }
            _ => return None,
        };
        let immediate = match opcode.operation() {
            Op::SendOnlyImm | Op::WriteOnlyImm => Some(Immediate(*take(&mut padded)?)),
            _ => None,
        };
        let pad = usize::from(bth[1] >> 4 & 3);
        let payload = padded.get(..padded.len().checked_sub(pad)?)?;
        if bth[1] & 0x0F != 0 || padded.len() % 4 != 0 {
            return None;
        }
        Some(Self { kind, bth: Bth::parse(bth, opcode), immediate, payload })
    }

    /// PSN and payload of a packet otherwise like `before`, a middle packet.
    pub(crate) fn parse_like(before: &[u8], bytes: &'a [u8]) -> Option<(Psn, &'a [u8])> {
        let (bth, rest) = bytes.split_first_chunk::<{ Bth::LEN }>()?;
        let (payload, _) = rest.split_last_chunk::<ICRC_LEN>()?;
        let is_like = bytes.len() == before.len() && before.starts_with(&bth[..Bth::PSN]);
        is_like.then(|| (Bth::psn_of(bth), payload))
    }
}

/// A BTH with extended headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    bth: Bth,
    xrceth: Option<XrcEth>,
    ext: Ext,
}

impl Headers {
    /// Headers, if `ext` fits an opcode without XRCETH.
    #[must_use]
    pub fn new(bth: Bth, ext: Ext) -> Option<Self> {
        Self::checked(bth, None, ext)
    }

    /// Headers of an XRC request, if they fit.
    #[must_use]
    pub fn xrc(bth: Bth, xrceth: XrcEth, ext: Ext) -> Option<Self> {
        Self::checked(bth, Some(xrceth), ext)
    }

    fn checked(bth: Bth, xrceth: Option<XrcEth>, ext: Ext) -> Option<Self> {
        let fits = bth.opcode.extension() == ext.extension()
            && bth.opcode.has_xrceth() == xrceth.is_some();
        fits.then_some(Self { bth, xrceth, ext })
    }

    /// For headers that fit by construction.
    pub(crate) fn built(bth: Bth, ext: Ext) -> Self {
        debug_assert_eq!(bth.opcode.extension(), ext.extension(), "{}", bth.opcode);
        Self { bth, xrceth: None, ext }
    }

    /// Adds an XRC request's XRCETH.
    pub(crate) fn with_xrceth(self, xrceth: Option<XrcEth>) -> Self {
        debug_assert_eq!(self.bth.opcode.has_xrceth(), xrceth.is_some(), "{}", self.bth.opcode);
        Self { xrceth, ..self }
    }

    /// The BTH.
    #[must_use]
    pub const fn bth(&self) -> &Bth {
        &self.bth
    }

    /// XRCETH of an XRC request.
    #[must_use]
    pub const fn xrceth(&self) -> Option<XrcEth> {
        self.xrceth
    }

    /// Extended headers.
    #[must_use]
    pub const fn ext(&self) -> &Ext {
        &self.ext
    }

    /// Writes headers for `payload` bytes; returns their length.
    ///
    /// # Panics
    /// If `out` is too short; [`HEADERS_MAX`] suffices.
    pub fn encode(&self, payload: usize, out: &mut [u8]) -> usize {
        let mut writer = Writer { out, at: 0 };
        writer.put(&self.bth.encode(padding(payload) as u8));
        if let Some(xrceth) = self.xrceth {
            writer.put(&xrceth.encode());
        }
        self.ext.encode(&mut writer);
        writer.at
    }

    /// Headers of a run: BTH and XRCETH only, unpadded.
    pub(crate) fn middle_template(&self) -> MiddleHeaders {
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

/// Encoded except the PSN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MiddleHeaders {
    bytes: [u8; Self::MAX],
    has_xrceth: bool,
}

impl MiddleHeaders {
    const MAX: usize = Bth::LEN + XrcEth::LEN;

    /// Returns the rest, partly overwritten. `out` must have room for BTH and XRCETH.
    pub(crate) fn write<'a>(&self, psn: Psn, out: &'a mut [u8]) -> &'a mut [u8] {
        out[..Self::MAX].copy_from_slice(&self.bytes);
        out[Bth::PSN..Bth::LEN].copy_from_slice(&psn.get().to_be_bytes()[1..]);
        &mut out[if self.has_xrceth { Self::MAX } else { Bth::LEN }..]
    }
}

errors! {
    /// Reason for rejecting bytes.
    ParseError {
        TooShort "the packet is shorter than its headers";
        /// Not whole words, or excess pad count.
        Padding "the length and the pad count contradict each other";
        Opcode(u8) "unknown opcode {0:#04x}";
        Version(u8) "unknown transport version {0}";
    }
}

/// A parsed packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The headers.
    pub headers: Headers,
    /// Payload without padding.
    pub payload: &'a [u8],
    /// ICRC in the order of [`icrc`](super::icrc).
    pub icrc: u32,
}

impl<'a> Packet<'a> {
    /// Parses BTH to ICRC, without checking the ICRC.
    ///
    /// # Errors
    /// A [`ParseError`]; the ICRC, covering other headers, is unchecked.
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

    /// Writes the packet with padding and ICRC; returns its length.
    ///
    /// # Panics
    /// If `out` is too short; [`HEADERS_MAX`], padded payload and [`ICRC_LEN`] suffice.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let headers = self.headers.encode(self.payload.len(), out);
        let mut writer = Writer { out, at: headers };
        writer.put(self.payload);
        writer.put(&[0; 3][..padding(self.payload.len())]);
        writer.put(&self.icrc.to_le_bytes());
        writer.at
    }
}
