//! Counters objects.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use roce_transport::{
    adapter::ObjectError,
    addr::Qpn,
    event::{Counter, Counters},
};

use super::{context::Context, queue_pair::QueuePair};

/// Reads the counters of the device or of single queue pairs (`ibv_counters`), each from the moment
/// it was attached. It keeps its queue pairs alive.
#[derive(Clone)]
pub struct CounterSet {
    context: Context,
    sources: Arc<Mutex<Vec<Source>>>,
}

struct Source {
    /// `None`: the device.
    qp: Option<QueuePair>,
    /// What was counted before it was attached.
    before: Counters,
}

/// A counter, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct CounterValue {
    /// The queue pair; `None`: the device.
    pub qpn: Option<Qpn>,
    /// The counter: its name, what it counts, how many since it was attached.
    pub counter: Counter,
}

impl Context {
    /// Makes an object that reads counters (`ibv_create_counters`); attach the device or queue
    /// pairs to it.
    #[must_use]
    pub fn create_counters(&self) -> CounterSet {
        CounterSet { context: self.clone(), sources: Arc::default() }
    }
}

impl CounterSet {
    /// From now on also reads the device's counters.
    pub fn attach_device(&self) {
        self.attach(Source { qp: None, before: self.context.counters() });
    }

    /// From now on also reads the counters of a queue pair (as `ibv_attach_counters_point_flow`
    /// does of a flow). Counting for it alone costs some time with each of its packets, until it is
    /// destroyed.
    ///
    /// # Errors
    /// [`ObjectError::Unknown`] for a queue pair of another device (`EINVAL`).
    pub fn attach_qp(&self, qp: &QueuePair) -> Result<(), ObjectError> {
        if !Arc::ptr_eq(&qp.context().inner, &self.context.inner) {
            return Err(ObjectError::Unknown);
        }
        self.context.inner.engine.lock().adapter().count_qp(qp.qpn())?;
        self.attach(Source { qp: Some(qp.clone()), before: self.counters_of(Some(qp.qpn())) });
        Ok(())
    }

    fn attach(&self, source: Source) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(source);
    }

    fn counters_of(&self, qpn: Option<Qpn>) -> Counters {
        match qpn {
            None => self.context.counters(),
            Some(qpn) => self
                .context
                .inner
                .engine
                .lock()
                .adapter()
                .qp_counters(qpn)
                .cloned()
                .unwrap_or_default(),
        }
    }

    /// The values now, in the order of attaching (`ibv_read_counters`).
    #[must_use]
    pub fn read(&self) -> Vec<CounterValue> {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let mut values = Vec::new();
        for Source { qp, before } in &*sources {
            let qpn = qp.as_ref().map(QueuePair::qpn);
            let now = self.counters_of(qpn);
            let since = now
                .iter()
                .zip(before.iter())
                .map(|(now, before)| Counter { value: now.value - before.value, ..now });
            values.extend(since.map(|counter| CounterValue { qpn, counter }));
        }
        values
    }
}

impl fmt::Debug for CounterSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterSet").field("context", &self.context).finish_non_exhaustive()
    }
}
