//! Explanations as text and as JSON.

use roce_transport::{
    explain::Finding,
    qp::Failure,
    time::Instant,
    trace::{Call, What},
};
use serde_json::json;

use crate::report::Report;

/// Form of explanations on stderr.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExplainFormat {
    /// Lines, coloured on a terminal (unless `NO_COLOR` is set).
    Text,
    /// JSON lines.
    Json,
}

/// `others`: facts about the peer; `left_out`: number of earlier failures not shown.
pub(super) fn report(
    device: Option<&str>,
    finding: &Finding,
    others: &[String],
    caller: Option<String>,
    left_out: u32,
) -> Report {
    let Finding { at, qpn, what, status, reason, peer, latest, .. } = finding;
    let qp = qpn.map_or_else(String::new, |qpn| format!(" qp {qpn}"));
    let peer: Vec<_> = peer.iter().chain(others).cloned().collect();
    let object = json!({
        "device": device,
        "qp": qpn.map(|qpn| qpn.get()),
        "what": what,
        "status": status.map(|status| status.name()),
        "errno": reason.errno,
        "cause": reason.cause,
        "why": reason.rule,
        "at": caller,
        "peer": peer,
        "look": reason.advice,
        "latest": latest.iter().map(|record| json!({
            "ago_ns": at.since(record.at).as_nanos() as u64,
            "what": record.what.to_string(),
        })).collect::<Vec<_>>(),
        "left_out": left_out,
    });
    let mut facts = vec![("why", reason.rule.clone())];
    facts.extend(caller.map(|caller| ("at", caller)));
    facts.extend(peer.into_iter().map(|peer| ("peer", peer)));
    facts.push(("look", reason.advice.to_string()));
    Report {
        subject: device.map_or_else(|| "roce".to_owned(), |device| format!("roce: {device}{qp}")),
        event: match (status, reason.errno) {
            (Some(status), _) => format!("{what}: {} ({})", status.name(), *status as u8),
            (None, Some(errno)) => format!("{what}: {errno}"),
            (None, None) => what.clone(),
        },
        is_advice: false,
        facts,
        lists: vec![("before", before(finding))],
        end: (left_out > 0).then(|| format!("{left_out} earlier failures are not shown")),
        object,
    }
}

/// Earlier events with age; repetitions are one line, a call and its transition too.
fn before(finding: &Finding) -> Vec<String> {
    let mut lines: Vec<(Instant, String, u32)> = Vec::new();
    for (n, record) in finding.latest.iter().enumerate() {
        if finding.latest.get(n + 1).is_some_and(|next| is_transition_of(&record.what, &next.what))
        {
            continue;
        }
        let what = record.what.to_string();
        match lines.last_mut() {
            Some((at, before, number)) if *before == what => {
                (*at, *number) = (record.at, *number + 1);
            }
            _ => lines.push((record.at, what, 1)),
        }
    }
    let line = |(at, what, number)| {
        let ago = ago(finding.at, at);
        match number {
            1 => format!("{ago:>12}  {what}"),
            _ => format!("{ago:>12}  {what} ({number} times)"),
        }
    };
    lines.into_iter().map(line).collect()
}

fn is_transition_of(what: &What, next: &What) -> bool {
    matches!((what, next), (
        What::State { to, failure: Failure::Asked, .. },
        What::Call { call: Call::Modify(state), result: Ok(()) },
    ) if to == state)
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
        trace::Record,
        work::WcStatus,
    };

    use super::*;

    fn finding() -> Finding {
        let at = Instant::ZERO.plus(Duration::from_millis(5));
        let qpn = Qpn::new(0x12);
        let call = |at, call| Record { at, qpn, what: What::Call { call, result: Ok(()) } };
        let to_init = What::State { from: State::Reset, to: State::Init, failure: Failure::Asked };
        Finding {
            at,
            qpn: Some(qpn),
            what: "ibv_post_send 7: SEND of 4 B".into(),
            is_call: false,
            caller: None,
            status: Some(WcStatus::RetryExcErr),
            reason: Reason { rule: "sent 8 times".into(), ..WcStatus::RetryExcErr.explain() },
            peer: Some("nothing at all has come".into()),
            silent: None,
            latest: vec![
                call(Instant::ZERO, Call::CreateQp(QpType::Rc)),
                Record { at, qpn, what: to_init },
                call(at, Call::Modify(State::Init)),
                call(at, Call::Modify(State::Init)),
            ],
        }
    }

    fn text_of(finding: &Finding, is_json: bool) -> String {
        report(Some("roce_lo"), finding, &["it is away".into()], None, 3).in_form(is_json)
    }

    #[test]
    fn text_says_what_why_who_and_where_to_look() {
        let finding = finding();
        let text = text_of(&finding, false);
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
        assert!(lines[4].starts_with("  look: check dest_qp_num"), "{text}");
        assert_eq!(lines[6], "          -5.0ms  create_qp RC");
        assert_eq!(lines[7], "               0  modify_qp to INIT (2 times)");
        assert_eq!(lines[8], "  (3 earlier failures are not shown)");
    }

    #[test]
    fn a_call_is_named_with_its_errno() {
        let reason = Reason::new("queue_full", &"the queue is full", "poll").with_errno("ENOMEM");
        let finding = Finding::of_call(Instant::ZERO, "ibv_post_send 7".into(), reason);
        assert_eq!(
            report(None, &finding, &[], Some("main (a.c:7)".into()), 0).in_form(false),
            "roce: ibv_post_send 7: ENOMEM\n  why:  the queue is full\n  at:   main (a.c:7)\n  \
             look: poll\n"
        );
    }

    #[test]
    fn json_is_one_line_for_programs() {
        let finding = finding();
        let line = text_of(&finding, true);
        assert_eq!(line.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["status"], "IBV_WC_RETRY_EXC_ERR");
        assert_eq!(
            (value["cause"].as_str(), value["qp"].as_u64()),
            (Some("no_response"), Some(0x12))
        );
        assert_eq!(value["latest"][0]["ago_ns"], 5_000_000);
        assert_eq!(value["peer"].as_array().unwrap().len(), 2);
    }
}
