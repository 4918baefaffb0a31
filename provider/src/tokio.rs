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

macro_rules! channels {
    ($(
        $(#[$about:meta])*
        $name:ident($channel:ty);
        $(#[$next:meta])*
        next() -> $found:ty;
    )*) => {$(
        $(#[$about])*
        #[derive(Debug)]
        pub struct $name(AsyncFd<Descriptor<$channel>>);

        impl $name {
            /// Registers the channel with the current runtime.
            ///
            /// # Errors
            /// If the runtime refuses the descriptor.
            ///
            /// # Panics
            /// Outside a runtime with I/O.
            pub fn new(channel: $channel) -> io::Result<Self> {
                Ok(Self(register(channel)?))
            }

            /// Channel.
            #[must_use]
            pub fn channel(&self) -> &$channel {
                &self.0.get_ref().0
            }

            $(#[$next])*
            ///
            /// # Errors
            /// If the runtime is shutting down.
            pub async fn next(&self) -> io::Result<$found> {
                next(&self.0, <$channel>::poll).await
            }
        }
    )*};
}

channels! {
    /// [`EventChannel`] for tasks.
    AsyncEventChannel(EventChannel);
    /// Awaits the next event (`rdma_get_cm_event`); cancel-safe.
    next() -> CmEvent;

    /// [`CompletionChannel`] for tasks.
    AsyncCompletionChannel(CompletionChannel);
    /// Awaits the next queue with an event (`ibv_get_cq_event`); cancel-safe.
    ///
    /// First arm the queue, then poll it.
    next() -> CompletionQueue;
}
