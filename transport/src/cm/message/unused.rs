use super::fields::{At, Bits, Field, Split};
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

impl Field<(At, Bits, Split)> for Unused {
    fn get(b: &[u8], (local_qkey, local_eecn, vendor_id): (At, Bits, Split)) -> Self {
        Self {
            local_qkey: Field::get(b, local_qkey),
            local_eecn: Field::get(b, local_eecn),
            vendor_id: Field::get(b, vendor_id),
        }
    }

    fn put(&self, b: &mut [u8], (local_qkey, local_eecn, vendor_id): (At, Bits, Split)) {
        self.local_qkey.put(b, local_qkey);
        self.local_eecn.put(b, local_eecn);
        self.vendor_id.put(b, vendor_id);
    }
}
