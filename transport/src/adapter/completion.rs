use alloc::{boxed::Box, sync::Arc};

use super::{
    Adapter,
    error::{ObjectError, ObjectSize, size},
    tables::Used,
};
use crate::{
    event::Event,
    ids::{CqId, Qpn},
    qp::{CompletionFaults, CountError, Failure, State},
    time::Instant,
    work::{
        CompletionCounter, CompletionQueue, CountedOps, CqModeration, CqRoom, FailedCopy, Late,
    },
};

impl Adapter {
    /// Creates a completion queue of at least `capacity` (`ibv_create_cq`).
    ///
    /// # Errors
    /// [`ObjectError::Size`], [`ObjectError::TooMany`].
    pub fn create_cq(&mut self, capacity: usize) -> Result<Arc<CompletionQueue>, ObjectError> {
        self.fits_cq(capacity)?;
        self.create_cq_in(CqRoom::new(capacity))
    }

    /// Checks a capacity against `max_cqe`.
    pub fn fits_cq(&self, capacity: usize) -> Result<(), ObjectError> {
        size(ObjectSize::Completions, capacity, 1, self.limits.max_cqe)
    }

    /// As [`create_cq`](Self::create_cq), with allocated memory.
    pub fn create_cq_in(&mut self, room: CqRoom) -> Result<Arc<CompletionQueue>, ObjectError> {
        self.fits_cq(room.capacity())?;
        let cq = Arc::new(CompletionQueue::new(CqId(self.tables.cqs.vacant_key() as u32), room));
        self.adopt_cq(&cq)?;
        Ok(cq)
    }

    /// Destroys a completion queue (`ibv_destroy_cq`).
    ///
    /// # Errors
    /// [`ObjectError::InUse`] while a queue pair or XRC SRQ uses it; [`ObjectError::Unknown`].
    pub fn destroy_cq(&mut self, id: CqId) -> Result<(), ObjectError> {
        self.tables.check_unused(Used::Cq(id))?;
        self.tables.cqs.try_remove(id.0 as usize).ok_or(ObjectError::Unknown)?;
        self.late.forget_cq(id);
        Ok(())
    }

    /// Injects completion errors, for tests of programs.
    pub fn set_completion_faults(&mut self, faults: Option<Box<dyn CompletionFaults>>) {
        self.reports.cqs.injected.faults = faults;
    }

    fn cq(&self, id: CqId) -> Result<&Arc<CompletionQueue>, ObjectError> {
        self.tables.cqs.get(id.0 as usize).ok_or(ObjectError::Unknown)
    }

    /// Resizes a completion queue (`ibv_resize_cq`), also during polling, with
    /// [missing](CompletionQueue::lacks) memory if given.
    ///
    /// # Errors
    /// [`ObjectError::Size`]; [`ObjectError::Held`] if too small; [`ObjectError::Overrun`] after an
    /// overflow; [`ObjectError::Unknown`].
    pub fn resize_cq(
        &mut self,
        id: CqId,
        capacity: usize,
        room: Option<CqRoom>,
    ) -> Result<(), ObjectError> {
        let cq = self.cq(id)?;
        self.fits_cq(capacity)?;
        if cq.has_overrun() {
            return Err(ObjectError::Overrun);
        }
        cq.resize(capacity, room).map_err(ObjectError::Held)
    }

    /// Sets event moderation (`ibv_modify_cq`) and delivers a delayed event.
    ///
    /// # Errors
    /// [`ObjectError::Size`] above 65,535 µs; [`ObjectError::Unknown`].
    pub fn moderate_cq(&mut self, id: CqId, moderation: CqModeration) -> Result<(), ObjectError> {
        let cq = self.cq(id)?;
        let period = usize::try_from(moderation.period.as_micros()).unwrap_or(usize::MAX);
        size(ObjectSize::CqPeriod, period, 0, usize::from(u16::MAX))?;
        if cq.moderate(moderation.count, period as u16) {
            self.reports.events.push_back(Event::Completion(id));
        }
        Ok(())
    }

    /// Attaches a counter in RESET or INIT (`ibv_qp_attach_comp_cntr`).
    pub fn count_completions(
        &mut self,
        qpn: Qpn,
        ops: CountedOps,
        counter: Arc<CompletionCounter>,
    ) -> Result<(), CountError> {
        let index = self.qps.index_of(qpn).ok_or(CountError::UnknownQp)?;
        let common = &mut self.qps[index].common;
        if !matches!(common.state, State::Reset | State::Init) {
            return Err(CountError::State(common.state));
        }
        if ops.is_empty() {
            return Err(CountError::NoOperation);
        }
        let attached = common.completions.counters.attach(ops, counter);
        if attached { Ok(()) } else { Err(CountError::Counted) }
    }

    /// Fails queue pairs of overflowed queues (11.6.3.2).
    #[inline]
    pub(super) fn check_cqs(&mut self, now: Instant) {
        if !self.reports.cqs.are_none() {
            self.attend_affected_cqs(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn attend_affected_cqs(&mut self, now: Instant) {
        while let Some((qpn, queue, error)) = self.reports.cqs.injected.pop() {
            if let Some(index) = self.qps.index_of(qpn) {
                self.with_qp(index, now, |qp, env| qp.fail_completion(queue, error, env));
            }
        }
        while let Some(id) = self.reports.cqs.deferred.pop() {
            self.tables.set_cq_timer(id.0 as usize);
        }
        while let Some(id) = self.reports.cqs.overrun.pop() {
            for index in 0..self.sending.places() {
                let Some(qp) = self.qps.get(index) else { continue };
                if qp.common.completes_in(id) && qp.is_alive() {
                    let (qp, mut env) = self.split(index, now);
                    qp.fail(Failure::CqOverrun(id), &mut env);
                    self.record_decisions(now, index);
                    self.reports.events.push_back(Event::QpFatal(self.qps[index].common.qpn));
                }
            }
        }
    }

    pub(super) fn handle_late(&mut self, now: Instant) {
        let Some(late) = self.late.at(now) else { return };
        let placed = late.place_due(now);
        while let Some(FailedCopy { half: (qpn, half), error, .. }) =
            self.late.at(now).and_then(Late::next_failed)
        {
            if let Some(index) = self.qps.index_of(Qpn::new(qpn)) {
                self.with_qp(index, now, |qp, env| qp.fail_copy(half, error, env));
            }
        }
        while let Some(next) = self.late.at(now).and_then(|late| late.next_due(now)) {
            let pushed = next.cq.push(next.wc, &next.validity, next.solicited, now);
            self.reports.record_pushed(next.cq.id(), pushed);
        }
        self.check_cqs(now);
        for qpn in placed {
            if let Some(index) = self.qps.index_of(qpn) {
                self.make_ready(index); // responses waited for placement
            }
        }
    }
}
