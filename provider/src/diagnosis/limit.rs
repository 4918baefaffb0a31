//! Rate limit: each cause once.

use std::{collections::BTreeSet, time::Duration};

use roce_transport::{explain::Finding, time::Instant};

/// Burst of explanations.
const AT_ONCE: u32 = 20;
/// Interval afterwards.
const APART: Duration = Duration::from_millis(500);
const CAUSES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Limit {
    /// Device, cause, and the call's name or a failed queue pair's number.
    causes: BTreeSet<(Option<String>, &'static str, String)>,
    /// Number given, less one per [`APART`] since `since`.
    given: u32,
    since: Instant,
    left_out: u32,
}

impl Limit {
    /// `Some`: report, with the number omitted before.
    pub(super) fn admit(
        &mut self,
        device: Option<&str>,
        finding: &Finding,
        now: Instant,
    ) -> Option<u32> {
        let is_call = finding.is_call && finding.status.is_none();
        let subject = match finding.qpn.filter(|_| !is_call) {
            Some(qpn) => qpn.to_string(),
            None => finding.what.split([' ', ',']).next().unwrap_or_default().to_owned(),
        };
        let cause = (device.map(str::to_owned), finding.reason.cause, subject);
        if self.causes.contains(&cause) {
            return None;
        }
        let passed = now.since(self.since).as_nanos() / APART.as_nanos();
        if passed > 0 {
            self.since = now;
            self.given = self.given.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX));
        }
        if self.given >= AT_ONCE || self.causes.len() >= CAUSES {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.given += 1;
        self.causes.insert(cause);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use roce_transport::{explain::Reason, ids::Qpn, work::WcStatus};

    use super::*;

    fn call(name: &str, cause: &'static str) -> Finding {
        let reason = Reason::new(cause, &"a rule", "advice").with_errno("EINVAL");
        Finding::of_call(Instant::ZERO, format!("{name} 7"), reason)
    }

    fn failure(qpn: u32) -> Finding {
        let reason = Reason::new("no_response", &"a rule", "advice");
        Finding {
            qpn: Some(Qpn::new(qpn)),
            status: Some(WcStatus::RetryExcErr),
            ..Finding::new(Instant::ZERO, "ibv_post_send 7".into(), reason)
        }
    }

    #[test]
    fn each_cause_is_told_once() {
        let mut limit = Limit::default();
        let mut admit = |device, finding: &Finding| limit.admit(device, finding, Instant::ZERO);
        assert_eq!(admit(None, &call("ibv_post_send", "queue_full")), Some(0));
        assert_eq!(admit(None, &call("ibv_post_send", "queue_full")), None);
        assert_eq!(admit(None, &call("ibv_post_send", "post_state")), Some(0));
        assert_eq!(admit(None, &call("ibv_post_recv", "queue_full")), Some(0));
        assert_eq!(admit(Some("a"), &call("ibv_post_send", "queue_full")), Some(0));
        assert_eq!(admit(Some("a"), &failure(1)), Some(0));
        assert_eq!(admit(Some("a"), &failure(2)), Some(0), "another queue pair");
        assert_eq!(admit(Some("a"), &failure(1)), None);
    }

    #[test]
    fn many_failures_do_not_flood() {
        let mut limit = Limit::default();
        let admitted =
            (0..100).filter(|&qpn| limit.admit(None, &failure(qpn), Instant::ZERO).is_some());
        assert_eq!(admitted.count(), AT_ONCE as usize);
        let later = Instant::ZERO.plus(APART * 3);
        let admitted: Vec<_> =
            (100..110).map(|qpn| limit.admit(None, &failure(qpn), later)).collect();
        assert_eq!(admitted[..4], [Some(100 - AT_ONCE), Some(0), Some(0), None]);
    }
}
