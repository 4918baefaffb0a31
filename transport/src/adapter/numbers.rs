use hashbrown::HashMap;

use crate::{hash::IdHasher, ids::Qpn};

/// Indexes by QPN; the last lookup is cached.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    places: HashMap<Qpn, usize, IdHasher>,
    last: Option<(Qpn, usize)>,
}

impl Numbers {
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
