use std::{ffi::c_int, time::Duration};

use roce_provider::calls::Call;
use roce_rsocket::{Deadline, polling_time, wakeup_descriptor};

use super::{
    iovec::Cursor,
    poll::wanted,
    table::{self, Entry},
};
use crate::{
    errno::{Errno, Result},
    wait::{milliseconds, test_cancel, wait_for},
};

pub(super) const WOULD_BLOCK: Errno = Errno::plain(libc::EAGAIN);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blocking {
    /// `O_NONBLOCK` and `SO_RCVTIMEO` decide.
    Receiving,
    /// `O_NONBLOCK` and `SO_SNDTIMEO` decide.
    Sending,
    /// `MSG_DONTWAIT`.
    None,
    /// Regardless of options.
    AtMost(Option<Duration>),
}

impl Blocking {
    pub(super) const fn with(self, flags: c_int) -> Self {
        if flags & libc::MSG_DONTWAIT != 0 { Self::None } else { self }
    }

    /// `EAGAIN` if the call must not wait.
    fn limit(self, entry: &Entry) -> Result<Option<Duration>> {
        match self {
            Self::AtMost(limit) => Ok(limit),
            Self::Receiving if entry.is_blocking() => Ok(entry.options.lock().receive_limit),
            Self::Sending if entry.is_blocking() => Ok(entry.options.lock().send_limit),
            _ => Err(WOULD_BLOCK),
        }
    }
}

/// Retries on `EAGAIN`. Cancellation point: `attempt` may hold nothing to drop.
pub(super) fn until<R: Copy>(
    fd: c_int,
    blocking: Blocking,
    mut attempt: impl FnMut(&Entry) -> Result<R>,
) -> Result<R> {
    test_cancel();
    let polling = Deadline::after(Some(polling_time()));
    // `own`: this thread's descriptor, once ready to sleep
    let (mut end, mut own, mut is_quiet) = (None, None, false);
    loop {
        let sleep = {
            let _call = Call::begin();
            let entry = table::find(fd)?;
            match attempt(&entry) {
                Err(error) if error == WOULD_BLOCK => {}
                other => return other,
            }
            let limit = blocking.limit(&entry)?;
            let end: Deadline = *end.get_or_insert_with(|| Deadline::after(limit));
            if end.is_over() {
                return Err(WOULD_BLOCK);
            }
            match own.take() {
                _ if !polling.is_over() => None,
                Some(own) => {
                    let limits = [end.left(), entry.keepalive_time()];
                    Some((own, limits.into_iter().flatten().min()))
                }
                None => {
                    if std::mem::take(&mut is_quiet) && entry.keepalive_time().is_some() {
                        entry.socket.probe();
                    }
                    own = Some(wakeup_descriptor()?);
                    entry.socket.prepare_to_wait()?;
                    None
                }
            }
        };
        if let Some((own, limit)) = sleep {
            let mut descriptors = [fd, own].map(wanted);
            // SAFETY: `descriptors` has two elements.
            let ready = unsafe { wait_for(descriptors.as_mut_ptr(), 2, milliseconds(limit)) };
            if ready < 0 {
                return Err(Errno::last());
            }
            is_quiet = ready == 0;
        }
    }
}

/// Moves up to `bytes` bytes. Ends early if an attempt moves none, or, with `some`, after any.
/// Drops an error after the first bytes. Cancellation point.
///
/// # Safety
/// The pieces are unchanged since the cursor was made.
pub(super) unsafe fn transfer(
    fd: c_int,
    blocking: Blocking,
    (mut cursor, bytes): (Cursor, usize),
    some: bool,
    mut attempt: impl FnMut(&Entry, &mut Cursor, usize) -> Result<usize>,
) -> Result<isize> {
    let mut moved = 0;
    let result = until(fd, blocking, |entry| {
        let done = attempt(entry, &mut cursor.clone(), moved)?;
        cursor.skip(done);
        moved += done;
        if moved == bytes || some || done == 0 { Ok(()) } else { Err(WOULD_BLOCK) }
    });
    match result {
        Err(error) if moved == 0 => Err(error),
        _ => Ok(moved.cast_signed()),
    }
}
