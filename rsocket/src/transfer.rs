use std::net::SocketAddr;

use rustix::io::Errno;

use super::{
    socket::{Phase, Socket},
    stream::{Mapped, Sink, Source, Stream},
    wire::{IoMap, RemoteSge},
};
use roce_provider::{MemoryRegion, ProtectionDomain};

impl Socket {
    /// # Errors
    /// `ENOTCONN`; `EAGAIN` while connecting; `EOPNOTSUPP` for datagrams.
    fn with_stream<R>(
        &self,
        act: impl FnOnce(&mut Stream) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        match &mut self.lock_and_progress()?.phase {
            Phase::Connected(stream) => act(stream),
            Phase::Connecting(_) => Err(Errno::AGAIN),
            Phase::Datagrams(_) => Err(Errno::OPNOTSUPP),
            _ => Err(Errno::NOTCONN),
        }
    }

    /// Sends as many bytes as possible now (`rsend`).
    ///
    /// # Errors
    /// `EAGAIN`; `ENOTCONN`; `EPIPE` after a shutdown; `ECONNRESET`, `ETIMEDOUT` if the peer is
    /// gone; `EFAULT`.
    pub fn send(&self, length: usize, source: Source<'_>) -> Result<usize, Errno> {
        self.with_stream(|stream| stream.send(length, source))
    }

    /// Reads arrived bytes (`rrecv`); 0 at the end.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn receive(&self, length: usize, peek: bool, sink: Sink<'_>) -> Result<usize, Errno> {
        self.with_stream(|stream| stream.receive(length, peek, sink))
    }

    /// Sends a datagram (`rsendto`) of at most the path MTU less 8 bytes (24 for IPv6).
    ///
    /// # Errors
    /// `EAGAIN`; `EDESTADDRREQ`; `EMSGSIZE`; `EINVAL` for port 0; `EPIPE` after a shutdown;
    /// `EFAULT`; `ENETDOWN`; `EOPNOTSUPP` for a stream; those of address resolution.
    pub fn send_to(
        &self,
        length: usize,
        to: Option<SocketAddr>,
        source: Source<'_>,
    ) -> Result<(), Errno> {
        let mut state = self.lock_and_progress()?;
        let settings = state.settings;
        match &mut state.phase {
            Phase::Datagrams(datagrams) => datagrams.send(length, to, settings, source),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Reads a datagram (`rrecvfrom`); returns size and sender, without sender after a shutdown.
    ///
    /// # Errors
    /// `EAGAIN`; `EFAULT`: the datagram stays; `EOPNOTSUPP` for a stream.
    pub fn receive_from(
        &self,
        length: usize,
        peek: bool,
        sink: Sink<'_>,
    ) -> Result<(usize, Option<SocketAddr>), Errno> {
        match &mut self.lock_and_progress()?.phase {
            Phase::Datagrams(datagrams) => datagrams.receive(length, peek, sink),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Writes as many bytes as possible now to the peer's mapping (`riowrite`).
    ///
    /// # Errors
    /// As for [`send`](Self::send); `EINVAL` if nothing is mapped there.
    pub fn write_mapped(
        &self,
        length: usize,
        offset: u64,
        source: Source<'_>,
    ) -> Result<usize, Errno> {
        self.with_stream(|stream| stream.write_mapped(length, offset, source))
    }

    /// Protection domain for [mapped](Self::map) memory.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn domain(&self) -> Result<ProtectionDomain, Errno> {
        self.with_stream(|stream| Ok(stream.queues.domain.clone()))
    }

    /// Maps program memory (`riomap`). With `remote`, the peer may write from this offset on.
    ///
    /// # Errors
    /// `EAGAIN`; `EEXIST` if already mapped; `ENOBUFS` if the peer has no table or a full one.
    pub fn map(
        &self,
        region: &MemoryRegion,
        address: usize,
        remote: Option<u64>,
    ) -> Result<(), Errno> {
        self.with_stream(|stream| {
            let length = region.len();
            if stream.mapped(address, length).is_some() {
                return Err(Errno::EXIST);
            }
            let mut index = None;
            if let Some(offset) = remote {
                let free = stream.free_index().ok_or(Errno::NOBUFS)?;
                let sge = RemoteSge {
                    address: region.address(),
                    key: region.rkey().0,
                    length: u32::try_from(length).map_err(|_| Errno::INVAL)?,
                };
                stream.announce(free, IoMap { offset, sge })?;
                index = Some(free);
            }
            stream.maps.push(Mapped { address, length, index, _region: region.clone() });
            Ok(())
        })
    }

    /// Unmaps (`riounmap`): a later write by the peer ends the connection.
    ///
    /// # Errors
    /// `EAGAIN`; `EINVAL` if not mapped.
    pub fn unmap(&self, address: usize, length: usize) -> Result<(), Errno> {
        self.with_stream(|stream| {
            let place = stream.mapped(address, length).ok_or(Errno::INVAL)?;
            if let Some(index) = stream.maps[place].index {
                // After another error the peer writes no more.
                if stream.announce(index, IoMap::default()) == Err(Errno::AGAIN) {
                    return Err(Errno::AGAIN);
                }
            }
            stream.maps.swap_remove(place);
            Ok(())
        })
    }

    /// Shuts down (`rshutdown`).
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn shutdown(&self, read: bool, write: bool) -> Result<(), Errno> {
        if let Phase::Datagrams(datagrams) = &mut self.lock_and_progress()?.phase {
            datagrams.connected.ok_or(Errno::NOTCONN)?;
            datagrams.read_shut |= read;
            datagrams.write_shut |= write;
            return Ok(());
        }
        self.with_stream(|stream| {
            stream.shut(read, write);
            Ok(())
        })
    }

    /// True if the peer has all data, or never will.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        match self.lock_and_progress().as_deref().map(|state| &state.phase) {
            Ok(Phase::Datagrams(datagrams)) => datagrams.is_sent(),
            Ok(Phase::Connected(stream)) => stream.is_sent(),
            Ok(Phase::Idle | Phase::Listening(_) | Phase::Connecting(_)) | Err(_) => true,
        }
    }

    /// Probes the peer. Without a peer, the connection fails later.
    pub fn probe(&self) {
        let _ = self.with_stream(|stream| {
            stream.probe();
            Ok(())
        });
    }
}
