//! Messages of one length between processes: [`postcard`]'s encoding, padded with zeros.

use serde::{Serialize, de::DeserializeOwned};

/// `LEN` bytes must be enough.
pub(super) fn encode<const LEN: usize>(message: &impl Serialize) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let encoded = postcard::to_slice(message, &mut bytes);
    debug_assert!(encoded.is_ok(), "{LEN} bytes are enough");
    bytes
}

/// `None` for invalid bytes.
pub(super) fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Option<M> {
    postcard::from_bytes(bytes).ok()
}
