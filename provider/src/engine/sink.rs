//! Receivers of an adapter's events and counters, implemented by the layers above.

use std::any::Any;

use roce_transport::{
    adapter::Adapter,
    cm::ConnEvent,
    event::{Counters, Event},
    time::Instant,
};

use crate::{counters::LinkCounters, link::Link};

/// Receiver of a device's events. Runs under the engine's lock: it must not call the engine or drop
/// an object's last handle.
pub(crate) trait EventSink: Any + Send {
    fn on_event(&mut self, event: Event, adapter: &mut Adapter, link: &mut dyn Link);

    /// Returns events of other sinks.
    fn on_cm_event(
        &mut self,
        event: ConnEvent,
        adapter: &mut Adapter,
        now: Instant,
    ) -> Option<ConnEvent> {
        let _ = (adapter, now);
        Some(event)
    }
}

/// Receiver of a device's counters, at most once a second and at the end.
pub(crate) trait CounterSink: Send {
    /// Failures wait for the next change.
    fn publish(&mut self, counters: &Counters, link: &LinkCounters, gids: &[String]);
}

/// Sinks of a device, one per type.
#[derive(Default)]
pub(crate) struct Sinks(Vec<Box<dyn EventSink>>);

impl Sinks {
    /// Adds a missing sink.
    pub(crate) fn of<S: EventSink + Default>(&mut self) -> &mut S {
        let is_wanted = |sink: &dyn Any| sink.is::<S>();
        let index = self.0.iter().position(|sink| is_wanted(&**sink)).unwrap_or_else(|| {
            self.0.push(Box::<S>::default());
            self.0.len() - 1
        });
        let sink: &mut dyn Any = &mut *self.0[index];
        sink.downcast_mut().unwrap_or_else(|| unreachable!("its type was compared"))
    }

    /// Upper layers first.
    pub(super) fn on_event(&mut self, event: Event, adapter: &mut Adapter, link: &mut dyn Link) {
        self.0.iter_mut().rev().for_each(|sink| sink.on_event(event, adapter, link));
    }

    pub(super) fn on_cm_event(&mut self, event: ConnEvent, adapter: &mut Adapter, now: Instant) {
        self.0.iter_mut().try_fold(event, |event, sink| sink.on_cm_event(event, adapter, now));
    }
}

#[cfg(test)]
mod tests {
    use roce_transport::adapter::AdapterConfig;

    use super::*;
    use crate::link::NullLink;

    #[derive(Default)]
    struct Count<const N: u8>(u32);

    impl<const N: u8> EventSink for Count<N> {
        fn on_event(&mut self, _: Event, _: &mut Adapter, _: &mut dyn Link) {
            self.0 += 1;
        }
    }

    #[test]
    fn there_is_one_sink_of_each_type() {
        let mut sinks = Sinks::default();
        sinks.of::<Count<0>>().0 += 10;
        sinks.of::<Count<1>>().0 += 20;
        let mut adapter = Adapter::new(AdapterConfig::new([0; 32]));
        sinks.on_event(Event::PortActive, &mut adapter, &mut NullLink);
        assert_eq!((sinks.of::<Count<0>>().0, sinks.of::<Count<1>>().0), (11, 21));
    }
}
