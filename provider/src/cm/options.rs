//! Options of an id; their setters stand in `set_option`.

use roce_transport::qp::QpType;

/// Acknowledge timeout's code of ids without one of their own.
pub(super) const ACK_TIMEOUT: u8 = 16;

/// See the setters.
#[derive(Clone, Copy)]
pub(super) struct Options {
    pub(super) qp_type: QpType,
    pub(super) tos: u8,
    /// If the program has set it.
    pub(super) ack_timeout: Option<u8>,
    pub(super) min_rnr_timer: u8,
    pub(super) reuse_addr: bool,
    /// If the program has said so; else it is settled by the address that the id is bound to.
    pub(super) afonly: Option<bool>,
}

impl Options {
    pub(super) const fn new(qp_type: QpType) -> Self {
        Self {
            qp_type,
            tos: 0,
            ack_timeout: None,
            min_rnr_timer: 12,
            reuse_addr: false,
            afonly: None,
        }
    }
}
