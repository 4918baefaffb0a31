//! Messages of one length between processes: [`postcard`]'s encoding, and zeros behind it.

use serde::{Serialize, de::DeserializeOwned};

/// Encodes a message, which `LEN` bytes are enough for.
pub(super) fn encode<const LEN: usize>(message: &impl Serialize) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let encoded = postcard::to_slice(message, &mut bytes);
    debug_assert!(encoded.is_ok(), "{LEN} bytes are enough");
    bytes
}

/// Decodes a message; `None`: the bytes are none.
pub(super) fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Option<M> {
    postcard::from_bytes(bytes).ok()
}
