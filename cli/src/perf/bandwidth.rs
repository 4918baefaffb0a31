use std::time::{Duration, Instant};

use super::{
    figures::{Bandwidth, Flow},
    layout::Layout,
    plan::{Amount, Plan, Test},
    progress::Bar,
    side::{Done, Side},
};
use crate::failure::Failure;

/// Empty polls between looks at the peer's connection.
const POLLS: u32 = 1 << 12;
/// Least time of a peak.
const WINDOW: Duration = Duration::from_millis(10);

/// A passive side has no figures.
pub(super) fn round(
    side: &mut Side,
    number: usize,
    is_shown: bool,
) -> Result<Option<Bandwidth>, Failure> {
    let size = side.plan.sizes[number] as usize;
    let layout = side.layout(size);
    side.prepare(number, layout)?;
    let is_client = side.exchange.is_client;
    let sends = is_client || side.plan.both_ways;
    let start = Instant::now();
    let sent = if sends { send(side, layout, size, is_shown)? } else { Sent::nothing(&side.plan) };
    side.exchange.send_text(&sent.text())?;
    let receives = side.plan.test == Test::Send && (side.plan.both_ways || !is_client);
    if receives {
        receive(side, size, |side| side.has_peer_data())?;
    }
    let theirs = parse(&side.exchange.learn_text()?)
        .ok_or("the peer is not roce perf; start it on both sides")?;
    if receives {
        // Completed by the peer and arrived here, perhaps unpolled.
        let counts = theirs.counts.clone();
        receive(side, size, |side| side.arrivals.counts == counts)?;
    }
    let checked = match side.plan.test {
        Test::Read => side.check(number, layout, &sent.counts),
        Test::Send => side.check(number, layout, &side.arrivals.counts),
        Test::Write | Test::Atomic => side.check(number, layout, &theirs.counts),
    };
    side.conclude(checked)?;
    if !is_client {
        return Ok(None);
    }
    Ok(Some(Bandwidth {
        size,
        flow: sent.flow(),
        back: side.plan.both_ways.then(|| theirs.flow()),
        peak: sent.peak,
        start,
    }))
}

struct Sent {
    /// Per queue pair.
    counts: Vec<u64>,
    time: Duration,
    /// Most messages per second, if it took long enough.
    peak: Option<f64>,
}

impl Sent {
    fn nothing(plan: &Plan) -> Self {
        Self { counts: vec![0; plan.qps], time: Duration::ZERO, peak: None }
    }

    fn flow(&self) -> Flow {
        Flow { messages: self.counts.iter().sum(), time: self.time }
    }

    fn text(&self) -> String {
        let counts: Vec<_> = self.counts.iter().map(u64::to_string).collect();
        format!("{} {}", counts.join(","), self.time.as_nanos())
    }
}

fn parse(text: &str) -> Option<Sent> {
    let (counts, nanos) = text.split_once(' ')?;
    let counts = counts.split(',').map(|count| count.parse().ok()).collect::<Option<_>>()?;
    Some(Sent { counts, time: Duration::from_nanos(nanos.parse().ok()?), peak: None })
}

fn send(side: &mut Side, layout: Layout, size: usize, is_shown: bool) -> Result<Sent, Failure> {
    let Plan { amount, qps, depth, list, .. } = side.plan;
    let mut posted = vec![0; qps];
    let mut done = vec![0; qps];
    let (mut posted_all, mut done_all) = (0_u64, 0_u64);
    let bar = Bar::new(is_shown, amount, qps as u64);
    let start = Instant::now();
    let mut window = Window::new(start, (10 * depth * qps) as u64);
    let mut end = start;
    loop {
        let over = match amount {
            Amount::Iters(count) => posted_all == u64::from(count) * qps as u64,
            Amount::Time(time) => start.elapsed() >= time,
        };
        if over && done_all == posted_all {
            break;
        }
        for qp in 0..qps {
            while !over && posted[qp] - done[qp] < depth as u64 {
                let left = match amount {
                    Amount::Iters(count) => u64::from(count) - posted[qp],
                    Amount::Time(_) => u64::MAX,
                };
                let room = depth as u64 - (posted[qp] - done[qp]);
                // only the last list is partial
                let count = (list as u64).min(left);
                if count == 0 || room < count {
                    break;
                }
                let messages = posted[qp]..posted[qp] + count;
                let slots = messages.map(|at| at as usize % layout.slots);
                side.post(qp, layout, slots.map(|slot| (slot, slot)))?;
                posted[qp] += count;
                posted_all += count;
            }
        }
        let before = done_all;
        while let Some(completion) = side.poll(size)? {
            if let Done::Sent(qp) = completion {
                done[qp] += 1;
                done_all += 1;
            }
        }
        if done_all == before {
            side.idle(size, false)?;
        } else {
            end = Instant::now();
            window.look(end, done_all);
            bar.look(end, done_all);
        }
    }
    let whole = done_all as f64 / (end - start).as_secs_f64();
    // The last window may be too short.
    let peak = window.peak.map(|peak| peak.max(whole));
    Ok(Sent { counts: done, time: end - start, peak })
}

fn receive(side: &mut Side, size: usize, over: impl Fn(&Side) -> bool) -> Result<(), Failure> {
    let mut idle = 0_u32;
    loop {
        if side.poll(size)?.is_some() {
            idle = 0;
            continue;
        }
        if idle.is_multiple_of(POLLS) && over(side) {
            return Ok(());
        }
        idle += 1;
        if side.plan.events || idle.is_multiple_of(POLLS) {
            side.idle(size, true)?;
            if side.plan.events && over(side) {
                return Ok(());
            }
        }
    }
}

struct Window {
    start: Instant,
    count: u64,
    /// Batched completions must not distort the peak.
    least: u64,
    peak: Option<f64>,
}

impl Window {
    fn new(start: Instant, least: u64) -> Self {
        Self { start, count: 0, least, peak: None }
    }

    fn look(&mut self, now: Instant, count: u64) {
        let (time, messages) = (now - self.start, count - self.count);
        if time >= WINDOW && messages >= self.least {
            let rate = messages as f64 / time.as_secs_f64();
            self.peak = Some(self.peak.map_or(rate, |peak| peak.max(rate)));
            (self.start, self.count) = (now, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_of_a_whole_window_and_of_many_messages() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut window = Window::new(start, 100);
        window.look(at(1), 1000);
        assert_eq!(window.peak, None, "too short");
        window.look(at(10), 1000);
        assert_eq!(window.peak, Some(100_000.0));
        window.look(at(20), 1099);
        assert_eq!(window.peak, Some(100_000.0), "too few");
        window.look(at(30), 5000);
        assert_eq!(window.peak, Some(200_000.0));
    }

    #[test]
    fn what_was_sent_is_told() {
        let sent = Sent { counts: vec![3, 4], time: Duration::from_micros(7), peak: Some(1.0) };
        let parsed = parse(&sent.text()).unwrap();
        assert_eq!((parsed.counts, parsed.time), (vec![3, 4], Duration::from_micros(7)));
        assert!(parse("valid").is_none() && parse("1,x 5").is_none());
    }
}
