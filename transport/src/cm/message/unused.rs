use crate::addr::QKey;

/// Fields of a [`Req`](super::Req) or [`Rep`](super::Rep) without meaning on RoCE; sent as 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Unused {
    /// Sender's Q_Key.
    pub local_qkey: QKey,
    /// Local EE context (reliable datagrams), 24 bits.
    pub local_eecn: u32,
    /// Vendor ID of extended connection establishment, 24 bits.
    pub vendor_id: u32,
}
