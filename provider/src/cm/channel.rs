//! Event channels and the devices behind them.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{error::CmError, shared::QueuedEvent};
use crate::{
    Context, ProtectionDomain,
    notify::Notifier,
    sync::Mutex,
    verbs::{WeakContext, WeakDomain},
};

/// Event channel (`rdma_event_channel`), cheap to clone.
///
/// Events of an id keep their order. Devices that ids opened stay open with the channel.
///
/// ```no_run
/// # use roce_provider::cm::{EventChannel, PortSpace};
/// let channel = EventChannel::new()?;
/// let id = channel.create_id(PortSpace::Tcp);
/// println!("{:?}", channel.wait(None)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EventChannel {
    pub(super) inner: Arc<ChannelInner>,
}

pub(super) struct ChannelInner {
    pub(super) queue: Arc<Notifier<QueuedEvent>>,
    known: Mutex<Known>,
    /// True once the program took the descriptor.
    pub(super) exposed: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// Devices of the channel's ids, with default domains.
    devices: Vec<(WeakContext, Option<WeakDomain>)>,
    /// Devices opened by ids.
    kept: Vec<Context>,
}

impl EventChannel {
    /// Creates a channel (`rdma_create_event_channel`).
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn new() -> io::Result<Self> {
        let inner = ChannelInner {
            queue: Arc::new(Notifier::with_capacity(usize::MAX)?),
            known: Mutex::default(),
            exposed: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(super) fn contexts(&self) -> Vec<Context> {
        let mut known = self.inner.known.lock();
        known.devices.retain(|(context, _)| context.is_open());
        known.devices.iter().filter_map(|(context, _)| context.upgrade()).collect()
    }

    /// `opened`: by an id of the channel.
    pub(super) fn attach(&self, context: &Context, opened: bool) {
        let mut known = self.inner.known.lock();
        if !known.devices.iter().any(|(other, _)| other.is(context)) {
            known.devices.push((context.downgrade(), None));
        }
        if opened {
            known.kept.push(context.clone());
        }
        drop(known);
        if self.inner.exposed.load(Ordering::Relaxed) {
            context.inner.engine.hand_over();
        }
    }

    pub(super) fn default_domain(&self, context: &Context) -> Result<ProtectionDomain, CmError> {
        self.attach(context, false);
        let mut known = self.inner.known.lock();
        let device = known.devices.iter_mut().find(|(other, _)| other.is(context));
        let domain = device.as_ref().and_then(|(_, domain)| domain.as_ref()?.upgrade());
        if let Some(domain) = domain {
            return Ok(domain);
        }
        let domain = context.alloc_pd()?;
        if let Some((_, default)) = device {
            *default = Some(domain.downgrade());
        }
        Ok(domain)
    }
}

impl AsFd for EventChannel {
    /// Readable while events exist (`rdma_event_channel.fd`). Take all events before the next
    /// sleep.
    fn as_fd(&self) -> BorrowedFd<'_> {
        if !self.inner.exposed.swap(true, Ordering::Relaxed) {
            self.contexts().iter().for_each(|context| context.inner.engine.hand_over());
        }
        self.inner.queue.descriptor()
    }
}

opaque_debug!(EventChannel);
