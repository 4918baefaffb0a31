//! Claims of the processes that share an address: its partitions, the services that they listen for,
//! and its member sockets. A claim is a lock in a file that all of them have open. It ends with the
//! process that has it, however that ends.

#![allow(unsafe_code, reason = "locks of open files have no safe interface")]

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use roce_transport::{cm::ServiceId, share::IdPartition};

use super::{members::MemberPlace, record, sealed, term::Terms};

/// Something that one process has at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Partition(IdPartition),
    Service(ServiceId),
    Member(MemberPlace),
    /// The listening socket, which all processes at the address [have](ClaimTable::share_name).
    Name,
}

impl Entry {
    /// Its byte in the file. Positions have 63 bits; of services that differ in the uppermost two
    /// alone the second is refused.
    const fn position(self) -> i64 {
        match self {
            Self::Partition(partition) => partition.get() as i64,
            Self::Service(service) => 64 + (service.0 & (u64::MAX >> 2)) as i64,
            Self::Name => 0,
            Self::Member(place) => (1 << 62) + 64 + place.get() as i64, // behind all services
        }
    }
}

/// The file, and its locks.
pub(super) struct ClaimTable(File);

impl ClaimTable {
    pub(super) fn new() -> io::Result<Self> {
        let length =
            if sealed::is_allowed(record::SIZE) { record::SIZE } else { record::LEAST_SIZE };
        Ok(Self(sealed::create("roce claims", length)?))
    }

    /// The table that another process has open. Its descriptor stands for the same opening,
    /// whose locks are that process's, so it is opened once more.
    pub(super) fn join(theirs: &OwnedFd) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", theirs.as_raw_fd());
        let table = OpenOptions::new().read(true).write(true).open(path)?;
        sealed::check(&table, record::LEAST_SIZE)?;
        Ok(Self(table))
    }

    /// The file, which has the [terms](Self::terms) and the [records](super::record).
    pub(super) const fn file(&self) -> &File {
        &self.0
    }

    /// The terms of the address's owners, in the file's memory.
    pub(super) fn terms(&self) -> io::Result<Terms> {
        Terms::new(&self.0)
    }

    /// Takes an entry.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another process has it.
    pub(super) fn take(&self, entry: Entry) -> io::Result<()> {
        self.lock(libc::F_WRLCK, entry).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::PermissionDenied => {
                io::ErrorKind::AddrInUse.into()
            }
            _ => error,
        })
    }

    /// Shares the listening socket with the others. It can be [taken](Self::take) by the last process
    /// that does.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] if that has just taken it.
    pub(super) fn share_name(&self) -> io::Result<()> {
        let shared = self.lock(libc::F_RDLCK, Entry::Name);
        shared.map_err(|_| io::ErrorKind::ConnectionRefused.into())
    }

    /// Releases an entry, if this process has it.
    pub(super) fn release(&self, entry: Entry) {
        let _ = self.lock(libc::F_UNLCK, entry);
    }

    /// True if another process has it.
    pub(super) fn is_taken(&self, entry: Entry) -> bool {
        let found = self.control(libc::F_OFD_GETLK, libc::F_WRLCK, entry);
        found.is_ok_and(|lock| libc::c_int::from(lock.l_type) != libc::F_UNLCK)
    }

    fn lock(&self, kind: libc::c_int, entry: Entry) -> io::Result<()> {
        self.control(libc::F_OFD_SETLK, kind, entry).map(drop)
    }

    fn control(
        &self,
        command: libc::c_int,
        kind: libc::c_int,
        entry: Entry,
    ) -> io::Result<libc::flock> {
        let mut lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: entry.position(),
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: The descriptor is open, and the call reads and writes the structure that it is
        // given, nothing else.
        match unsafe { libc::fcntl(self.0.as_raw_fd(), command, &raw mut lock) } {
            0 => Ok(lock),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for ClaimTable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_an_entry_until_it_ends() {
        let partition = Entry::Partition(IdPartition::new(7).unwrap());
        let service = |number| Entry::Service(ServiceId(number));
        let first = ClaimTable::new().unwrap();
        let join = || ClaimTable::join(&first.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let (second, third) = (join(), join());
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
        third.release(partition); // which it does not have
        assert!(is_taken(third.take(partition)));
        drop(second);
        third.take(partition).unwrap();
    }
}
