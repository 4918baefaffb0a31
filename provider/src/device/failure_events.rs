//! Failure events of port and device, for explanations. Queue pairs are explained from their
//! record.

use roce_transport::{adapter::Adapter, event::Event};

use crate::{diagnosis::FoundEvents, engine::EventSink, link::Link};

/// `None` unless the device explains.
#[derive(Default)]
pub(super) struct FailureEvents(pub(super) Option<FoundEvents>);

impl EventSink for FailureEvents {
    fn on_event(&mut self, event: Event, _adapter: &mut Adapter, _link: &mut dyn Link) {
        if let (Event::PortError | Event::DeviceFatal, Some(found)) = (event, &self.0) {
            found.add(event);
        }
    }
}
