//! Sockets by which other processes find an address, or this process at an address.

use std::{
    collections::VecDeque, io, mem, net::IpAddr, os::fd::OwnedFd, sync::Arc, time::Duration,
};

use roce_transport::time::Instant;

use super::hello::Hello;
use crate::link::{
    epoll::{Readable, unwatch, watch},
    name::Name,
    rings::Reader,
    stranger,
};

/// Most connections without a message. A further connection replaces the oldest.
pub(super) const MAX_PENDING: usize = 64;
pub(super) const PENDING_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections examined per socket and round. Every user of the host can make connections.
pub(super) const ACCEPT_BATCH: usize = 8;
/// Pause while too many strangers wait to be closed.
pub(super) const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

pub(super) struct Pending {
    pub(super) dst: IpAddr,
    pub(super) socket: OwnedFd,
    /// True if the connection is to this process, whichever process receives for the address.
    pub(super) is_direct: bool,
    /// Time at which a silent connection is closed.
    until: Instant,
}

#[derive(Default)]
pub(super) struct Listeners {
    pub(super) listeners: Vec<Listener>,
    pub(super) pending: VecDeque<Pending>,
    /// Set while nobody can be accepted.
    backoff_until: Option<Instant>,
}

pub(super) struct Listener {
    address: IpAddr,
    /// True if the name is this process's at the address, not the address's.
    is_direct: bool,
    pub(super) name: Arc<Name>,
}

impl Listeners {
    pub(super) fn listen(
        &mut self,
        epoll: &OwnedFd,
        address: IpAddr,
        name: Arc<Name>,
        is_direct: bool,
    ) -> io::Result<()> {
        watch(epoll, &name, Readable::News)?;
        self.listeners.push(Listener { address, is_direct, name });
        Ok(())
    }

    /// Accepts senders to this process, unless another process has the name.
    pub(super) fn listen_directly(&mut self, epoll: &OwnedFd, address: IpAddr, name: &str) {
        let is_known = self.listeners.iter().any(|it| it.address == address && it.is_direct);
        if !is_known && let Ok(name) = Name::listen(name.as_bytes()) {
            let _ = self.listen(epoll, address, Arc::new(name), true);
        }
    }

    /// Stops accepting at an address; with `directly`, senders to this process too.
    pub(super) fn leave(&mut self, epoll: &OwnedFd, address: IpAddr, directly: bool) {
        let is_left = |it: &mut Listener| it.address == address && (directly || !it.is_direct);
        let gone = self.listeners.extract_if(.., is_left);
        gone.for_each(|listener| unwatch(epoll, &listener.name));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let silent = self.pending.front().map(|pending| pending.until);
        silent.into_iter().chain(self.backoff_until).min()
    }

    /// Accepts some connections and returns those with a message. Closes invalid, silent and
    /// untrusted connections.
    pub(super) fn accept_pending(
        &mut self,
        now: Instant,
        epoll: &OwnedFd,
    ) -> Vec<(Pending, Hello, Option<Reader>)> {
        self.back_off_if_full(now, epoll);
        for &Listener { address: dst, is_direct, ref name } in &self.listeners {
            for _ in 0..ACCEPT_BATCH {
                let Ok(unchecked) = name.accept() else { break };
                let Ok(socket) = unchecked.check() else { continue };
                if watch(epoll, &socket, Readable::News).is_err() {
                    continue;
                }
                if self.pending.len() >= MAX_PENDING {
                    self.pending.pop_front();
                }
                let until = now.plus(PENDING_TIMEOUT);
                self.pending.push_back(Pending { dst, socket, is_direct, until });
            }
        }
        let mut accepted = Vec::new();
        for pending in mem::take(&mut self.pending) {
            match Hello::receive(&pending.socket) {
                Ok(None) if now < pending.until => self.pending.push_back(pending),
                Ok(Some((hello, reader))) => accepted.push((pending, hello, reader)),
                Ok(None) | Err(_) => {}
            }
        }
        accepted
    }

    fn back_off_if_full(&mut self, now: Instant, epoll: &OwnedFd) {
        let is_full = stranger::is_full();
        for Listener { name, .. } in &self.listeners {
            if is_full {
                unwatch(epoll, name);
            } else if self.backoff_until.is_some() {
                let _ = watch(epoll, name, Readable::News);
            }
        }
        self.backoff_until = is_full.then(|| now.plus(ACCEPT_BACKOFF));
    }
}
