//! Maps of random identifiers: QPNs, keys, communication IDs.
//!
//! Hashes need no secret: peers cannot choose the keys. Keys that peers choose are in `BTreeMap`s.

use alloc::boxed::Box;
use core::hash::{BuildHasher, Hash};

use hashbrown::HashTable;

pub(crate) type IdHasher = rustc_hash::FxBuildHasher;

/// Map in parts: growing a million entries at once takes tens of milliseconds.
#[derive(Debug)]
pub(crate) struct IdMap<K, V> {
    parts: Box<[HashTable<(K, V)>]>,
    len: usize,
}

const PARTS: usize = 256;

impl<K: Hash + Eq, V> IdMap<K, V> {
    fn hash(key: &K) -> u64 {
        IdHasher::default().hash_one(key)
    }

    /// By hash bits that the part does not use.
    const fn part(hash: u64) -> usize {
        (hash >> 40) as usize % PARTS
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let hash = Self::hash(key);
        let (_, value) = self.parts[Self::part(hash)].find(hash, |(own, _)| own == key)?;
        Some(value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let hash = Self::hash(key);
        let (_, value) = self.parts[Self::part(hash)].find_mut(hash, |(own, _)| own == key)?;
        Some(value)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if let Some(there) = self.get_mut(&key) {
            *there = value;
            return;
        }
        let hash = Self::hash(&key);
        self.parts[Self::part(hash)].insert_unique(hash, (key, value), |(own, _)| Self::hash(own));
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let hash = Self::hash(key);
        let found = self.parts[Self::part(hash)].find_entry(hash, |(own, _)| own == key).ok()?;
        let ((_, value), _) = found.remove();
        self.len -= 1;
        Some(value)
    }
}

impl<K, V> Default for IdMap<K, V> {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| HashTable::new()).collect(), len: 0 }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    use super::*;

    #[test]
    fn no_insertion_moves_many() {
        const COUNT: usize = if cfg!(miri) { 2000 } else { 200_000 };
        for is_random in [true, false] {
            let mut chance = ChaCha8Rng::seed_from_u64(1);
            let mut map = IdMap::default();
            let mut keys = (0..COUNT as u32).map(|n| if is_random { chance.next_u32() } else { n });
            let mut moved = 0;
            for key in keys.by_ref() {
                let part = IdMap::<u32, u32>::part(IdMap::<u32, u32>::hash(&key));
                let before = (map.parts[part].capacity(), map.parts[part].len());
                map.insert(key, !key);
                if map.parts[part].capacity() != before.0 {
                    moved = moved.max(before.1);
                }
            }
            assert!(moved <= 2 * COUNT.div_ceil(PARTS), "{moved} at once");
            assert_eq!(map.len(), map.parts.iter().map(HashTable::len).sum::<usize>());
        }
    }

    #[test]
    fn it_is_a_map() {
        let mut map = IdMap::default();
        (0..1000).for_each(|key| map.insert(key, key));
        map.insert(7, 8);
        assert_eq!(map.len(), 1000);
        *map.get_mut(&8).unwrap() = 9;
        assert_eq!((map.get(&7), map.get(&8), map.get(&1000)), (Some(&8), Some(&9), None));
        assert_eq!((map.remove(&7), map.remove(&7), map.len()), (Some(8), None, 999));
        assert!(map.contains_key(&8) && !map.contains_key(&7));
    }
}
