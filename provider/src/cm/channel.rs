//! Event channels: where a program hears of its ids.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use roce_transport::cm::{ConnId, PortSpace};
use rustix::event::{EventfdFlags, eventfd};

use super::{
    CmError, CmEvent, CmId,
    event::{EventKind, Param, Status},
    shared::Shared,
};
use crate::{
    ChannelError, Context, ProtectionDomain, clock, readiness,
    verbs::{ContextInner, WeakDomain},
};

/// Tells of what happens to ids (`rdma_event_channel`), by its descriptor or to a thread that
/// waits. Events of one id come in the order in which they happened. Cheap to clone; ids hold their
/// channel.
///
/// Devices that ids have opened by themselves stay open as long as the channel.
#[derive(Clone)]
pub struct EventChannel {
    pub(super) inner: Arc<ChannelInner>,
}

pub(super) struct ChannelInner {
    pub(super) queue: Arc<Queue>,
    known: Mutex<Known>,
    /// The program has taken the descriptor and sleeps on it in its own ways.
    exposed: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// Devices of ids of this channel, each with the protection domain that ids use by default.
    devices: Vec<(Weak<ContextInner>, Option<WeakDomain>)>,
    /// Those that ids have opened.
    kept: Vec<Context>,
}

/// What the engines hold of a channel.
pub(crate) struct Queue {
    events: Mutex<VecDeque<Raw>>,
    /// Readable while there are events.
    descriptor: OwnedFd,
}

/// An event on its way. It holds no handle, so that to drop it does nothing to an id.
pub(super) struct Raw {
    pub(super) id: Arc<Shared>,
    /// For a request: who listens, on which of its devices, and the request's name.
    pub(super) request: Option<Request>,
    pub(super) kind: EventKind,
    pub(super) status: Status,
    pub(super) param: Param,
}

pub(super) struct Request {
    pub(super) listener: Arc<Shared>,
    pub(super) device: usize,
    pub(super) conn: ConnId,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Raw>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, raw: Raw) {
        let mut events = self.lock();
        if events.is_empty() {
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes()); // counts to 2^64
        }
        events.push_back(raw);
    }

    /// Takes out what `wanted` says, in order.
    pub(super) fn extract(&self, wanted: impl Fn(&Raw) -> bool) -> Vec<Raw> {
        let mut events = self.lock();
        let had_some = !events.is_empty();
        let (taken, left): (VecDeque<Raw>, VecDeque<Raw>) =
            events.drain(..).partition(|raw| wanted(raw));
        *events = left;
        if had_some && events.is_empty() {
            self.clear();
        }
        taken.into()
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
    }

    /// The oldest event whose id is still there. Events of an id that is being destroyed wait here
    /// for its destroyer.
    fn pop(&self) -> Option<(Raw, CmId)> {
        let mut events = self.lock();
        for index in 0..events.len() {
            let raw = &events[index];
            let owner = raw.request.as_ref().map_or(&raw.id, |request| &request.listener);
            if let Some(id) = owner.upgrade() {
                let raw = events.remove(index)?;
                if events.is_empty() {
                    self.clear();
                }
                return Some((raw, id));
            }
        }
        None
    }
}

impl EventChannel {
    /// Makes a channel (`rdma_create_event_channel`).
    ///
    /// # Errors
    /// When the process may not open more descriptors (`EMFILE`).
    pub fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let queue = Arc::new(Queue { events: Mutex::default(), descriptor });
        Ok(Self {
            inner: Arc::new(ChannelInner {
                queue,
                known: Mutex::default(),
                exposed: AtomicBool::new(false),
            }),
        })
    }

    /// Makes an id whose events come here (`rdma_create_id`). Ids for [`PortSpace::Tcp`] have RC
    /// queue pairs, those for [`PortSpace::Udp`] and [`PortSpace::Ipoib`] UD ones; those for
    /// [`PortSpace::Ib`] RC ones, unless told otherwise.
    #[must_use]
    pub fn create_id(&self, port_space: PortSpace) -> CmId {
        CmId::create(self, port_space, false)
    }

    /// The next event, if there is one (`rdma_get_cm_event` on a non-blocking descriptor). If there
    /// is none, first serves the devices on this thread.
    #[must_use]
    pub fn poll(&self) -> Option<CmEvent> {
        self.take().or_else(|| {
            let contexts = self.contexts();
            for context in &contexts {
                context.inner.engine.progress();
            }
            let event = self.take();
            if event.is_none() && self.inner.exposed.load(Ordering::Relaxed) {
                contexts.iter().for_each(|context| context.inner.engine.hand_over());
            }
            event
        })
    }

    /// Sleeps until there is an event (`rdma_get_cm_event`), at most for `limit`.
    ///
    /// # Errors
    /// [`ChannelError::TimedOut`]; [`ChannelError::Io`] when the system cannot wait.
    pub fn wait(&self, limit: Option<Duration>) -> Result<CmEvent, ChannelError> {
        let end = limit.map(|limit| clock::now().plus(limit));
        loop {
            if let Some(event) = self.poll() {
                return Ok(event);
            }
            let left = end.map(|end| end.since(clock::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ChannelError::TimedOut);
            }
            let contexts = self.contexts();
            let descriptor = self.inner.queue.descriptor.as_fd();
            if let [only] = &contexts[..] {
                // this thread waits on the sockets itself, which saves a change of threads
                only.inner.engine.drive(descriptor, left)?;
            } else {
                contexts.iter().for_each(|context| context.inner.engine.hand_over());
                drop(contexts);
                readiness::wait(&[descriptor], left)?;
            }
        }
    }

    fn take(&self) -> Option<CmEvent> {
        loop {
            let (raw, owner) = self.inner.queue.pop()?;
            let Raw { id, request, kind, status, param } = raw;
            let (id, listen_id) = match request {
                None => (owner, None),
                // a listener that is being destroyed answers by itself what it has not handed out
                Some(request) => match owner.adopt(id, &request) {
                    Some(id) => (id, Some(owner)),
                    None => continue,
                },
            };
            return Some(CmEvent { id, listen_id, kind, status, param });
        }
    }

    /// Devices of ids of this channel that are open.
    fn contexts(&self) -> Vec<Context> {
        let mut known = self.known();
        known.devices.retain(|(context, _)| context.strong_count() > 0);
        known
            .devices
            .iter()
            .filter_map(|(context, _)| context.upgrade())
            .map(|inner| Context { inner })
            .collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An id uses a device; `opened`: has opened it.
    pub(super) fn attach(&self, context: &Context, opened: bool) {
        let mut known = self.known();
        if !known
            .devices
            .iter()
            .any(|(other, _)| std::ptr::eq(other.as_ptr(), Arc::as_ptr(&context.inner)))
        {
            known.devices.push((Arc::downgrade(&context.inner), None));
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
        let device = known
            .devices
            .iter_mut()
            .find(|(other, _)| std::ptr::eq(other.as_ptr(), Arc::as_ptr(&context.inner)));
        let domain = device.as_ref().and_then(|(_, domain)| domain.as_ref()?.upgrade());
        if let Some(domain) = domain {
            return Ok(domain);
        }
        let domain = context.alloc_pd()?;
        if let Some((_, place)) = device {
            *place = Some(domain.downgrade());
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
        self.inner.queue.descriptor.as_fd()
    }
}

impl std::fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventChannel").finish_non_exhaustive()
    }
}
