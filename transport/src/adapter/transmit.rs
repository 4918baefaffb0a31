//! Outgoing packets in runs, each for one send call.

use alloc::{boxed::Box, vec, vec::Vec};
use core::{mem, net::IpAddr, ops::Range};

use crate::{
    addr::RoceVersion,
    gids::Path,
    qp::Built,
    wire::{FrameFields, ICRC_LEN, Ident, NetHeader, PACKET_MAX, icrc, rxe_flush_icrc},
};

/// A run of datagrams of `segment` bytes, the last possibly shorter. ICRCs require "don't fragment"
/// and IPv4 identification n in datagram n.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Sender's address.
    pub src: IpAddr,
    /// Receiver's address.
    pub dst: IpAddr,
    /// UDP source port.
    pub src_port: u16,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// Fields for links that build frames.
    pub frame: FrameFields,
    /// Length of UDP payloads except the last.
    pub segment: usize,
    /// Payloads in the buffer.
    pub range: Range<usize>,
}

impl Transmit {
    /// Number of datagrams.
    #[must_use]
    pub fn count(&self) -> usize {
        self.range.len().div_ceil(self.segment)
    }

    /// The run's bytes in the buffer.
    #[must_use]
    pub fn payload<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        buffer.get(self.range.clone()).unwrap_or_default()
    }

    /// Every datagram of the run in the buffer, with its network header.
    pub fn datagrams<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = (NetHeader, &'a [u8])> {
        let payloads = self.payload(buffer).chunks(self.segment.max(1));
        payloads.enumerate().map(|(index, payload)| (self.net_header(index), payload))
    }

    /// Network header of datagram `index`.
    #[must_use]
    pub const fn net_header(&self, index: usize) -> NetHeader {
        NetHeader {
            src: self.src,
            dst: self.dst,
            src_port: self.src_port,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            ident: self.ident(index),
            frame: self.frame,
        }
    }

    const fn ident(&self, index: usize) -> Ident {
        Ident::Known { id: index as u16, dont_fragment: true }
    }

    fn goes(&self, path: &Path, traffic_class: u8) -> bool {
        let NetHeader { src, dst, src_port, hop_limit, frame, .. } = path.net;
        (self.src, self.dst, self.src_port, self.traffic_class, self.hop_limit, self.frame)
            == (src, dst, src_port, traffic_class, hop_limit, frame)
    }
}

/// Limits of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TransmitLimits {
    /// Datagrams; 1 without segmentation offload (GSO).
    pub segments: usize,
    /// Bytes of UDP payload.
    pub bytes: usize,
}

impl TransmitLimits {
    /// One datagram per run.
    pub const SINGLE: Self = Self { segments: 1, bytes: PACKET_MAX };
}

/// Runs of datagrams, with their bytes.
#[derive(Debug)]
pub struct TransmitBuffer {
    bytes: Box<[u8]>,
    bound: usize,
    len: usize,
    runs: Vec<Transmit>,
    /// Datagrams of the last run, while it can grow.
    growing: Option<usize>,
    /// Per run: ICRCs are zero until [`seal`](Self::seal).
    unsealed: Vec<bool>,
    defers: bool,
    limits: TransmitLimits,
    /// A due packet may wait for the next buffer.
    holds_back: bool,
}

impl TransmitBuffer {
    /// Buffer of `capacity` bytes, at least one packet.
    #[must_use]
    pub fn new(capacity: usize, limits: TransmitLimits) -> Self {
        let bound = capacity.max(PACKET_MAX);
        Self {
            bytes: vec![0; bound].into(),
            bound,
            len: 0,
            runs: Vec::new(),
            growing: None,
            unsealed: Vec::new(),
            defers: false,
            limits,
            holds_back: false,
        }
    }

    /// Buffer without ICRCs until [sealed](Self::seal), for receivers that check none.
    #[must_use]
    pub fn unsealed(capacity: usize, limits: TransmitLimits) -> Self {
        Self { defers: true, ..Self::new(capacity, limits) }
    }

    /// Adds a run's missing ICRCs.
    pub fn seal(&mut self, index: usize) {
        let (Some(run), Some(unsealed)) = (self.runs.get(index), self.unsealed.get_mut(index))
        else {
            return;
        };
        if !mem::take(unsealed) {
            return;
        }
        let datagrams = self.bytes.get_mut(run.range.clone()).unwrap_or_default();
        for (index, datagram) in datagrams.chunks_mut(run.segment).enumerate() {
            if let Some((body, tail)) = datagram.split_last_chunk_mut::<ICRC_LEN>() {
                *tail = icrc(&run.net_header(index), body).to_le_bytes();
            }
        }
    }

    /// Adds all missing ICRCs.
    pub fn seal_all(&mut self) {
        (0..self.runs.len()).for_each(|index| self.seal(index));
    }

    /// Runs in sending order.
    #[must_use]
    pub fn runs(&self) -> &[Transmit] {
        &self.runs
    }

    /// All payloads, indexed by a run's range.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// A run's UDP payloads.
    #[must_use]
    pub fn payload(&self, run: &Transmit) -> &[u8] {
        run.payload(&self.bytes)
    }

    pub(super) fn last(&self) -> Option<(NetHeader, &[u8])> {
        let run = self.runs.last()?;
        let index = run.count().checked_sub(1)?;
        let bytes = self.payload(run).chunks(run.segment).next_back()?;
        Some((run.net_header(index), bytes))
    }

    /// Every datagram with its network header.
    pub fn datagrams(&self) -> impl Iterator<Item = (NetHeader, &[u8])> {
        self.runs.iter().flat_map(|run| run.datagrams(&self.bytes))
    }

    /// True if empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// True if more may be due.
    #[must_use]
    pub fn may_have_more(&self) -> bool {
        self.holds_back || self.len + PACKET_MAX > self.bound
    }

    /// Bounds the bytes filled, at least one packet.
    pub fn set_bound(&mut self, bytes: usize) {
        self.bound = bytes.clamp(PACKET_MAX, self.bytes.len());
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        self.len = 0;
        self.runs.clear();
        self.growing = None;
        self.unsealed.clear();
        self.holds_back = false;
    }

    pub(super) fn slot(&mut self) -> Option<&mut [u8]> {
        self.bytes.get_mut(self.len..self.bound)?.get_mut(..PACKET_MAX)
    }

    pub(super) const fn room_for(&self, length: usize) -> usize {
        match self.bound.checked_sub(self.len + PACKET_MAX) {
            Some(left) => left / length + 1,
            None => 0,
        }
    }

    pub(super) const fn has_runs(&self) -> bool {
        self.limits.segments > 1
    }

    pub(super) const fn hold_back(&mut self) {
        self.holds_back = true;
    }

    /// Adds the packet in [`slot`](Self::slot); `is_like_last`: only the bytes differ from the last
    /// packet.
    pub(super) fn commit(&mut self, built: &Built, path: &Path, is_like_last: bool) {
        let Built { length: body, traffic_class, rxe_flush } = *built;
        let traffic_class = traffic_class.unwrap_or(path.net.traffic_class);
        let start = self.len;
        let end = start + body + ICRC_LEN;
        self.len = end;
        let length = end - start;
        let defers = self.defers && !rxe_flush;
        let TransmitLimits { segments, bytes } = self.limits;
        let index = match (self.runs.last_mut(), self.growing) {
            (Some(run), Some(count))
                if (is_like_last
                    || run.goes(path, traffic_class) && self.unsealed.last() == Some(&defers))
                    && length <= run.segment
                    && run.range.len() + length <= bytes =>
            {
                run.range.end = end;
                // a shorter datagram ends its run
                let grows = length == run.segment && count + 1 < segments;
                self.growing = grows.then_some(count + 1);
                count
            }
            _ => {
                let NetHeader { src, dst, src_port, hop_limit, frame, .. } = path.net;
                self.runs.push(Transmit {
                    src,
                    dst,
                    src_port,
                    traffic_class,
                    hop_limit,
                    frame,
                    segment: length,
                    range: start..end,
                });
                self.unsealed.push(defers);
                // only UDP is segmented
                let grows = segments > 1 && frame.version() == RoceVersion::V2;
                self.growing = grows.then_some(1);
                0
            }
        };
        if defers {
            self.bytes[start + body..end].copy_from_slice(&[0; ICRC_LEN]);
        } else if let Some(run) = self.runs.last() {
            let (body, tail) = self.bytes[start..end].split_at_mut(body);
            let icrc = match path.flow {
                Some(flow) if !rxe_flush => flow.icrc(run.ident(index), body),
                _ if rxe_flush => rxe_flush_icrc(&run.net_header(index), body),
                _ => icrc(&run.net_header(index), body),
            };
            tail.copy_from_slice(&icrc.to_le_bytes());
        }
    }
}
