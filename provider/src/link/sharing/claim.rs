//! Claims of processes that share an address: partitions, services, member sockets. A claim is a
//! lock in a file that all these processes have open, and ends with its process.
//!
//! File positions have 63 bits, service IDs 64: services have a file for each value of the top bit.

#![allow(unsafe_code, reason = "locks of open files have no safe interface")]

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use roce_transport::{cm::ServiceId, share::IdPartition};

use super::{members::MemberPlace, record};
use crate::link::sealed;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Partition(IdPartition),
    Service(ServiceId),
    Member(MemberPlace),
    /// The listening socket, which all processes at the address [share](ClaimTable::share_name).
    Name,
}

impl Entry {
    const fn position(self) -> i64 {
        match self {
            Self::Name => 0,
            Self::Partition(partition) => partition.get() as i64,
            Self::Member(place) => 64 + place.get() as i64,
            Self::Service(service) => (service.0 & (u64::MAX >> 1)).cast_signed(),
        }
    }
}

pub(super) struct ClaimTable {
    /// Of the [shared state](super::shared_state) and the [records](super::record), too.
    pub(super) file: File,
    /// Files of services, if this process is at the address.
    services: Option<[File; 2]>,
}

impl ClaimTable {
    pub(super) fn new() -> io::Result<Self> {
        let services = || sealed::create("roce services", 0);
        let file = sealed::create("roce claims", record::SIZE)?;
        Ok(Self { file, services: Some([services()?, services()?]) })
    }

    /// Table of another process's address, from all its [files](Self::files) or the first alone.
    pub(super) fn join(files: &[OwnedFd]) -> io::Result<Self> {
        let (file, services) = files.split_first().ok_or(io::ErrorKind::InvalidData)?;
        let services = match services {
            [low, high] => Some([open(low, 0)?, open(high, 0)?]),
            _ => None,
        };
        Ok(Self { file: open(file, record::SIZE)?, services })
    }

    /// For [`join`](Self::join).
    pub(super) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.file].into_iter().chain(self.services.iter().flatten()).map(AsFd::as_fd)
    }

    /// Errors: [`io::ErrorKind::AddrInUse`] if another process has the entry.
    pub(super) fn take(&self, entry: Entry) -> io::Result<()> {
        use io::ErrorKind::{AddrInUse, PermissionDenied, WouldBlock};
        let taken = self.control(libc::F_OFD_SETLK, libc::F_WRLCK, entry);
        taken.map(drop).map_err(|error| match error.kind() {
            WouldBlock | PermissionDenied => AddrInUse.into(),
            _ => error,
        })
    }

    /// Shares the listening socket with the others. The last holder can [take](Self::take) the
    /// entry. Errors: [`io::ErrorKind::ConnectionRefused`] if the last holder just has.
    pub(super) fn share_name(&self) -> io::Result<()> {
        let shared = self.control(libc::F_OFD_SETLK, libc::F_RDLCK, Entry::Name);
        shared.map(drop).map_err(|_| io::ErrorKind::ConnectionRefused.into())
    }

    /// Has no effect on another process's entry.
    pub(super) fn release(&self, entry: Entry) {
        let _ = self.control(libc::F_OFD_SETLK, libc::F_UNLCK, entry);
    }

    pub(super) fn is_taken(&self, entry: Entry) -> bool {
        let found = self.control(libc::F_OFD_GETLK, libc::F_WRLCK, entry);
        found.is_ok_and(|lock| libc::c_int::from(lock.l_type) != libc::F_UNLCK)
    }

    fn control(
        &self,
        command: libc::c_int,
        kind: libc::c_int,
        entry: Entry,
    ) -> io::Result<libc::flock> {
        let file = match (entry, &self.services) {
            (Entry::Service(service), Some(services)) => &services[(service.0 >> 63) as usize],
            (Entry::Service(_), None) => return Err(io::ErrorKind::Unsupported.into()),
            _ => &self.file,
        };
        let mut lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: entry.position(),
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: The descriptor is open, and the call accesses nothing but `lock`.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
            0 => Ok(lock),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Reopens another process's file: a lock belongs to the open file description, which the received
/// descriptor shares.
fn open(theirs: &OwnedFd, length: u64) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", theirs.as_raw_fd());
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    sealed::check(&file, length)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(table: &ClaimTable) -> ClaimTable {
        let files: Vec<_> = table.files().map(|it| it.try_clone_to_owned().unwrap()).collect();
        ClaimTable::join(&files).unwrap()
    }

    /// Every bit of a service counts, and no service equals another entry.
    #[test]
    fn each_entry_has_a_byte_of_its_own() {
        let [first, second] = {
            let table = ClaimTable::new().unwrap();
            [join(&table), join(&table)]
        };
        let bits = (0..64).map(|bit| 1 << bit);
        let services = bits.chain([0, 3 << 62, u64::MAX, u64::MAX >> 1, u64::MAX >> 2]);
        let services = services.map(|service| Entry::Service(ServiceId(service)));
        let partitions = IdPartition::all().map(Entry::Partition);
        let members = MemberPlace::all().map(Entry::Member);
        let all: Vec<_> = services.chain(partitions).chain(members).chain([Entry::Name]).collect();
        for (index, entry) in all.iter().enumerate() {
            let table = if index % 2 == 0 { &first } else { &second };
            table.take(*entry).unwrap();
        }
        // each stays taken when the entry before is free
        for (index, entry) in all.iter().enumerate() {
            let tables = [&first, &second];
            assert!(tables[(index + 1) % 2].is_taken(*entry), "{entry:?}");
            tables[index % 2].release(*entry);
            assert!(!tables[(index + 1) % 2].is_taken(*entry), "{entry:?}");
        }
    }

    #[test]
    fn one_process_has_an_entry_until_it_ends() {
        let partition = Entry::Partition(IdPartition::new(7).unwrap());
        let service = |number| Entry::Service(ServiceId(number));
        let first = ClaimTable::new().unwrap();
        let (second, third) = (join(&first), join(&first));
        let is_taken = |result: io::Result<()>| {
            result.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        };
        let member = Entry::Member(MemberPlace::all().next().unwrap());
        for entry in [partition, service(0), service(0x0106_0001), service(u64::MAX), member] {
            first.take(entry).unwrap();
            first.take(entry).unwrap();
            assert!(is_taken(second.take(entry)), "{entry:?}");
            assert_eq!((first.is_taken(entry), second.is_taken(entry)), (false, true));
            first.release(entry);
            second.take(entry).unwrap();
            assert!(is_taken(first.take(entry)), "{entry:?}");
        }
        third.take(service(0x0106_0002)).unwrap();
        third.release(partition); // another's entry
        assert!(is_taken(third.take(partition)));
        drop(second);
        third.take(partition).unwrap();
    }
}
