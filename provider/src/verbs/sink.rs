//! Distribution of the events of a device's objects.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use roce_transport::{adapter::Adapter, event::Event, work::CqId};

use crate::{engine::EventSink, link::Link, notify::Notifier};

/// Queue of asynchronous events.
pub(crate) type AsyncQueue = Notifier<Event>;

/// Completion queues by their identifier, and the readers of asynchronous events.
#[derive(Default)]
pub(crate) struct ObjectEvents {
    completions: BTreeMap<CqId, Box<dyn Fn() + Send>>,
    readers: Vec<Weak<AsyncQueue>>,
}

impl ObjectEvents {
    /// Calls `wake` with every event of a completion queue.
    pub(super) fn insert_cq(&mut self, id: CqId, wake: impl Fn() + Send + 'static) {
        self.completions.insert(id, Box::new(wake));
    }

    pub(super) fn remove_cq(&mut self, id: CqId) {
        self.completions.remove(&id);
    }

    /// Adds a reader, which gets all events from now on.
    pub(crate) fn add_reader(&mut self, reader: &Arc<AsyncQueue>) {
        self.readers.retain(|reader| reader.strong_count() > 0);
        self.readers.push(Arc::downgrade(reader));
    }
}

impl EventSink for ObjectEvents {
    fn on_event(&mut self, event: Event, _adapter: &mut Adapter, _link: &mut dyn Link) {
        if let Event::Completion(id) = event {
            if let Some(wake) = self.completions.get(&id) {
                wake();
            }
        } else {
            self.readers.iter().filter_map(Weak::upgrade).for_each(|reader| reader.push(event));
        }
    }
}
