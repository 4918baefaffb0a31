use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Weak},
};

use roce_transport::{adapter::Adapter, event::Event, work::CqId};

use crate::{engine::EventSink, link::Link, notify::Notifier};

pub(crate) struct AsyncQueue {
    pub(super) unread: Notifier<Event>,
    pub(super) wanted: Box<dyn Fn(Event) -> bool + Send + Sync>,
}

impl AsyncQueue {
    /// `wanted` runs under the locks of engine and queue.
    pub(crate) fn new(wanted: impl Fn(Event) -> bool + Send + Sync + 'static) -> io::Result<Self> {
        Ok(Self { unread: Notifier::new()?, wanted: Box::new(wanted) })
    }

    fn push(&self, event: Event) {
        self.unread.push_if(event, |event| (self.wanted)(*event));
    }
}

#[derive(Default)]
pub(crate) struct ObjectEvents {
    completions: BTreeMap<CqId, Box<dyn Fn() + Send>>,
    readers: Vec<Weak<AsyncQueue>>,
    /// Another shard reports device events.
    ignores_port_events: bool,
}

impl ObjectEvents {
    pub(super) fn insert_cq(&mut self, id: CqId, wake: impl Fn() + Send + 'static) {
        self.completions.insert(id, Box::new(wake));
    }

    pub(crate) const fn ignore_port_events(&mut self) {
        self.ignores_port_events = true;
    }

    pub(super) fn remove_cq(&mut self, id: CqId) {
        self.completions.remove(&id);
    }

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
        } else if !self.ignores_port_events || !is_of_port(event) {
            self.readers.iter().filter_map(Weak::upgrade).for_each(|reader| reader.push(event));
        }
    }
}

/// Every shard has such an event; the program gets one.
const fn is_of_port(event: Event) -> bool {
    matches!(event, Event::PKeyChange | Event::PortActive | Event::PortError | Event::GidChange)
}
