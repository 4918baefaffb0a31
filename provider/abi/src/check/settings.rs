//! Attributes of queue pairs that work, and hurt on a network.

use super::{
    finding::{Finding, Kind},
    report,
    stack::Stack,
};

/// Tells of attributes that `ibv_modify_qp` has set.
pub(crate) fn changed(
    qpn: u32,
    timeout: Option<u8>,
    retry_cnt: Option<u8>,
    min_rnr_timer: Option<u8>,
) {
    let given = [
        (Kind::TimeoutZero, timeout),
        (Kind::RetryZero, retry_cnt),
        (Kind::RnrTimerZero, min_rnr_timer),
    ];
    for (kind, _) in given.into_iter().filter(|(_, value)| *value == Some(0)) {
        report::tell(&Finding {
            kind,
            what: format!("qp {qpn:#x}: ibv_modify_qp"),
            stacks: vec![("called", Stack::here())],
        });
    }
}
