//! State of completion queues and of completion channels, which refer to each other.

use std::{
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
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

    /// The queue was armed: the program is about to sleep. What waits for more requests leaves, and if
    /// the program sleeps on the descriptor of its channel in its own ways, others have to make that
    /// readable.
    pub(super) fn is_armed(&self) {
        let engine = &self.context.inner.engine;
        let channel = self.channel.as_ref();
        if channel.is_some_and(|channel| channel.served.load(Ordering::Relaxed) == engine.found()) {
            return; // it has served instead of sleeping, and will again
        }
        engine.send_gathered();
        if channel.is_some_and(|channel| channel.exposed.load(Ordering::Relaxed)) {
            engine.hand_over();
        }
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let mut shard = self.context.inner.engine.lock();
        shard.sink::<ObjectEvents>().remove_cq(self.ring.id());
        // every queue pair that completes here held it
        let _ = shard.adapter().destroy_cq(self.ring.id());
        drop(shard);
        // Its own event, or the descriptor would be readable with nothing to take.
        if let Some(channel) = &self.channel {
            channel.notifier.retain(|cq| cq.strong_count() > 0);
        }
    }
}

pub(super) struct ChannelInner {
    pub(super) context: Context,
    pub(super) notifier: Notifier<Weak<CqInner>>,
    /// The program has taken the descriptor and sleeps on it in its own ways.
    exposed: AtomicBool,
    /// A thread of the program sleeps on the descriptor, while others serve.
    sleeps: AtomicBool,
    /// What the engine's background thread had [found](crate::engine::Engine::found) when the last wait
    /// for an event served until it had one; if none did, more than it ever finds. As long as it finds
    /// nothing more, a program that arms a queue is taken to wait in that way again.
    served: AtomicU64,
}

impl ChannelInner {
    pub(super) fn new(context: &Context) -> io::Result<Self> {
        let (context, notifier) = (context.clone(), Notifier::new()?);
        let (exposed, sleeps) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { context, notifier, exposed, sleeps, served: AtomicU64::new(u64::MAX) })
    }

    /// See [`CompletionChannel::prepare_to_wait`](super::CompletionChannel::prepare_to_wait).
    pub(super) fn prepare_to_wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        let engine = &self.context.inner.engine;
        self.has_slept();
        let found =
            engine.serve_until(self.notifier.descriptor(), limit, || !self.notifier.is_empty())?;
        if found {
            self.served.store(engine.found(), Ordering::Relaxed);
        } else if !self.sleeps.swap(true, Ordering::SeqCst) {
            engine.sleeps();
        }
        Ok(found)
    }

    /// No thread sleeps on the descriptor any more.
    pub(super) fn has_slept(&self) {
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::SeqCst) {
            self.context.inner.engine.has_slept();
        }
    }

    /// The program takes the descriptor.
    pub(super) fn expose(&self) {
        if !self.exposed.swap(true, Ordering::Relaxed) {
            self.context.inner.engine.hand_over();
        }
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        self.has_slept(); // a thread that was cancelled has not said so
    }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd, sync::Arc};

    use roce_transport::work::NotifyKind;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use crate::{Device, OpenOptions};

    #[test]
    fn the_event_of_a_queue_goes_with_it() {
        let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
        let channel = context.create_channel().unwrap();
        let [cq, other] = [(); 2].map(|()| context.create_cq(16, Some(&channel)).unwrap());
        let is_readable = || {
            let mut wanted = [PollFd::new(&channel, PollFlags::IN)];
            poll(&mut wanted, Some(&Timespec::default())).unwrap() == 1
        };
        for cq in [&cq, &other, &cq] {
            channel.inner.notifier.push(Arc::downgrade(&cq.inner));
        }
        drop(cq);
        assert!(is_readable());
        assert!(channel.poll().is_some(), "that of the other queue");
        assert!(!is_readable());
        channel.inner.notifier.push(Arc::downgrade(&other.inner));
        assert!(is_readable());
        drop(other);
        assert!(!is_readable());
    }

    #[test]
    fn who_serves_while_it_waits_does_not_hand_over() {
        let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
        let channel = context.create_channel().unwrap();
        let cq = context.create_cq(16, Some(&channel)).unwrap();
        let engine = &context.inner.engine;
        let hands_over = || {
            let _held = engine.lock(); // under which the background thread takes the sockets over
            engine.take_back();
            cq.req_notify(NotifyKind::Next);
            engine.is_handed_over()
        };
        assert!(!hands_over(), "nobody sleeps on the descriptor");
        let _ = channel.as_fd();
        assert!(hands_over());

        channel.inner.notifier.push(std::sync::Weak::new());
        assert!(channel.prepare_to_wait().unwrap());
        assert!(!hands_over(), "it has served until there was an event");
        assert!(channel.poll().is_none());
        assert!(!channel.prepare_to_wait().unwrap());
        engine.finds();
        assert!(hands_over(), "the background thread had to, meanwhile");
    }
}
