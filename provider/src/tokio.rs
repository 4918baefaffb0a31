//! Channels to wait on in tasks of tokio. Everything else stays as it is: posting, polling and
//! accepting never wait, so they are called as anywhere.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
};

use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    CompletionChannel, CompletionQueue,
    cm::{CmEvent, EventChannel},
};

/// A channel, by its descriptor.
#[derive(Debug)]
struct Descriptor<T>(T);

impl<T: AsFd> AsRawFd for Descriptor<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

fn register<T: AsFd>(channel: T) -> io::Result<AsyncFd<Descriptor<T>>> {
    // SAFETY: the channel, which the result owns, holds an open descriptor that it never closes or
    // replaces as long as it lives, and shows that one every time. Private, so that `T` is one of
    // the two channels of this module.
    Ok(unsafe { AsyncFd::register_with_interest(Descriptor(channel), Interest::READABLE) }?)
}

/// Waits for what `take` finds, whenever the descriptor is readable.
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

/// An [`EventChannel`] whose events tasks wait for.
#[derive(Debug)]
pub struct AsyncEventChannel(AsyncFd<Descriptor<EventChannel>>);

impl AsyncEventChannel {
    /// Registers the channel with the runtime that this is called in.
    ///
    /// # Errors
    /// When the runtime cannot watch another descriptor.
    ///
    /// # Panics
    /// Outside of a runtime with I/O.
    pub fn new(channel: EventChannel) -> io::Result<Self> {
        Ok(Self(register(channel)?))
    }

    /// The channel, to make ids with.
    #[must_use]
    pub fn channel(&self) -> &EventChannel {
        &self.0.get_ref().0
    }

    /// The next event (`rdma_get_cm_event`). Dropping the future loses no event.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    pub async fn next(&self) -> io::Result<CmEvent> {
        next(&self.0, EventChannel::poll).await
    }
}

/// A [`CompletionChannel`] whose events tasks wait for.
#[derive(Debug)]
pub struct AsyncCompletionChannel(AsyncFd<Descriptor<CompletionChannel>>);

impl AsyncCompletionChannel {
    /// Registers the channel with the runtime that this is called in.
    ///
    /// # Errors
    /// When the runtime cannot watch another descriptor.
    ///
    /// # Panics
    /// Outside of a runtime with I/O.
    pub fn new(channel: CompletionChannel) -> io::Result<Self> {
        Ok(Self(register(channel)?))
    }

    /// The channel.
    #[must_use]
    pub fn channel(&self) -> &CompletionChannel {
        &self.0.get_ref().0
    }

    /// The next queue that has an event (`ibv_get_cq_event`). Arm the queue, and poll it once more,
    /// before waiting. Dropping the future loses no event.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    pub async fn next(&self) -> io::Result<CompletionQueue> {
        next(&self.0, CompletionChannel::poll).await
    }
}
