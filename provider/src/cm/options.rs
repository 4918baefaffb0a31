//! Options of an id; `set_option` has the setters.

use roce_transport::qp::QpType;

/// Default code.
pub(super) const ACK_TIMEOUT: u8 = 16;

#[derive(Clone, Copy)]
pub(super) struct Options {
    pub(super) qp_type: QpType,
    pub(super) tos: u8,
    pub(super) ack_timeout: Option<u8>,
    pub(super) min_rnr_timer: u8,
    pub(super) reuse_addr: bool,
    /// By default, the bound address decides.
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
