//! Event channels and the devices behind them.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{error::CmError, queue::Queue, shared::QueuedEvent};
use crate::{
    Context, ProtectionDomain,
    sync::Mutex,
    verbs::{WeakContext, WeakDomain},
};

/// Channel of the events of ids (`rdma_event_channel`), for a thread that waits or by a descriptor.
/// Events of one id come in the order in which they happened. Cheap to clone; ids hold their
/// channel.
///
/// Devices that ids have opened by themselves stay open as long as the channel.
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
    pub(super) queue: Arc<Queue<QueuedEvent>>,
    known: Mutex<Known>,
    /// True once the program has taken the descriptor, to sleep on it in its own ways.
    pub(super) exposed: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// Devices of ids of this channel, each with the protection domain that ids use by default.
    devices: Vec<(WeakContext, Option<WeakDomain>)>,
    /// Devices that ids have opened.
    kept: Vec<Context>,
}

impl EventChannel {
    /// Makes a channel (`rdma_create_event_channel`).
    ///
    /// # Errors
    /// When the process may not open more descriptors (`EMFILE`).
    pub fn new() -> io::Result<Self> {
        let inner = ChannelInner {
            queue: Arc::new(Queue::new()?),
            known: Mutex::default(),
            exposed: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Devices of ids of this channel that are open.
    pub(super) fn contexts(&self) -> Vec<Context> {
        let mut known = self.known();
        known.devices.retain(|(context, _)| context.is_open());
        known.devices.iter().filter_map(|(context, _)| context.upgrade()).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock()
    }

    /// An id uses a device; `opened`: has opened it.
    pub(super) fn attach(&self, context: &Context, opened: bool) {
        let mut known = self.known();
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

    /// The protection domain that all ids on this channel and device use that were not given one.
    pub(super) fn default_domain(&self, context: &Context) -> Result<ProtectionDomain, CmError> {
        self.attach(context, false);
        let mut known = self.known();
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
    /// Readable while there are events (`rdma_event_channel.fd`). Take all of them before sleeping
    /// on it again.
    fn as_fd(&self) -> BorrowedFd<'_> {
        if !self.inner.exposed.swap(true, Ordering::Relaxed) {
            self.contexts().iter().for_each(|context| context.inner.engine.hand_over());
        }
        self.inner.queue.as_fd()
    }
}

impl std::fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventChannel").finish_non_exhaustive()
    }
}
