//! Capture, observer and trace sink, common to a device's shards.

use std::{path::PathBuf, sync::Arc, time::Duration};

use roce_transport::trace::{Record, Sink, Trace};

use super::OpenError;
use crate::{
    fabric::Direction,
    link::{CaptureFile, Observed, Observer},
    sync::Mutex,
};

pub(super) struct Readers {
    observers: Option<SharedObservers>,
    sink: Option<SharedSink>,
}

#[derive(Clone)]
struct SharedObservers(Arc<Mutex<Vec<Box<dyn Observer>>>>);

#[derive(Clone)]
struct SharedSink(Arc<Mutex<Box<dyn Sink>>>);

impl Readers {
    pub(super) fn new(
        device: &str,
        pcap: Option<PathBuf>,
        observer: Option<Box<dyn Observer>>,
        trace: Trace,
    ) -> Result<Self, OpenError> {
        let mut observers: Vec<Box<dyn Observer>> = Vec::new();
        if let Some(path) = pcap {
            let capture = CaptureFile::new(&path, device)
                .map_err(|source| OpenError::Capture { path, source })?;
            observers.push(Box::new(capture));
        }
        observers.extend(observer);
        let observers =
            (!observers.is_empty()).then(|| SharedObservers(Arc::new(Mutex::new(observers))));
        let sink = trace.sink.map(|sink| SharedSink(Arc::new(Mutex::new(sink))));
        Ok(Self { observers, sink })
    }

    pub(super) fn observer(&self) -> Option<Box<dyn Observer>> {
        self.observers.clone().map(|observers| Box::new(observers) as _)
    }

    pub(super) fn trace(&self) -> Trace {
        Trace { sink: self.sink.clone().map(|sink| Box::new(sink) as _) }
    }
}

impl Observer for SharedObservers {
    fn observe(&mut self, observed: &Observed<'_>) {
        self.0.lock().iter_mut().for_each(|observer| observer.observe(observed));
    }

    fn observe_frame(&mut self, at: Duration, direction: Direction, frame: &[u8]) {
        let mut observers = self.0.lock();
        observers.iter_mut().for_each(|observer| observer.observe_frame(at, direction, frame));
    }
}

impl Sink for SharedSink {
    fn record(&mut self, record: Record) {
        self.0.lock().record(record);
    }
}
