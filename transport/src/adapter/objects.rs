use alloc::sync::Arc;

use super::{
    Adapter, Limits,
    error::{ObjectError, ObjectKind, ObjectMismatch, ObjectSize, known, limit, size},
    tables::Used,
};
use crate::{
    addr::AddressVector,
    ids::{AhId, PdId, Qpn, RKey, SrqId, WindowId, XrcdId},
    mem::{MrAttr, Region, RegisterError, Reregister, WindowType},
    qp::{
        Common, Completions, PostError, Qp, QpCaps, QpInfo, QpInit, QpType, Receiving,
        SendQueueInfo,
    },
    time::Instant,
    trace::Call,
    work::{
        AbandonedRequests, CompletionQueue, RecvWr, SharedQueue, SrqAttr, SrqError, SrqInfo,
        XrcPart,
    },
};

impl Adapter {
    /// Makes a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`].
    pub fn alloc_pd(&mut self) -> Result<PdId, ObjectError> {
        let pd = PdId(self.tables.pds.vacant_key() as u32);
        self.adopt_pd(pd)?;
        Ok(pd)
    }

    /// Destroys a protection domain (`ibv_dealloc_pd`).
    ///
    /// # Errors
    /// [`ObjectError::InUse`] while an object belongs to it; [`ObjectError::Unknown`].
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), ObjectError> {
        self.tables.check_unused(Used::Pd(pd))?;
        self.tables.pds.try_remove(pd.0 as usize).ok_or(ObjectError::Unknown)
    }

    /// Registers memory (`ibv_reg_mr`, `ibv_reg_mr_iova`).
    pub fn register(&mut self, pd: PdId, attr: MrAttr) -> Result<Arc<Region>, RegisterError> {
        if !self.tables.has_pd(pd) {
            return Err(RegisterError::UnknownPd);
        }
        self.fits_region(attr.memory.len())?;
        let region = self.resources.regions.register(pd, attr, &mut self.rng)?;
        self.tables.use_pd(pd);
        self.late_for(&region);
        Ok(region)
    }

    /// Checks a region's length (`max_mr_size`).
    pub const fn fits_region(&self, length: u64) -> Result<(), RegisterError> {
        let most = self.limits.max_mr_size;
        if length <= most { Ok(()) } else { Err(RegisterError::TooLong(most)) }
    }

    /// Changes a region but not its keys (`ibv_rereg_mr`); in-flight requests of the old region
    /// fail.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] while windows are bound; [`RegisterError::Deregistered`].
    pub fn reregister(
        &mut self,
        region: &Arc<Region>,
        change: Reregister,
    ) -> Result<Arc<Region>, RegisterError> {
        if change.pd.is_some_and(|pd| !self.tables.has_pd(pd)) {
            return Err(RegisterError::UnknownPd);
        }
        if let Some((memory, _)) = &change.memory {
            self.fits_region(memory.len())?;
        }
        self.late.place_all();
        let changed = self.resources.regions.reregister(region, change)?;
        self.tables.use_pd(changed.pd());
        self.tables.leave_pd(region.pd());
        self.late_for(&changed);
        Ok(changed)
    }

    pub(super) fn late_for(&mut self, region: &Region) {
        if region.is_behind_driver() {
            self.late.begin();
        }
    }

    /// Deregisters memory (`ibv_dereg_mr`); in-flight requests to it fail.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] while windows are bound.
    pub fn deregister(&mut self, region: &Region) -> Result<(), RegisterError> {
        if region.has_windows() {
            return Err(RegisterError::InUse);
        }
        self.revoke(region);
        Ok(())
    }

    /// Deregisters memory despite bound windows, which then reach nothing.
    pub fn revoke(&mut self, region: &Region) {
        self.late.place_all();
        if self.resources.regions.deregister(region) {
            self.tables.leave_pd(region.pd());
        }
    }

    /// Allocates a memory window (`ibv_alloc_mw`); returns its first key.
    ///
    /// # Errors
    /// [`ObjectError::TooMany`]; [`ObjectError::Unknown`].
    pub fn alloc_window(&mut self, pd: PdId, window_type: WindowType) -> Result<RKey, ObjectError> {
        self.admit_window(pd)?;
        Ok(self.resources.regions.alloc_window(pd, window_type, &mut self.rng))
    }

    pub(super) fn admit_window(&mut self, pd: PdId) -> Result<(), ObjectError> {
        known(self.tables.has_pd(pd))?;
        limit(ObjectKind::MemoryWindow, self.resources.regions.window_count(), self.limits.max_mw)?;
        self.tables.use_pd(pd);
        Ok(())
    }

    /// Destroys a memory window, bound or not (`ibv_dealloc_mw`).
    ///
    /// # Errors
    /// [`ObjectError::Unknown`].
    pub fn dealloc_window(&mut self, id: WindowId) -> Result<(), ObjectError> {
        self.late.place_all();
        let pd = self.resources.regions.dealloc_window(id).ok_or(ObjectError::Unknown)?;
        self.tables.leave_pd(pd);
        Ok(())
    }

    /// Creates an address handle (`ibv_create_ah`).
    ///
    /// # Errors
    /// [`ObjectError::GidIndex`] unless `sgid_index` is a local GID of the destination's family;
    /// [`ObjectError::RoceV1`]; [`ObjectError::TooMany`]; [`ObjectError::Unknown`].
    pub fn create_ah(&mut self, pd: PdId, av: &AddressVector) -> Result<AhId, ObjectError> {
        known(self.tables.has_pd(pd))?;
        if self.resources.gids.is_only_shown(av.sgid_index) {
            return Err(ObjectError::RoceV1(av.sgid_index));
        }
        if av.dgid.is_zero()
            || self.resources.gids.path(av, Qpn::default(), Qpn::default()).is_none()
        {
            return Err(ObjectError::GidIndex(av.sgid_index));
        }
        limit(ObjectKind::AddressHandle, self.tables.ahs.len(), self.limits.max_ah)?;
        self.tables.use_pd(pd);
        Ok(AhId(self.tables.ahs.insert(pd) as u32))
    }

    /// Destroys an address handle (`ibv_destroy_ah`); posted requests still execute.
    ///
    /// # Errors
    /// [`ObjectError::Unknown`].
    pub fn destroy_ah(&mut self, id: AhId) -> Result<(), ObjectError> {
        let pd = self.tables.ahs.try_remove(id.0 as usize).ok_or(ObjectError::Unknown)?;
        self.tables.leave_pd(pd);
        Ok(())
    }

    /// Creates a shared receive queue (`ibv_create_srq`).
    ///
    /// # Errors
    /// [`ObjectError::Size`], [`ObjectError::TooMany`], [`ObjectError::Unknown`].
    pub fn create_srq(&mut self, pd: PdId, attr: SrqAttr) -> Result<SrqId, ObjectError> {
        self.insert_srq(pd, attr, None)
    }

    /// Creates an XRC SRQ (`ibv_create_srq_ex`, `IBV_SRQT_XRC`) for a domain's targets.
    ///
    /// # Errors
    /// [`ObjectError::Size`], [`ObjectError::TooMany`], [`ObjectError::Unknown`];
    /// [`ObjectError::Overrun`] if `cq` has overflowed.
    pub fn create_xrc_srq(
        &mut self,
        pd: PdId,
        attr: SrqAttr,
        xrcd: XrcdId,
        cq: Arc<CompletionQueue>,
    ) -> Result<SrqId, ObjectError> {
        known(self.tables.xrcds.contains(xrcd.0 as usize) && self.tables.owns(&cq))?;
        if cq.has_overrun() {
            return Err(ObjectError::Overrun);
        }
        self.insert_srq(pd, attr, Some(XrcPart::new(xrcd, cq)))
    }

    fn insert_srq(
        &mut self,
        pd: PdId,
        attr: SrqAttr,
        xrc: Option<XrcPart>,
    ) -> Result<SrqId, ObjectError> {
        if self.limits.max_srq == 0 {
            limit(ObjectKind::SharedReceiveQueue, 0, 0)?; // whatever the size
        }
        size(ObjectSize::MaxWr, attr.max_wr as usize, 1, self.limits.max_srq_wr as usize)?;
        size(ObjectSize::MaxSge, attr.max_sge as usize, 0, self.limits.max_srq_sge as usize)?;
        known(self.tables.has_pd(pd))?;
        limit(ObjectKind::SharedReceiveQueue, self.resources.srqs.len(), self.limits.max_srq)?;
        // unique within a device, like QPNs
        let id = loop {
            let id = SrqId::new(self.qps.random_number(&mut self.rng));
            if !self.resources.srqs.contains_key(&id) {
                break id;
            }
        };
        let srq = SharedQueue::new(pd, attr, xrc);
        self.tables.add_user(Used::by_srq(&srq));
        self.resources.srqs.insert(id, srq);
        Ok(id)
    }

    /// Opens an XRC domain (`ibv_open_xrcd`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`].
    pub fn open_xrcd(&mut self) -> Result<XrcdId, ObjectError> {
        limit(ObjectKind::XrcDomain, self.tables.xrcds.len(), self.limits.max_xrcd)?;
        Ok(XrcdId(self.tables.xrcds.insert(()) as u32))
    }

    /// Closes an XRC domain (`ibv_close_xrcd`).
    ///
    /// # Errors
    /// [`ObjectError::InUse`] while an XRC SRQ or target belongs to it; [`ObjectError::Unknown`].
    pub fn close_xrcd(&mut self, xrcd: XrcdId) -> Result<(), ObjectError> {
        self.tables.check_unused(Used::Xrcd(xrcd))?;
        self.tables.xrcds.try_remove(xrcd.0 as usize).ok_or(ObjectError::Unknown)
    }

    /// Destroys a shared receive queue (`ibv_destroy_srq`); its requests do not complete.
    ///
    /// # Errors
    /// [`ObjectError::InUse`] while a queue pair other than an XRC target uses it;
    /// [`ObjectError::Unknown`].
    pub fn destroy_srq(&mut self, id: SrqId) -> Result<(), ObjectError> {
        self.tables.check_unused(Used::Srq(id))?;
        let srq = self.resources.srqs.remove(&id).ok_or(ObjectError::Unknown)?;
        self.tables.remove_user(Used::by_srq(&srq));
        for target in srq.xrc.map(|xrc| xrc.targets).unwrap_or_default() {
            if let Some(index) = self.qps.index_of(target) {
                self.qps[index].leave_srq(&mut self.resources.srqs);
            }
        }
        Ok(())
    }

    /// Attributes of a shared receive queue (`ibv_query_srq`).
    #[must_use]
    pub fn query_srq(&self, id: SrqId) -> Option<SrqInfo> {
        self.resources.srqs.get(&id).map(SharedQueue::info)
    }

    /// Arms [`SrqLimitReached`](crate::event::Event::SrqLimitReached) once (`IBV_SRQ_LIMIT`).
    ///
    /// # Errors
    /// [`SrqError::Limit`] beyond the queue's size; [`SrqError::UnknownSrq`].
    pub fn set_srq_limit(&mut self, id: SrqId, limit: u32) -> Result<(), SrqError> {
        let srq = self.resources.srqs.get_mut(&id).ok_or(SrqError::UnknownSrq)?;
        if limit > srq.queue.capacity() {
            return Err(SrqError::Limit(srq.queue.capacity()));
        }
        srq.limit = limit;
        Ok(())
    }

    /// Resizes a shared receive queue (`IBV_SRQ_MAX_WR`).
    ///
    /// # Errors
    /// [`SrqError::Size`]; [`SrqError::Posted`], [`SrqError::Limit`] below the requests posted or
    /// the limit; [`SrqError::UnknownSrq`].
    pub fn resize_srq(&mut self, id: SrqId, max_wr: u32) -> Result<(), SrqError> {
        let srq = self.resources.srqs.get_mut(&id).ok_or(SrqError::UnknownSrq)?;
        if !(1..=self.limits.max_srq_wr).contains(&max_wr) {
            return Err(SrqError::Size(self.limits.max_srq_wr));
        }
        if srq.queue.len() > max_wr {
            return Err(SrqError::Posted(srq.queue.len()));
        }
        if srq.limit > max_wr {
            return Err(SrqError::Limit(max_wr));
        }
        srq.queue.set_capacity(max_wr);
        Ok(())
    }

    /// Posts to a shared receive queue (`ibv_post_srq_recv`).
    pub fn post_srq_recv(&mut self, id: SrqId, wr: &RecvWr) -> Result<(), PostError> {
        let call = || Call::post_srq_recv(id, wr);
        self.recorded(Instant::ZERO, Qpn::default(), call, |adapter| adapter.push_srq(id, wr))
    }

    fn push_srq(&mut self, id: SrqId, wr: &RecvWr) -> Result<(), PostError> {
        let srq = self.resources.srqs.get_mut(&id).ok_or(PostError::UnknownSrq)?;
        if wr.sges.len() > srq.max_sge as usize {
            return Err(PostError::TooManySges { limit: srq.max_sge });
        }
        if srq.queue.is_full() {
            return Err(PostError::full(srq.queue.capacity()));
        }
        srq.queue.push(wr, srq.pd, &self.resources.regions);
        Ok(())
    }

    /// Creates a queue pair in RESET (`ibv_create_qp`).
    ///
    /// # Errors
    /// [`ObjectError::Size`], [`ObjectError::TooMany`], [`ObjectError::Unknown`];
    /// [`ObjectError::Overrun`] after a completion queue's overflow; [`ObjectError::NoFrames`]
    /// unless the link [carries](Self::carry_frames) raw packets; [`ObjectError::Mismatch`] for a
    /// wrong shared receive queue, or a target ([`create_xrc_target`](Self::create_xrc_target)).
    pub fn create_qp(&mut self, init: QpInit) -> Result<Qpn, ObjectError> {
        let qp_type = init.qp_type;
        let result = self.make_qp(init);
        self.record_created(qp_type, &result);
        result
    }

    fn make_qp(&mut self, init: QpInit) -> Result<Qpn, ObjectError> {
        let QpInit { qp_type, send_cq, recv_cq, srq, caps, sq_sig_all, pd, quirks } = init;
        let Limits { max_qp_wr, max_sge, max_recv_sge, max_inline_data, .. } = self.limits;
        for (what, asked, limit) in [
            (ObjectSize::MaxSendWr, caps.max_send_wr, max_qp_wr),
            (ObjectSize::MaxRecvWr, caps.max_recv_wr, max_qp_wr),
            (ObjectSize::MaxSendSge, caps.max_send_sge, max_sge),
            (ObjectSize::MaxRecvSge, caps.max_recv_sge, max_recv_sge),
            (ObjectSize::MaxInlineData, caps.max_inline_data, max_inline_data),
        ] {
            size(what, asked as usize, 0, limit as usize)?;
        }
        self.limits.send_queue.map_or(Ok(()), |memory| memory.check(qp_type, &caps))?;
        let is_initiator = qp_type == QpType::XrcInitiator;
        let recv_cq = (!is_initiator).then_some(recv_cq);
        let own_cqs =
            self.tables.owns(&send_cq) && recv_cq.as_ref().is_none_or(|cq| self.tables.owns(cq));
        let srq_exists = srq.is_none_or(|id| self.resources.srqs.contains_key(&id));
        known(self.tables.has_pd(pd) && own_cqs && srq_exists)?;
        if qp_type == QpType::XrcTarget {
            return Err(ObjectMismatch::TargetWithQueues.into());
        }
        if qp_type == QpType::RawPacket {
            if self.sending.frames.mtu.is_none() {
                return Err(ObjectError::NoFrames);
            }
            if srq.is_some() {
                return Err(ObjectMismatch::RawWithSrq.into());
            }
        }
        if is_initiator && srq.is_some() {
            return Err(ObjectMismatch::InitiatorWithSrq.into());
        }
        if srq.and_then(|id| self.resources.srqs.get(&id)).is_some_and(|srq| srq.xrc.is_some()) {
            return Err(ObjectMismatch::XrcSrq.into());
        }
        if send_cq.has_overrun() || recv_cq.as_ref().is_some_and(|cq| cq.has_overrun()) {
            return Err(ObjectError::Overrun);
        }
        let common = Common {
            receiving: Receiving { pd, srq, cq: recv_cq },
            completions: Completions {
                send_cq: Some(send_cq),
                sq_sig_all,
                ..Completions::default()
            },
            quirks,
            posting: self.resources.posting,
            ..Common::new(qp_type, caps, self.resources.gids.port_mtu())
        };
        self.insert_qp(common)
    }

    /// Creates an XRC target in RESET (`ibv_create_qp_ex` with `IBV_QPT_XRC_RECV`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`]; [`ObjectError::Unknown`].
    pub fn create_xrc_target(&mut self, xrcd: XrcdId) -> Result<Qpn, ObjectError> {
        let result = self.make_xrc_target(xrcd);
        self.record_created(QpType::XrcTarget, &result);
        result
    }

    fn make_xrc_target(&mut self, xrcd: XrcdId) -> Result<Qpn, ObjectError> {
        known(self.tables.xrcds.contains(xrcd.0 as usize))?;
        let caps = QpCaps {
            max_send_wr: 0,
            max_recv_wr: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline_data: 0,
        };
        let common = Common {
            xrcd: Some(xrcd),
            ..Common::new(QpType::XrcTarget, caps, self.resources.gids.port_mtu())
        };
        self.insert_qp(common)
    }

    fn insert_qp(&mut self, common: Common) -> Result<Qpn, ObjectError> {
        limit(ObjectKind::QueuePair, self.qps.len(), self.limits.max_qp)?;
        let qpn = loop {
            let qpn = Qpn::new(self.qps.random_number(&mut self.rng));
            if self.qps.index_of(qpn).is_none() {
                break qpn;
            }
        };
        let caps = common.caps;
        self.tables.add_user(Used::by_qp(&common));
        let window = &self.resources.congestion.window;
        let index = self.qps.add(Qp::new(Common { qpn, ..common }, &caps, window));
        self.record_new(index);
        self.sending.add_place(index);
        Ok(qpn)
    }

    /// Destroys a queue pair (`ibv_destroy_qp`) without completions. Detach it first to learn which
    /// multicast groups become empty.
    ///
    /// # Errors
    /// [`ObjectError::Unknown`].
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ObjectError> {
        self.recorded(Instant::ZERO, qpn, || Call::DestroyQp, |adapter| adapter.remove_qp(qpn))
    }

    /// Takes a queue pair's requests before RESET or destruction, to drop them outside the lock.
    pub fn abandon_requests(&mut self, qpn: Qpn) -> Option<AbandonedRequests> {
        let index = self.qps.index_of(qpn)?;
        Some(self.qps[index].take_requests())
    }

    /// The same for an unused shared receive queue.
    pub fn abandon_srq_requests(&mut self, id: SrqId) -> Option<AbandonedRequests> {
        self.tables.check_unused(Used::Srq(id)).ok()?;
        let srq = self.resources.srqs.get_mut(&id)?;
        Some(AbandonedRequests { recvs: srq.queue.take(), ..AbandonedRequests::default() })
    }

    fn remove_qp(&mut self, qpn: Qpn) -> Result<(), ObjectError> {
        let (index, mut qp) = self.qps.take(qpn).ok_or(ObjectError::Unknown)?;
        self.late.place_all_of(qpn);
        self.tables.remove_user(Used::by_qp(&qp.common));
        if qp.common.qp_type == QpType::XrcTarget {
            qp.leave_srq(&mut self.resources.srqs);
        }
        if qp.common.binds {
            self.resources.regions.unbind_all(qpn);
        }
        let next = self.sending.leave(index);
        next.into_iter().flatten().for_each(|next| self.make_ready(next));
        self.detach_everywhere(index);
        Ok(())
    }

    /// Attributes and state of a queue pair (`ibv_query_qp`).
    #[must_use]
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        Some(self.qps[self.qps.index_of(qpn)?].info())
    }

    /// Progress of a send queue.
    #[must_use]
    pub fn query_send_queue(&self, qpn: Qpn) -> Option<SendQueueInfo> {
        Some(self.qps[self.qps.index_of(qpn)?].send_queue_info())
    }

    /// Attributes and states of all queue pairs.
    pub fn queue_pairs(&self) -> impl Iterator<Item = QpInfo> {
        self.qps.iter().map(|(_, qp)| qp.info())
    }
}
