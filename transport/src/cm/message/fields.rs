use super::private_data::PrivateData;
use crate::wire::MAD_DATA_LEN;

pub(super) struct Fields<'a>(pub(super) &'a [u8; MAD_DATA_LEN]);

impl Fields<'_> {
    pub(super) const fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    pub(super) const fn u24(&self, at: usize) -> u32 {
        u32::from_be_bytes([0, self.0[at], self.0[at + 1], self.0[at + 2]])
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    pub(super) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        core::array::from_fn(|i| self.0[at + i])
    }

    pub(super) fn data<const N: usize>(&self, at: usize) -> PrivateData<N> {
        PrivateData(self.array(at))
    }
}

pub(super) struct Writer<'a>(pub(super) &'a mut [u8; MAD_DATA_LEN]);

impl Writer<'_> {
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) const fn u8(&mut self, at: usize, value: u8) {
        self.0[at] = value;
    }

    pub(super) fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_be_bytes());
    }

    pub(super) fn u24(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes()[1..]);
    }

    pub(super) fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_be_bytes());
    }
}
