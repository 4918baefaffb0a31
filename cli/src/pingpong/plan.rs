use roce::{Init, Mtu, QKey, QpType};

use crate::failure::{Failure, fail};

/// The stock tools'.
pub(super) const QKEY: QKey = QKey(0x1111_1111);

pub(super) struct Plan {
    pub(super) qp_type: QpType,
    /// Several share a receive queue.
    pub(super) num_qp: usize,
    pub(super) shared: bool,
    pub(super) size: usize,
    pub(super) iters: u32,
    pub(super) mtu: Option<Mtu>,
    pub(super) rx_depth: u32,
    pub(super) validate: bool,
    pub(super) events: bool,
}

impl Plan {
    pub(super) fn check_datagram(&self, mtu: Mtu) -> Result<(), Failure> {
        if self.qp_type == QpType::Ud && self.size > mtu.bytes() as usize {
            let (size, mtu) = (self.size, mtu.bytes());
            fail!(
                "-s {size} exceeds the path MTU {mtu}: a datagram is one packet; use -s {mtu} or \
                 less, or a larger -m"
            );
        }
        Ok(())
    }

    pub(super) fn init() -> Init {
        Init { qkey: QKEY, ..Init::default() }
    }
}
