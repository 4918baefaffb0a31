//! Delayed events, for late placement.

use alloc::{boxed::Box, collections::VecDeque};

use crate::{
    cm::ConnEvent,
    event::Event,
    ids::{CqId, Qpn},
    time::Instant,
    work::{Half, Late, LateConfig},
};

#[derive(Debug, Default)]
pub(super) struct Lateness(Option<Box<Parts>>);

#[derive(Debug)]
struct Parts {
    late: Late,
    now: Instant,
    events: Waiting<Event>,
    cm_events: Waiting<ConnEvent>,
}

#[derive(Debug)]
struct Waiting<E>(VecDeque<(Instant, E)>);

impl<E> Waiting<E> {
    fn add(&mut self, at: Instant, event: E) {
        let at = self.0.back().map_or(at, |(last, _)| at.max(*last));
        self.0.push_back((at, event));
    }

    fn next(&mut self, now: Instant) -> Option<E> {
        self.deadline().filter(|at| *at <= now).and_then(|_| Some(self.0.pop_front()?.1))
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.front().map(|(at, _)| *at)
    }
}

impl Parts {
    const fn new(late: Late) -> Self {
        Self {
            late,
            now: Instant::ZERO,
            events: Waiting(VecDeque::new()),
            cm_events: Waiting(VecDeque::new()),
        }
    }
}

impl Lateness {
    pub(super) fn new(config: LateConfig) -> Self {
        Self(Late::new(config).map(Parts::new).map(Into::into))
    }

    /// Called for regions behind drivers.
    pub(super) fn begin(&mut self) {
        self.0.get_or_insert_with(|| Box::new(Parts::new(Late::with(LateConfig::default()))));
    }

    pub(super) fn at(&mut self, now: Instant) -> Option<&mut Late> {
        let parts = self.0.as_mut()?;
        parts.now = parts.now.max(now);
        Some(&mut parts.late)
    }

    pub(super) fn place_all(&mut self) {
        if let Some(parts) = &mut self.0 {
            parts.late.place_all();
        }
    }

    pub(super) fn place_all_of(&mut self, qpn: Qpn) {
        if let Some(parts) = &mut self.0 {
            for half in [Half::Requester, Half::Responder] {
                let half = (qpn.get(), half);
                parts.late.place_all_of(half);
                parts.late.forget_failed(half);
            }
        }
    }

    pub(super) fn forget_cq(&mut self, id: CqId) {
        if let Some(parts) = &mut self.0 {
            parts.late.forget_cq(id);
        }
    }

    pub(super) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn has_events(&self) -> bool {
        let due = |parts: &Parts| parts.events.deadline().is_some_and(|at| at <= parts.now);
        self.0.as_ref().is_some_and(|parts| due(parts))
    }

    pub(super) fn event(&mut self, new: &mut VecDeque<Event>) -> Option<Event> {
        let Some(parts) = &mut self.0 else { return new.pop_front() };
        for event in new.drain(..) {
            parts.events.add(parts.late.time_of_event(parts.now), event);
        }
        parts.events.next(parts.now)
    }

    pub(super) fn cm_event(
        &mut self,
        mut new: impl FnMut() -> Option<ConnEvent>,
    ) -> Option<ConnEvent> {
        let Some(parts) = &mut self.0 else { return new() };
        while let Some(event) = new() {
            parts.cm_events.add(parts.late.time_of_event(parts.now), event);
        }
        parts.cm_events.next(parts.now)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let parts = self.0.as_ref()?;
        let events = [parts.events.deadline(), parts.cm_events.deadline()];
        events.into_iter().flatten().chain(parts.late.deadline()).min()
    }
}
