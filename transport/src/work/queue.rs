use alloc::{boxed::Box, collections::VecDeque, sync::Arc};
use core::cell::RefCell;

use smallvec::SmallVec;

use super::{
    completion::WcError,
    copies::Fetched,
    request::{Data, RecvWr, SendFlags, SendOp, SendWr, Sge},
};
use crate::{
    ids::{LKey, PdId, SrqId},
    mem::{Access, AccessError, Region, RegionTable},
    psn::Psn,
};

/// An SGE that keeps its memory.
#[derive(Debug)]
struct Piece {
    region: Option<Arc<Region>>,
    sge: Sge,
}

#[derive(Debug, Default)]
struct Gather {
    pieces: SmallVec<[Piece; 2]>,
    /// If some are behind a driver.
    fetched: Option<Box<RefCell<Fetched>>>,
}

impl Gather {
    fn new(sges: &[Sge], regions: &RegionTable) -> Self {
        let mut gather = Self::default();
        for &sge in sges {
            let region = regions.local(sge.lkey).cloned();
            if region.as_ref().is_some_and(|region| region.is_behind_driver()) {
                gather.fetched.get_or_insert_default();
            }
            gather.pieces.push(Piece { region, sge });
        }
        gather
    }

    /// Posting refuses 4 GiB and more.
    fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.sge.length)).sum()
    }

    fn check(&self, pd: PdId, needed: Access) -> Result<(), AccessError> {
        for Piece { region, sge } in self.pieces.iter().filter(|piece| piece.sge.length > 0) {
            let LKey(key) = sge.lkey;
            let region = region.as_ref().ok_or(AccessError::UnknownKey(key))?;
            region.check(key, pd, sge.address, u64::from(sge.length), needed)?;
        }
        Ok(())
    }

    /// The caller stays within [`length`](Self::length).
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), AccessError> {
        let Some(fetched) = &self.fetched else { return self.copy(offset, to) };
        let mut regions = self.pieces.iter().filter_map(|piece| piece.region.as_ref());
        regions.try_for_each(|region| region.check_live())?;
        let fetch = |offset, to: &mut [u8]| self.copy(offset, to);
        fetched.borrow_mut().read(offset, to, self.length(), fetch)
    }

    fn copy(&self, offset: u64, to: &mut [u8]) -> Result<(), AccessError> {
        if let [Piece { region: Some(region), sge }] = &self.pieces[..] {
            return region.read(sge.address + offset, to);
        }
        let mut done = 0;
        self.walk(offset, to.len(), |region, address, len| {
            region.read(address, &mut to[done..done + len])?;
            done += len;
            Ok(())
        })
    }

    fn write(
        &self,
        offset: u64,
        from: &[u8],
        mut place: impl FnMut(&Arc<Region>, u64, &[u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let mut done = 0;
        self.walk(offset, from.len(), |region, address, len| {
            place(region, address, &from[done..done + len])?;
            done += len;
            Ok(())
        })
    }

    fn walk(
        &self,
        offset: u64,
        length: usize,
        mut each: impl FnMut(&Arc<Region>, u64, usize) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let (mut skip, mut left) = (offset, length as u64);
        for Piece { region, sge } in &self.pieces {
            if left == 0 {
                break;
            }
            let here = u64::from(sge.length).saturating_sub(skip).min(left);
            if here > 0 {
                let region = region.as_ref().ok_or(AccessError::UnknownKey(sge.lkey.0))?;
                each(region, sge.address + skip, here as usize)?;
            }
            skip = skip.saturating_sub(u64::from(sge.length));
            left -= here;
        }
        Ok(())
    }
}

#[derive(Debug)]
enum Bytes {
    Gather(Gather),
    Inline(SmallVec<[u8; 64]>),
}

#[derive(Debug)]
pub(crate) struct SendWqe {
    pub(crate) id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    pub(crate) remote_srq: Option<SrqId>,
    pub(crate) length: u32,
    bytes: Bytes,
    /// Packets exist, and the next two fields are valid.
    pub(crate) started: bool,
    pub(crate) first_psn: Psn,
    /// PSNs used: request packets, or a READ's response packets.
    pub(crate) packets: u32,
    /// Counts as an outstanding READ or atomic.
    pub(crate) holds_slot: bool,
    /// A local error; nothing later is sent.
    pub(crate) failed: Option<WcError>,
}

impl SendWqe {
    pub(crate) fn new(wr: &SendWr, regions: &RegionTable) -> Self {
        Self {
            id: wr.wr_id,
            op: wr.op,
            flags: wr.flags,
            remote_srq: wr.remote_srq,
            length: wr.data.length() as u32,
            bytes: match &wr.data {
                Data::Sges(sges) => Bytes::Gather(Gather::new(sges, regions)),
                Data::Inline(bytes) => Bytes::Inline(bytes.clone()),
            },
            started: false,
            first_psn: Psn::default(),
            packets: 0,
            holds_slot: false,
            failed: None,
        }
    }

    /// True if a later acknowledgement implies a lost response.
    pub(crate) const fn awaits_data(&self) -> bool {
        self.op.awaits_data()
    }

    /// True if the response is more than an acknowledgement.
    pub(crate) const fn awaits_response(&self) -> bool {
        self.op.awaits_data() || self.op.awaits_placement()
    }

    pub(crate) const fn end_psn(&self) -> Psn {
        self.first_psn.plus(self.packets)
    }

    pub(crate) fn check_local(&self, pd: PdId) -> Result<(), AccessError> {
        let needed = if self.awaits_data() { Access::LOCAL_WRITE } else { Access::empty() };
        match &self.bytes {
            Bytes::Gather(gather) => gather.check(pd, needed),
            Bytes::Inline(_) => Ok(()),
        }
    }

    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), AccessError> {
        match &self.bytes {
            Bytes::Gather(gather) => gather.read(offset, to),
            Bytes::Inline(bytes) => {
                let start = offset as usize;
                to.copy_from_slice(&bytes[start..start + to.len()]);
                Ok(())
            }
        }
    }

    /// Region and address of all bytes, if they are in one.
    pub(crate) fn only_region(&self) -> Option<(&Arc<Region>, u64)> {
        match &self.bytes {
            Bytes::Gather(Gather { pieces, fetched: None }) => match &pieces[..] {
                [Piece { region: Some(region), sge }] => Some((region, sge.address)),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn write(
        &self,
        offset: u64,
        from: &[u8],
        place: impl FnMut(&Arc<Region>, u64, &[u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        match &self.bytes {
            Bytes::Gather(gather) => gather.write(offset, from, place),
            Bytes::Inline(_) => Ok(()), // never posted inline
        }
    }
}

/// Requests by number: positions survive completions.
#[derive(Debug)]
pub(crate) struct SendQueue {
    wqes: VecDeque<SendWqe>,
    head: u64,
    capacity: u32,
}

impl SendQueue {
    pub(crate) const fn new(capacity: u32) -> Self {
        Self { wqes: VecDeque::new(), head: 0, capacity }
    }

    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    pub(crate) fn room(&self) -> usize {
        (self.capacity as usize).saturating_sub(self.wqes.len())
    }

    pub(crate) fn push(&mut self, wqe: SendWqe) {
        self.wqes.push_back(wqe);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SendWqe> {
        self.wqes.iter()
    }

    pub(crate) fn oldest(&self) -> Option<&SendWqe> {
        self.wqes.front()
    }

    pub(crate) fn pop(&mut self) -> Option<SendWqe> {
        let wqe = self.wqes.pop_front()?;
        self.head += 1;
        Some(wqe)
    }

    pub(crate) fn take(&mut self) -> VecDeque<SendWqe> {
        self.head += self.wqes.len() as u64;
        core::mem::take(&mut self.wqes)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&SendWqe> {
        self.wqes.get(number.checked_sub(self.head)? as usize)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut SendWqe> {
        self.wqes.get_mut(number.checked_sub(self.head)? as usize)
    }

    pub(crate) fn find(&self, psn: Psn) -> Option<(u64, &SendWqe)> {
        // started requests come first and end within half the PSN space
        let oldest = self.wqes.front()?.first_psn;
        let at = psn.after(oldest)?;
        let index = self.wqes.partition_point(|wqe| {
            wqe.started && wqe.end_psn().after(oldest).is_some_and(|end| end <= at)
        });
        let wqe = self.wqes.get(index).filter(|wqe| wqe.started)?;
        Some((self.head + index as u64, wqe))
    }
}

#[derive(Debug)]
pub(crate) struct RecvWqe {
    pub(crate) id: u64,
    gather: Gather,
    pd: PdId,
    pub(crate) length: u64,
}

impl RecvWqe {
    pub(crate) fn check(&self) -> Result<(), AccessError> {
        self.gather.check(self.pd, Access::LOCAL_WRITE)
    }

    pub(crate) fn visit(
        &self,
        offset: u64,
        length: usize,
        each: impl FnMut(&Arc<Region>, u64, usize) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        self.gather.walk(offset, length, each)
    }

    pub(crate) fn write(
        &self,
        offset: u64,
        from: &[u8],
        place: impl FnMut(&Arc<Region>, u64, &[u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        self.gather.write(offset, from, place)
    }
}

/// Requests without completions; dropping many takes time.
#[must_use = "drop them without the adapter's lock"]
#[derive(Default, Debug)]
pub struct AbandonedRequests {
    pub(crate) sends: VecDeque<SendWqe>,
    pub(crate) recvs: VecDeque<RecvWqe>,
}

impl AbandonedRequests {
    /// Counts of sends and receives.
    #[must_use]
    pub fn len(&self) -> [usize; 2] {
        [self.sends.len(), self.recvs.len()]
    }
}

#[derive(Default, Debug)]
pub(crate) struct RecvQueue {
    wqes: VecDeque<RecvWqe>,
    capacity: u32,
}

impl RecvQueue {
    pub(crate) const fn new(capacity: u32) -> Self {
        Self { wqes: VecDeque::new(), capacity }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.wqes.len() >= self.capacity as usize
    }

    pub(crate) fn push(&mut self, wr: &RecvWr, pd: PdId, regions: &RegionTable) {
        let gather = Gather::new(&wr.sges, regions);
        self.wqes.push_back(RecvWqe { id: wr.wr_id, length: gather.length(), gather, pd });
    }

    pub(crate) fn len(&self) -> u32 {
        self.wqes.len() as u32
    }

    pub(crate) const fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) const fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    pub(crate) fn oldest(&self) -> Option<&RecvWqe> {
        self.wqes.front()
    }

    pub(crate) fn put_back(&mut self, wqe: RecvWqe) {
        self.wqes.push_front(wqe);
    }

    pub(crate) fn pop(&mut self) -> Option<RecvWqe> {
        self.wqes.pop_front()
    }

    pub(crate) fn take(&mut self) -> VecDeque<RecvWqe> {
        core::mem::take(&mut self.wqes)
    }
}
