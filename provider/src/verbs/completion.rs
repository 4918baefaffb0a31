//! State of completion queues and of completion channels, which refer to each other.

use std::{
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use roce_transport::{adapter::ObjectError, work};

use super::{context::Context, sink::ObjectEvents};
use crate::notify::Notifier;

pub(super) struct CqInner {
    pub(super) context: Context,
    pub(super) ring: Arc<work::CompletionQueue>,
    channel: Option<Arc<ChannelInner>>,
}

impl CqInner {
    pub(super) fn new(
        context: &Context,
        capacity: usize,
        channel: Option<Arc<ChannelInner>>,
    ) -> Result<Arc<Self>, ObjectError> {
        let engine = &context.inner.engine;
        let fits = engine.lock().adapter().fits_cq(capacity);
        context.explained("ibv_create_cq", fits)?;
        let room = work::CqRoom::new(capacity); // without the lock: it may take long
        let mut shard = engine.lock();
        let ring = match shard.adapter().create_cq_in(room) {
            Ok(ring) => ring,
            Err(error) => {
                drop(shard);
                return context.explained("ibv_create_cq", Err(error));
            }
        };
        let id = ring.id();
        let inner = Arc::new(Self { context: context.clone(), ring, channel });
        if let Some(channel) = inner.channel.clone() {
            let cq = Arc::downgrade(&inner);
            shard.sink::<ObjectEvents>().insert_cq(id, move || channel.notifier.push(cq.clone()));
        }
        drop(shard);
        Ok(inner)
    }

    /// True if the program sleeps on the descriptor of its channel in its own ways.
    pub(super) fn is_exposed(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.exposed.load(Ordering::Relaxed))
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let mut shard = self.context.inner.engine.lock();
        shard.sink::<ObjectEvents>().remove_cq(self.ring.id());
        // every queue pair that completes here held it
        let _ = shard.adapter().destroy_cq(self.ring.id());
    }
}

pub(super) struct ChannelInner {
    pub(super) context: Context,
    pub(super) notifier: Notifier<Weak<CqInner>>,
    /// The program has taken the descriptor and sleeps on it in its own ways.
    exposed: AtomicBool,
}

impl ChannelInner {
    pub(super) fn new(context: &Context) -> io::Result<Self> {
        let (context, notifier) = (context.clone(), Notifier::new()?);
        Ok(Self { context, notifier, exposed: AtomicBool::new(false) })
    }

    /// The program takes the descriptor.
    pub(super) fn expose(&self) {
        if !self.exposed.swap(true, Ordering::Relaxed) {
            self.context.inner.engine.hand_over();
        }
    }
}
