//! Places of queue pairs by their numbers.

use hashbrown::HashMap;

use crate::{hash::IdHasher, ids::Qpn};

/// Remembers the one that was looked up last, which most packets and calls are about again.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    places: HashMap<Qpn, usize, IdHasher>,
    last: Option<(Qpn, usize)>,
}

impl Numbers {
    /// The place of a queue pair that more packets or calls are likely to be about.
    #[inline]
    pub(super) fn find(&mut self, qpn: Qpn) -> Option<usize> {
        if let Some((last, place)) = self.last
            && last == qpn
        {
            return Some(place);
        }
        let place = *self.places.get(&qpn)?;
        self.last = Some((qpn, place));
        Some(place)
    }

    pub(super) fn get(&self, qpn: &Qpn) -> Option<&usize> {
        self.places.get(qpn)
    }

    pub(super) fn insert(&mut self, qpn: Qpn, place: usize) {
        self.places.insert(qpn, place);
    }

    pub(super) fn remove(&mut self, qpn: &Qpn) -> Option<usize> {
        self.last = None;
        self.places.remove(qpn)
    }
}
