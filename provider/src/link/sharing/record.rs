//! Connection records in a claim table's memory, where they outlive their process. Another process
//! at the address reads the records and notifies the peers.
//!
//! Behind the [shared state](super::shared_state) is a page with each partition's number of used
//! slots, then the slots. A slot is written whole, and neither its first byte nor its last bytes
//! are zero: a slot partly written or erased by a killed process is no record.

use std::{fs::File, io, net::IpAddr};

use roce_transport::{cm::ConnRecord, share::IdPartition};
use rustix::io::{pread, pwrite};

use super::shared_state;
use crate::link::{conn_record, ensure, sealed};

pub(super) const SIZE: u64 = SLOTS_AT + IdPartition::COUNT as u64 * AREA;
/// Records per partition; further connections end without notice.
const SLOTS: usize = 4096;

const COUNTS_AT: u64 = shared_state::SIZE;
const SLOTS_AT: u64 = COUNTS_AT + 4096;
const SLOT: usize = conn_record::LEN;
const AREA: u64 = SLOTS as u64 * SLOT as u64;

/// Local communication IDs by slot; 0: free.
#[derive(Default)]
pub(super) struct OwnRecords(Vec<u32>);

impl OwnRecords {
    pub(super) fn keep(
        &mut self,
        table: &File,
        partition: IdPartition,
        record: &ConnRecord,
    ) -> io::Result<()> {
        let slot_of = |id| self.0.iter().position(|other| *other == id);
        let slot = slot_of(record.local_id).or_else(|| slot_of(0)).unwrap_or(self.0.len());
        ensure(slot < SLOTS, io::ErrorKind::StorageFull)?;
        if slot == self.0.len() {
            self.0.push(0);
            // before the record: readers look at this many slots
            write(table, count_at(partition), &(self.0.len() as u32).to_ne_bytes())?;
        }
        self.0[slot] = record.local_id;
        write(table, slot_at(partition, slot), &conn_record::encode(record))
    }

    pub(super) fn erase(
        &mut self,
        table: &File,
        partition: IdPartition,
        local_id: u32,
    ) -> io::Result<()> {
        let slot = self.0.iter().position(|other| *other == local_id);
        let Some(slot) = slot.filter(|_| local_id != 0) else { return Ok(()) };
        self.0[slot] = 0;
        write(table, slot_at(partition, slot), &[0; SLOT])
    }
}

pub(super) fn used_partitions(table: &File) -> Vec<IdPartition> {
    IdPartition::all().filter(|&partition| is_used(table, partition)).collect()
}

pub(super) fn is_used(table: &File, partition: IdPartition) -> bool {
    used(table, partition) > 0
}

/// Any process at the address may have written the records.
pub(super) fn left_in(table: &File, partition: IdPartition, local: IpAddr) -> Vec<ConnRecord> {
    let mut bytes = vec![0; used(table, partition) * SLOT];
    if read(table, slot_at(partition, 0), &mut bytes).is_err() {
        return Vec::new();
    }
    let (slots, _) = bytes.as_chunks();
    slots.iter().filter_map(|slot| conn_record::decode(slot, partition, local)).collect()
}

pub(super) fn clear(table: &File, partition: IdPartition) {
    let _ = write(table, slot_at(partition, 0), &vec![0; used(table, partition) * SLOT]);
    let _ = write(table, count_at(partition), &[0; 4]);
}

fn used(table: &File, partition: IdPartition) -> usize {
    let mut count = [0; 4];
    let read = read(table, count_at(partition), &mut count);
    read.map_or(0, |()| SLOTS.min(u32::from_ne_bytes(count) as usize))
}

fn count_at(partition: IdPartition) -> u64 {
    COUNTS_AT + 4 * u64::from(partition.get())
}

fn slot_at(partition: IdPartition, slot: usize) -> u64 {
    SLOTS_AT + u64::from(partition.get() - 1) * AREA + (slot * SLOT) as u64
}

fn read(table: &File, at: u64, bytes: &mut [u8]) -> io::Result<()> {
    let length = pread(table, &mut *bytes, at)?;
    ensure(length == bytes.len(), io::ErrorKind::UnexpectedEof)
}

fn write(table: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    // the kernel kills a process that writes beyond the limit, which may have changed
    ensure(sealed::is_allowed(at + bytes.len() as u64), io::ErrorKind::FileTooLarge)?;
    let length = pwrite(table, bytes, at)?;
    ensure(length == bytes.len(), io::ErrorKind::WriteZero)
}

#[cfg(test)]
mod tests {
    use roce_transport::{addr::PKey, ids::Qpn};

    use super::*;
    use crate::link::partition;

    const LOCAL: [u8; 4] = [10, 0, 0, 1];

    fn table() -> File {
        sealed::create("test", SIZE).unwrap()
    }

    fn record(partition: IdPartition, number: u32) -> ConnRecord {
        ConnRecord {
            local: LOCAL.into(),
            remote: [10, 0, 0, 2].into(),
            pkey: PKey::DEFAULT,
            local_id: partition.ids().start() + number,
            remote_id: 0xFFFF_FFFF - number,
            local_qpn: Qpn::new(0x12_3456),
            remote_qpn: Qpn::new(0xFE_DCBA),
        }
    }

    fn left(table: &File, partition: IdPartition) -> Vec<ConnRecord> {
        left_in(table, partition, LOCAL.into())
    }

    #[test]
    fn a_record_stands_until_it_is_erased() {
        let (table, mut own) = (table(), OwnRecords::default());
        let (mine, other) = (partition(62), partition(61));
        assert!(used_partitions(&table).is_empty() && left(&table, mine).is_empty());
        let records: Vec<_> = (0..3).map(|number| record(mine, number)).collect();
        for record in records.iter().chain(&records) {
            own.keep(&table, mine, record).unwrap();
        }
        assert_eq!(left(&table, mine), records);
        assert_eq!((used_partitions(&table), left(&table, other)), (vec![mine], vec![]));
        own.erase(&table, mine, records[1].local_id).unwrap();
        own.erase(&table, mine, records[1].local_id).unwrap();
        assert_eq!(left(&table, mine), [records[0], records[2]]);
        let next = ConnRecord { remote_id: 7, ..record(mine, 9) };
        own.keep(&table, mine, &next).unwrap();
        assert_eq!(left(&table, mine), [records[0], next, records[2]]);
        clear(&table, mine);
        assert!(used_partitions(&table).is_empty() && left(&table, mine).is_empty());
        let mut next = OwnRecords::default();
        next.keep(&table, mine, &records[2]).unwrap();
        assert_eq!(left(&table, mine), [records[2]]);
    }

    #[test]
    fn addresses_of_both_families() {
        let (table, mut own, mine) = (table(), OwnRecords::default(), partition(1));
        let local: IpAddr = "fd00::1".parse().unwrap();
        let six = ConnRecord { local, remote: "fe80::2".parse().unwrap(), ..record(mine, 1) };
        own.keep(&table, mine, &six).unwrap();
        assert_eq!(left_in(&table, mine, local), [six]);
        assert_eq!(left(&table, mine), [], "an IPv4 address has no connection with it");
    }

    #[test]
    fn a_partition_has_so_many_records() {
        let (table, mut own) = (table(), OwnRecords::default());
        let [before, mine, behind] = [30, 31, 32].map(partition);
        for number in 0..SLOTS as u32 {
            own.keep(&table, mine, &record(mine, number)).unwrap();
        }
        assert!(own.keep(&table, mine, &record(mine, SLOTS as u32)).is_err());
        assert_eq!(left(&table, mine).len(), SLOTS);
        assert_eq!(left(&table, before).len() + left(&table, behind).len(), 0);
        own.erase(&table, mine, record(mine, 5).local_id).unwrap();
        own.keep(&table, mine, &record(mine, SLOTS as u32)).unwrap();
    }

    /// At every length written or erased.
    #[test]
    fn a_torn_slot_is_no_record() {
        let (table, mine) = (table(), partition(5));
        let whole = record(mine, 5);
        OwnRecords::default().keep(&table, mine, &whole).unwrap();
        let slot = conn_record::encode(&whole);
        for length in 0..=SLOT {
            let mut written = [0; SLOT];
            written[..length].copy_from_slice(&slot[..length]);
            write(&table, slot_at(mine, 0), &written).unwrap();
            // the last byte can only change the partition key
            let expected = if length < SLOT - 1 { 0 } else { 1 };
            assert_eq!(left(&table, mine).len(), expected, "{length} bytes");
            let mut erased = slot;
            erased[..length].fill(0);
            write(&table, slot_at(mine, 0), &erased).unwrap();
            let expected = if length == 0 { 1 } else { 0 };
            assert_eq!(left(&table, mine).len(), expected, "{length} bytes erased");
        }
    }

    #[test]
    fn what_cannot_be_a_record_is_none() {
        let (table, mine) = (table(), partition(7));
        let good = record(mine, 1);
        for stranger in conn_record::strangers(good) {
            OwnRecords::default().keep(&table, mine, &stranger).unwrap();
            assert_eq!(left(&table, mine), [], "{stranger:?}");
        }
        // a count beyond the slots, and a table that is too short
        OwnRecords::default().keep(&table, mine, &good).unwrap();
        write(&table, count_at(mine), &[0xFF; 4]).unwrap();
        assert_eq!(left(&table, mine), [good]);
        clear(&table, mine);
        let short = sealed::create("test", SLOTS_AT).unwrap();
        assert!(OwnRecords::default().keep(&short, mine, &good).is_err());
        assert_eq!(left(&short, mine), []);
        clear(&short, mine);
        assert!(used_partitions(&short).is_empty());
    }
}
