//! P_Key table of the only port (10.9.1, C9-42 to C9-45).

use alloc::{vec, vec::Vec};

use thiserror::Error;

use crate::addr::PKey;

/// Partition keys by index. Entries of partition 0 are unused.
///
/// QP1 receives with any key and responds with the same
/// ([`pkey_index`](crate::work::WcOk::pkey_index)).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PKeyTable(Vec<PKey>);

/// Wrong number of entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("a P_Key table has 1 to {max} entries, not {0}", max = PKeyTable::MAX)]
pub struct PKeyTableSize(pub usize);

impl PKeyTable {
    /// `ibv_device_attr.max_pkeys`.
    pub const MAX: usize = 128;

    /// Takes 1 to [`MAX`](Self::MAX) entries.
    ///
    /// # Errors
    /// Not 1 to [`MAX`](Self::MAX) entries.
    pub fn new(entries: impl Into<Vec<PKey>>) -> Result<Self, PKeyTableSize> {
        let entries = entries.into();
        if (1..=Self::MAX).contains(&entries.len()) {
            Ok(Self(entries))
        } else {
            Err(PKeyTableSize(entries.len()))
        }
    }

    /// Every entry.
    #[must_use]
    pub fn entries(&self) -> &[PKey] {
        &self.0
    }

    /// Entry, if used.
    #[must_use]
    pub fn get(&self, index: u16) -> Option<PKey> {
        self.0.get(usize::from(index)).copied().filter(|pkey| pkey.is_valid())
    }

    /// First matching entry.
    #[must_use]
    pub fn find(&self, pkey: PKey) -> Option<u16> {
        self.0.iter().position(|entry| entry.matches(pkey)).map(|index| index as u16)
    }
}

impl Default for PKeyTable {
    fn default() -> Self {
        Self(vec![PKey::DEFAULT])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_entries_and_not_too_many() {
        assert_eq!(PKeyTable::new([]), Err(PKeyTableSize(0)));
        assert_eq!(
            PKeyTable::new([PKey::DEFAULT; PKeyTable::MAX + 1]),
            Err(PKeyTableSize(PKeyTable::MAX + 1))
        );
        assert!(PKeyTable::new([PKey::DEFAULT; PKeyTable::MAX]).is_ok());
        assert_eq!(PKeyTable::default().entries(), [PKey(0xFFFF)]);
    }

    #[test]
    fn unused_entries_are_not_found() {
        let table = PKeyTable::new([PKey(0x8000), PKey(0x0002), PKey(0x8003), PKey(0)]).unwrap();
        assert_eq!(
            [0, 1, 2, 3, 4].map(|index| table.get(index)),
            [None, Some(PKey(2)), Some(PKey(0x8003)), None, None]
        );
        assert_eq!(table.find(PKey(0x0003)), Some(2), "a full member talks to a limited one");
        assert_eq!(table.find(PKey(0x8002)), Some(1));
        assert_eq!(table.find(PKey(0x0002)), None, "two limited members do not talk");
        assert_eq!(table.find(PKey(0x8000)), None);
    }
}
