//! Explanations as text for people and as JSON for programs.

use std::fmt::Write;

use roce_transport::{explain::Finding, time::Instant};
use serde_json::json;

/// Form in which a device explains failures on stderr.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExplainFormat {
    /// A few lines for each, in colours where stderr is a terminal (unless `NO_COLOR` is set).
    Text,
    /// One object on a line of its own for each, for programs.
    Json,
}

/// An explanation.
pub(super) struct Report<'a> {
    pub(super) device: Option<&'a str>,
    pub(super) finding: &'a Finding,
    /// What else is known about the peer.
    pub(super) others: Vec<String>,
    /// Number of failures before this one that were not told.
    pub(super) left_out: u32,
}

impl Report<'_> {
    pub(super) fn text(&self, colors: bool) -> String {
        let paint = |code: &str, text: &str| match colors {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        };
        let Finding { qpn, what, status, reason, peer, latest, .. } = self.finding;
        let mut text = String::from("roce: ");
        if let Some(device) = self.device {
            text += device;
            text += &qpn.map_or_else(String::new, |qpn| format!(" qp {qpn}"));
            text += ": ";
        }
        let failed = match (status, reason.errno) {
            (Some(status), _) => format!("{what}: {} ({})", status.name(), *status as u8),
            (None, Some(errno)) => format!("{what}: {errno}"),
            (None, None) => what.clone(),
        };
        text += &paint("1;31", &failed);
        text.push('\n');
        let mut line = |name: &str, said: &str| {
            let _ = writeln!(text, "  {} {said}", paint("1", name));
        };
        line("why: ", &reason.rule);
        for said in peer.iter().chain(&self.others) {
            line("peer:", said);
        }
        line("look:", &reason.advice);
        if !latest.is_empty() {
            let _ = writeln!(text, "  {}", paint("1", "before:"));
        }
        for (ago, what) in self.latest() {
            let _ = writeln!(text, "    {}", paint("2", &format!("{ago:>12}  {what}")));
        }
        if self.left_out > 0 {
            let _ = writeln!(text, "  ({} failures before this one are not shown)", self.left_out);
        }
        text
    }

    pub(super) fn json(&self) -> String {
        let Finding { at, qpn, what, status, reason, peer, latest, .. } = self.finding;
        let latest: Vec<_> = latest
            .iter()
            .map(|record| {
                let ago = at.since(record.at).as_nanos() as u64;
                json!({ "ago_ns": ago, "what": record.what.to_string() })
            })
            .collect();
        let object = json!({
            "device": self.device,
            "qp": qpn.map(|qpn| qpn.get()),
            "what": what,
            "status": status.map(|status| status.name()),
            "errno": reason.errno,
            "cause": reason.cause,
            "why": reason.rule,
            "peer": peer.iter().chain(&self.others).collect::<Vec<_>>(),
            "look": reason.advice,
            "latest": latest,
            "left_out": self.left_out,
        });
        format!("{object}\n")
    }

    /// What happened before, and how long; what is the same several times in a row is one line.
    fn latest(&self) -> Vec<(String, String)> {
        let mut lines: Vec<(Instant, String, u32)> = Vec::new();
        for record in &self.finding.latest {
            let what = record.what.to_string();
            match lines.last_mut() {
                Some((at, before, number)) if *before == what => {
                    (*at, *number) = (record.at, *number + 1);
                }
                _ => lines.push((record.at, what, 1)),
            }
        }
        let line = |(at, what, number)| match number {
            1 => (ago(self.finding.at, at), what),
            _ => (ago(self.finding.at, at), format!("{what} ({number} times)")),
        };
        lines.into_iter().map(line).collect()
    }
}

fn ago(now: Instant, then: Instant) -> String {
    match now.since(then) {
        ago if ago.is_zero() => "0".to_owned(),
        ago => format!("-{ago:.1?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use roce_transport::{
        explain::{Explain, Reason},
        ids::Qpn,
        qp::{QpType, State},
        trace::{Call, Record, What},
        work::WcStatus,
    };

    use super::*;

    fn finding() -> Finding {
        let at = Instant::ZERO.plus(Duration::from_millis(5));
        let qpn = Qpn::new(0x12);
        let call = |at, call| Record { at, qpn, what: What::Call { call, result: Ok(()) } };
        Finding {
            at,
            qpn: Some(qpn),
            what: "ibv_post_send 7: SEND of 4 B".into(),
            status: Some(WcStatus::RetryExcErr),
            reason: Reason { rule: "sent 8 times".into(), ..WcStatus::RetryExcErr.explain() },
            peer: Some("nothing at all has come".into()),
            silent: None,
            latest: vec![
                call(Instant::ZERO, Call::CreateQp(QpType::Rc)),
                call(at, Call::Modify(State::Init)),
                call(at, Call::Modify(State::Init)),
            ],
        }
    }

    fn report(finding: &Finding) -> Report<'_> {
        Report { device: Some("roce_lo"), finding, others: vec!["it is away".into()], left_out: 3 }
    }

    #[test]
    fn text_says_what_why_who_and_where_to_look() {
        let finding = finding();
        let text = report(&finding).text(false);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "roce: roce_lo qp 0x000012: ibv_post_send 7: SEND of 4 B: IBV_WC_RETRY_EXC_ERR (12)",
                "  why:  sent 8 times",
                "  peer: nothing at all has come",
                "  peer: it is away",
            ]
        );
        assert!(lines[4].starts_with("  look: dest_qp_num"), "{text}");
        assert_eq!(lines[6], "          -5.0ms  create_qp RC");
        assert_eq!(lines[7], "               0  modify_qp to INIT (2 times)");
        assert_eq!(lines[8], "  (3 failures before this one are not shown)");
        let colored = report(&finding).text(true);
        assert!(colored.contains("\x1b[1;31m") && !text.contains('\x1b'));
    }

    #[test]
    fn a_call_is_named_with_its_errno() {
        let reason = Reason::new("queue_full", &"the queue is full", "poll").with_errno("ENOMEM");
        let finding = Finding::of_call(Instant::ZERO, "ibv_post_send 7".into(), reason);
        let report = Report { device: None, finding: &finding, others: vec![], left_out: 0 };
        let text = report.text(false);
        assert_eq!(
            text,
            "roce: ibv_post_send 7: ENOMEM\n  why:  the queue is full\n  look: poll\n"
        );
    }

    #[test]
    fn json_is_one_line_for_programs() {
        let finding = finding();
        let line = report(&finding).json();
        assert_eq!(line.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["status"], "IBV_WC_RETRY_EXC_ERR");
        assert_eq!(
            (value["cause"].as_str(), value["qp"].as_u64()),
            (Some("no_answer"), Some(0x12))
        );
        assert_eq!(value["latest"][0]["ago_ns"], 5_000_000);
        assert_eq!(value["peer"].as_array().unwrap().len(), 2);
    }
}
