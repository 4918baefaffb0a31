//! Work queues: requests that were posted and are not complete.

use alloc::{collections::VecDeque, sync::Arc};
use core::cell::RefCell;

use smallvec::SmallVec;

use super::{
    completion::WcError,
    fetched::Fetched,
    request::{Data, RecvWr, SendFlags, SendOp, SendWr, Sge},
};
use crate::{
    ids::{LKey, PdId, SrqId},
    mem::{Access, AccessError, Region, RegionTable},
    psn::Psn,
};

/// A piece of a region that a posted request holds, so that the memory outlives the request.
#[derive(Debug)]
struct Piece {
    region: Option<Arc<Region>>,
    sge: Sge,
}

/// A scatter or gather list of a posted request.
#[derive(Debug, Default)]
struct Gather {
    pieces: SmallVec<[Piece; 2]>,
}

impl Gather {
    fn new(sges: &[Sge], regions: &RegionTable) -> Self {
        let mut pieces = SmallVec::new();
        for &sge in sges {
            pieces.push(Piece { region: regions.local(sge.lkey).cloned(), sge });
        }
        Self { pieces }
    }

    /// Bytes in all. Posting refuses a request of 4 GiB and more.
    fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.sge.length)).sum()
    }

    /// Checks that a queue pair of `pd` may use every piece for `needed`. An empty piece is not
    /// looked at.
    fn check(&self, pd: PdId, needed: Access) -> Result<(), AccessError> {
        for Piece { region, sge } in self.pieces.iter().filter(|piece| piece.sge.length > 0) {
            let LKey(key) = sge.lkey;
            let region = region.as_ref().ok_or(AccessError::UnknownKey(key))?;
            region.check(key, pd, sge.address, u64::from(sge.length), needed)?;
        }
        Ok(())
    }

    /// Copies `to.len()` bytes from `offset` on; the caller stays inside [`length`](Self::length).
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), AccessError> {
        let mut done = 0;
        self.walk(offset, to.len(), |region, address, len| {
            region.read(address, &mut to[done..done + len])?;
            done += len;
            Ok(())
        })
    }

    /// Has `from` placed at `offset`; the caller stays inside [`length`](Self::length).
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

    /// The region, and the address there, of a range that lies in one piece.
    fn piece(&self, offset: u64, length: u64) -> Option<(&Arc<Region>, u64)> {
        let mut skip = offset;
        for Piece { region, sge } in &self.pieces {
            let here = u64::from(sge.length);
            if skip < here {
                let is_whole = length <= here - skip;
                return region.as_ref().filter(|_| is_whole).map(|it| (it, sge.address + skip));
            }
            skip -= here;
        }
        None
    }

    /// Calls `each` with every piece's part of the range, in order.
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

/// The bytes of a posted send request.
#[derive(Debug)]
enum Bytes {
    Gather(Gather),
    /// Some of them are behind a driver.
    Fetched(Gather, RefCell<Fetched>),
    Inline(SmallVec<[u8; 64]>),
}

impl Bytes {
    fn of(gather: Gather) -> Self {
        let is_behind =
            |piece: &Piece| piece.region.as_ref().is_some_and(|region| region.is_behind_driver());
        if gather.pieces.iter().any(is_behind) {
            Self::Fetched(gather, RefCell::default())
        } else {
            Self::Gather(gather)
        }
    }
}

/// A posted send request.
#[derive(Debug)]
pub(crate) struct SendWqe {
    pub(crate) id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    pub(crate) remote_srq: Option<SrqId>,
    pub(crate) length: u32,
    bytes: Bytes,
    /// True if packets of it have been built; only then are the next two meaningful.
    pub(crate) started: bool,
    pub(crate) first_psn: Psn,
    /// Sequence numbers that it takes: request packets, or response packets of a READ.
    pub(crate) packets: u32,
    /// True if it counts as one of the READs and atomics that may be outstanding; known when it is
    /// started.
    pub(crate) holds_slot: bool,
    /// A local error found before its turn to complete; nothing after it is sent.
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
                Data::Sges(sges) => Bytes::of(Gather::new(sges, regions)),
                Data::Inline(bytes) => Bytes::Inline(bytes.clone()),
            },
            started: false,
            first_psn: Psn::default(),
            packets: 0,
            holds_slot: false,
            failed: None,
        }
    }

    /// True if the responder answers it with data, so that an acknowledgement of something later
    /// shows a loss.
    pub(crate) const fn awaits_data(&self) -> bool {
        self.op.awaits_data()
    }

    /// True if the responder answers it with more than an acknowledgement.
    pub(crate) const fn awaits_answer(&self) -> bool {
        self.op.awaits_data() || self.op.awaits_placement()
    }

    /// The PSN after its last.
    pub(crate) const fn end_psn(&self) -> Psn {
        self.first_psn.plus(self.packets)
    }

    /// Checks that a queue pair of `pd` may use its local buffers as its operation needs.
    pub(crate) fn check_local(&self, pd: PdId) -> Result<(), AccessError> {
        let needed = if self.awaits_data() { Access::LOCAL_WRITE } else { Access::empty() };
        match &self.bytes {
            Bytes::Gather(gather) | Bytes::Fetched(gather, _) => gather.check(pd, needed),
            Bytes::Inline(_) => Ok(()),
        }
    }

    /// Copies payload from `offset` on.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), AccessError> {
        match &self.bytes {
            Bytes::Gather(gather) => gather.read(offset, to),
            Bytes::Fetched(gather, fetched) => {
                gather.pieces.iter().try_for_each(|piece| {
                    piece.region.as_ref().map_or(Ok(()), |region| region.check_live())
                })?;
                let fetch = |offset, to: &mut [u8]| gather.read(offset, to);
                fetched.borrow_mut().read(offset, to, self.length.into(), fetch)
            }
            Bytes::Inline(bytes) => {
                let start = offset as usize;
                to.copy_from_slice(&bytes[start..start + to.len()]);
                Ok(())
            }
        }
    }

    /// The region, and the address there, of a part of its payload that lies in one piece.
    pub(crate) fn piece(&self, offset: u64, length: u64) -> Option<(&Arc<Region>, u64)> {
        match &self.bytes {
            Bytes::Gather(gather) => gather.piece(offset, length),
            Bytes::Fetched(..) | Bytes::Inline(_) => None,
        }
    }

    /// Has data placed that a READ or an atomic brought.
    pub(crate) fn write(
        &self,
        offset: u64,
        from: &[u8],
        place: impl FnMut(&Arc<Region>, u64, &[u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        match &self.bytes {
            Bytes::Gather(gather) | Bytes::Fetched(gather, _) => gather.write(offset, from, place),
            Bytes::Inline(_) => Ok(()), // which cannot be posted with inline data
        }
    }
}

/// The send queue: requests by their running number, so that a position outlives the requests
/// before it.
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

    /// The number of the oldest request.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Number of further requests that it takes.
    pub(crate) fn room(&self) -> usize {
        (self.capacity as usize).saturating_sub(self.wqes.len())
    }

    pub(crate) fn push(&mut self, wqe: SendWqe) {
        self.wqes.push_back(wqe);
    }

    /// All requests, the oldest first.
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

    /// Takes all requests.
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

    /// The started request that holds `psn`, with its number.
    pub(crate) fn find(&self, psn: Psn) -> Option<(u64, &SendWqe)> {
        // started requests come first, and all their ends lie within half of the number space after
        // the oldest
        let oldest = self.wqes.front()?.first_psn;
        let at = psn.after(oldest)?;
        let index = self.wqes.partition_point(|wqe| {
            wqe.started && wqe.end_psn().after(oldest).is_some_and(|end| end <= at)
        });
        let wqe = self.wqes.get(index).filter(|wqe| wqe.started)?;
        Some((self.head + index as u64, wqe))
    }
}

/// A posted receive request.
#[derive(Debug)]
pub(crate) struct RecvWqe {
    pub(crate) id: u64,
    gather: Gather,
    /// Protection domain of the queue that it was posted to.
    pd: PdId,
    pub(crate) length: u64,
}

impl RecvWqe {
    /// Checks that messages may be written to every piece.
    pub(crate) fn check(&self) -> Result<(), AccessError> {
        self.gather.check(self.pd, Access::LOCAL_WRITE)
    }

    /// Calls `each` with the places where a part of a message goes.
    pub(crate) fn visit(
        &self,
        offset: u64,
        length: usize,
        each: impl FnMut(&Arc<Region>, u64, usize) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        self.gather.walk(offset, length, each)
    }

    /// Has a part of a message placed at `offset`; the caller stays inside the length.
    pub(crate) fn write(
        &self,
        offset: u64,
        from: &[u8],
        place: impl FnMut(&Arc<Region>, u64, &[u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        self.gather.write(offset, from, place)
    }
}

/// Requests that were taken from a queue pair and do not complete. To drop them takes as long as
/// there are many.
#[must_use = "they are to be dropped without the adapter's lock"]
#[derive(Default, Debug)]
pub struct AbandonedRequests {
    pub(crate) sends: VecDeque<SendWqe>,
    pub(crate) recvs: VecDeque<RecvWqe>,
}

impl AbandonedRequests {
    /// Number of send requests and of receive requests.
    #[must_use]
    pub fn len(&self) -> [usize; 2] {
        [self.sends.len(), self.recvs.len()]
    }
}

/// A receive queue.
#[derive(Debug)]
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

    /// Puts back a request that was taken and not completed.
    pub(crate) fn put_back(&mut self, wqe: RecvWqe) {
        self.wqes.push_front(wqe);
    }

    pub(crate) fn pop(&mut self) -> Option<RecvWqe> {
        self.wqes.pop_front()
    }

    /// Takes all requests.
    pub(crate) fn take(&mut self) -> VecDeque<RecvWqe> {
        core::mem::take(&mut self.wqes)
    }
}
