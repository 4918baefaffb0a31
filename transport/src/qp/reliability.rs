use super::{
    attr::{RdAtomicLimits, RequesterAttr, ResponderAttr},
    error::ModifyError,
    update::{Attribute, QpUpdate},
};

/// Attributes as given: requester and responder lose derived values on failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reliability {
    pub(super) requester: RequesterAttr,
    pub(super) responder: ResponderAttr,
}

impl Reliability {
    pub(super) const NONE: Self = Self {
        requester: RequesterAttr { timeout: 0, retry_cnt: 0, rnr_retry: 0, max_rd_atomic: 0 },
        responder: ResponderAttr { max_dest_rd_atomic: 0, min_rnr_timer: 0 },
    };

    pub(super) fn updated(self, update: &QpUpdate) -> Self {
        let Self { requester, responder } = self;
        Self {
            requester: RequesterAttr {
                timeout: update.timeout.unwrap_or(requester.timeout),
                retry_cnt: update.retry_cnt.unwrap_or(requester.retry_cnt),
                rnr_retry: update.rnr_retry.unwrap_or(requester.rnr_retry),
                max_rd_atomic: update.max_rd_atomic.unwrap_or(requester.max_rd_atomic),
            },
            responder: ResponderAttr {
                max_dest_rd_atomic: update
                    .max_dest_rd_atomic
                    .unwrap_or(responder.max_dest_rd_atomic),
                min_rnr_timer: update.min_rnr_timer.unwrap_or(responder.min_rnr_timer),
            },
        }
    }

    pub(super) fn check(&self, limits: RdAtomicLimits) -> Result<(), ModifyError> {
        let Self { requester, responder } = self;
        for (attribute, value, limit) in [
            (Attribute::Timeout, requester.timeout, 31),
            (Attribute::RetryCnt, requester.retry_cnt, 7),
            (Attribute::RnrRetry, requester.rnr_retry, 7),
            (Attribute::MaxRdAtomic, requester.max_rd_atomic, limits.requester),
            (Attribute::MaxDestRdAtomic, responder.max_dest_rd_atomic, limits.responder),
            (Attribute::MinRnrTimer, responder.min_rnr_timer, 31),
        ] {
            if value > limit {
                return Err(ModifyError::Range { attribute, limit });
            }
        }
        Ok(())
    }
}
