//! Execution of requests.
//!
//! Read first: InfiniBand volume 1, 9.4, 9.7.4.1.

use alloc::sync::Arc;
use core::mem::replace;

use super::{
    attr::MAX_MESSAGE,
    common::{Common, Env},
    replay::{Remembered, RememberedOp},
    reply::{Attempt, ReadReply},
    responder::{Message, Refused, Responder},
};
use crate::{
    event::Refusal,
    mem::{Access, Region},
    psn::Psn,
    wire::{AtomicEth, Ext, Feth, InvalidateEth, NakCode, Operation, Packet, PacketPosition, Reth},
    work::{CountedOps, Half, Placement, WcOk, WcOpcode},
};

impl Responder {
    pub(super) fn execute(
        &mut self,
        packet: &Packet<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Result<(), Refused> {
        use Operation as Op;
        let bth = packet.headers.bth();
        let ext = packet.headers.ext();
        if env.late.is_some() && !env.has_unplaced(common.half(Half::Responder)) {
            self.unplaced = bth.psn;
        }
        match (bth.opcode.operation(), ext) {
            (Op::ReadRequest, Ext::Reth(reth)) => {
                env.place_pieces_of(common.half(Half::Responder));
                return self.read(bth.psn, reth, packet.payload, common, env);
            }
            (Op::CmpSwap | Op::FetchAdd, Ext::Atomic(eth)) => {
                env.place_all_of(common.half(Half::Responder));
                return self.atomic(packet, eth, common, env);
            }
            (Op::AtomicWrite, Ext::Reth(reth)) => {
                env.place_all_of(common.half(Half::Responder));
                return self.atomic_write(bth.psn, reth, packet.payload, common, env);
            }
            (Op::Flush, Ext::FethReth(feth, reth)) => {
                env.place_pieces_of(common.half(Half::Responder));
                return self.flush_memory(packet, *feth, reth, common, env);
            }
            _ => self.take_message(packet, common, env)?,
        }
        self.advance(bth.psn, bth.opcode.operation().position().ends(), bth.ack_req);
        Ok(())
    }

    /// Executes a SEND or WRITE of any service.
    pub(super) fn take_message(
        &mut self,
        packet: &Packet<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Result<(), Refused> {
        use Operation as Op;
        match packet.headers.bth().opcode.operation() {
            Op::SendFirst
            | Op::SendMiddle
            | Op::SendLast
            | Op::SendLastImm
            | Op::SendOnly
            | Op::SendOnlyImm
            | Op::SendLastInvalidate
            | Op::SendOnlyInvalidate => self.send(packet, common, env),
            operation if operation.is_write() => {
                self.write(packet, packet.headers.ext().reth(), common, env)
            }
            _ => Err(Refused::invalid(Refusal::NotEnabled)),
        }
    }

    /// See 9.4.1, C9-59 to C9-62.
    fn check_length(place: PacketPosition, payload: usize, common: &Common) -> Result<(), Refused> {
        let mtu = common.mtu.bytes() as usize;
        let right = match place {
            PacketPosition::First | PacketPosition::Middle => payload == mtu,
            PacketPosition::Last => (1..=mtu).contains(&payload),
            PacketPosition::Only => payload <= mtu,
        };
        if right { Ok(()) } else { Err(Refused::invalid(Refusal::Length)) }
    }

    fn send(
        &mut self,
        packet: &Packet<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Result<(), Refused> {
        let place = packet.headers.bth().opcode.operation().position();
        match (&self.message, place.starts()) {
            (Message::None, true) | (Message::Send { .. }, false) => {}
            _ => return Err(Refused::invalid(Refusal::OpcodeOrder)),
        }
        Self::check_length(place, packet.payload.len(), common)?;
        let invalidated = match packet.headers.ext() {
            Ext::Ieth(InvalidateEth(key)) => Some(*key),
            _ => None,
        };
        if invalidated.is_some_and(|key| self.responses.is_being_read(key)) {
            return Err(Refused::BehindRead);
        }
        if place.starts() {
            let wqe = self.take(common, env).ok_or(Refused::NotReady)?;
            // An empty payload uses neither buffer nor keys.
            let allowed = if packet.payload.is_empty() { Ok(()) } else { wqe.check() };
            self.message = Message::Send { wqe, received: 0 };
            allowed.map_err(|error| {
                Refused::Fatal(NakCode::RemoteOperationalError, Refusal::LocalBuffer(error))
            })?;
        }
        let Message::Send { wqe, received } = &mut self.message else { return Ok(()) };
        let end = *received + packet.payload.len() as u64;
        let buffer = wqe.length.min(u64::from(MAX_MESSAGE));
        if end > buffer {
            let refusal = Refusal::BufferTooSmall { received: end, buffer };
            return Err(Refused::invalid(refusal));
        }
        let (mut looked, mut kept) = (Ok(()), true);
        if !self.responses.after_read.is_empty() {
            looked = wqe.visit(*received, packet.payload.len(), |region, address, length| {
                kept &= self.responses.keep(Some(region), address, length as u64, common);
                Ok(())
            });
        }
        if !kept {
            if place.starts()
                && let Message::Send { wqe, .. } = replace(&mut self.message, Message::None)
            {
                self.receives(common, env).put_back(wqe);
            }
            return Err(Refused::BehindRead);
        }
        let put = |region: &_, address, bytes: &_| {
            env.place(common.half(Half::Responder), region, address, bytes)
        };
        looked.and_then(|()| wqe.write(*received, packet.payload, put)).map_err(|error| {
            Refused::Fatal(NakCode::RemoteOperationalError, Refusal::LocalBuffer(error))
        })?;
        *received = end;
        if place.ends() {
            let id = wqe.id;
            if let Some(key) = invalidated {
                env.place_all();
                env.resources
                    .regions
                    .invalidate(key, common.user())
                    .map_err(Refused::Invalidate)?;
            }
            let immediate = packet.headers.ext().immediate();
            let ok = WcOk { immediate, invalidated, ..WcOk::new(WcOpcode::Recv, end as u32) };
            self.responses.after_read.complete(id, ok, packet.headers.bth().solicited, common, env);
            self.message = Message::None;
        }
        Ok(())
    }

    fn write(
        &mut self,
        packet: &Packet<'_>,
        reth: Option<Reth>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Result<(), Refused> {
        let place = packet.headers.bth().opcode.operation().position();
        match (&self.message, place.starts()) {
            (Message::None, true) | (Message::Write { .. }, false) => {}
            _ => return Err(Refused::invalid(Refusal::OpcodeOrder)),
        }
        let payload = packet.payload;
        Self::check_length(place, payload.len(), common)?;
        if let Some(reth) = reth {
            let region = Self::target(&reth, Access::REMOTE_WRITE, common, env)?;
            self.message = Message::Write {
                region,
                address: reth.virtual_address,
                done: 0,
                length: reth.dma_length,
            };
        }
        let Message::Write { region, address, done, length } = &self.message else {
            return Ok(());
        };
        let left = (*length - *done) as usize;
        let adds_up = if place.ends() { payload.len() == left } else { payload.len() < left };
        if !adds_up {
            return Err(Refused::invalid(Refusal::Length));
        }
        let address = address.wrapping_add(u64::from(*done));
        if !self.responses.keep(region.as_deref(), address, payload.len() as u64, common) {
            if place.starts() {
                self.message = Message::None;
            }
            return Err(Refused::BehindRead);
        }
        // immediate data needs a receive request before execution
        let immediate = packet.headers.ext().immediate();
        let receive = match immediate.map(|_| self.take(common, env)) {
            Some(None) => {
                if place.starts() {
                    self.message = Message::None;
                }
                return Err(Refused::NotReady);
            }
            receive => receive.flatten(),
        };
        let Message::Write { region, address, done, length } = &mut self.message else {
            return Ok(());
        };
        let stored = match region {
            Some(region) => {
                let address = address.wrapping_add(u64::from(*done));
                env.place(common.half(Half::Responder), region, address, payload)
            }
            None => Ok(()),
        };
        *done += payload.len() as u32;
        let byte_len = *length;
        match (stored, receive) {
            (Ok(()), Some(wqe)) => {
                let ok = WcOk { immediate, ..WcOk::new(WcOpcode::RecvRdmaWithImm, byte_len) };
                self.responses.after_read.complete(
                    wqe.id,
                    ok,
                    packet.headers.bth().solicited,
                    common,
                    env,
                );
            }
            (Ok(()), None) => {}
            (Err(error), receive) => {
                if let Some(wqe) = receive {
                    self.receives(common, env).put_back(wqe);
                }
                return Err(Refused::access(error));
            }
        }
        if place.ends() {
            self.message = Message::None;
            if !common.completions.counters.is_empty() {
                env.place_all_of(common.half(Half::Responder));
            }
            common.completions.counters.count(CountedOps::REMOTE_WRITE, Some(byte_len));
        }
        Ok(())
    }

    fn read(
        &mut self,
        psn: Psn,
        reth: &Reth,
        payload: &[u8],
        common: &Common,
        env: &Env<'_>,
    ) -> Result<(), Refused> {
        self.check_response(payload)?;
        let region = Self::target(reth, Access::REMOTE_READ, common, env)?;
        let packets = common.mtu.packets(reth.dma_length);
        self.msn = self.msn.next();
        let (msn, op) = (self.msn, RememberedOp::Read(*reth));
        self.replay.remember(Remembered { first_psn: psn, packets, msn, op });
        self.expected = self.expected.plus(packets);
        self.responses.push_read(ReadReply::new(psn, reth, packets, region, msn, Attempt::First));
        Ok(())
    }

    fn atomic(
        &mut self,
        packet: &Packet<'_>,
        eth: &AtomicEth,
        common: &Common,
        env: &Env<'_>,
    ) -> Result<(), Refused> {
        let bth = packet.headers.bth();
        self.check_response(packet.payload)?;
        if !common.admission.access.contains(Access::REMOTE_ATOMIC) {
            return Err(Refused::invalid(Refusal::NotEnabled));
        }
        if !eth.virtual_address.is_multiple_of(8) {
            return Err(Refused::invalid(Refusal::Misaligned));
        }
        let (regions, needed) = (&env.resources.regions, Access::REMOTE_ATOMIC);
        let region = regions.remote(eth.rkey, common.user(), eth.virtual_address, 8, needed);
        if !self.responses.keep(region.ok().map(Arc::as_ref), eth.virtual_address, 8, common) {
            return Err(Refused::BehindRead);
        }
        let operation = bth.opcode.operation();
        let found = region
            .and_then(|region| match operation {
                Operation::CmpSwap => {
                    region.compare_swap(eth.virtual_address, eth.compare, eth.swap_or_add)
                }
                _ => region.fetch_add(eth.virtual_address, eth.swap_or_add),
            })
            .map_err(Refused::access)?;
        let op = RememberedOp::Atomic { operation, eth: *eth, found };
        self.msn = self.msn.next();
        let msn = self.msn;
        self.replay.remember(Remembered { first_psn: bth.psn, packets: 1, msn, op });
        self.expected = self.expected.plus(1);
        self.responses.push_atomic(bth.psn, msn, found, Attempt::First);
        Ok(())
    }

    fn atomic_write(
        &mut self,
        psn: Psn,
        reth: &Reth,
        payload: &[u8],
        common: &Common,
        env: &Env<'_>,
    ) -> Result<(), Refused> {
        self.check_response(&[])?;
        if !self.responses.has_room_for_placed() {
            return Err(Refused::Busy);
        }
        let value = <&[u8; 8]>::try_from(payload).ok().filter(|_| reth.dma_length == 8);
        let Some(value) = value else {
            return Err(Refused::invalid(Refusal::Length));
        };
        if !reth.virtual_address.is_multiple_of(8) {
            return Err(Refused::invalid(Refusal::Misaligned));
        }
        let region = Self::target(reth, Access::REMOTE_WRITE, common, env)?;
        let value = u64::from_ne_bytes(*value);
        if !self.responses.keep(region.as_deref(), reth.virtual_address, 8, common) {
            return Err(Refused::BehindRead);
        }
        let stored = region.map_or(Ok(()), |region| region.store(reth.virtual_address, value));
        stored.map_err(Refused::access)?;
        self.placement_ack(psn);
        Ok(())
    }

    /// Makes earlier WRITEs, already placed, visible or persistent.
    fn flush_memory(
        &mut self,
        packet: &Packet<'_>,
        feth: Feth,
        reth: &Reth,
        common: &Common,
        env: &Env<'_>,
    ) -> Result<(), Refused> {
        self.check_between_messages(packet.payload)?;
        if !self.responses.has_room_for_placed() {
            return Err(Refused::Busy);
        }
        let placement =
            Placement::from_bits(feth.placement).filter(|placement| !placement.is_empty());
        let Some(placement) = placement.filter(|_| feth.selectivity <= 1) else {
            return Err(Refused::invalid(Refusal::FlushKind));
        };
        let needed = placement.needed();
        if !common.admission.access.contains(needed) {
            return Err(Refused::invalid(Refusal::NotEnabled));
        }
        let persistent = placement.contains(Placement::PERSISTENT);
        let (key, user) = (reth.rkey, common.user());
        let flushed = env.resources.regions.of_peer(key, user).and_then(|region| {
            let (address, length) = match feth.selectivity {
                1 => (region.address(), region.length()),
                _ => (reth.virtual_address, u64::from(reth.dma_length)),
            };
            region.check_rights(key.0, address, length, needed)?;
            region.flush(address, length, persistent)
        });
        flushed.map_err(Refused::access)?;
        self.placement_ack(packet.headers.bth().psn);
        Ok(())
    }

    fn placement_ack(&mut self, psn: Psn) {
        self.msn = self.msn.next();
        self.expected = self.expected.plus(1);
        self.placements.remember(psn, self.msn);
        self.responses.push_placed(psn, self.msn);
    }

    fn check_between_messages(&self, payload: &[u8]) -> Result<(), Refused> {
        if !matches!(self.message, Message::None) {
            return Err(Refused::invalid(Refusal::OpcodeOrder));
        }
        if payload.is_empty() { Ok(()) } else { Err(Refused::invalid(Refusal::Length)) }
    }

    fn check_response(&self, payload: &[u8]) -> Result<(), Refused> {
        self.check_between_messages(payload)?;
        if !self.has_room(Attempt::First) {
            return Err(Refused::invalid(Refusal::TooManyReads));
        }
        Ok(())
    }

    /// Returns `None` for 0 bytes, which need no key.
    pub(super) fn target(
        reth: &Reth,
        needed: Access,
        common: &Common,
        env: &Env<'_>,
    ) -> Result<Option<Arc<Region>>, Refused> {
        if !common.admission.access.contains(needed) {
            return Err(Refused::invalid(Refusal::NotEnabled));
        }
        let &Reth { virtual_address: address, rkey, dma_length: length } = reth;
        if length > MAX_MESSAGE {
            return Err(Refused::invalid(Refusal::Length));
        }
        if length == 0 {
            return Ok(None);
        }
        let regions = &env.resources.regions;
        let region = regions.remote(rkey, common.user(), address, length.into(), needed);
        region.cloned().map(Some).map_err(Refused::access)
    }
}
