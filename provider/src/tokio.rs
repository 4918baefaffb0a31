//! Channels for tokio tasks. Posting, polling and accepting never wait.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
};

use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    CompletionChannel, CompletionQueue,
    cm::{CmEvent, EventChannel},
};

#[derive(Debug)]
struct Descriptor<T>(T);

impl<T: AsFd> AsRawFd for Descriptor<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

fn register<T: AsFd>(channel: T) -> io::Result<AsyncFd<Descriptor<T>>> {
    // SAFETY: `T` is a channel of this module, owned by the result. A channel keeps one open
    // descriptor while alive.
    Ok(unsafe { AsyncFd::register_with_interest(Descriptor(channel), Interest::READABLE) }?)
}

/// Awaits a result of `take`.
async fn next<T: AsFd, R>(
    channel: &AsyncFd<Descriptor<T>>,
    take: impl Fn(&T) -> Option<R>,
) -> io::Result<R> {
    loop {
        if let Some(found) = take(&channel.get_ref().0) {
            return Ok(found);
        }
        let mut ready = channel.readable().await?;
        match take(&channel.get_ref().0) {
            Some(found) => return Ok(found),
            None => ready.clear_ready(),
        }
    }
}

/// [`EventChannel`] for tasks.
#[derive(Debug)]
pub struct AsyncEventChannel(AsyncFd<Descriptor<EventChannel>>);

impl AsyncEventChannel {
    /// Registers the channel with the current runtime.
    ///
    /// # Errors
    /// If the runtime refuses the descriptor.
    ///
    /// # Panics
    /// Outside a runtime with I/O.
    pub fn new(channel: EventChannel) -> io::Result<Self> {
        Ok(Self(register(channel)?))
    }

    /// Channel.
    #[must_use]
    pub fn channel(&self) -> &EventChannel {
        &self.0.get_ref().0
    }

    /// Awaits the next event (`rdma_get_cm_event`); cancel-safe.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn next(&self) -> io::Result<CmEvent> {
        next(&self.0, EventChannel::poll).await
    }
}

/// [`CompletionChannel`] for tasks.
#[derive(Debug)]
pub struct AsyncCompletionChannel(AsyncFd<Descriptor<CompletionChannel>>);

impl AsyncCompletionChannel {
    /// Registers the channel with the current runtime.
    ///
    /// # Errors
    /// If the runtime refuses the descriptor.
    ///
    /// # Panics
    /// Outside a runtime with I/O.
    pub fn new(channel: CompletionChannel) -> io::Result<Self> {
        Ok(Self(register(channel)?))
    }

    /// Channel.
    #[must_use]
    pub fn channel(&self) -> &CompletionChannel {
        &self.0.get_ref().0
    }

    /// Awaits the next queue with an event (`ibv_get_cq_event`); cancel-safe.
    ///
    /// First arm the queue, then poll it.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn next(&self) -> io::Result<CompletionQueue> {
        next(&self.0, CompletionChannel::poll).await
    }
}
