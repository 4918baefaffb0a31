use crate::addr::QKey;

/// Fields without meaning on RoCE; 0 when sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Unused {
    /// Sender's Q_Key.
    pub local_qkey: QKey,
    /// EE context, 24 bits.
    pub local_eecn: u32,
    /// Vendor ID, 24 bits.
    pub vendor_id: u32,
}
