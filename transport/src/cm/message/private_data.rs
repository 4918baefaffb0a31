//! Private data: bytes of the program's own in every message.

use core::fmt;

/// Private data of a fixed length. The program's bytes come first, zeros follow: their number is
/// not sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrivateData<const N: usize>(pub [u8; N]);

impl<const N: usize> PrivateData<N> {
    /// These bytes; `None` when they are too many.
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

impl<const N: usize> fmt::Debug for PrivateData<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", without_padding(&self.0))
    }
}

/// Private data without the zeros at its end. Zeros that the program sent there go with them, since
/// nothing tells them apart.
#[must_use]
pub fn without_padding(private_data: &[u8]) -> &[u8] {
    let used = private_data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &private_data[..used]
}
