//! Hashing of identifiers that we draw at random ourselves: no peer can choose them, so no defence
//! is needed.

use core::hash::{BuildHasherDefault, Hasher};

pub(crate) type IdHasher = BuildHasherDefault<Multiply>;

/// Multiplication by the golden ratio.
#[derive(Clone, Copy, Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        let product = (self.0 ^ u64::from(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ product >> 32;
    }
}
