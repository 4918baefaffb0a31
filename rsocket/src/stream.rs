//! A connection's queue pair, memory and protocol halves.

use std::sync::Arc;

use roce_transport::{
    ids::RKey,
    mem::{Access, MemoryFault},
    work::{Data, RecvWr, Remote, SendWr, Wc, WcError, WcOk, WcStatus},
};
use rustix::io::Errno;

use super::{
    incoming::Incoming,
    outgoing::{CONTROL_SLOTS, Outgoing, Segment},
    queues::Queues,
    settings::Settings,
    wire::{ByteOrder, ConnData, IoMap, Message, RemoteSge},
};
use roce_provider::{
    MemoryRegion, MmapMemory, ProtectionDomain, RegionError,
    cm::{CmError, CmId, ConnParam},
};

/// Receive requests beside those for data.
const CONTROL_RECEIVES: u32 = 16;
/// Entries of this side's table of peer buffers.
const ENTRIES: u32 = 2;
const PIECE: usize = 8192;

const SEND: u64 = 0;
const RECEIVE: u64 = 1;

/// Copies the program's next bytes into a slice.
pub type Source<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<(), MemoryFault>;
/// Copies bytes to the program.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), MemoryFault>;

pub(super) struct Stream {
    pub(super) queues: Queues,
    /// Each at most once.
    pub(super) maps: Vec<Mapped>,
    send_buffer: MemoryRegion,
    receive_buffer: MemoryRegion,
    /// [`ENTRIES`] peer buffers, then mappings; written by the peer.
    table: MemoryRegion,
    settings: Settings,
    halves: Option<Halves>,
    open: bool,
    ending: Ending,
    pub(super) event_count: u64,
}

/// Program memory mapped for the peer.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) address: usize,
    pub(super) length: usize,
    /// Index in the peer's table if the peer may write it.
    pub(super) index: Option<usize>,
    pub(super) _region: MemoryRegion,
}

#[derive(Default)]
struct Ending {
    read_shut: bool,
    write_shut: bool,
    /// Message about the shutdown: sent, or waiting for a send slot.
    shutdown_message: Option<Message>,
    pending_shutdown: Option<Message>,
    /// The peer sends no more.
    finished: bool,
    /// The peer takes no more.
    gone: bool,
    failed: Option<Errno>,
}

impl Ending {
    fn shut(&mut self, read: bool, write: bool) {
        self.read_shut |= read;
        self.write_shut |= write;
        let message = match (self.read_shut, self.write_shut) {
            (true, true) => Message::Disconnect,
            (false, true) => Message::Shutdown,
            (_, false) => return,
        };
        if self.shutdown_message != Some(message) {
            (self.shutdown_message, self.pending_shutdown) = (Some(message), Some(message));
        }
    }
}

struct Halves {
    peer: ConnData,
    outgoing: Outgoing,
    incoming: Incoming,
    mapped: Vec<IoMap>,
}

impl Stream {
    pub(super) fn new(id: &CmId, settings: Settings) -> Result<Self, CmError> {
        let (sends, receives) =
            (settings.send_queue() + CONTROL_SLOTS, settings.receive_queue() + CONTROL_RECEIVES);
        let inline = settings.inline().max(IoMap::LEN as u32);
        let queues = Queues::new(id, sends, receives, inline)?;
        let domain = &queues.domain;
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let table = ENTRIES as usize * RemoteSge::LEN + settings.mappings() as usize * IoMap::LEN;
        let stream = Self {
            send_buffer: allocate(domain, settings.send_buffer() as usize, Access::empty())?,
            receive_buffer: allocate(domain, settings.receive_buffer() as usize, written)?,
            table: allocate(domain, table, written)?,
            queues,
            maps: Vec::new(),
            settings,
            halves: None,
            open: false,
            ending: Ending::default(),
            event_count: 0,
        };
        stream.post_receives(receives)?;
        Ok(stream)
    }

    /// Private data of request or reply.
    pub(super) fn conn_param(&self) -> ConnParam {
        let sge = |region: &MemoryRegion, length| RemoteSge {
            address: region.address(),
            key: region.rkey().0,
            length,
        };
        let conn_data = ConnData {
            order: ByteOrder::NATIVE,
            credits: self.settings.receive_queue() as u16,
            mappings: self.settings.mappings() as u8,
            table: sge(&self.table, ENTRIES),
            buffer: sge(&self.receive_buffer, self.settings.receive_buffer() / 2),
        };
        ConnParam {
            private_data: conn_data.encode().to_vec(),
            responder_resources: 0,
            initiator_depth: 0,
            ..ConnParam::default()
        }
    }

    pub(super) fn set_peer(&mut self, peer: ConnData) {
        self.halves = Some(Halves {
            peer,
            outgoing: Outgoing::new(
                peer.credits,
                peer.buffer,
                ENTRIES,
                self.settings.send_buffer(),
                self.settings.inline(),
                self.settings.send_queue(),
            ),
            incoming: Incoming::new(
                self.settings.receive_queue() as u16,
                self.settings.receive_buffer(),
                peer.table.length,
            ),
            mapped: vec![IoMap::default(); self.settings.mappings() as usize],
        });
    }

    pub(super) fn open(&mut self) {
        self.open = true;
        self.send_pending();
    }

    /// Arrived data stays readable.
    pub(super) fn end(&mut self) {
        self.event_count += 1;
        (self.ending.finished, self.ending.gone) = (true, true);
    }

    /// Without the peer's message.
    pub(super) fn hang_up(&mut self) {
        self.process();
        self.end();
    }

    pub(super) const fn failure(&self) -> Option<Errno> {
        self.ending.failed
    }

    fn fail(&mut self, reason: Errno) {
        if self.ending.failed.is_none() {
            self.ending.failed = Some(reason);
            let _ = self.queues.qp.to_error(); // it may be there
        }
        self.end();
    }

    pub(super) fn process(&mut self) -> bool {
        if self.halves.is_none() {
            // The peer may send before its reply has arrived here.
            return false;
        }
        let (mut changed, mut received) = (false, 0);
        let could_send = self.can_send();
        while let Some(Wc { wr_id, result, .. }) = self.queues.cq.poll_one() {
            changed = true;
            match result {
                Ok(WcOk { immediate, .. }) if wr_id == RECEIVE => {
                    received += 1;
                    if let Some(message) = immediate.and_then(|data| Message::parse(data.0)) {
                        self.handle_message(message);
                    }
                }
                Ok(_) => {
                    if let Some(halves) = &mut self.halves {
                        halves.outgoing.completed();
                    }
                }
                Err(WcError { status: WcStatus::WrFlushErr, .. }) => self.end(),
                Err(error) => self.fail(errno(error.status)),
            }
        }
        if received > 0 && !self.ending.gone && self.post_receives(received).is_err() {
            self.fail(Errno::CONNRESET);
        }
        if changed {
            self.send_pending();
            self.look_for_room();
            self.event_count += u64::from(!could_send && self.can_send());
        }
        changed
    }

    fn handle_message(&mut self, message: Message) {
        let Some(halves) = &mut self.halves else { return };
        match message {
            Message::Data(length) => {
                self.event_count += 1;
                if halves.incoming.arrive(length).is_err() {
                    self.fail(Errno::PROTO);
                } else if self.ending.read_shut {
                    self.discard();
                }
            }
            Message::Credits(last) => halves.outgoing.credit(last),
            Message::Mapped(index) => {
                let place = ENTRIES as usize * RemoteSge::LEN + index as usize * IoMap::LEN;
                let mut bytes = [0; IoMap::LEN];
                if let Some(mapped) = halves.mapped.get_mut(index as usize)
                    && self.table.read_at(place, &mut bytes).is_ok()
                {
                    *mapped = IoMap::parse(&bytes, ByteOrder::NATIVE);
                }
            }
            Message::Disconnect => self.end(),
            Message::Shutdown => {
                self.event_count += 1;
                self.ending.finished = true;
            }
        }
    }

    fn discard(&mut self) {
        if let Some(Halves { incoming, .. }) = &mut self.halves {
            incoming.consume(incoming.readable());
        }
    }

    fn post_receives(&self, number: u32) -> Result<(), CmError> {
        let requests = vec![RecvWr::new(RECEIVE, []); number as usize];
        Ok(self.queues.qp.post_recv(&requests)?)
    }

    /// Sends credits, and messages that wait for slots.
    fn send_pending(&mut self) {
        if !self.open || self.ending.gone {
            return;
        }
        while let Some(halves) = &mut self.halves
            && halves.incoming.is_due()
            && halves.outgoing.control()
        {
            let grant = halves.incoming.grant();
            let table = halves.peer.table;
            let entry = grant.room.map(|room| {
                let sge = RemoteSge {
                    address: self.receive_buffer.address() + u64::from(room.offset),
                    key: self.receive_buffer.rkey().0,
                    length: room.length,
                };
                let to = table.address.wrapping_add(u64::from(room.index) * RemoteSge::LEN as u64);
                (to, sge.encode(halves.peer.order))
            });
            let message = Message::Credits(grant.last);
            match entry {
                Some((to, bytes)) => self.write(to, table.key, &bytes, message),
                None => self.write(0, 0, &[], message),
            }
        }
        if let Some(message) = self.ending.pending_shutdown
            && let Some(halves) = &mut self.halves
            && halves.outgoing.control()
        {
            self.ending.pending_shutdown = None;
            self.write(0, 0, &[], message);
        }
    }

    fn write(&mut self, address: u64, key: u32, bytes: &[u8], message: Message) {
        self.post(address, key, Data::inline(bytes), Some(message));
    }

    fn post(&mut self, address: u64, key: u32, data: impl Into<Data>, message: Option<Message>) {
        let remote = Remote { address, rkey: RKey(key) };
        let request = SendWr::write(SEND, remote, data);
        let request = match message {
            Some(message) => request.with_immediate(message.encode()),
            None => request,
        };
        if self.queues.qp.post_send(&[request]).is_err() {
            self.fail(Errno::CONNRESET);
        }
    }

    fn look_for_room(&mut self) {
        let Some(Halves { outgoing, .. }) = &mut self.halves else { return };
        let Some(index) = outgoing.wanted() else { return };
        let place = index as usize * RemoteSge::LEN;
        // key and length
        if self.table.load_u64(place + 8).unwrap_or_default() == 0 {
            return;
        }
        // The peer may be half through the write, which holds the engine's lock.
        let _ = self.queues.qp.query();
        let mut bytes = [0; RemoteSge::LEN];
        if self.table.read_at(place, &mut bytes).is_ok()
            && self.table.store_u64(place + 8, 0).is_ok()
        {
            outgoing.fill(RemoteSge::parse(&bytes, ByteOrder::NATIVE));
        }
    }

    /// Sends as many bytes as possible now.
    ///
    /// # Errors
    /// `EPIPE` after a shutdown; a failure's reason; `ECONNRESET` if the peer takes no more;
    /// `EAGAIN`; `EFAULT`.
    pub(super) fn send(&mut self, length: usize, source: Source<'_>) -> Result<usize, Errno> {
        self.may_send()?;
        let mut sent = 0;
        while sent < length {
            self.look_for_room();
            let Some(segment) =
                self.halves.as_ref().and_then(|halves| halves.outgoing.next(length - sent))
            else {
                break;
            };
            let data = match self.fetch(&segment, source) {
                Err(_) if sent > 0 => break,
                fetched => fetched?,
            };
            if let Some(halves) = &mut self.halves {
                halves.outgoing.post(&segment);
            }
            self.post(segment.address, segment.key, data, Some(Message::Data(segment.length)));
            sent += segment.length as usize;
        }
        if sent == 0 && length > 0 { Err(Errno::AGAIN) } else { Ok(sent) }
    }

    fn may_send(&self) -> Result<(), Errno> {
        match self.ending.failed {
            _ if self.ending.write_shut => Err(Errno::PIPE),
            Some(reason) => Err(reason),
            None if self.ending.gone => Err(Errno::CONNRESET),
            None if !self.open => Err(Errno::AGAIN),
            None => Ok(()),
        }
    }

    fn fetch(&self, segment: &Segment, source: Source<'_>) -> Result<Data, Errno> {
        let mut piece = [0; PIECE];
        let Some(at) = segment.at else {
            let bytes = &mut piece[..segment.length as usize];
            source(bytes).map_err(|_| Errno::FAULT)?;
            return Ok(Data::inline(bytes));
        };
        let (start, length) = (at as usize, segment.length as usize);
        for offset in (0..length).step_by(PIECE) {
            let bytes = &mut piece[..PIECE.min(length - offset)];
            source(bytes).map_err(|_| Errno::FAULT)?;
            self.send_buffer.write_at(start + offset, bytes).map_err(|_| Errno::FAULT)?;
        }
        Ok(self.send_buffer.sge(start..start + length).into())
    }

    /// # Errors
    /// As for [`send`](Self::send); `EINVAL` if nothing is mapped there.
    pub(super) fn write_mapped(
        &mut self,
        length: usize,
        offset: u64,
        source: Source<'_>,
    ) -> Result<usize, Errno> {
        self.may_send()?;
        let mut written = 0;
        while written < length {
            let Some(halves) = &self.halves else { break };
            let Some(to) = halves.place_of(offset.wrapping_add(written as u64)) else {
                return if written > 0 { Ok(written) } else { Err(Errno::INVAL) };
            };
            let length = u32::try_from(length - written).unwrap_or(u32::MAX).min(to.length);
            let Some(segment) = halves.outgoing.direct(RemoteSge { length, ..to }) else { break };
            let data = match self.fetch(&segment, source) {
                Err(_) if written > 0 => break,
                fetched => fetched?,
            };
            if let Some(halves) = &mut self.halves {
                halves.outgoing.post_direct(&segment);
            }
            self.post(segment.address, segment.key, data, None);
            written += segment.length as usize;
        }
        if written == 0 && length > 0 { Err(Errno::AGAIN) } else { Ok(written) }
    }

    /// Place in [`maps`](Self::maps).
    pub(super) fn mapped(&self, address: usize, length: usize) -> Option<usize> {
        self.maps.iter().position(|one| (one.address, one.length) == (address, length))
    }

    /// A free index of the peer's table.
    pub(super) fn free_index(&self) -> Option<usize> {
        let entries: usize = self.halves.as_ref().map_or(0, |halves| halves.peer.mappings.into());
        (0..entries).find(|index| self.maps.iter().all(|mapped| mapped.index != Some(*index)))
    }

    /// Announces a mapping, or its removal.
    ///
    /// # Errors
    /// `EAGAIN` without a send slot; as for [`send`](Self::send).
    pub(super) fn announce(&mut self, index: usize, mapping: IoMap) -> Result<(), Errno> {
        self.may_send()?;
        let Some(halves) = &mut self.halves else { return Err(Errno::AGAIN) };
        if !halves.outgoing.control() {
            return Err(Errno::AGAIN);
        }
        let RemoteSge { address, key, length } = halves.peer.table;
        let place = u64::from(length) * RemoteSge::LEN as u64 + (index * IoMap::LEN) as u64;
        let bytes = mapping.encode(halves.peer.order);
        self.write(address.wrapping_add(place), key, &bytes, Message::Mapped(index as u32));
        Ok(())
    }

    /// Sends an empty message unless one is in flight.
    pub(super) fn probe(&mut self) {
        if self.open
            && !self.ending.gone
            && let Some(halves) = &mut self.halves
            && halves.outgoing.is_idle()
            && halves.outgoing.control()
        {
            self.post(0, 0, Data::empty(), None);
        }
    }

    /// Returns 0 at the end.
    ///
    /// # Errors
    /// `EAGAIN`; `EFAULT`; a failure's reason.
    pub(super) fn receive(
        &mut self,
        length: usize,
        peek: bool,
        sink: Sink<'_>,
    ) -> Result<usize, Errno> {
        let readable = self.readable();
        if readable == 0 || length == 0 {
            return match self.ending.failed {
                _ if length == 0 || self.ending.read_shut => Ok(0),
                Some(reason) => Err(reason),
                None if self.ending.finished => Ok(0),
                None => Err(Errno::AGAIN),
            };
        }
        let Some(Halves { incoming, .. }) = &mut self.halves else { return Err(Errno::AGAIN) };
        let (mut piece, mut read) = ([0; PIECE], 0);
        while read < length && read < readable as usize {
            let (at, bytes) = incoming.piece(read as u32, PIECE.min(length - read));
            let bytes = &mut piece[..bytes];
            let copied = self.receive_buffer.read_at(at as usize, bytes).and_then(|()| sink(bytes));
            match copied {
                Ok(()) => read += bytes.len(),
                Err(_) if read > 0 => break,
                Err(_) => return Err(Errno::FAULT),
            }
        }
        if !peek {
            incoming.consume(read as u32);
            self.send_pending();
        }
        Ok(read)
    }

    pub(super) fn readable(&self) -> u32 {
        self.halves.as_ref().map_or(0, |halves| halves.incoming.readable())
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable() > 0
            || self.ending.finished
            || self.ending.read_shut
            || self.ending.failed.is_some()
    }

    pub(super) fn is_writable(&mut self) -> bool {
        self.look_for_room();
        match self.may_send() {
            Ok(()) => self.can_send(),
            Err(error) => error != Errno::AGAIN,
        }
    }

    fn can_send(&self) -> bool {
        self.halves.as_ref().is_some_and(|halves| halves.outgoing.can_send())
    }

    pub(super) const fn is_finished(&self) -> bool {
        self.ending.finished
    }

    pub(super) fn is_over(&self) -> bool {
        (self.ending.gone || self.ending.read_shut && self.ending.write_shut)
            && self.readable() == 0
    }

    pub(super) fn is_sent(&self) -> bool {
        self.ending.gone
            || self.ending.pending_shutdown.is_none()
                && self.halves.as_ref().is_none_or(|halves| halves.outgoing.is_idle())
    }

    pub(super) fn shut(&mut self, read: bool, write: bool) {
        self.ending.shut(read, write);
        if read {
            self.discard();
        }
        self.send_pending();
    }
}

impl Halves {
    fn place_of(&self, offset: u64) -> Option<RemoteSge> {
        self.mapped.iter().find_map(|mapping| {
            let inside = offset.checked_sub(mapping.offset)?;
            let length =
                u64::from(mapping.sge.length).checked_sub(inside).filter(|left| *left > 0)?;
            let address = mapping.sge.address.wrapping_add(inside);
            Some(RemoteSge { address, length: length as u32, ..mapping.sge })
        })
    }
}

/// Memory whose address the peer does not learn.
fn allocate(
    domain: &ProtectionDomain,
    length: usize,
    access: Access,
) -> Result<MemoryRegion, CmError> {
    let memory = MmapMemory::new(length).map_err(RegionError::Memory)?;
    Ok(domain.register(Arc::new(memory), 0, access)?)
}

fn errno(status: WcStatus) -> Errno {
    match status {
        WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr => Errno::TIMEDOUT,
        WcStatus::RemAccessErr | WcStatus::RemInvReqErr => Errno::PROTO,
        _ => Errno::CONNRESET,
    }
}
