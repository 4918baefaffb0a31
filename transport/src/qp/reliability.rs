//! Timers, counters and limits of a reliable connection.

use super::{attr::MAX_RD_ATOMIC, error::ModifyError, state::Attribute, update::QpUpdate};

/// Timers, counters and limits of a reliable connection, XRC included, as they were given: what its
/// halves make of them does not show the codes any more, and goes when the queue pair fails.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reliability {
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
}

impl Reliability {
    pub(super) fn changed(self, changes: &QpUpdate) -> Self {
        Self {
            timeout: changes.timeout.unwrap_or(self.timeout),
            retry_cnt: changes.retry_cnt.unwrap_or(self.retry_cnt),
            rnr_retry: changes.rnr_retry.unwrap_or(self.rnr_retry),
            max_rd_atomic: changes.max_rd_atomic.unwrap_or(self.max_rd_atomic),
            max_dest_rd_atomic: changes.max_dest_rd_atomic.unwrap_or(self.max_dest_rd_atomic),
            min_rnr_timer: changes.min_rnr_timer.unwrap_or(self.min_rnr_timer),
        }
    }

    pub(super) fn check(&self) -> Result<(), ModifyError> {
        for (attribute, value, limit) in [
            (Attribute::Timeout, self.timeout, 31),
            (Attribute::RetryCnt, self.retry_cnt, 7),
            (Attribute::RnrRetry, self.rnr_retry, 7),
            (Attribute::MaxRdAtomic, self.max_rd_atomic, MAX_RD_ATOMIC),
            (Attribute::MaxDestRdAtomic, self.max_dest_rd_atomic, MAX_RD_ATOMIC),
            (Attribute::MinRnrTimer, self.min_rnr_timer, 31),
        ] {
            if value > limit {
                return Err(ModifyError::Range { attribute, limit: limit.into() });
            }
        }
        Ok(())
    }
}
