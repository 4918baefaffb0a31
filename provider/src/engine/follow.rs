//! Socket changes of a running link: interface addresses and multicast groups. The calls may block,
//! so they run without the lock.

use std::{io, net::IpAddr, os::fd::OwnedFd, sync::MutexGuard};

use roce_transport::adapter::Adapter;
use rustix::event::epoll;

use super::serve::Engine;
use crate::{
    clock,
    link::{Link, MulticastLink, Prepared},
};

impl Engine {
    /// Follows interface changes, unless another thread does.
    pub(super) fn follow_news(&self) {
        let Some(watch) = &self.interface.watch else { return };
        let Some(_turn) = self.interface.following.try_lock() else { return };
        if watch.has_changed() {
            self.follow();
        }
    }

    pub(super) fn follow(&self) {
        let Some(watch) = &self.interface.watch else { return };
        let state = watch.state();
        let wanted = self.lock().follow(&state, watch);
        let new = wanted.into_iter().map(|(address, prepare)| (address, prepare())).collect();
        let mut shard = self.lock();
        if shard.change_addresses(&state, watch, new)
            && let Err(error) = add_descriptors(&self.system.sockets, shard.link())
        {
            shard.link_counters.bind_errors += 1;
            shard.link_counters.last_bind_error = Some(error.to_string());
        }
        shard.transmit(clock::now());
        self.after_service(&mut shard);
    }

    /// Attaches a queue pair; the link joins if `change` returns true. The outer error is that of
    /// `change`, the inner one the link's, after `undo`.
    pub(crate) fn join_group<E>(
        &self,
        group: IpAddr,
        change: impl FnOnce(&mut Adapter) -> Result<bool, E>,
        undo: impl FnOnce(&mut Adapter),
    ) -> Result<io::Result<()>, E> {
        let _turn = self.grouping_turn();
        if !change(self.lock().adapter())? {
            return Ok(Ok(()));
        }
        let prepare = groups(self.lock().adapter_and_link().1).map(|link| link.prepare_join(group));
        let prepared = prepare.and_then(|prepare| prepare());
        let mut shard = self.lock();
        let (adapter, link) = shard.adapter_and_link();
        let joined = prepared.and_then(|prepared| groups(link)?.join(group, prepared));
        if joined.is_err() {
            undo(adapter);
        }
        Ok(joined)
    }

    /// Detaches a queue pair; the link leaves the groups that `change` returns.
    pub(crate) fn leave_groups<E>(
        &self,
        change: impl FnOnce(&mut Adapter) -> Result<Vec<IpAddr>, E>,
    ) -> Result<(), E> {
        let _turn = self.grouping_turn();
        let closed: Vec<Prepared> = {
            let mut shard = self.lock();
            let (adapter, link) = shard.adapter_and_link();
            change(adapter)?
                .into_iter()
                .filter_map(|group| link.multicast()?.leave(group))
                .collect()
        };
        drop(closed); // without the lock
        Ok(())
    }

    /// `None` in a forked child, where another thread's turn would never end.
    fn grouping_turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.is_of_this_process().then(|| self.interface.grouping.lock())
    }
}

fn groups(link: &mut dyn Link) -> io::Result<&mut dyn MulticastLink> {
    link.multicast().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

pub(super) fn add_descriptors(sockets: &OwnedFd, link: &dyn Link) -> io::Result<()> {
    for descriptor in link.descriptors() {
        match epoll::add(sockets, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
