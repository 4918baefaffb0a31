//! Target: text as rules for packets and calls, then datagrams and calls.
//!
//! The text ends at a zero byte. Then 0 to 127: a datagram of that size, which begins with a
//! packet's; 128 to 255: time passes by powers of two.

use std::{net::IpAddr, time::Duration};

use roce_provider::{
    fabric::{Direction, FaultPlan, FaultSyntaxError, Network, Rule},
    faults::{CallFaults, CallId, FaultRules},
};
use roce_transport::{
    time::Instant,
    wire::{FrameFields, Ident, NetHeader},
};

use crate::input::Input;

const STEPS: usize = 500;

/// Coverage of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    /// Parsed clauses.
    pub understood: usize,
    /// Rules for calls.
    pub calls: usize,
    /// Datagrams sent through the plan.
    pub sent: usize,
}

/// Panics if a refusal has several lines or a foreign clause, a chance is invalid, or a plan makes,
/// silently changes or keeps datagrams.
pub fn faults(bytes: &[u8]) -> Reach {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let mut reach = Reach::default();
    for clause in text.split([',', ';']) {
        match clause.parse::<Rule>() {
            Ok(_) => reach.understood += 1,
            Err(error) => check_error(&error, clause),
        }
    }
    let rules = match text.parse::<FaultRules>() {
        Ok(rules) => rules,
        Err(error) => {
            check_error(&error, &text);
            return reach;
        }
    };
    let mut calls = CallFaults::new(1);
    for (number, (clause, rule)) in rules.calls.into_iter().enumerate() {
        assert!(clause.parse::<FaultRules>().is_ok(), "{clause}");
        calls.add(number as u64, clause, rule);
        reach.calls += 1;
    }
    for call in CallId::all() {
        calls.decide(call);
    }
    match text.parse::<FaultPlan>() {
        Err(error) => check_error(&error, &text),
        Ok(plan) => assert_eq!(plan, rules.packets),
    }
    let script = parts.next().unwrap_or_default();
    for direction in [Direction::Sent, Direction::Received] {
        reach.sent += deliver(rules.packets.toward(direction), Input::new(script));
    }
    reach
}

fn check_error(error: &FaultSyntaxError, text: &str) {
    let shown = error.to_string();
    assert_eq!(shown.lines().count(), 1, "{shown:?}");
    let words: Vec<_> = text.split_whitespace().collect();
    assert!(words.join(" ").contains(&error.clause), "{error:?} of {text:?}");
    assert!(!error.problem.is_empty(), "{error:?}");
}

fn deliver(plan: FaultPlan, mut script: Input<'_>) -> usize {
    let conditions = plan.conditions;
    for chance in [
        conditions.loss,
        conditions.duplication,
        conditions.reordering,
        conditions.corruption,
        conditions.ecn,
    ] {
        assert!((0.0..=1.0).contains(&chance), "{conditions:?}");
    }
    let mut network = Network::with_plan(plan, 1);
    let mut now = Instant::ZERO;
    let mut sent: Vec<Sent> = Vec::new();
    script.play(STEPS, |script| match script.byte() {
        length @ 0..=127 => {
            let payload = script.bytes(length.into()).to_vec();
            let to = payload.last().map_or(2, |byte| byte % 4);
            let [src, dst] = [1, to].map(|host| IpAddr::from([10, 0, 0, host]));
            let net = NetHeader {
                src,
                dst,
                src_port: 49_152,
                traffic_class: 2,
                hop_limit: 64,
                ident: Ident::Known { id: 0, dont_fragment: true },
                frame: FrameFields::default(),
            };
            let verdict = network.send(now, &net, &payload);
            let changed = verdict.corruption.is_some();
            sent.push(Sent { payload, lost: verdict.lost, changed, arrived: 0 });
        }
        time => {
            now = now.plus(Duration::from_nanos(1 << (time & 63)));
            take(&mut network, now, &mut sent);
        }
    });
    // at most two copies of each, before and after a receive buffer
    for _ in 0..=4 * sent.len() {
        let Some(due) = network.poll_timeout() else { break };
        now = now.max(due);
        take(&mut network, now, &mut sent);
    }
    assert_eq!(network.in_flight(), 0, "datagrams are kept for ever");
    sent.len()
}

struct Sent {
    payload: Vec<u8>,
    lost: bool,
    changed: bool,
    arrived: usize,
}

fn take(network: &mut Network, now: Instant, sent: &mut [Sent]) {
    while let Some(delivery) = network.poll_deliver(now) {
        let sent = &mut sent[delivery.number as usize];
        sent.arrived += 1;
        assert!(!sent.lost && sent.arrived <= 2, "a datagram out of nothing");
        assert_eq!(delivery.bytes.len(), sent.payload.len());
        assert!(sent.changed || delivery.bytes == sent.payload, "changed in silence");
    }
}
