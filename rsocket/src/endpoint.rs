//! A datagram rsocket's queue pair for one local address.

use std::net::IpAddr;

use roce_transport::{
    addr::Qpn,
    mem::{Access, MemoryFault},
    wire::{GRH_LEN, Grh},
    work::{RecvWr, SendWr, Wc},
};
use rustix::io::Errno;

use super::{headers::Sender, queues::Queues, settings::Settings, stream::Source};
use roce_provider::{
    AddressHandle, MemoryRegion,
    cm::{CmError, CmId, UDP_QKEY},
};

/// Receives use their slot's number.
const SEND: u64 = u64::MAX;
/// Completions per call.
const MOST: usize = 1024;
const MTU: usize = 4096;

pub(super) struct Endpoint {
    _id: CmId,
    pub(super) ip: IpAddr,
    pub(super) queues: Queues,
    mtu: usize,
    /// One slot per request, used in turn.
    send_buffer: MemoryRegion,
    slots: usize,
    next: usize,
    used: usize,
    /// One slot per request.
    receive_buffer: MemoryRegion,
    /// Its queue pair or device is gone.
    pub(super) failed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) slot: usize,
    /// Offset of its data, and length.
    start: usize,
    pub(super) length: usize,
    pub(super) from: Sender,
}

impl Endpoint {
    pub(super) fn new(id: CmId, settings: Settings) -> Result<Self, CmError> {
        let ip = id.local_addr().ok_or(CmError::NoDevice)?.ip();
        let (sends, receives) = (settings.send_queue(), settings.receive_queue());
        let queues = Queues::new(&id, sends, receives, 0)?;
        let domain = &queues.domain;
        let mtu = domain.context().active_mtu().bytes() as usize;
        let slots = sends as usize;
        let endpoint = Self {
            _id: id,
            ip,
            send_buffer: domain.allocate(slots * mtu, Access::empty())?,
            receive_buffer: domain
                .allocate(receives as usize * (GRH_LEN + mtu), Access::LOCAL_WRITE)?,
            queues,
            mtu,
            slots,
            next: 0,
            used: 0,
            failed: false,
        };
        (0..receives as usize).try_for_each(|slot| endpoint.post_receive(slot))?;
        Ok(endpoint)
    }

    pub(super) fn qpn(&self) -> Qpn {
        self.queues.qp.qpn()
    }

    fn post_receive(&self, slot: usize) -> Result<(), CmError> {
        let start = slot * (GRH_LEN + self.mtu);
        let room = self.receive_buffer.sge(start..start + GRH_LEN + self.mtu);
        Ok(self.queues.qp.post_recv(&[RecvWr::new(slot as u64, [room])])?)
    }

    pub(super) fn process(&mut self, mut arrive: impl FnMut(Message) -> bool) -> bool {
        let mut changed = false;
        for _ in 0..MOST {
            let Some(Wc { wr_id, result, .. }) = self.queues.cq.poll_one() else { break };
            changed = true;
            match result {
                Ok(_) if wr_id == SEND => self.used -= 1,
                Ok(ok) => {
                    let slot = wr_id as usize;
                    let message = self.look(slot, ok.byte_len as usize);
                    if !message.is_some_and(&mut arrive) {
                        self.release(slot);
                    }
                }
                Err(_) => self.failed = true,
            }
        }
        changed
    }

    /// `None` unless an rsocket sent it from the address in its header.
    fn look(&self, slot: usize, length: usize) -> Option<Message> {
        let start = slot * (GRH_LEN + self.mtu);
        let mut area = [0; GRH_LEN];
        self.receive_buffer.read_at(start, &mut area).ok()?;
        let mut head = [0; 24];
        let length = length.checked_sub(GRH_LEN)?;
        let head = &mut head[..length.min(24)];
        self.receive_buffer.read_at(start + GRH_LEN, head).ok()?;
        let (from, header) = Sender::parse(head)?;
        let source = Grh::parse(&area)?.src;
        (source == from.0.ip()).then_some(Message {
            slot,
            start: start + GRH_LEN + header,
            length: length - header,
            from,
        })
    }

    pub(super) fn read(
        &self,
        message: &Message,
        length: usize,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), MemoryFault>,
    ) -> Result<(), MemoryFault> {
        let mut piece = [0; MTU];
        let bytes = &mut piece[..length.min(message.length)];
        self.receive_buffer.read_at(message.start, bytes)?;
        sink(bytes)
    }

    pub(super) fn release(&mut self, slot: usize) {
        self.failed |= self.post_receive(slot).is_err();
    }

    pub(super) const fn has_room(&self) -> bool {
        self.used < self.slots
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.used == 0 || self.failed
    }

    /// # Errors
    /// `EAGAIN`; `EFAULT`; `ENETDOWN`.
    pub(super) fn send(
        &mut self,
        from: Sender,
        length: usize,
        source: Source<'_>,
        to: (&AddressHandle, Qpn),
    ) -> Result<(), Errno> {
        if self.failed {
            return Err(Errno::NETDOWN);
        }
        if !self.has_room() {
            return Err(Errno::AGAIN);
        }
        let mut message = from.encode();
        let header = message.len();
        message.resize(header + length, 0);
        source(&mut message[header..]).map_err(|_| Errno::FAULT)?;
        let start = self.next * self.mtu;
        self.send_buffer.write_at(start, &message).map_err(|_| Errno::FAULT)?;
        let (handle, qpn) = to;
        let data = self.send_buffer.sge(start..start + message.len());
        let request = SendWr::send_to(SEND, handle.to(qpn, UDP_QKEY), data);
        if self.queues.qp.post_send(&[request]).is_err() {
            self.failed = true;
            return Err(Errno::NETDOWN);
        }
        self.next = (self.next + 1) % self.slots;
        self.used += 1;
        Ok(())
    }
}
