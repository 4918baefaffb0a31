//! rsockets by descriptor.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use roce_provider::calls::Call;
use roce_rsocket::Socket;

use crate::{prelude::*, sync::Mutex};

pub(super) struct Entry {
    pub(super) socket: Socket,
    /// `AF_INET6` maps IPv4 addresses.
    pub(super) family: c_int,
    pub(super) nonblocking: AtomicBool,
    pub(super) options: Mutex<Options>,
}

/// Options that an accepted socket has from its listener.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    /// `SO_RCVTIMEO`; `None`: none.
    pub(super) receive_limit: Option<Duration>,
    /// `SO_SNDTIMEO`; `None`: none.
    pub(super) send_limit: Option<Duration>,
    /// `SO_LINGER`: enabled, and seconds.
    pub(super) linger: (bool, u32),
    /// `SO_KEEPALIVE`: enabled, and probe interval in seconds.
    pub(super) keepalive: (bool, u32),
    /// Stored without effect.
    pub(super) no_delay: bool,
    pub(super) oob_inline: bool,
}

/// Linux's default for TCP, in seconds.
const KEEPALIVE_SECONDS: u32 = 7200;

impl Entry {
    pub(super) fn new(socket: Socket, family: c_int, nonblocking: bool) -> Self {
        let options = Options { keepalive: (false, KEEPALIVE_SECONDS), ..Options::default() };
        let (nonblocking, options) = (AtomicBool::new(nonblocking), Mutex::new(options));
        Self { socket, family, nonblocking, options }
    }

    pub(super) fn accepted(&self, socket: Socket) -> Self {
        let (nonblocking, options) = (AtomicBool::new(false), Mutex::new(*self.options.lock()));
        Self { socket, family: self.family, nonblocking, options }
    }

    pub(super) fn is_blocking(&self) -> bool {
        !self.nonblocking.load(Ordering::Relaxed)
    }

    pub(super) fn keepalive_time(&self) -> Option<Duration> {
        let (on, seconds) = self.options.lock().keepalive;
        on.then(|| Duration::from_secs(seconds.max(1).into()))
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

pub(super) fn is_datagram(fd: c_int) -> Result<bool> {
    let _call = Call::begin();
    Ok(find(fd)?.socket.is_datagram())
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
