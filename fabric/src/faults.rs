use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;
use roce_transport::{
    defaults,
    wire::{NetHeader, Packet},
};

use super::{
    clause::{Chance, Tally, happens},
    queue::{Bottleneck, Receiver},
    rule::{Action, Corruption, Direction, Rule, asks_for_receive},
};

defaults! {
    /// Conditions of a network; perfect by default. Probabilities are 0 to 1.
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub Conditions {
        /// Probability of loss.
        loss: f64 = 0.0;
        /// Probability of a duplicate, up to [`reorder_by`](Self::reorder_by) later.
        duplication: f64 = 0.0;
        /// Probability of a delay that lets later datagrams overtake.
        reordering: f64 = 0.0;
        /// Longest delay for reordering, default 100 µs. Below the gap between datagrams, nothing
        /// overtakes.
        reorder_by: Duration = Duration::from_micros(100);
        /// Probability that one byte changes. The ICRC misses the BTH's congestion bits, and more
        /// under [`Identification::Hidden`](super::Identification::Hidden).
        corruption: f64 = 0.0;
        /// Probability of a "congestion experienced" mark.
        ecn: f64 = 0.0;
        /// Minimum travel time.
        delay: Duration = Duration::ZERO;
        /// Random addition to the delay; may reorder.
        jitter: Duration = Duration::ZERO;
        /// Ports of limited rate before the delay, if any.
        bottleneck: Option<Bottleneck> = None;
        /// Limited receive buffers, if any.
        receiver: Option<Receiver> = None;
    }
}

/// Plan of all faults; as text, clauses separated by commas.
///
/// ```text
/// drop 3%                     probability of loss; also: duplicate, reorder, corrupt, mark
/// delay 2ms                   travel time; also: jitter
/// rate 1gbit                  a port per destination; rate 1gbit shared: one for all
/// queue 64kb                  a port's queue
/// ecn 20kb..60kb 10%          K_min, K_max and P_max of the port's marking
/// receiver 2us 208kb          time per datagram and receive buffer
/// drop every 7                also: nth 3, once, twice, times 5
/// drop psn 5..9 once          one datagram of PSNs 5 to 9
/// delay 5ms write last twice  the last packets of the first two WRITEs
/// corrupt byte 20 to 10.0.0.2 byte 20 of the UDP payload
/// drop read-response qp 0x12  on the way to this queue pair
/// rnr 10%                     RNR NAK although a receive request is posted
/// drop 1% tx                  only sent packets; rx: received
/// pass cnp                    exempt from later clauses and "drop 3%"
/// ```
///
/// Packets: `request`, `response`, `send`, `write`, `read`, `read-response`, `ack`, `nak`,
/// `rnr-nak`, `cnp`. Positions: `first`, `middle`, `last`, `only`.
///
/// ```
/// use roce_fabric::FaultPlan;
/// let plan: FaultPlan = "drop 3%, delay 2ms, drop psn 5..9 once".parse()?;
/// assert_eq!(plan.conditions.loss, 0.03);
/// assert_eq!(plan.rules.len(), 1);
/// # Ok::<(), roce_fabric::FaultSyntaxError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FaultPlan {
    /// Conditions of datagrams that no rule hits.
    pub conditions: Conditions,
    /// Rules, in order.
    pub rules: Vec<Rule>,
}

impl FaultPlan {
    /// Part for one direction. Not-ready rules and receive buffers apply to received datagrams.
    #[must_use]
    pub fn toward(&self, direction: Direction) -> Self {
        let concerned = |rule: &&Rule| rule.concerns(direction);
        let receiver = self.conditions.receiver.filter(|_| direction == Direction::Received);
        Self {
            conditions: Conditions { receiver, ..self.conditions },
            rules: self.rules.iter().filter(concerned).cloned().collect(),
        }
    }
}

/// Verdict on a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Lost by a fault or a full queue.
    pub lost: bool,
    /// Travel time, queueing included.
    pub delay: Duration,
    /// Travel time of a duplicate.
    pub copy: Option<Duration>,
    /// Corruption of one byte.
    pub corruption: Option<Corruption>,
    /// Arrives marked "congestion experienced".
    pub congestion: bool,
    /// Finds its receiver not ready.
    pub not_ready: bool,
}

impl Verdict {
    /// Travel time of each arrival.
    pub fn delays(&self) -> impl Iterator<Item = Duration> + use<> {
        [(!self.lost).then_some(self.delay), self.copy.filter(|_| !self.lost)].into_iter().flatten()
    }
}

/// Identifier of a rule of [`Faults`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RuleId(usize);

/// Judge of datagrams.
#[derive(Debug)]
pub struct Faults {
    conditions: Conditions,
    rules: Vec<(Rule, Tally)>,
    chance: Chance,
}

impl Faults {
    /// Same seed and datagrams, same verdicts.
    #[must_use]
    pub fn new(plan: FaultPlan, seed: u64) -> Self {
        let mut faults =
            Self { conditions: plan.conditions, rules: Vec::new(), chance: Chance::new(seed) };
        for rule in plan.rules {
            faults.add(rule);
        }
        faults
    }

    /// General conditions.
    #[must_use]
    pub const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Sets the general conditions.
    pub const fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    /// Appends a rule.
    pub fn add(&mut self, rule: Rule) -> RuleId {
        self.add_counted(rule, Tally::default())
    }

    /// Appends a rule whose hits count in a shared tally.
    pub fn add_counted(&mut self, rule: Rule, tally: Tally) -> RuleId {
        self.rules.push((rule, tally));
        RuleId(self.rules.len() - 1)
    }

    /// Removes every rule; their ids become invalid.
    pub fn clear_rules(&mut self) {
        self.rules.clear();
    }

    /// Datagrams hit by the rule.
    #[must_use]
    pub fn hits(&self, rule: RuleId) -> u64 {
        self.rules.get(rule.0).map_or(0, |(_, tally)| tally.counts().hits)
    }

    /// Datagrams that matched, hit or not, except an earlier rule's hits.
    #[must_use]
    pub fn seen(&self, rule: RuleId) -> u64 {
        self.rules.get(rule.0).map_or(0, |(_, tally)| tally.counts().seen)
    }

    /// Judges a datagram; `bytes` is the UDP payload.
    pub fn judge(&mut self, net: &NetHeader, bytes: &[u8]) -> Verdict {
        let mut verdict = Verdict { delay: self.travel_time(), ..Verdict::default() };
        match self.action(net, bytes) {
            Some(action) => self.apply(action, bytes.len(), &mut verdict),
            None => self.chance(bytes.len(), &mut verdict),
        }
        verdict
    }

    fn action(&mut self, net: &NetHeader, bytes: &[u8]) -> Option<Action> {
        if self.rules.is_empty() {
            return None;
        }
        let packet = Packet::parse(bytes).ok();
        for (rule, tally) in &self.rules {
            let Rule { matcher, often, action, direction: _ } = rule;
            let concerned =
                *action != Action::NotReady || packet.as_ref().is_some_and(asks_for_receive);
            if !concerned || !matcher.matches(net, packet.as_ref()) {
                continue;
            }
            if tally.hits(*often, &mut self.chance) {
                return Some(*action);
            }
        }
        None
    }

    fn apply(&mut self, action: Action, length: usize, verdict: &mut Verdict) {
        match action {
            Action::Pass => {}
            Action::Drop => verdict.lost = true,
            Action::Duplicate => verdict.copy = Some(self.travel_time()),
            Action::Delay(delay) => verdict.delay = verdict.delay.saturating_add(delay),
            Action::Corrupt(corruption) => {
                verdict.corruption =
                    Some(corruption.unwrap_or_else(|| self.random_corruption(length)));
            }
            Action::Mark => verdict.congestion = true,
            Action::NotReady => verdict.not_ready = true,
        }
    }

    fn chance(&mut self, length: usize, verdict: &mut Verdict) {
        let Conditions { loss, duplication, reordering, corruption, ecn, reorder_by, .. } =
            self.conditions;
        verdict.lost = happens(&mut self.chance.0, loss);
        if happens(&mut self.chance.0, duplication) {
            verdict.copy =
                Some(self.travel_time().saturating_add(up_to(&mut self.chance.0, reorder_by)));
        }
        if happens(&mut self.chance.0, reordering) {
            verdict.delay = verdict.delay.saturating_add(up_to(&mut self.chance.0, reorder_by));
        }
        if happens(&mut self.chance.0, corruption) {
            verdict.corruption = Some(self.random_corruption(length));
        }
        verdict.congestion = happens(&mut self.chance.0, ecn);
    }

    fn travel_time(&mut self) -> Duration {
        self.conditions.delay.saturating_add(up_to(&mut self.chance.0, self.conditions.jitter))
    }

    fn random_corruption(&mut self, length: usize) -> Corruption {
        let offset = (self.chance.0.next_u64() % length.max(1) as u64) as usize;
        let mask = (self.chance.0.next_u32() % 255 + 1) as u8;
        Corruption { offset, mask }
    }
}

/// Random time in (0, `longest`], or zero.
fn up_to(rng: &mut ChaCha8Rng, longest: Duration) -> Duration {
    let nanos = longest.as_nanos().min(u128::from(u64::MAX)) as u64;
    if nanos == 0 { Duration::ZERO } else { Duration::from_nanos(rng.next_u64() % nanos + 1) }
}

#[cfg(test)]
mod tests {
    use roce_transport::wire::{FrameFields, Ident};

    use super::super::rule::{Frequency, Matcher, Often};
    use super::*;

    fn judge(faults: &mut Faults) -> Verdict {
        let net = NetHeader {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            src_port: 49152,
            traffic_class: 0,
            hop_limit: 64,
            ident: Ident::Known { id: 0, dont_fragment: true },
            frame: FrameFields::default(),
        };
        // SEND Only to QP 0x12, PSN 7
        faults.judge(&net, &[4, 0x40, 0xFF, 0xFF, 0, 0, 0, 0x12, 0x80, 0, 0, 7, 0, 0, 0, 0])
    }

    fn lost(plan: &str, count: usize) -> String {
        let mut faults = Faults::new(plan.parse().unwrap(), 1);
        (0..count).map(|_| if judge(&mut faults).lost { 'x' } else { '.' }).collect()
    }

    #[test]
    fn rules_hit_what_they_name() {
        assert_eq!(lost("drop every 3", 7), "..x..x.");
        assert_eq!(lost("drop nth 3", 7), "..x....");
        assert_eq!(lost("drop twice", 4), "xx..");
        assert_eq!(lost("drop psn 5..9 once", 3), "x..");
        assert_eq!(lost("drop psn 8", 3), "...");
        assert_eq!(lost("drop psn 16777215..7", 3), "xxx");
        assert_eq!(lost("drop qp 0x12", 3), "xxx");
        assert_eq!(lost("drop qp 0x13", 3), "...");
        assert_eq!(lost("drop send only", 3), "xxx");
        assert_eq!(lost("drop send first", 3), "...");
        assert_eq!(lost("drop ack", 3), "...");
        assert_eq!(lost("drop request from 10.0.0.1 to 10.0.0.2", 3), "xxx");
        assert_eq!(lost("drop to 10.0.0.1", 3), "...");
        assert_eq!(lost("pass nth 2, drop 100%", 4), "x.xx");
    }

    #[test]
    fn other_actions() {
        let verdict = |plan: &str| judge(&mut Faults::new(plan.parse().unwrap(), 1));
        let ms = Duration::from_millis;
        assert_eq!(verdict("delay 2ms"), Verdict { delay: ms(2), ..Verdict::default() });
        assert_eq!(
            verdict("delay 2ms, delay 3ms send"),
            Verdict { delay: ms(5), ..Verdict::default() }
        );
        assert_eq!(verdict("duplicate once"), Verdict { copy: Some(ms(0)), ..Verdict::default() });
        assert_eq!(verdict("mark once"), Verdict { congestion: true, ..Verdict::default() });
        assert_eq!(verdict("rnr once"), Verdict { not_ready: true, ..Verdict::default() });
        assert_eq!(verdict("rnr once write"), Verdict::default());
        let corruption = Some(Corruption { offset: 12, mask: 0xFF });
        assert_eq!(verdict("corrupt byte 12"), Verdict { corruption, ..Verdict::default() });
    }

    #[test]
    fn hits_are_counted() {
        let mut faults = Faults::new(FaultPlan::default(), 1);
        let often = Often { frequency: Some(Frequency::Nth(2)), times: None };
        let rule = faults.add(Rule { often, ..Rule::new(Matcher::default(), Action::Drop) });
        for _ in 0..5 {
            judge(&mut faults);
        }
        assert_eq!((faults.seen(rule), faults.hits(rule)), (5, 1));
    }
}
