use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

pub struct Dice(ChaCha8Rng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub fn below(&mut self, n: u32) -> u32 {
        self.0.next_u32() % n.max(1)
    }

    /// In `least..=most`.
    pub fn range(&mut self, least: u32, most: u32) -> u32 {
        least + self.below(most - least + 1)
    }

    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
