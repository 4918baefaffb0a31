use std::{iter, time::Instant};

use super::{
    figures::Latency,
    layout::{Layout, pattern},
    plan::{Amount, Test},
    progress::Bar,
    side::{Done, Side, differs},
};
use crate::failure::Failure;

/// Memory reads or polls between looks at the peer's connection and the time.
const LOOKS: u32 = 1 << 12;

/// A passive side has no figures.
pub(super) fn round(side: &mut Side, number: usize) -> Result<Option<Latency>, Failure> {
    let size = side.plan.sizes[number] as usize;
    let layout = side.layout(size);
    side.prepare(number, layout)?;
    let mut ping_pong = PingPong { side, size, layout, posted: 0, done: 0 };
    let mut nanos = Vec::new();
    if ping_pong.side.exchange.is_client {
        ping_pong.time(&mut nanos)?;
    } else if matches!(ping_pong.side.plan.test, Test::Write | Test::Send) {
        while ping_pong.await_message(true)? {
            ping_pong.post_message()?;
        }
    }
    ping_pong.take_completions(0)?;
    let count = ping_pong.posted;
    side.exchange.send_text(&count.to_string())?;
    let theirs = side.exchange.learn_text()?;
    let theirs: u64 =
        theirs.parse().map_err(|_| "the peer is not roce perf; start it on both sides")?;
    let checked = match side.plan.test {
        Test::Write => check_stamped(side, number, layout, theirs),
        Test::Send => side.check(number, layout, &side.arrivals.counts),
        Test::Read => side.check(number, layout, &[count]),
        Test::Atomic => side.check(number, layout, &[theirs]),
    };
    side.conclude(checked)?;
    // a message each way, or a request and its response
    let share = if matches!(side.plan.test, Test::Write | Test::Send) { 2 } else { 1 };
    Ok(side.exchange.is_client.then(|| Latency::new(size, nanos, share)))
}

/// A WRITE's last byte is a stamp that the peer polls for.
struct PingPong<'a> {
    side: &'a mut Side,
    size: usize,
    layout: Layout,
    posted: u64,
    done: u64,
}

impl PingPong<'_> {
    fn time(&mut self, nanos: &mut Vec<u64>) -> Result<(), Failure> {
        let amount = self.side.plan.amount;
        let bar = Bar::new(true, amount, 1);
        let start = Instant::now();
        let mut before = start;
        loop {
            match amount {
                Amount::Iters(count) if self.posted == u64::from(count) => return Ok(()),
                Amount::Time(time) if before - start >= time => return Ok(()),
                _ => {}
            }
            self.post_message()?;
            if matches!(self.side.plan.test, Test::Write | Test::Send) {
                self.await_message(false)?;
            } else {
                self.take_completions(0)?;
            }
            let now = Instant::now();
            nanos.push((now - before).as_nanos() as u64);
            before = now;
            bar.look(now, self.posted);
        }
    }

    fn post_message(&mut self) -> Result<(), Failure> {
        // completion frees the message's slot and the queue
        self.take_completions(self.layout.slots as u64 - 1)?;
        let slot = self.posted as usize % self.layout.slots;
        self.posted += 1;
        let mut peer_slot = slot;
        if self.side.plan.test == Test::Write {
            let place = self.layout.place(0, slot);
            self.side.source.write_at(place.end - 1, &[stamp(self.posted)])?;
            peer_slot = 0;
        }
        self.side.post(0, self.layout, iter::once((slot, peer_slot)))
    }

    /// Leaves at most `most` requests incomplete.
    fn take_completions(&mut self, most: u64) -> Result<(), Failure> {
        let mut idle = 0_u32;
        while self.posted - self.done > most {
            match self.side.poll(self.size)? {
                Some(Done::Sent(_)) => self.done += 1,
                Some(Done::Received) => {}
                None => {
                    idle += 1;
                    if self.side.plan.events || idle.is_multiple_of(LOOKS) {
                        self.side.idle(self.size, false)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// `false`: the peer says over TCP that there is none.
    fn await_message(&mut self, may_end: bool) -> Result<bool, Failure> {
        // The starter has sent as many as it receives, the other side one less.
        let wanted = if self.side.exchange.is_client { self.posted } else { self.posted + 1 };
        let mut idle = 0_u32;
        loop {
            if self.side.plan.test == Test::Write {
                let mut last = [0];
                self.side.target.read_at(self.size - 1, &mut last)?;
                if last == [stamp(wanted)] {
                    self.side.heard = Instant::now();
                    return Ok(true);
                }
            }
            match self.side.poll(self.size)? {
                Some(Done::Sent(_)) => self.done += 1,
                Some(Done::Received) => {}
                None => idle += 1,
            }
            if self.side.plan.test == Test::Send && self.side.arrivals.counts[0] == wanted {
                return Ok(true);
            }
            if idle != 0 && (self.side.plan.events || idle.is_multiple_of(LOOKS)) {
                if may_end && self.side.has_peer_data() {
                    return Ok(false);
                }
                self.side.idle(self.size, may_end)?;
            }
        }
    }
}

/// Never zero.
const fn stamp(number: u64) -> u8 {
    (number % 255) as u8 + 1
}

fn check_stamped(side: &Side, round: usize, layout: Layout, count: u64) -> Result<(), Failure> {
    if count == 0 {
        return Ok(());
    }
    let place = layout.place(0, 0);
    let mut expected = pattern(place.len(), round, !side.exchange.is_client);
    expected[place.len() - 1] = stamp(count);
    differs(&side.target.to_vec(place)?, &expected)
}
