use super::fields::{At, Bits, Field, layout};
use crate::ids::Qpn;

layout! {
    /// Load alternate path (12.8.1), without the path.
    #[derive(Default)]
    Lap {
        /// Sender's ID.
        local_id: u32 = At(0);
        /// Receiver's ID.
        remote_id: u32 = At(4);
        /// Receiver's queue pair.
        remote_qpn: Qpn = Bits(12, 31, 8);
    }
}
