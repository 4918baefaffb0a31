use core::fmt;

use super::fields::{At, Field};

/// Private data, zero-padded: its length is not sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrivateData<const N: usize>(pub [u8; N]);

impl<const N: usize> PrivateData<N> {
    /// Pads `bytes`; `None` if too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut data = [0; N];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(data))
    }
}

impl<const N: usize> Default for PrivateData<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Field<At> for PrivateData<N> {
    fn get(b: &[u8], at: At) -> Self {
        Self(Field::get(b, at))
    }

    fn put(&self, b: &mut [u8], at: At) {
        self.0.put(b, at);
    }
}

impl<const N: usize> fmt::Debug for PrivateData<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", without_padding(&self.0))
    }
}

/// Strips trailing zeros, also the program's own.
#[must_use]
pub fn without_padding(private_data: &[u8]) -> &[u8] {
    let used = private_data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &private_data[..used]
}
