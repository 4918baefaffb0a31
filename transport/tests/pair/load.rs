//! Networks under load: settled flows lose nothing, share equally and never time out.

use std::time::Duration;

use roce_fabric::QueueCounters;
use roce_transport::{
    adapter::AdapterConfig,
    time::Instant,
    work::{Data, RecvWr, SendWr, Wc},
};

use crate::common::{AFTER_LOSS, Buffer, Flow, Options, Star};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// ECT for marks; a 67 ms timeout is an error.
fn options() -> Options {
    Options { timeout: 14, traffic_class: 2, ..Options::default() }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Write,
    Read,
}

/// Keeps `depth` messages outstanding.
struct Bulk {
    flow: Flow,
    kind: Kind,
    near: Buffer,
    far: Buffer,
    depth: usize,
    under_way: usize,
    done: u64,
}

impl Bulk {
    fn new(
        star: &mut Star,
        from: usize,
        to: usize,
        kind: Kind,
        length: usize,
        depth: usize,
    ) -> Self {
        let flow = star.connect(from, to, options());
        let (near, far) = (star.nodes[from].buffer(length), star.nodes[to].buffer(length));
        Self { flow, kind, near, far, depth, under_way: 0, done: 0 }
    }

    fn tend(&mut self, star: &mut Star) {
        for Wc { result, .. } in self.flow.near.sent() {
            result.expect("bulk is not to fail");
            self.under_way -= 1;
            self.done += self.near.len() as u64;
        }
        while self.under_way < self.depth {
            let wr = match self.kind {
                Kind::Write => SendWr::write(0, self.far.remote(0), self.near.all()),
                Kind::Read => SendWr::read(0, self.far.remote(0), self.near.all()),
            };
            star.post_send(&self.flow, &wr);
            self.under_way += 1;
        }
    }
}

/// Serves every program each 20 µs.
fn run(star: &mut Star, bulks: &mut [Bulk], time: Duration) {
    let end = star.now.plus(time);
    while star.now < end {
        for bulk in bulks.iter_mut() {
            bulk.tend(star);
        }
        star.run_for(us(20).min(end.since(star.now)));
    }
    for bulk in bulks {
        bulk.tend(star);
    }
}

fn shares(star: &mut Star, bulks: &mut [Bulk], time: Duration) -> Vec<u64> {
    let before: Vec<_> = bulks.iter().map(|bulk| bulk.done).collect();
    run(star, bulks, time);
    bulks.iter().zip(before).map(|(bulk, before)| bulk.done - before).collect()
}

fn percent_of_gigabit(bytes: u64, time: Duration) -> u64 {
    (bytes * 8 * 100) / time.as_nanos() as u64
}

struct Ping {
    flow: Flow,
    inbox: Buffer,
}

impl Ping {
    fn new(star: &mut Star, from: usize, to: usize) -> Self {
        let flow = star.connect(from, to, options());
        let inbox = star.nodes[to].buffer(64);
        Self { flow, inbox }
    }

    fn send(&self, star: &mut Star, bulks: &mut [Bulk]) -> Duration {
        let start = star.now;
        star.post_recv(&self.flow, &RecvWr::new(1, [self.inbox.all()]));
        star.post_send(&self.flow, &SendWr::send(1, Data::inline(&[1; 16])));
        self.wait(star, bulks, start)
    }

    fn read(&self, star: &mut Star, bulks: &mut [Bulk]) -> Duration {
        let start = star.now;
        let near = star.nodes[self.flow.from].buffer(64);
        star.post_send(&self.flow, &SendWr::read(1, self.inbox.remote(0), near.all()));
        self.wait(star, bulks, start)
    }

    fn wait(&self, star: &mut Star, bulks: &mut [Bulk], start: Instant) -> Duration {
        loop {
            run(star, bulks, us(10));
            if let Some(Wc { result, .. }) = self.flow.near.send_cq.pop() {
                result.expect("a small message is not to fail");
                self.flow.far.received();
                return star.now.since(start);
            }
            assert!(star.now.since(start) < Duration::from_secs(2), "a small message is starved");
        }
    }

    /// 1 ms apart.
    fn longest(
        &self,
        star: &mut Star,
        bulks: &mut [Bulk],
        mut one: impl FnMut(&Self, &mut Star, &mut [Bulk]) -> Duration,
    ) -> Duration {
        let waits = (0..20).map(|_| {
            run(star, bulks, ms(1));
            one(self, star, bulks)
        });
        waits.max().unwrap()
    }
}

fn dropped(star: &Star) -> u64 {
    star.network.port(None).dropped + star.network.receive_buffer(None).dropped
}

fn timeouts(star: &Star) -> u64 {
    star.count(|counters| counters.timeouts)
}

/// Writers to node 0.
fn incast(plan: &str, senders: u8, length: usize, depth: usize) -> (Star, Vec<Bulk>) {
    let mut star = Star::new(senders + 1, plan, 1);
    star.allow_all(AFTER_LOSS);
    let bulks = (1..=usize::from(senders))
        .map(|from| Bulk::new(&mut star, from, 0, Kind::Write, length, depth))
        .collect();
    (star, bulks)
}

const SWITCH: &str = "rate 1gbit, queue 256kb, ecn 40kb..160kb 10%, delay 5us";
const SOCKET: &str = "rate 10gbit, receiver 8us 208kb, delay 5us";

/// Data in flight fits the queue.
#[test]
fn an_incast_of_small_messages_loses_nothing() {
    for plan in [SWITCH, SOCKET] {
        let (mut star, mut bulks) = incast(plan, 32, 2048, 1);
        let time = ms(20);
        let shares = shares(&mut star, &mut bulks, time);
        assert_eq!((dropped(&star), timeouts(&star)), (0, 0), "{plan}");
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(most - least <= 4 * 2048, "{plan}: {shares:?}");
        // 1,024 bytes take 8.75 or 8 µs
        let percent = percent_of_gigabit(shares.iter().sum(), time);
        assert!((70..=103).contains(&percent), "{plan}: {percent}%");
    }
}

#[test]
fn marks_reach_the_senders() {
    let (mut star, mut bulks) = incast(SWITCH, 32, 4096, 1);
    run(&mut star, &mut bulks, ms(20));
    star.run_for(ms(5));
    let QueueCounters { marked, dropped, .. } = star.network.port(Some(star.nodes[0].ip));
    let of = |node: usize| star.nodes[node].adapter.counters().clone();
    assert!(marked > 100, "{marked}");
    assert_eq!((of(0).ecn_marked, dropped), (marked, 0));
    let told: u64 = (1..33).map(|node| of(node).cnp_received).sum();
    assert!(told > 32 && told <= marked, "{told} of {marked}");
    assert!(of(0).cnp_sent.abs_diff(told) <= 32);
}

/// Delays are about ten packet times.
#[test]
fn reordering_costs_no_timeout() {
    for kind in [Kind::Write, Kind::Read] {
        let mut star = Star::new(2, "rate 1gbit, queue 256kb, delay 5us, reorder 2%", 1);
        star.allow_all(AFTER_LOSS);
        let mut bulks = [Bulk::new(&mut star, 1, 0, kind, 64 << 10, 4)];
        let time = ms(100);
        let bytes = shares(&mut star, &mut bulks, time)[0];
        assert_eq!(timeouts(&star), 0);
        let percent = percent_of_gigabit(bytes, time);
        assert!(percent >= 10, "{percent}% of the rate");
    }
}

#[test]
fn a_lost_tail_costs_no_timeout() {
    for plan in ["drop write last every 3", "drop read-response last every 3", "drop ack every 3"] {
        let kind = if plan.contains("read") { Kind::Read } else { Kind::Write };
        let mut star = Star::new(2, &format!("rate 1gbit, queue 256kb, delay 5us, {plan}"), 1);
        star.allow_all(AFTER_LOSS);
        let mut bulks = [Bulk::new(&mut star, 1, 0, kind, 16 << 10, 1)];
        let time = ms(100);
        let messages = shares(&mut star, &mut bulks, time)[0] >> 14;
        assert_eq!(timeouts(&star), 0, "{plan}");
        assert!(messages >= 100, "{plan}: {messages} messages in {time:?}");
    }
}

/// The responder stays silent if the retransmission or NAK is lost.
#[test]
fn a_loss_twice_costs_no_timeout() {
    for kind in [Kind::Write, Kind::Read] {
        let plan = "rate 1gbit, queue 256kb, delay 5us, drop 3%";
        let mut star = Star::with_config(2, plan, 1, |config| AdapterConfig {
            read_budget: 212_992 / 2,
            ..config
        });
        star.allow_all(AFTER_LOSS);
        let mut bulks = [Bulk::new(&mut star, 1, 0, kind, 64 << 10, 8)];
        let time = ms(200);
        let bytes = shares(&mut star, &mut bulks, time)[0];
        assert!(star.count(|counters| counters.tail_probes) > 0);
        assert_eq!(timeouts(&star), 0);
        let percent = percent_of_gigabit(bytes, time);
        assert!(percent >= 30, "{percent}% of the rate");
    }
}

/// Of small messages beside 64 bulk flows.
fn longest_ping(star: &mut Star, to: usize, warm_up: Duration) -> Duration {
    star.allow_all(AFTER_LOSS);
    let mut bulks: Vec<_> =
        (0..64).map(|_| Bulk::new(star, 1, 0, Kind::Write, 64 << 10, 2)).collect();
    let ping = Ping::new(star, 1, to);
    run(star, &mut bulks, warm_up);
    ping.longest(star, &mut bulks, Ping::send)
}

/// A message waits at most for a full port queue.
#[test]
fn a_small_message_passes_bulk_to_the_same_node() {
    let mut star = Star::new(2, SWITCH, 1);
    let longest = longest_ping(&mut star, 0, ms(50));
    assert!(longest <= ms(5), "{longest:?}");
}

#[test]
fn a_small_message_passes_bulk_to_another_node() {
    for slow in [", pass", ", delay 200us to 10.0.0.1", ", drop to 10.0.0.1"] {
        let mut star = Star::new(3, &format!("{SWITCH}{slow} every 1"), 1);
        let longest = longest_ping(&mut star, 2, ms(10));
        assert!(longest <= us(200), "{slow}: {longest:?}");
    }
}

/// READs share the budget: one round of requests.
#[test]
fn a_small_read_passes_long_ones() {
    let mut star = Star::with_config(3, SWITCH, 1, |config| AdapterConfig {
        read_budget: 212_992 / 2,
        ..config
    });
    star.allow_all(AFTER_LOSS);
    let mut bulks: Vec<_> =
        (0..64).map(|_| Bulk::new(&mut star, 1, 0, Kind::Read, 256 << 10, 2)).collect();
    let ping = Ping::new(&mut star, 1, 2);
    run(&mut star, &mut bulks, ms(50));
    let longest = ping.longest(&mut star, &mut bulks, Ping::read);
    // 64 requests of 30 packets at 1 Gbit/s: 17 ms
    assert!(longest <= ms(25), "{longest:?}");
    assert_eq!((dropped(&star), timeouts(&star)), (0, 0));
}

/// 32 senders exceed the queue. `lost` is per thousand packets.
fn settles(plan: &str, lost: u64) {
    let (mut star, mut bulks) = incast(plan, 32, 64 << 10, 4);
    run(&mut star, &mut bulks, ms(100)); // includes the 67 ms timer
    let (at_start, timeouts_at_start) = (dropped(&star), timeouts(&star));
    let time = ms(100);
    let bytes: u64 = shares(&mut star, &mut bulks, time).iter().sum();
    let percent = percent_of_gigabit(bytes, time);
    let what = format!("{plan}; {at_start} dropped at the start, {percent}% of the rate");
    let dropped = dropped(&star) - at_start;
    assert!(dropped * 1000 <= bytes / 4096 * lost, "{what}, {dropped} dropped later");
    assert_eq!(timeouts(&star) - timeouts_at_start, 0, "{what}");
    assert!(percent >= 75, "{plan}: {percent}%");
}

#[test]
fn an_incast_settles_at_a_switch() {
    settles(SWITCH, 0);
}

/// One packet each nearly fills the buffer.
#[test]
fn an_incast_settles_at_a_socket() {
    settles(SOCKET, 1);
}

/// The second starts on a full port.
#[test]
fn two_flows_share_a_port() {
    let mut star = Star::new(3, SWITCH, 1);
    star.allow_all(AFTER_LOSS);
    let mut bulks = vec![Bulk::new(&mut star, 1, 0, Kind::Write, 64 << 10, 4)];
    run(&mut star, &mut bulks, ms(30));
    bulks.push(Bulk::new(&mut star, 2, 0, Kind::Write, 64 << 10, 4));
    run(&mut star, &mut bulks, ms(150));
    let (at_start, time) = (dropped(&star), ms(400));
    let shares = shares(&mut star, &mut bulks, time);
    let (one, two) = (shares[0], shares[1]);
    assert!(one.abs_diff(two) * 10 <= one.max(two), "{one} and {two}");
    let percent = percent_of_gigabit(one + two, time);
    assert!(percent >= 80, "{percent}% of the rate");
    assert_eq!((dropped(&star) - at_start, timeouts(&star)), (0, 0));
}

/// The senders determine the queue without a switch limit.
#[test]
fn bulk_makes_no_long_queue() {
    let mut star = Star::new(2, "rate 1gbit, ecn 40kb..160kb 10%, delay 5us", 1);
    let longest = longest_ping(&mut star, 0, ms(100));
    assert!(longest <= ms(10), "{longest:?}");
    assert_eq!(timeouts(&star), 0);
}

#[test]
fn reordering_costs_little() {
    let mut star =
        Star::new(2, "rate 1gbit, queue 256kb, ecn 40kb..160kb 10%, delay 5us, reorder 2%", 1);
    star.allow_all(AFTER_LOSS);
    let mut bulks = [Bulk::new(&mut star, 1, 0, Kind::Write, 64 << 10, 4)];
    let time = ms(100);
    let percent = percent_of_gigabit(shares(&mut star, &mut bulks, time)[0], time);
    assert!(percent >= 25, "{percent}% of the rate");
}

#[test]
fn probes_follow_a_round_trip_that_has_grown() {
    let (mut star, mut bulks) = incast(SWITCH, 32, 2048, 1);
    run(&mut star, &mut bulks, ms(10));
    let probes = |star: &Star| star.count(|counters| counters.tail_probes);
    let before = probes(&star);
    let messages: u64 = shares(&mut star, &mut bulks, ms(20)).iter().sum::<u64>() / 2048;
    let probes = probes(&star) - before;
    assert!(probes * 100 <= messages, "{probes} probes for {messages} messages");
}
