use alloc::collections::BTreeMap;
use core::net::IpAddr;

use super::{
    command::{Listen, ListenerId},
    error::ConnError,
    service::ServiceId,
};

#[derive(Default)]
pub(super) struct Listeners {
    next: u32,
    by_id: BTreeMap<ListenerId, Listener>,
    by_service: BTreeMap<(ServiceId, Option<IpAddr>), ListenerId>,
}

struct Listener {
    listen: Listen,
    pending: usize,
}

impl Listeners {
    pub(super) fn add(&mut self, listen: Listen) -> Result<ListenerId, ConnError> {
        let key = (listen.service_id, listen.address);
        if self.by_service.contains_key(&key) {
            return Err(ConnError::InUse);
        }
        let id = ListenerId(self.next);
        self.next += 1;
        self.by_service.insert(key, id);
        self.by_id.insert(id, Listener { listen, pending: 0 });
        Ok(id)
    }

    /// Pending REQs stay.
    pub(super) fn remove(&mut self, id: ListenerId) -> Result<(), ConnError> {
        let Listener { listen, .. } = self.by_id.remove(&id).ok_or(ConnError::Unknown)?;
        self.by_service.remove(&(listen.service_id, listen.address));
        Ok(())
    }

    /// A listener with the address precedes one without.
    pub(super) fn find(&self, service_id: ServiceId, address: IpAddr) -> Option<ListenerId> {
        let of = |address| self.by_service.get(&(service_id, address));
        of(Some(address)).or_else(|| of(None)).copied()
    }

    pub(super) fn has_room(&self, id: ListenerId) -> bool {
        self.by_id.get(&id).is_some_and(|own| own.pending < own.listen.backlog)
    }

    pub(super) fn enter_backlog(&mut self, id: ListenerId) {
        if let Some(listener) = self.by_id.get_mut(&id) {
            listener.pending += 1;
        }
    }

    pub(super) fn leave_backlog(&mut self, id: ListenerId) {
        if let Some(listener) = self.by_id.get_mut(&id) {
            listener.pending -= 1;
        }
    }
}
