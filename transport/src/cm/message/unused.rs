//! Fields that say nothing on RoCE.

use crate::addr::QKey;

/// Fields of a [`Req`](super::Req) or a [`Rep`](super::Rep) that say nothing on RoCE: 0 in what is
/// sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Unused {
    /// Queue key of the sender.
    pub local_qkey: QKey,
    /// Local EE context: 24 bits of the reliable datagram service, which does not exist here.
    pub local_eecn: u32,
    /// Extended connection establishment: 24 bits, of whose options the frame's modifier holds.
    pub vendor_id: u32,
}
