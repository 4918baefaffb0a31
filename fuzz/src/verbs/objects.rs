//! Makes, changes and destroys objects, with the required result of each call.

use std::{net::IpAddr, sync::Arc, time::Duration};

use roce_transport::{
    adapter::{ObjectError, ObjectKind, ObjectSize, PdId},
    addr::{AddressVector, Mtu, QKey, Qpn},
    mem::{Access, HeapMemory, Memory, MrAttr, RegisterError, Reregister, WindowId, WindowType},
    psn::Psn,
    qp::{
        Init, ModifyError, PeerAttr, QpCaps, QpInit, QpType, RequesterAttr, ResponderAttr, Rtr,
        Rts, State,
    },
    time::Instant,
    work::{CqModeration, SrqAttr, SrqError},
};

use super::side::{FILL, Known, LIMITS, Memories, Pair, Queue, REGION, Side, Srq, Window, bytes};
use crate::input::Input;

/// Of every region.
const ADDRESS: u64 = 1 << 32;
pub(super) const QKEY: QKey = QKey(0x1111_1111);
const TYPES: [WindowType; 3] = [WindowType::Type1, WindowType::Type2A, WindowType::Type2B];
/// Enough completions for all requests.
const CQE: usize = 1024;

const fn too_many(what: ObjectKind, limit: usize) -> Result<(), ObjectError> {
    Err(ObjectError::TooMany { what, limit })
}

impl Side {
    pub(super) fn alloc_pd(&mut self) {
        let before = self.snapshot();
        let full = self.pds.len() == LIMITS.max_pd;
        let expected =
            if full { too_many(ObjectKind::ProtectionDomain, LIMITS.max_pd) } else { Ok(()) };
        let result = self.adapter.alloc_pd();
        if let Some(pd) = self.judge(&before, result, Some(expected)) {
            assert!(!self.pds.contains(&pd));
            self.pds.push(pd);
        }
    }

    fn is_used(&self, pd: PdId) -> bool {
        self.regions.iter().any(|region| region.live && region.pd == pd)
            || self.windows.iter().any(|window| window.pd == pd)
            || self.qps.iter().any(|qp| qp.pd == pd)
            || self.srqs.iter().any(|srq| srq.pd == pd)
            || self.ahs.iter().any(|&(_, its)| its == pd)
    }

    pub(super) fn dealloc_pd(&mut self, argument: u8) {
        let Some(&pd) = self.pds.get(usize::from(argument)) else { return };
        let before = self.snapshot();
        let expected = if self.is_used(pd) { Err(ObjectError::InUse) } else { Ok(()) };
        let result = self.adapter.dealloc_pd(pd);
        if self.judge(&before, result, Some(expected)).is_some() {
            self.pds.retain(|&its| its != pd);
            assert_eq!(self.adapter.dealloc_pd(pd), Err(ObjectError::Unknown));
        }
    }

    fn pd(&self, argument: u8) -> Option<PdId> {
        self.pds.get(usize::from(argument) % self.pds.len().max(1)).copied()
    }

    pub(super) fn register(&mut self, argument: u8, input: &mut Input<'_>) {
        let Some(pd) = self.pd(argument) else { return };
        let [rights, where_to] = input.array();
        let access = access(rights);
        let address = if where_to == 0xFF { u64::MAX - 10 } else { ADDRESS };
        let memory = Arc::new(HeapMemory::new(REGION));
        memory.write_at(0, &[FILL; REGION]).expect("memory of our own");
        let live = self.regions.iter().filter(|region| region.live).count();
        let expected = match () {
            () if access.intersects(Access::REMOTE_CHANGE)
                && !access.contains(Access::LOCAL_WRITE) =>
            {
                Err(RegisterError::RemoteWithoutLocalWrite)
            }
            () if access.contains(Access::FLUSH_PERSISTENT) => Err(RegisterError::NotPersistent),
            () if address != ADDRESS => Err(RegisterError::AddressOverflow),
            () if live == LIMITS.max_mr => Err(RegisterError::TooMany(LIMITS.max_mr)),
            () => Ok(()),
        };
        let before = self.snapshot();
        let result = self.adapter.register(pd, MrAttr { memory: memory.clone(), address, access });
        if let Some(region) = self.judge(&before, result, Some(expected)) {
            let still = (!access.contains(Access::LOCAL_WRITE)).then(|| bytes(&memory));
            self.regions.push(Memories { region, memory, pd, still, live: true });
        }
    }

    /// Deregisters or revokes a region, or registers it again with other rights.
    pub(super) fn unregister(&mut self, argument: u8, input: &mut Input<'_>) {
        let count = self.regions.len().max(1);
        let index = usize::from(argument) % count;
        if index >= self.regions.len() {
            return;
        }
        let [how, rights] = input.array();
        let before = self.snapshot();
        let Memories { region, live, .. } = &self.regions[index];
        let (region, live, bound) = (region.clone(), *live, region.has_windows());
        match how & 3 {
            0 => {
                self.adapter.revoke(&region);
                self.regions[index].live = false;
            }
            1 => {
                let access = access(rights);
                let pd = self.pd(how >> 2);
                let change = Reregister { pd, memory: None, access: Some(access) };
                let result = self.adapter.reregister(&region, change);
                let expected = match () {
                    () if !live => Err(RegisterError::Deregistered),
                    () if bound => Err(RegisterError::InUse),
                    () if access.intersects(Access::REMOTE_CHANGE)
                        && !access.contains(Access::LOCAL_WRITE) =>
                    {
                        Err(RegisterError::RemoteWithoutLocalWrite)
                    }
                    () if access.contains(Access::FLUSH_PERSISTENT) => {
                        Err(RegisterError::NotPersistent)
                    }
                    () => Ok(()),
                };
                if let Some(new) = self.judge(&before, result, Some(expected)) {
                    assert_eq!((new.lkey(), new.rkey()), (region.lkey(), region.rkey()));
                    let memory = &mut self.regions[index];
                    memory.pd = pd.unwrap_or(memory.pd);
                    memory.region = new;
                    memory.still =
                        (!access.contains(Access::LOCAL_WRITE)).then(|| bytes(&memory.memory));
                }
                return;
            }
            _ => {
                let expected = if bound { Err(RegisterError::InUse) } else { Ok(()) };
                let result = self.adapter.deregister(&region);
                if self.judge(&before, result, Some(expected)).is_some() {
                    self.regions[index].live = false;
                }
            }
        }
        let memory = &mut self.regions[index];
        if !memory.live && memory.still.is_none() {
            memory.still = Some(bytes(&memory.memory));
        }
    }

    pub(super) fn alloc_window(&mut self, argument: u8) {
        let Some(pd) = self.pd(argument >> 2) else { return };
        let before = self.snapshot();
        let full = self.windows.len() == LIMITS.max_mw;
        let expected =
            if full { too_many(ObjectKind::MemoryWindow, LIMITS.max_mw) } else { Ok(()) };
        let result = self.adapter.alloc_window(pd, TYPES[usize::from(argument & 3) % 3]);
        if let Some(rkey) = self.judge(&before, result, Some(expected)) {
            self.windows.push(Window { rkey, pd });
        }
    }

    pub(super) fn dealloc_window(&mut self, argument: u8) {
        if usize::from(argument) < self.windows.len() {
            let window = self.windows.remove(usize::from(argument));
            let id = WindowId::of(window.rkey);
            assert_eq!(self.adapter.dealloc_window(id), Ok(()));
            assert_eq!(self.adapter.dealloc_window(id), Err(ObjectError::Unknown));
            self.depth.accepted += 1;
        }
    }

    pub(super) fn address_handle(&mut self, argument: u8, other: &Known) {
        if argument & 0x80 != 0 {
            if !self.ahs.is_empty() {
                let (ah, _) = self.ahs.remove(usize::from(argument & 0x7F) % self.ahs.len());
                assert_eq!(self.adapter.destroy_ah(ah), Ok(()));
                assert_eq!(self.adapter.destroy_ah(ah), Err(ObjectError::Unknown));
            }
            return;
        }
        let Some(pd) = self.pd(argument) else { return };
        let sgid_index = u16::from(argument == 0x7F);
        let before = self.snapshot();
        let expected = match () {
            () if sgid_index != 0 => Err(ObjectError::GidIndex(sgid_index)),
            () if self.ahs.len() == LIMITS.max_ah => {
                too_many(ObjectKind::AddressHandle, LIMITS.max_ah)
            }
            () => Ok(()),
        };
        let result = self.adapter.create_ah(pd, &AddressVector::new(other.ip.into(), sgid_index));
        if let Some(ah) = self.judge(&before, result, Some(expected)) {
            self.ahs.push((ah, pd));
        }
    }

    pub(super) fn xrc(&mut self, argument: u8) {
        let before = self.snapshot();
        match argument & 3 {
            0 => {
                let full = self.xrcds.len() == LIMITS.max_xrcd;
                let expected =
                    if full { too_many(ObjectKind::XrcDomain, LIMITS.max_xrcd) } else { Ok(()) };
                let result = self.adapter.open_xrcd();
                if let Some(xrcd) = self.judge(&before, result, Some(expected)) {
                    self.xrcds.push(xrcd);
                }
            }
            1 => {
                let Some(&xrcd) = self.xrcds.first() else { return };
                let used = self.targets.iter().any(|&(_, its)| its == xrcd);
                let result = self.adapter.close_xrcd(xrcd);
                let expected = if used { Err(ObjectError::InUse) } else { Ok(()) };
                if self.judge(&before, result, Some(expected)).is_some() {
                    self.xrcds.clear();
                }
            }
            2 => {
                let Some(&xrcd) = self.xrcds.first() else { return };
                let full = self.qps.len() + self.targets.len() == LIMITS.max_qp;
                let expected =
                    if full { too_many(ObjectKind::QueuePair, LIMITS.max_qp) } else { Ok(()) };
                let result = self.adapter.create_xrc_target(xrcd);
                if let Some(qpn) = self.judge(&before, result, Some(expected)) {
                    self.targets.push((qpn, xrcd));
                }
            }
            _ => {
                if let Some((qpn, _)) = self.targets.pop() {
                    assert_eq!(self.adapter.destroy_qp(qpn), Ok(()));
                }
            }
        }
    }

    /// A non-multicast address or a non-datagram queue pair is refused.
    pub(super) fn multicast(&mut self, argument: u8, input: &mut Input<'_>) {
        let [group, how] = input.array();
        let Some(qpn) = self.nth_qp(argument) else { return };
        let gid = IpAddr::from([if group & 0x80 == 0 { 239 } else { 10 }, 1, 1, group & 3]).into();
        let before = self.snapshot();
        if how & 1 == 0 {
            let result = self.adapter.attach_mcast(qpn, gid);
            self.judge(&before, result, None);
            assert!(self.adapter.mcast_groups(None).count() <= LIMITS.max_mcast_grp);
        } else {
            let result = self.adapter.detach_mcast(qpn, gid);
            self.judge(&before, result, None);
        }
    }

    /// Sizes that fit all completions are always granted.
    pub(super) fn change_cq(&mut self, argument: u8, input: &mut Input<'_>) {
        let [which, how] = input.array();
        let Some(queue) = self.cqs.get(usize::from(which)) else { return };
        let (id, live, held) = (queue.cq.id(), queue.live, queue.cq.len());
        if !live {
            return;
        }
        let before = self.snapshot();
        if how & 1 == 0 {
            let capacity = match argument {
                0xFE => 0,
                0xFF => LIMITS.max_cqe + 1,
                _ => CQE + usize::from(argument),
            };
            let wrong = Err(ObjectError::Size {
                what: ObjectSize::Completions,
                least: 1,
                limit: LIMITS.max_cqe,
            });
            let expected = if (1..=LIMITS.max_cqe).contains(&capacity) { Ok(()) } else { wrong };
            let result = self.adapter.resize_cq(id, capacity, None);
            self.judge(&before, result, Some(expected));
            assert_eq!(self.cqs[usize::from(which)].cq.len(), held);
        } else {
            let moderation = CqModeration {
                count: u16::from(argument),
                period: Duration::from_micros(u64::from(how) * 300),
            };
            let result = self.adapter.moderate_cq(id, moderation);
            self.judge(&before, result, None);
        }
    }

    pub(super) fn create_cq(&mut self, argument: u8) {
        let live = self.cqs.iter().filter(|queue| queue.live).count();
        let capacity = match argument {
            0xFE => 0,
            0xFF => LIMITS.max_cqe + 1,
            _ => CQE,
        };
        let expected = match () {
            () if capacity != CQE => Err(ObjectError::Size {
                what: ObjectSize::Completions,
                least: 1,
                limit: LIMITS.max_cqe,
            }),
            () if live == LIMITS.max_cq => too_many(ObjectKind::CompletionQueue, LIMITS.max_cq),
            () => Ok(()),
        };
        let before = self.snapshot();
        let result = self.adapter.create_cq(capacity);
        if let Some(cq) = self.judge(&before, result, Some(expected)) {
            self.cqs.push(Queue { cq, live: true });
        }
    }

    pub(super) fn destroy_cq(&mut self, argument: u8) {
        let index = usize::from(argument);
        if self.cqs.get(index).is_none_or(|queue| !queue.live) {
            return;
        }
        let used = self.qps.iter().any(|qp| qp.cqs.contains(&index));
        let before = self.snapshot();
        let result = self.adapter.destroy_cq(self.cqs[index].cq.id());
        let expected = if used { Err(ObjectError::InUse) } else { Ok(()) };
        if self.judge(&before, result, Some(expected)).is_some() {
            self.cqs[index].live = false;
        }
    }

    pub(super) fn create_srq(&mut self, argument: u8, input: &mut Input<'_>) {
        let Some(pd) = self.pd(argument) else { return };
        let [max_wr, max_sge] = input.array().map(|size: u8| u32::from(size & 15));
        let size = |what, value, least: u32, limit: u32| {
            let (least_, limit_) = (least as usize, limit as usize);
            (!(least..=limit).contains(&value)).then_some(ObjectError::Size {
                what,
                least: least_,
                limit: limit_,
            })
        };
        let error = size(ObjectSize::MaxWr, max_wr, 1, LIMITS.max_qp_wr)
            .or_else(|| size(ObjectSize::MaxSge, max_sge, 0, LIMITS.max_sge));
        let expected = match error {
            Some(error) => Err(error),
            None if self.srqs.len() == LIMITS.max_srq => {
                too_many(ObjectKind::SharedReceiveQueue, LIMITS.max_srq)
            }
            None => Ok(()),
        };
        let before = self.snapshot();
        let result = self.adapter.create_srq(pd, SrqAttr { max_wr, max_sge });
        if let Some(id) = self.judge(&before, result, Some(expected)) {
            self.srqs.push(Srq { id, pd });
        }
    }

    pub(super) fn change_srq(&mut self, argument: u8, input: &mut Input<'_>) {
        let index = usize::from(argument & 3);
        let Some(id) = self.srqs.get(index).map(|srq| srq.id) else { return };
        let [how, size] = input.array();
        let size = u32::from(size & 15);
        let before = self.snapshot();
        let Some(info) = self.adapter.query_srq(id) else {
            panic!("a shared receive queue is gone")
        };
        match how & 3 {
            0 => {
                let used = self.qps.iter().any(|qp| qp.srq == Some(id));
                let result = self.adapter.destroy_srq(id);
                let expected = if used { Err(ObjectError::InUse) } else { Ok(()) };
                if self.judge(&before, result, Some(expected)).is_some() {
                    self.srqs.remove(index);
                }
            }
            1 => {
                let expected = match () {
                    () if !(1..=LIMITS.max_qp_wr).contains(&size) => {
                        Err(SrqError::Size(LIMITS.max_qp_wr))
                    }
                    () if info.posted > size => Err(SrqError::Posted(info.posted)),
                    () if info.limit > size => Err(SrqError::Limit(size)),
                    () => Ok(()),
                };
                let result = self.adapter.resize_srq(id, size);
                self.judge(&before, result, Some(expected));
            }
            _ => {
                let expected = if size > info.attr.max_wr {
                    Err(SrqError::Limit(info.attr.max_wr))
                } else {
                    Ok(())
                };
                let result = self.adapter.set_srq_limit(id, size);
                self.judge(&before, result, Some(expected));
            }
        }
    }

    pub(super) fn create_qp(&mut self, argument: u8, input: &mut Input<'_>) {
        let [kind, queues, sizes] = input.array();
        let Some(pd) = self.pd(argument) else { return };
        let cqs = [usize::from(queues & 0xF), usize::from(queues >> 4)]
            .map(|n| n % self.cqs.len().max(1));
        let [Some(send), Some(recv)] = cqs.map(|n| self.cqs.get(n)) else { return };
        let srq = self.srqs.get(usize::from(kind >> 4 & 3)).map(|srq| srq.id);
        let qp_type = [QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud][usize::from(kind & 3)];
        let wr = 1 + u32::from(sizes & 7);
        let sge = u32::from(sizes >> 3 & 3);
        let caps = QpCaps {
            max_send_wr: if sizes >= 0xF8 { LIMITS.max_qp_wr + 1 } else { wr },
            max_recv_wr: wr,
            max_send_sge: sge,
            max_recv_sge: sge,
            max_inline_data: if sizes >= 0xF0 { 33 } else { 32 },
        };
        let sig_all = kind & 4 != 0;
        let init = QpInit {
            qp_type,
            send_cq: send.cq.clone(),
            recv_cq: recv.cq.clone(),
            srq,
            caps,
            sq_sig_all: sig_all,
            pd,
            quirks: Default::default(),
        };
        let too_large =
            |what, limit: u32| Err(ObjectError::Size { what, least: 0, limit: limit as usize });
        let expected = match () {
            () if sizes >= 0xF8 => too_large(ObjectSize::MaxSendWr, LIMITS.max_qp_wr),
            () if sizes >= 0xF0 => too_large(ObjectSize::MaxInlineData, LIMITS.max_inline_data),
            () if !send.live || !recv.live => Err(ObjectError::Unknown),
            () if self.qps.len() + self.targets.len() == LIMITS.max_qp => {
                too_many(ObjectKind::QueuePair, LIMITS.max_qp)
            }
            () => Ok(()),
        };
        let before = self.snapshot();
        let result = self.adapter.create_qp(init);
        if let Some(qpn) = self.judge(&before, result, Some(expected)) {
            assert!(self.qps.iter().all(|qp| qp.qpn != qpn), "a number twice");
            self.qps.push(Pair {
                qpn,
                qp_type,
                pd,
                cqs,
                srq,
                sig_all,
                sends: Vec::new(),
                receives: Vec::new(),
            });
        }
    }

    pub(super) fn destroy_qp(&mut self, argument: u8) {
        if usize::from(argument) < self.qps.len() {
            let qp = self.qps.remove(usize::from(argument));
            assert_eq!(self.adapter.destroy_qp(qp.qpn), Ok(()));
            assert_eq!(self.adapter.destroy_qp(qp.qpn), Err(ObjectError::Unknown));
            assert_eq!(self.adapter.query_qp(qp.qpn), None);
            self.depth.accepted += 1;
        }
    }

    pub(super) fn modify(
        &mut self,
        argument: u8,
        now: Instant,
        other: &Known,
        input: &mut Input<'_>,
    ) {
        let [how, value, peer] = input.array();
        let count = self.qps.len().max(1);
        let Some(qp) = self.qps.get(usize::from(argument) % count) else { return };
        let (qpn, qp_type) = (qp.qpn, qp.qp_type);
        let dest = other.qps.get(usize::from(peer)).copied().unwrap_or_default();
        let before = self.snapshot();
        let state = self.adapter.query_qp(qpn).map(|info| info.state);
        let result = match how % 10 {
            0 => self.adapter.to_init(qpn, &init(value)),
            1 | 2 => self.adapter.to_rtr(
                qpn,
                &rtr(if how & 0x80 == 0 { qp_type } else { QpType::Ud }, other.ip, dest, value),
            ),
            3 | 4 => self.adapter.to_rts(
                now,
                qpn,
                &rts(if how & 0x80 == 0 { qp_type } else { QpType::Uc }, value),
            ),
            5 => self.adapter.to_rts(now, qpn, &Rts::Resume),
            6 => self.adapter.to_sqd(now, qpn, value & 1 == 0),
            7 => self.adapter.to_error(now, qpn),
            8 => {
                let result = self.adapter.to_error(now, Qpn::new(qpn.get() ^ 1));
                let exists = self.qps.iter().any(|qp| qp.qpn.get() == qpn.get() ^ 1);
                assert!(exists || result == Err(ModifyError::UnknownQp));
                result
            }
            _ => {
                self.reset(qpn);
                Ok(())
            }
        };
        if self.judge(&before, result, None).is_some() {
            let after = self.adapter.query_qp(qpn).map(|info| info.state);
            let to = [
                State::Init,
                State::Rtr,
                State::Rtr,
                State::Rts,
                State::Rts,
                State::Rts,
                State::Sqd,
                State::Err,
            ];
            let expected = to.get(usize::from(how % 10)).copied().unwrap_or(State::Reset);
            // requests queued in SQD may fail at once
            let failed = expected == State::Sqd && matches!(after, Some(State::Err | State::Sqe));
            assert!(
                after == Some(expected) || failed || how % 10 == 8,
                "{state:?} to {expected}: {after:?}"
            );
        }
    }

    fn reset(&mut self, qpn: Qpn) {
        assert_eq!(self.adapter.to_reset(qpn), Ok(()));
        if let Some(qp) = self.qps.iter_mut().find(|qp| qp.qpn == qpn) {
            qp.sends.clear();
            qp.receives.clear();
        }
    }

    pub(super) fn bring_up(&mut self, qpn: Qpn, (ip, peer): (IpAddr, Qpn), how: u8, now: Instant) {
        self.reset(qpn);
        let Some(qp_type) = self.qps.iter().find(|qp| qp.qpn == qpn).map(|qp| qp.qp_type) else {
            return;
        };
        let steps = [
            self.adapter.to_init(qpn, &init(0)),
            self.adapter.to_rtr(qpn, &rtr(qp_type, ip, peer, how & 0x3F)),
            self.adapter.to_rts(now, qpn, &rts(qp_type, how & 0x3F)),
        ];
        assert_eq!(steps, [Ok(()); 3]);
        self.depth.accepted += 3;
    }

    /// In a legal order; then makes objects up to the limits.
    pub(super) fn tear_down(&mut self, now: Instant) {
        for qp in std::mem::take(&mut self.qps) {
            assert_eq!(self.adapter.destroy_qp(qp.qpn), Ok(()));
        }
        for (qpn, _) in std::mem::take(&mut self.targets) {
            assert_eq!(self.adapter.destroy_qp(qpn), Ok(()));
        }
        for xrcd in std::mem::take(&mut self.xrcds) {
            assert_eq!(self.adapter.close_xrcd(xrcd), Ok(()));
        }
        for (ah, _) in std::mem::take(&mut self.ahs) {
            assert_eq!(self.adapter.destroy_ah(ah), Ok(()));
        }
        assert_eq!(self.adapter.mcast_groups(None).count(), 0, "a group whose members are gone");
        assert!(
            self.cqs.iter().all(|queue| queue.cq.is_empty()),
            "a completion of a queue pair that is gone"
        );
        for srq in std::mem::take(&mut self.srqs) {
            assert_eq!(self.adapter.destroy_srq(srq.id), Ok(()));
        }
        for queue in self.cqs.iter().filter(|queue| queue.live) {
            assert_eq!(self.adapter.destroy_cq(queue.cq.id()), Ok(()));
        }
        for window in std::mem::take(&mut self.windows) {
            assert_eq!(self.adapter.dealloc_window(WindowId::of(window.rkey)), Ok(()));
        }
        for Memories { region, memory, live, .. } in std::mem::take(&mut self.regions) {
            assert!(!region.has_windows());
            if live {
                assert_eq!(self.adapter.deregister(&region), Ok(()));
            }
            drop(region);
            assert_eq!(Arc::strong_count(&memory), 1, "something still holds memory");
        }
        for pd in std::mem::take(&mut self.pds) {
            assert_eq!(self.adapter.dealloc_pd(pd), Ok(()));
        }
        assert_eq!(self.adapter.poll_timeout(), None, "no object is left that could wait");
        self.buffer.clear();
        self.adapter.poll_transmit(now, &mut self.buffer);
        assert!(self.buffer.is_empty(), "no object is left that could send");
        self.make_all();
    }

    /// Nothing counts towards a limit any more.
    fn make_all(&mut self) {
        let pds: Vec<_> = (0..LIMITS.max_pd)
            .map(|_| self.adapter.alloc_pd().expect("a protection domain"))
            .collect();
        let pd = pds[0];
        for _ in 0..LIMITS.max_mr {
            let attr = MrAttr {
                memory: Arc::new(HeapMemory::new(8)),
                address: 0,
                access: Access::empty(),
            };
            self.adapter.register(pd, attr).expect("a region");
        }
        for _ in 0..LIMITS.max_mw {
            self.adapter.alloc_window(pd, WindowType::Type1).expect("a window");
        }
        let cqs: Vec<_> = (0..LIMITS.max_cq)
            .map(|_| self.adapter.create_cq(1).expect("a completion queue"))
            .collect();
        for _ in 0..LIMITS.max_srq {
            self.adapter
                .create_srq(pd, SrqAttr { max_wr: 1, max_sge: 1 })
                .expect("a shared receive queue");
        }
        for _ in 0..LIMITS.max_qp {
            let init = QpInit {
                qp_type: QpType::Rc,
                send_cq: cqs[0].clone(),
                recv_cq: cqs[0].clone(),
                srq: None,
                caps: QpCaps {
                    max_send_wr: 1,
                    max_recv_wr: 1,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 0,
                },
                sq_sig_all: false,
                pd,
                quirks: Default::default(),
            };
            self.adapter.create_qp(init).expect("a queue pair");
        }
    }
}

/// Mostly all rights.
pub(super) fn access(bits: u8) -> Access {
    if bits & 0x80 == 0 {
        return Access::all() - Access::FLUSH_PERSISTENT;
    }
    Access::from_bits_truncate(u32::from(bits & 0x1F) | u32::from(bits >> 5 & 3) << 8)
}

fn init(value: u8) -> Init {
    Init { pkey_index: u16::from(value == 0xFF), access: access(value), qkey: QKEY }
}

/// Values above 0xF0 are wrong.
fn rtr(qp_type: QpType, ip: IpAddr, dest_qpn: Qpn, value: u8) -> Rtr {
    let mut av = AddressVector::new(ip.into(), u16::from(value == 0xF1));
    if value == 0xF2 {
        av.dgid = IpAddr::from([0xFD00, 0, 0, 0, 0, 0, 0, 1]).into();
    }
    let path_mtu = if value == 0xF3 { Mtu::B4096 } else { Mtu::B256 };
    let peer = PeerAttr { dest_qpn, path_mtu, rq_psn: Psn::new(psn(value)), av };
    let responder = ResponderAttr {
        max_dest_rd_atomic: if value == 0xF4 { 129 } else { 4 },
        min_rnr_timer: if value == 0xF5 { 32 } else { 1 },
    };
    Rtr::new(qp_type, peer, responder)
}

fn rts(qp_type: QpType, value: u8) -> Rts {
    let requester = RequesterAttr {
        timeout: if value == 0xF1 { 32 } else { 8 },
        retry_cnt: if value == 0xF2 { 8 } else { 2 },
        rnr_retry: if value == 0xF3 { 8 } else { 2 },
        max_rd_atomic: if value == 0xF4 { 129 } else { 4 },
    };
    Rts::new(qp_type, Psn::new(psn(value)), requester)
}

/// Far apart between lives, some just before the wrap.
const fn psn(value: u8) -> u32 {
    ((value as u32) << 18).wrapping_sub(2) & 0xFF_FFFF
}
