//! Checksums of posted memory, updated on the adapter's writes. Any other change is the program's.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use roce_provider::{
    copy_from_program,
    transport::mem::{Memory, MemoryFault},
};

use super::{Finding, Kind, Stack, is_on, records, report};
use crate::sync::Mutex;

/// Bytes per checksum.
const BLOCK: usize = 256;
/// Bytes per read.
const PART: usize = 4096;
/// Most remembered changes of peers per piece.
const CHANGES: usize = 64;
/// Most bytes per piece.
const MOST: usize = 64 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Send,
    Receive,
    /// Places a READ's or atomic's response.
    Read,
}

#[derive(Debug)]
pub(crate) struct Subject {
    /// Kind and number.
    pub(crate) queue: (&'static str, usize),
    pub(crate) call: &'static str,
    pub(crate) wr_id: u64,
    pub(crate) name: &'static str,
    pub(crate) posted: Stack,
}

impl Subject {
    pub(crate) fn text(&self) -> String {
        let Self { queue: (kind, number), call, wr_id, name, .. } = self;
        format!("{kind} {number:#x}: {call} {wr_id}: {name}")
    }

    /// About this request; the first stack is its post's.
    pub(crate) fn finding(
        &self,
        kind: Kind,
        what: &str,
        others: impl IntoIterator<Item = (&'static str, Stack)>,
    ) -> Finding {
        let stacks = [("posted", self.posted.clone())].into_iter().chain(others).collect();
        Finding { kind, what: format!("{}: {what}", self.text()), stacks }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WatchId {
    start: usize,
    serial: u64,
}

struct Watch {
    length: usize,
    role: Role,
    subject: Arc<Subject>,
    /// Per block; empty: not compared.
    sums: Vec<u32>,
    /// Bytes that peers' WRITEs and atomics change.
    changed: Vec<Range<usize>>,
}

struct Watches {
    all: BTreeMap<WatchId, Watch>,
    next: u64,
    longest: usize,
}

static WATCHES: Mutex<Watches> = Mutex::new(Watches { all: BTreeMap::new(), next: 0, longest: 0 });

/// Also returns an overlapping request that places data, if any. Shared memory is not compared.
pub(crate) fn add(
    start: usize,
    length: usize,
    role: Role,
    subject: &Arc<Subject>,
) -> (WatchId, Option<Arc<Subject>>) {
    let mut watches = WATCHES.lock();
    let clashes = |other| {
        matches!(
            (role, other),
            (Role::Receive, Role::Receive | Role::Read) | (Role::Read, Role::Receive)
        )
    };
    let other = watches
        .overlapping(start, length)
        .find(|(_, watch)| clashes(watch.role))
        .map(|(_, watch)| watch.subject.clone());
    // a fenced request may send a READ's response
    let is_fetched = role == Role::Send
        && watches.overlapping(start, length).any(|(_, watch)| watch.role == Role::Read);
    let sums = match other {
        Some(_) => Some(Vec::new()),
        None if is_fetched => Some(Vec::new()),
        None => sums(start, 0..length.min(MOST)),
    };
    let is_mapped = sums.is_some();
    let (subject, sums) = (subject.clone(), sums.unwrap_or_default());
    let watch = Watch { length, role, subject, sums, changed: Vec::new() };
    // a child lacks the pages of its parent's regions
    if !is_mapped && records::were_made() {
        report::postpone(watch.finding(Kind::MemoryUnmapped, start, &(0..length)));
    }
    let id = WatchId { start, serial: watches.next };
    watches.next += 1;
    watches.longest = watches.longest.max(length);
    watches.all.insert(id, watch);
    (id, other)
}

pub(super) fn readers(range: &Range<usize>) -> Vec<Arc<Subject>> {
    let watches = WATCHES.lock();
    let found = watches.overlapping(range.start, range.len());
    let reads = found.filter(|(_, watch)| watch.role == Role::Read);
    reads.map(|(_, watch)| watch.subject.clone()).collect()
}

pub(crate) fn forget(id: WatchId) {
    WATCHES.lock().all.remove(&id);
}

/// Stops comparing: the owner is unknown.
pub(crate) fn doubt(id: WatchId) {
    if let Some(watch) = WATCHES.lock().all.get_mut(&id) {
        watch.sums.clear();
    }
}

/// `filled`: bytes of the message or response. Call before the program sees the completion.
pub(crate) fn finish(id: WatchId, filled: usize) -> Option<Finding> {
    let mut watches = WATCHES.lock();
    let watch = watches.all.remove(&id)?;
    match watch.changed.iter().find(|changed| changed.start < filled) {
        Some(bytes) => Some(watch.finding(Kind::ReceiveOverwritten, id.start, bytes)),
        None => watch.difference(id.start, 0..watch.compared()),
    }
}

/// Records a peer's WRITE or atomic, harmless unless a message fills the bytes, too.
fn peer_changes(address: usize, length: usize) {
    let mut watches = WATCHES.lock();
    let receives = |watch: &Watch| watch.role != Role::Send && watch.changed.len() < CHANGES;
    let found = watches.overlapping(address, length).filter(|(_, watch)| receives(watch));
    let found: Vec<_> = found.map(|(id, _)| *id).collect();
    for id in found {
        if let Some(watch) = watches.all.get_mut(&id) {
            let end = (address + length - id.start).min(watch.length);
            watch.changed.push(address.saturating_sub(id.start)..end);
        }
    }
}

/// Reports the requests whose memory the adapter finds unmapped.
fn unmapped(address: usize, length: usize) {
    let mut watches = WATCHES.lock();
    let found = watches.overlapping(address, length).filter(|(_, watch)| !watch.sums.is_empty());
    let found: Vec<_> = found.map(|(id, _)| *id).collect();
    for id in found {
        if let Some(watch) = watches.all.get_mut(&id) {
            report::postpone(watch.finding(Kind::MemoryUnmapped, id.start, &(0..watch.length)));
            watch.sums.clear();
        }
    }
}

/// Updates the checksums.
fn place<R>(address: usize, length: usize, write: impl FnOnce() -> R) -> R {
    let mut watches = WATCHES.lock();
    let found: Vec<_> = watches
        .overlapping(address, length)
        .filter(|(_, watch)| !watch.sums.is_empty())
        .map(|(id, watch)| (*id, blocks(id.start, watch.compared(), address, length)))
        .filter(|(_, range)| !range.is_empty())
        .collect();
    if found.is_empty() {
        drop(watches);
        return write();
    }
    for (id, range) in &found {
        let Some(watch) = watches.all.get_mut(id) else { continue };
        if let Some(finding) = watch.difference(id.start, range.clone()) {
            watch.sums.clear();
            report::postpone(finding);
        }
    }
    let result = write();
    for (id, range) in found {
        let Some(watch) = watches.all.get_mut(&id).filter(|watch| !watch.sums.is_empty()) else {
            continue;
        };
        let Some(sums) = sums(id.start, range.clone()) else { continue };
        let first = range.start / BLOCK;
        let old = &mut watch.sums[first..first + sums.len()];
        let is_changed = old != &*sums;
        old.copy_from_slice(&sums);
        if is_changed && watch.role == Role::Send {
            report::postpone(watch.finding(Kind::SendBufferOverwritten, id.start, &range));
            watch.sums.clear();
        }
    }
    result
}

impl Watches {
    fn overlapping(&self, start: usize, length: usize) -> impl Iterator<Item = (&WatchId, &Watch)> {
        let first = WatchId { start: start.saturating_sub(self.longest), serial: 0 };
        let end = WatchId { start: start.saturating_add(length), serial: 0 };
        self.all.range(first..end).filter(move |(id, watch)| id.start + watch.length > start)
    }
}

impl Watch {
    fn compared(&self) -> usize {
        self.length.min(self.sums.len() * BLOCK)
    }

    /// Finds the program's changes in whole blocks.
    fn difference(&self, start: usize, range: Range<usize>) -> Option<Finding> {
        if range.is_empty() {
            return None;
        }
        let Some(now) = sums(start, range.clone()) else {
            return Some(self.finding(Kind::MemoryUnmapped, start, &range));
        };
        let first = range.start / BLOCK;
        let at = now.iter().zip(&self.sums[first..]).position(|(now, then)| now != then)?;
        let kind = match self.role {
            Role::Send => Kind::SendBufferChanged,
            Role::Receive => Kind::ReceiveWritten,
            Role::Read => Kind::ReadTargetWritten,
        };
        let from = (first + at) * BLOCK;
        Some(self.finding(kind, start, &(from..(from + BLOCK).min(self.length))))
    }

    fn finding(&self, kind: Kind, start: usize, range: &Range<usize>) -> Finding {
        let Range { start: from, end } = range;
        let which = match kind {
            Kind::ReceiveOverwritten => "a peer changes",
            _ => "among",
        };
        let what = format!("{which} bytes {from}..{end} of the {} at {start:#x}", self.length);
        self.subject.finding(kind, &what, None)
    }
}

fn blocks(start: usize, watched: usize, address: usize, length: usize) -> Range<usize> {
    let from = address.saturating_sub(start) / BLOCK * BLOCK;
    let end = (address + length).saturating_sub(start).next_multiple_of(BLOCK);
    from..end.min(watched)
}

/// `None` if unmapped.
fn sums(start: usize, range: Range<usize>) -> Option<Vec<u32>> {
    let mut sums = Vec::with_capacity(range.len().div_ceil(BLOCK));
    let mut part = [0; PART];
    for from in range.clone().step_by(PART) {
        let length = PART.min(range.end - from);
        // SAFETY: Faults in registered memory are caught; `part` is long enough.
        unsafe { copy_from_program((start + from) as *const u8, part.as_mut_ptr(), length) }
            .ok()?;
        sums.extend(part[..length].chunks(BLOCK).map(crc32fast::hash));
    }
    Some(sums)
}

struct WatchedMemory<M> {
    memory: M,
    address: usize,
}

pub(crate) fn watched(memory: impl Memory + 'static) -> Arc<dyn Memory> {
    if is_on() { Arc::new(WatchedMemory::new(memory)) } else { Arc::new(memory) }
}

impl<M: Memory> WatchedMemory<M> {
    fn new(memory: M) -> Self {
        let address = memory.origin() as usize;
        Self { memory, address }
    }

    fn place<R>(&self, offset: u64, length: usize, write: impl FnOnce() -> R) -> R {
        place(self.address.wrapping_add(offset as usize), length, write)
    }
}

impl<M: Memory> Memory for WatchedMemory<M> {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn origin(&self) -> u64 {
        self.memory.origin()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        let read = self.memory.read_at(offset, to);
        read.inspect_err(|_| unmapped(self.address.wrapping_add(offset as usize), to.len()))
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.place(offset, from.len(), || self.memory.write_at(offset, from))
    }

    fn load_u64(&self, offset: u64) -> Result<u64, MemoryFault> {
        self.memory.load_u64(offset)
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), MemoryFault> {
        self.place(offset, 8, || self.memory.store_u64(offset, value))
    }

    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        self.place(offset, 8, || self.memory.compare_swap(offset, compare, swap))
    }

    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, MemoryFault> {
        self.place(offset, 8, || self.memory.fetch_add(offset, add))
    }

    fn peer_changes(&self, offset: u64, length: u64) {
        peer_changes(self.address.wrapping_add(offset as usize), length as usize);
    }

    fn prefetch(&self, offset: u64, length: u64) -> Result<(), MemoryFault> {
        self.memory.prefetch(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use roce_provider::ForeignMemory;

    use super::*;

    fn subject() -> Arc<Subject> {
        let posted = Stack::none();
        Arc::new(Subject {
            queue: ("qp", 1),
            call: "ibv_post_recv",
            wr_id: 7,
            name: "receive",
            posted,
        })
    }

    fn watched(memory: &mut [u8]) -> WatchedMemory<ForeignMemory> {
        // SAFETY: The memory outlives it; tests touch it only through pointers.
        WatchedMemory::new(unsafe { ForeignMemory::on_demand(memory.as_mut_ptr(), memory.len()) })
    }

    fn kind(finding: Option<Finding>) -> Option<Kind> {
        finding.map(|finding| finding.kind)
    }

    #[test]
    fn what_the_adapter_places_is_expected_and_what_the_program_writes_is_not() {
        let mut bytes = vec![1_u8; 5000];
        let memory = watched(&mut bytes);
        let start = memory.address;
        let (first, other) = add(start + 100, 4000, Role::Receive, &subject());
        assert!(other.is_none());
        memory.write_at(90, &[2; 1000]).unwrap();
        memory.write_at(4090, &[2; 100]).unwrap();
        memory.store_u64((8 - start % 8) as u64 + 200, 7).unwrap();
        assert_eq!(kind(finish(first, 0)), None);

        let (second, _) = add(start + 100, 4000, Role::Receive, &subject());
        memory.write_at(100, &[3; 10]).unwrap();
        memory.memory.write_at(3000, &[9]).unwrap(); // as the program does
        let finding = finish(second, 0).unwrap();
        assert_eq!(finding.kind, Kind::ReceiveWritten);
        assert!(
            finding.what.contains("7: receive: among bytes 2816..3072 of the 4000"),
            "{}",
            finding.what
        );

        // bytes outside the piece do not count
        let (third, _) = add(start + 100, 4000, Role::Read, &subject());
        memory.memory.write_at(99, &[9]).unwrap();
        memory.memory.write_at(4100, &[9]).unwrap();
        assert_eq!(kind(finish(third, 0)), None);
    }

    #[test]
    fn a_peer_may_not_change_what_a_message_fills() {
        let mut bytes = vec![1_u8; 1000];
        let memory = watched(&mut bytes);
        let receive = || add(memory.address + 100, 500, Role::Receive, &subject()).0;
        for (at, length, filled, is_found) in [
            (0, 101, 500, true),
            (0, 100, 500, false), // before it
            (300, 10, 201, true),
            (300, 10, 200, false), // behind the message
            (300, 10, 0, false),   // of a WRITE with immediate
            (600, 10, 500, false),
        ] {
            let id = receive();
            memory.peer_changes(at, length);
            let found = kind(finish(id, filled));
            assert_eq!(found == Some(Kind::ReceiveOverwritten), is_found, "{at} {length} {filled}");
        }
    }

    #[test]
    fn receives_may_not_overlap_and_sends_may() {
        let mut bytes = vec![1_u8; 1000];
        let memory = watched(&mut bytes);
        let start = memory.address;
        let (send, _) = add(start, 500, Role::Send, &subject());
        let (first, none) = add(start, 500, Role::Receive, &subject());
        let (second, overlap) = add(start + 499, 10, Role::Receive, &subject());
        let (third, beside) = add(start + 509, 10, Role::Receive, &subject());
        assert!(none.is_none() && overlap.is_some() && beside.is_none());
        [send, first, second, third].into_iter().for_each(forget);
        let (last, none) = add(start + 499, 10, Role::Receive, &subject());
        assert!(none.is_none());
        forget(last); // another test may get its memory
    }

    #[test]
    fn memory_that_is_gone_is_noticed() {
        let length = 8192;
        // SAFETY: A new mapping.
        let start = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), length, rights, kind, -1, 0)
        };
        // SAFETY: As above; registering catches faults.
        let memory = unsafe { ForeignMemory::on_demand(start.cast(), length) };
        let memory = WatchedMemory::new(memory);
        let [id, other] = [0, 1].map(|_| add(start as usize, length, Role::Send, &subject()).0);
        // not unmapped: another test may get its addresses
        // SAFETY: Nothing refers to it.
        assert_eq!(unsafe { libc::mprotect(start, length, libc::PROT_NONE) }, 0);
        assert_eq!(kind(finish(id, 0)), Some(Kind::MemoryUnmapped));
        assert!(memory.read_at(0, &mut [0; 8]).is_err());
        assert!(WATCHES.lock().all[&other].sums.is_empty(), "it is told, and compared no more");
        forget(other);
        // SAFETY: As above.
        assert_eq!(unsafe { libc::munmap(start, length) }, 0);
    }

    #[test]
    fn a_message_in_a_buffer_that_is_being_sent_is_told_of_if_it_changes_it() {
        let mut bytes = vec![1_u8; 600];
        let memory = watched(&mut bytes);
        let (same, _) = add(memory.address, 600, Role::Send, &subject());
        memory.write_at(0, &[1; 600]).unwrap();
        assert_eq!(kind(finish(same, 0)), None);
        let (other, _) = add(memory.address, 600, Role::Send, &subject());
        memory.write_at(300, &[2]).unwrap();
        assert!(WATCHES.lock().all[&other].sums.is_empty(), "it is told, and compared no more");
        forget(other);
    }
}
