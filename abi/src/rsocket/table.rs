//! rsockets by descriptor.

use std::{
    collections::BTreeMap,
    ffi::c_int,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use roce_rsocket::Socket;

use crate::{
    errno::{Errno, Result},
    rule::Rule,
    sync::Mutex,
};

pub(super) struct Entry {
    pub(super) socket: Socket,
    /// `AF_INET6` maps IPv4 addresses.
    pub(super) family: c_int,
    pub(super) nonblocking: AtomicBool,
    pub(super) receive_limit: Limit,
    pub(super) send_limit: Limit,
    /// `SO_LINGER`: enabled, and seconds.
    pub(super) linger: (AtomicBool, AtomicU32),
    /// `SO_KEEPALIVE`: enabled, and probe interval in seconds.
    pub(super) keepalive: (AtomicBool, AtomicU32),
    /// Stored without effect.
    pub(super) no_delay: AtomicBool,
    pub(super) oob_inline: AtomicBool,
}

/// Timeout in microseconds; 0: none.
#[derive(Default)]
pub(super) struct Limit(AtomicU64);

impl Limit {
    pub(super) fn get(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.0.load(Ordering::Relaxed))).filter(|limit| !limit.is_zero())
    }

    pub(super) fn set(&self, limit: Duration) {
        let microseconds = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        self.0.store(microseconds, Ordering::Relaxed);
    }

    fn copy(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

/// Linux's default for TCP, in seconds.
const KEEPALIVE_SECONDS: u32 = 7200;

fn copied(flag: &AtomicBool) -> AtomicBool {
    AtomicBool::new(flag.load(Ordering::Relaxed))
}

fn copied_number(number: &AtomicU32) -> AtomicU32 {
    AtomicU32::new(number.load(Ordering::Relaxed))
}

impl Entry {
    pub(super) fn new(socket: Socket, family: c_int, nonblocking: bool) -> Self {
        Self {
            socket,
            family,
            nonblocking: AtomicBool::new(nonblocking),
            receive_limit: Limit::default(),
            send_limit: Limit::default(),
            linger: (AtomicBool::new(false), AtomicU32::new(0)),
            keepalive: (AtomicBool::new(false), AtomicU32::new(KEEPALIVE_SECONDS)),
            no_delay: AtomicBool::new(false),
            oob_inline: AtomicBool::new(false),
        }
    }

    /// Copies the listener's options.
    pub(super) fn accepted(&self, socket: Socket) -> Self {
        Self {
            socket,
            family: self.family,
            nonblocking: AtomicBool::new(false),
            receive_limit: self.receive_limit.copy(),
            send_limit: self.send_limit.copy(),
            linger: (copied(&self.linger.0), copied_number(&self.linger.1)),
            keepalive: (copied(&self.keepalive.0), copied_number(&self.keepalive.1)),
            no_delay: copied(&self.no_delay),
            oob_inline: copied(&self.oob_inline),
        }
    }

    pub(super) fn is_blocking(&self) -> bool {
        !self.nonblocking.load(Ordering::Relaxed)
    }

    pub(super) fn keepalive_time(&self) -> Option<Duration> {
        let (on, seconds) = &self.keepalive;
        on.load(Ordering::Relaxed)
            .then(|| Duration::from_secs(seconds.load(Ordering::Relaxed).max(1).into()))
    }
}

static NUMBER: AtomicU32 = AtomicU32::new(0);
static SOCKETS: Mutex<BTreeMap<c_int, Arc<Entry>>> = Mutex::new(BTreeMap::new());

pub(super) fn add(entry: Entry) -> c_int {
    let fd = entry.socket.number();
    NUMBER.fetch_add(1, Ordering::Relaxed);
    SOCKETS.lock().insert(fd, Arc::new(entry));
    fd
}

/// `EBADF` if unknown.
pub(super) fn find(fd: c_int) -> Result<Arc<Entry>> {
    SOCKETS.lock().get(&fd).cloned().ok_or(Errno::of(Rule::NotARsocket))
}

pub(super) fn is_one(fd: c_int) -> bool {
    SOCKETS.lock().contains_key(&fd)
}

/// The last call drops the rsocket.
pub(super) fn remove(fd: c_int) -> Option<Arc<Entry>> {
    let removed = SOCKETS.lock().remove(&fd)?;
    NUMBER.fetch_sub(1, Ordering::Relaxed);
    Some(removed)
}

/// Takes no lock: a signal handler that exits may have interrupted the holder.
pub(super) fn is_empty() -> bool {
    NUMBER.load(Ordering::Relaxed) == 0
}

pub(super) fn all() -> Vec<Arc<Entry>> {
    SOCKETS.lock().values().cloned().collect()
}
