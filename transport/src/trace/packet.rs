use alloc::boxed::Box;
use core::fmt;

use crate::{
    cm::CmMad,
    ids::Qpn,
    wire::{Ext, Headers, NetHeader, Packet},
};

/// A packet without its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketRecord {
    /// Network header.
    pub net: NetHeader,
    /// Headers.
    pub headers: Headers,
    /// Payload bytes.
    pub payload: u32,
    /// CM message, for QP1.
    pub message: Option<Box<CmMad>>,
}

impl PacketRecord {
    /// Record of a packet.
    #[must_use]
    pub fn new(net: &NetHeader, packet: &Packet<'_>) -> Self {
        let is_mad = packet.headers.bth().dest_qp == Qpn::GSI;
        let message = if is_mad { CmMad::parse(packet.payload).ok().map(Box::new) } else { None };
        Self { net: *net, headers: packet.headers, payload: packet.payload.len() as u32, message }
    }
}

impl fmt::Display for PacketRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = self.headers.bth();
        match &self.message {
            Some(mad) => write!(f, "CM {}", mad.message.name())?,
            None => write!(f, "{}", bth.opcode)?,
        }
        write!(f, " qp {} psn {}", bth.dest_qp, bth.psn.get())?;
        if let Some(aeth) = self.headers.ext().aeth() {
            write!(f, " {} msn {}", aeth.syndrome, aeth.msn.get())?;
        }
        match self.headers.ext() {
            Ext::Reth(reth) | Ext::RethImm(reth, _) | Ext::FethReth(_, reth) => {
                write!(f, " rkey {:#010x} {} B", reth.rkey.0, reth.dma_length)?;
            }
            Ext::Atomic(eth) => write!(f, " rkey {:#010x}", eth.rkey.0)?,
            _ => {}
        }
        if self.payload > 0 && self.message.is_none() {
            write!(f, " [{} B]", self.payload)?;
        }
        if bth.ack_req {
            f.write_str(" ack?")?;
        }
        Ok(())
    }
}
