//! Threads asleep until a socket's event. The thread that sees the event first wakes the others by
//! their descriptors, which end with their threads.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    process,
    sync::{Arc, Weak},
};

use rustix::event::{EventfdFlags, eventfd};

use roce_provider::sync::Mutex;

thread_local! {
    /// This thread's descriptor and its process: a forked child must not wake the parent.
    static OWN: RefCell<Option<(u32, Arc<OwnedFd>)>> = const { RefCell::new(None) };
}

fn own() -> io::Result<Arc<OwnedFd>> {
    OWN.with_borrow_mut(|own| {
        let process = process::id();
        if let Some((of, descriptor)) = own
            && *of == process
        {
            return Ok(descriptor.clone());
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let descriptor = Arc::new(eventfd(0, flags)?);
        *own = Some((process, descriptor.clone()));
        Ok(descriptor)
    })
}

/// Clears and returns this thread's wakeup descriptor, to poll beside the sockets'. It lives as
/// long as the thread.
///
/// # Errors
/// `EMFILE`.
pub fn wakeup_descriptor() -> io::Result<RawFd> {
    let own = own()?;
    let _ = rustix::io::read(own.as_fd(), &mut [0; 8]); // fails if not readable
    Ok(own.as_raw_fd())
}

#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<Vec<Weak<OwnedFd>>>);

impl Waiters {
    pub(super) fn add(&self) -> io::Result<()> {
        let own = Arc::downgrade(&own()?);
        let mut all = self.0.lock();
        all.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&own));
        all.push(own);
        Ok(())
    }

    pub(super) fn wake(&self) {
        for waiter in self.0.lock().drain(..).filter_map(|waiter| waiter.upgrade()) {
            let _ = rustix::io::write(waiter.as_fd(), &1u64.to_ne_bytes()); // counts to 2^64
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::BorrowedFd, thread};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_woken(descriptor: RawFd) -> bool {
        // SAFETY: Lives as long as this thread.
        #[allow(unsafe_code, reason = "a descriptor that a test has got as a number")]
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() > 0
    }

    #[test]
    fn sleepers_are_woken_once_and_those_that_are_gone_are_forgotten() {
        let waiters = Waiters::default();
        let descriptor = wakeup_descriptor().unwrap();
        for _ in 0..2 {
            waiters.add().unwrap();
        }
        thread::scope(|scope| scope.spawn(|| waiters.add().unwrap()).join().unwrap());
        assert!(!is_woken(descriptor));
        waiters.wake();
        assert!(is_woken(descriptor));
        assert_eq!(wakeup_descriptor().unwrap(), descriptor);
        waiters.wake();
        assert!(!is_woken(descriptor), "it has not added itself again");
        assert_eq!(waiters.0.lock().len(), 0);
    }
}
