use std::sync::Arc;

use roce_transport::{
    adapter::ObjectError,
    addr::Qpn,
    event::{Counter, Counters},
};

use super::{context::Context, queue_pair::QueuePair};
use crate::sync::Mutex;

/// Counters object (`ibv_counters`): counts of the device or of queue pairs since attachment. It
/// keeps the queue pairs.
///
/// ```
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// let counters = context.create_counters();
/// counters.attach_device();
/// for value in counters.read() {
///     println!("{:<24} {}", value.counter.name, value.counter.value);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CounterSet {
    context: Context,
    sources: Arc<Mutex<Vec<Source>>>,
}

struct Source {
    /// `None`: the device.
    qp: Option<QueuePair>,
    /// Values at attachment.
    before: Counters,
}

/// Counter of the device or a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct CounterValue {
    /// Queue pair; `None`: the device.
    pub qpn: Option<Qpn>,
    /// Name, explanation, and count since attachment.
    pub counter: Counter,
}

impl Context {
    /// Creates an empty counters object (`ibv_create_counters`).
    #[must_use]
    pub fn create_counters(&self) -> CounterSet {
        CounterSet { context: self.clone(), sources: Arc::default() }
    }
}

impl CounterSet {
    /// Attaches the device.
    pub fn attach_device(&self) {
        self.attach(None);
    }

    /// Attaches a queue pair, whose packets then cost more (as `ibv_attach_counters_point_flow` a
    /// flow).
    ///
    /// # Errors
    /// [`ObjectError::Unknown`] for another device's queue pair (`EINVAL`).
    pub fn attach_qp(&self, qp: &QueuePair) -> Result<(), ObjectError> {
        let own = self.context.check_own(qp.context());
        self.context.explained("ibv_attach_counters_point_flow", own)?;
        let counted = qp.inner.engine().alter(|adapter| adapter.count_qp(qp.qpn()));
        self.context.explained("ibv_attach_counters_point_flow", counted)?;
        self.attach(Some(qp.clone()));
        Ok(())
    }

    fn attach(&self, qp: Option<QueuePair>) {
        let before = self.counters_of(qp.as_ref());
        self.sources.lock().push(Source { qp, before });
    }

    fn counters_of(&self, qp: Option<&QueuePair>) -> Counters {
        let Some(qp) = qp else { return self.context.counters() };
        let mut shard = qp.inner.engine().lock();
        shard.adapter().qp_counters(qp.qpn()).cloned().unwrap_or_default()
    }

    /// Reads the values, in order of attachment (`ibv_read_counters`).
    #[must_use]
    pub fn read(&self) -> Vec<CounterValue> {
        let sources = self.sources.lock();
        let mut values = Vec::new();
        for Source { qp, before } in &*sources {
            let qpn = qp.as_ref().map(QueuePair::qpn);
            let now = self.counters_of(qp.as_ref());
            let since = now
                .iter()
                .zip(before.iter())
                .map(|(now, before)| Counter { value: now.value - before.value, ..now });
            values.extend(since.map(|counter| CounterValue { qpn, counter }));
        }
        values
    }
}

opaque_debug!(CounterSet, |this| context: this.context);
