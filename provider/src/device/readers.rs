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
    observer: Option<Shared<dyn Observer>>,
    sink: Option<Shared<dyn Sink>>,
    latest: usize,
}

struct Shared<T: ?Sized>(Arc<Mutex<Box<T>>>);

impl<T: ?Sized> Shared<T> {
    fn new(reader: Box<T>) -> Self {
        Self(Arc::new(Mutex::new(reader)))
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Readers {
    pub(super) fn new(
        device: &str,
        pcap: Option<PathBuf>,
        observer: Option<Box<dyn Observer>>,
        trace: Trace,
    ) -> Result<Self, OpenError> {
        let observer = match pcap {
            Some(path) => {
                let capture = CaptureFile::new(&path, device)
                    .map_err(|source| OpenError::Capture { path, source })?;
                Some(Box::new(Both { capture, other: observer }) as Box<dyn Observer>)
            }
            None => observer,
        };
        let Trace { sink, latest } = trace;
        Ok(Self { observer: observer.map(Shared::new), sink: sink.map(Shared::new), latest })
    }

    pub(super) fn observer(&self) -> Option<Box<dyn Observer>> {
        self.observer.clone().map(|observer| Box::new(observer) as _)
    }

    pub(super) fn trace(&self) -> Trace {
        let sink = self.sink.clone().map(|sink| Box::new(sink) as _);
        Trace { sink, latest: self.latest }
    }
}

impl Observer for Shared<dyn Observer> {
    fn observe(&mut self, observed: &Observed<'_>) {
        self.0.lock().observe(observed);
    }

    fn observe_frame(&mut self, at: Duration, direction: Direction, frame: &[u8]) {
        self.0.lock().observe_frame(at, direction, frame);
    }
}

impl Sink for Shared<dyn Sink> {
    fn record(&mut self, record: Record) {
        self.0.lock().record(record);
    }
}

struct Both {
    capture: CaptureFile,
    other: Option<Box<dyn Observer>>,
}

impl Observer for Both {
    fn observe(&mut self, observed: &Observed<'_>) {
        self.capture.observe(observed);
        if let Some(other) = &mut self.other {
            other.observe(observed);
        }
    }

    fn observe_frame(&mut self, at: Duration, direction: Direction, frame: &[u8]) {
        self.capture.observe_frame(at, direction, frame);
        if let Some(other) = &mut self.other {
            other.observe_frame(at, direction, frame);
        }
    }
}
