//! The addresses of a device at which the service receives.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use roce_transport::{
    cm::{ConnId, ConnRecord},
    share::IdPartition,
    time::Instant,
};
use rustix::{event::epoll, io::Errno};

use super::{Client, client::Control};
use crate::{cancel::Uncancelled, link::DatagramRun};

/// Time between two looks for answers of the service, while no thread sleeps on the link.
const LOOK: Duration = Duration::from_millis(1);
/// Data of the event that a client's descriptor is readable, whichever it is.
const READABLE: u64 = 0;

/// Clients of the service, one for each such address.
#[derive(Default)]
pub(in crate::link) struct Clients {
    clients: Vec<Client>,
    /// Readable when a descriptor of a client is. Its own never changes.
    epoll: Option<OwnedFd>,
    look_at: Instant,
    /// Connections of this process at such addresses.
    records: BTreeMap<ConnId, ConnRecord>,
}

impl Clients {
    /// Adds a client.
    pub(in crate::link) fn add(&mut self, client: Client) -> io::Result<()> {
        if self.epoll.is_none() {
            self.epoll = Some(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        }
        if let Some(epoll) = &self.epoll {
            watch(epoll, &client)?;
        }
        self.clients.push(client);
        Ok(())
    }

    /// Has a partition, the same at all addresses; `None`: there are no such addresses.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when another process has it at one of them.
    pub(in crate::link) fn open(&mut self) -> io::Result<Option<IdPartition>> {
        self.clients.iter_mut().try_fold(None, |wanted, client| client.open(wanted).map(Some))
    }

    /// True if there are none.
    pub(in crate::link) const fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The addresses, with the indices of their interfaces.
    pub(in crate::link) fn addresses(&self) -> impl Iterator<Item = (IpAddr, u32)> {
        self.clients.iter().map(|client| (client.address, client.interface))
    }

    /// The client at an address.
    pub(in crate::link) fn at(&mut self, address: IpAddr) -> Option<&mut Client> {
        self.clients.iter_mut().find(|client| client.address == address)
    }

    /// Has the service keep the record of a connection, if it is at such an address.
    pub(in crate::link) fn keep_record(&mut self, conn: ConnId, record: &ConnRecord) {
        if let Some(client) = self.at(record.local) {
            client.keep_record(record);
            self.records.insert(conn, *record);
        }
    }

    /// The connection has ended.
    pub(in crate::link) fn discard_record(&mut self, conn: ConnId) {
        if let Some(record) = self.records.remove(&conn)
            && let Some(client) = self.at(record.local)
        {
            client.erase_record(record.local_id);
        }
    }

    /// What the service is [asked](super::ask) by whether a service at an address is another's.
    pub(in crate::link) fn control(&mut self, address: IpAddr) -> Option<Arc<Control>> {
        self.at(address).and_then(|client| client.control())
    }

    /// Gives an address up.
    pub(in crate::link) fn forget(&mut self, address: IpAddr) {
        self.clients.retain(|client| client.address != address);
    }

    /// Bytes that the system keeps for the client with the fewest.
    pub(in crate::link) fn receive_buffer(&self) -> Option<usize> {
        self.clients.iter().map(Client::receive_buffer).min()
    }

    /// Readable when a client has something to receive or to do; `None`: there are no clients.
    pub(in crate::link) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(AsFd::as_fd)
    }

    /// Time at which a client has something to do although nothing is readable.
    pub(in crate::link) fn deadline(&self) -> Option<Instant> {
        self.clients.iter().filter_map(Client::deadline).min()
    }

    /// The descriptor may be readable: the next receive looks.
    pub(in crate::link) const fn look(&mut self) {
        self.look_at = Instant::ZERO;
    }

    /// Hands over runs that have arrived, some at a time; returns their number.
    pub(in crate::link) fn receive(
        &mut self,
        now: Instant,
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) -> usize {
        let Self { clients, epoll: Some(epoll), .. } = self else { return 0 };
        let is_due = clients.iter().filter_map(Client::deadline).any(|due| due <= now);
        if is_due || self.look_at <= now {
            self.look_at = now.plus(LOOK);
            let _uncancelled = Uncancelled::begin(); // descriptors may be closed
            for client in clients.iter_mut().filter(|client| client.is_due(now)) {
                if client.update(now) {
                    // without, it is looked for at the time that the client has set
                    let _ = watch(epoll, client);
                }
            }
        }
        clients.iter_mut().map(|client| client.receive(now, sink)).sum()
    }
}

/// Watches the descriptors of a client. Those that are closed are watched no more.
fn watch(epoll: &OwnedFd, client: &Client) -> io::Result<()> {
    for descriptor in client.descriptors() {
        let data = epoll::EventData::new_u64(READABLE);
        match epoll::add(epoll, descriptor, data, epoll::EventFlags::IN) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
