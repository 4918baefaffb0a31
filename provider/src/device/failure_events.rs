//! Asynchronous events that report a failure of the port or of the device, for explanations. Those
//! of queue pairs are explained from their record.

use roce_transport::{adapter::Adapter, event::Event};

use crate::{diagnosis::FoundEvents, engine::EventSink, link::Link};

/// Hands them on, if the device explains.
#[derive(Default)]
pub(super) struct FailureEvents(pub(super) Option<FoundEvents>);

impl EventSink for FailureEvents {
    fn on_event(&mut self, event: Event, _adapter: &mut Adapter, _link: &mut dyn Link) {
        if let (Event::PortError | Event::DeviceFatal, Some(found)) = (event, &self.0) {
            found.add(event);
        }
    }
}
