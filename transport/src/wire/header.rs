use derive_more::Display;

use super::{
    fields::{At, Bits, Field, encoding, layout, newtype},
    opcode::Opcode,
};
use crate::{
    addr::{PKey, QKey},
    ids::{Qpn, RKey, SrqId},
    psn::{Msn, Psn},
};

fn u24(bytes: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])
}

fn put_u24(out: &mut [u8], value: u32) {
    out.copy_from_slice(&value.to_be_bytes()[1..]);
}

encoding! {
    Reth 16;
    Aeth 4;
    Deth 8;
    AtomicEth 28;
    AtomicAckEth 8;
    Immediate 4;
    InvalidateEth 4;
    XrcEth 4;
    Feth 4;
}

newtype!(AtomicAckEth Immediate InvalidateEth);

/// Base transport header (9.2), without version and pad count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// Service and operation.
    pub opcode: Opcode,
    /// Requests a solicited event.
    pub solicited: bool,
    /// "Migrated": 1 from most hardware, 0 from rxe; both are accepted.
    pub mig_req: bool,
    /// Partition key.
    pub pkey: PKey,
    /// Forward congestion, outside the ICRC.
    pub fecn: bool,
    /// Backward congestion, outside the ICRC.
    pub becn: bool,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// Requests an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Wire length.
    pub const LEN: usize = 12;
    /// Offset of the PSN.
    pub(super) const PSN: usize = 9;

    /// Migrated header of the default partition.
    #[must_use]
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: true,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }

    pub(super) fn parse(b: &[u8; Self::LEN], opcode: Opcode) -> Self {
        Self {
            opcode,
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pkey: PKey(u16::from_be_bytes([b[2], b[3]])),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            dest_qp: Qpn::new(u24([b[5], b[6], b[7]])),
            ack_req: b[8] & 0x80 != 0,
            psn: Self::psn_of(b),
        }
    }

    pub(super) fn psn_of(b: &[u8; Self::LEN]) -> Psn {
        Psn::new(u24([b[9], b[10], b[11]]))
    }

    pub(crate) fn encode(&self, pad: u8) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[0] = self.opcode.to_wire();
        b[1] = u8::from(self.solicited) << 7 | u8::from(self.mig_req) << 6 | (pad & 3) << 4;
        b[2..4].copy_from_slice(&self.pkey.0.to_be_bytes());
        b[4] = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        put_u24(&mut b[5..8], self.dest_qp.get());
        b[8] = u8::from(self.ack_req) << 7;
        put_u24(&mut b[9..12], self.psn.get());
        b
    }
}

layout! {
    /// RDMA extended transport header (9.3.3).
    #[derive(Default)]
    Reth {
        /// Address in the region.
        virtual_address: u64 = At(0);
        /// The responder's R_Key.
        rkey: RKey = At(8);
        /// Message bytes.
        dma_length: u32 = At(12);
    }
}

/// Reason for a NAK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing: retransmit from this PSN.
    #[display("PSN sequence error")]
    PsnSequenceError = 0,
    /// Invalid for this queue pair.
    #[display("invalid request")]
    InvalidRequest = 1,
    /// R_Key, rights or bounds deny access.
    #[display("remote access error")]
    RemoteAccessError = 2,
    /// Execution failed.
    #[display("remote operational error")]
    RemoteOperationalError = 3,
    /// Reliable datagram only.
    #[display("invalid RD request")]
    InvalidRdRequest = 4,
}

/// Syndrome of an AETH (tables "AETH syndrome field", "NAK codes").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
#[allow(missing_docs, reason = "a syndrome's comment describes its fields")]
pub enum Syndrome {
    /// ACK. `credits`: code, 0..=31; 31: no end-to-end flow control.
    #[display("ACK")]
    Ack { credits: u8 },
    /// Receiver not ready. `timer`: code, 0..=31; see [`rnr_timer`](crate::time::rnr_timer).
    #[display("RNR NAK ({} µs)", crate::time::rnr_timer(*timer).as_micros())]
    RnrNak { timer: u8 },
    /// NAK.
    #[display("NAK {_0}")]
    Nak(NakCode),
    /// Reserved.
    #[display("reserved syndrome {_0:#04x}")]
    Reserved(u8),
}

impl Syndrome {
    /// ACK without flow control.
    pub const ACK: Self = Self::Ack { credits: 31 };

    /// Receives granted beyond the MSN (table "end-to-end flow control credits"), if any.
    #[must_use]
    pub const fn granted(self) -> Option<u32> {
        match self {
            Self::Ack { credits: code @ 0..=1 } => Some(code as u32),
            Self::Ack { credits: code @ 2..=30 } => {
                let odd = code as u32 % 2;
                Some((2 + odd) << ((code as u32 - odd) / 2 - 1))
            }
            _ => None,
        }
    }

    /// Parses the syndrome.
    #[must_use]
    pub const fn from_wire(byte: u8) -> Self {
        match (byte >> 5, byte & 0x1F) {
            (0, credits) => Self::Ack { credits },
            (1, timer) => Self::RnrNak { timer },
            (3, 0) => Self::Nak(NakCode::PsnSequenceError),
            (3, 1) => Self::Nak(NakCode::InvalidRequest),
            (3, 2) => Self::Nak(NakCode::RemoteAccessError),
            (3, 3) => Self::Nak(NakCode::RemoteOperationalError),
            (3, 4) => Self::Nak(NakCode::InvalidRdRequest),
            _ => Self::Reserved(byte),
        }
    }

    /// Byte on the wire.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1F,
            Self::RnrNak { timer } => 0x20 | timer & 0x1F,
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

impl Field<At> for Syndrome {
    #[inline]
    fn get(b: &[u8], at: At) -> Self {
        Self::from_wire(Field::get(b, at))
    }

    #[inline]
    fn put(&self, b: &mut [u8], at: At) {
        self.to_wire().put(b, at);
    }
}

layout! {
    /// ACK extended transport header (9.3.5).
    Aeth {
        /// ACK, RNR NAK or NAK.
        syndrome: Syndrome = At(0);
        /// Messages completed.
        msn: Msn = Bits(0, 23, 0);
    }
}

layout! {
    /// Datagram extended transport header (9.3.2).
    Deth {
        /// Queue key.
        qkey: QKey = At(0);
        /// Sender's queue pair.
        source_qp: Qpn = Bits(4, 23, 0);
    }
}

layout! {
    /// XRC extended transport header (A14), after the BTH.
    #[derive(Default)]
    XrcEth {
        /// XRC SRQ.
        srq: SrqId = Bits(0, 23, 0);
    }
}

layout! {
    /// Atomic extended transport header (9.3.4).
    #[derive(Default)]
    AtomicEth {
        /// Aligned address in the region.
        virtual_address: u64 = At(0);
        /// The responder's R_Key.
        rkey: RKey = At(8);
        /// Value to swap or add.
        swap_or_add: u64 = At(12);
        /// Expected value, unused by FetchAdd.
        compare: u64 = At(20);
    }
}

/// Old value from an atomic (9.3.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtomicAckEth(pub u64);

/// Immediate data (9.3.6), unchanged to the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Immediate(pub [u8; 4]);

/// Invalidate extended transport header (9.3.7): the receiver's R_Key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InvalidateEth(pub RKey);

layout! {
    /// Flush extended transport header.
    #[derive(Default)]
    Feth {
        /// 4 bits: 1 global, 2 persistent.
        placement: u8 = Bits(0, 3, 0);
        /// 2 bits: 0 range, 1 whole region.
        selectivity: u8 = Bits(0, 5, 4);
    }
}
