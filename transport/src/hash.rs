//! Hashing of identifiers that this adapter draws at random: queue pair numbers, keys,
//! communication IDs.
//!
//! A peer cannot choose what is stored under these, so it cannot make entries collide, and a fast
//! hash without a secret is enough. A map with keys that a peer chooses must not use it: such maps
//! are `BTreeMap`s here.

/// The hasher of maps from such identifiers.
pub(crate) type IdHasher = rustc_hash::FxBuildHasher;
