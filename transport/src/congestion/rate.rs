//! DCQCN reaction point: a queue pair's rate.
//!
//! Read first: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015),
//! section 3.
//!
//! The first CNP starts from the measured rate: the line speed is unknown.

use core::time::Duration;

use super::config::Dcqcn;
use crate::time::Instant;

const ONE: u64 = 1 << 16;
/// Burst allowed at any rate: a system timer is no more precise.
const BURST: Duration = Duration::from_micros(50);
/// Minimum measuring time.
pub(super) const EPOCH: Duration = Duration::from_micros(100);

#[derive(Debug, Default)]
pub(crate) struct Rate {
    limiter: Option<Limiter>,
    meter: Meter,
    next: Instant,
    waits: bool,
}

#[derive(Debug)]
struct Limiter {
    current: u64,
    target: u64,
    /// Estimate in 1/65536.
    alpha: u64,
    last_cut: Instant,
    alpha_at: Instant,
    increase_at: Instant,
    bytes_left: u64,
    time_steps: u32,
    byte_steps: u32,
}

/// This epoch's bytes, the last's rate.
#[derive(Debug, Default)]
struct Meter {
    since: Instant,
    bytes: u64,
    last: u64,
}

impl Rate {
    /// In bits/s.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limiter.as_ref().map(|limiter| limiter.current)
    }

    /// False until [`deadline`](Self::deadline).
    pub(crate) fn allows(&mut self, now: Instant, config: Option<&Dcqcn>) -> bool {
        let (Some(limiter), Some(config)) = (&mut self.limiter, config) else {
            (self.limiter, self.waits) = (None, false);
            return true;
        };
        limiter.recover(now, config);
        let is_lifted = limiter.current >= config.rpg_max_rate;
        self.waits = !is_lifted && self.next > now;
        if is_lifted {
            self.limiter = None;
        }
        !self.waits
    }

    pub(crate) fn on_sent(&mut self, bytes: u64, now: Instant, config: Option<&Dcqcn>) {
        self.meter.count(bytes, now);
        if let (Some(limiter), Some(config)) = (&mut self.limiter, config) {
            self.next = spread(self.next, bytes, limiter.current, now);
            limiter.on_sent(bytes, config);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waits.then_some(self.next)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.waits &= self.next > now;
    }

    pub(crate) fn on_notification(&mut self, now: Instant, config: &Dcqcn) {
        let measured = self.meter.rate(now);
        match &mut self.limiter {
            Some(limiter) => {
                limiter.recover(now, config);
                limiter.on_notification(measured, now, config);
            }
            None => {
                let start = match config.rate_to_set_on_first_cnp {
                    0 => measured,
                    set => set,
                };
                let mut limiter = Limiter::new(start.min(config.rpg_max_rate), now, config);
                limiter.cut(now, config);
                (self.limiter, self.next) = (Some(limiter), now);
            }
        }
    }
}

impl Limiter {
    fn new(rate: u64, now: Instant, config: &Dcqcn) -> Self {
        Self {
            current: rate.max(config.rpg_min_rate),
            target: rate.max(config.rpg_min_rate),
            alpha: u64::from(config.initial_alpha_value) * ONE / 1024,
            last_cut: now,
            alpha_at: now.plus(config.dce_tcp_rtt),
            increase_at: now.plus(config.rpg_time_reset),
            bytes_left: config.rpg_byte_reset,
            time_steps: 0,
            byte_steps: 0,
        }
    }

    fn on_notification(&mut self, measured: u64, now: Instant, config: &Dcqcn) {
        if now.since(self.last_cut) < config.rate_reduce_monitor_period {
            return;
        }
        // limits far above the sent rate would need many cuts
        if measured > 0 {
            self.current = self.current.min(2 * measured).max(config.rpg_min_rate);
        }
        self.cut(now, config);
    }

    fn cut(&mut self, now: Instant, config: &Dcqcn) {
        let weight = u64::from(config.dce_tcp_g) * ONE / 1024;
        self.target = self.current;
        let cut = scale(self.current, self.alpha / 2);
        let least = self.current / 100 * u64::from(config.rpg_min_dec_fac.min(100));
        self.current = (self.current - cut).max(least).max(config.rpg_min_rate);
        self.alpha = self.alpha - self.alpha * weight / ONE + weight;
        self.last_cut = now;
        self.alpha_at = now.plus(config.dce_tcp_rtt);
        self.increase_at = now.plus(config.rpg_time_reset);
        self.bytes_left = config.rpg_byte_reset;
        (self.time_steps, self.byte_steps) = (0, 0);
    }

    fn recover(&mut self, now: Instant, config: &Dcqcn) {
        let weight = u64::from(config.dce_tcp_g) * ONE / 1024;
        while self.alpha_at <= now && self.alpha > 0 && !config.dce_tcp_rtt.is_zero() {
            self.alpha -= (self.alpha * weight / ONE).max(1);
            self.alpha_at = self.alpha_at.plus(config.dce_tcp_rtt);
        }
        self.alpha_at = self.alpha_at.max(now);
        while self.increase_at <= now && self.current < config.rpg_max_rate {
            self.increase_at = self.increase_at.plus(config.rpg_time_reset.max(TICK));
            self.time_steps += 1;
            self.increase(config);
        }
    }

    fn on_sent(&mut self, bytes: u64, config: &Dcqcn) {
        match self.bytes_left.checked_sub(bytes) {
            Some(left) if left > 0 => self.bytes_left = left,
            _ => {
                self.bytes_left = config.rpg_byte_reset;
                self.byte_steps += 1;
                self.increase(config);
            }
        }
    }

    fn increase(&mut self, config: &Dcqcn) {
        let threshold = config.rpg_threshold;
        let (least, most) =
            (self.time_steps.min(self.byte_steps), self.time_steps.max(self.byte_steps));
        if most >= threshold {
            let step = if least > threshold {
                config.rpg_hai_rate.saturating_mul(u64::from(least - threshold))
            } else {
                config.rpg_ai_rate
            };
            self.target = self.target.saturating_add(step).min(config.rpg_max_rate);
        }
        // rounded up to reach the target
        self.current = (self.current + self.target).div_ceil(2);
    }
}

/// Minimum between increases.
const TICK: Duration = Duration::from_micros(1);

/// Time when data may follow `bytes` sent now.
pub(super) fn spread(next: Instant, bytes: u64, rate: u64, now: Instant) -> Instant {
    let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate.max(1));
    let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(BURST.as_nanos() as u64));
    next.max(earliest).plus(Duration::from_nanos(nanos as u64))
}

pub(super) fn bits_per_second(bytes: u64, time: Duration) -> u64 {
    (u128::from(bytes) * 8 * 1_000_000_000 / time.as_nanos().max(1)) as u64
}

/// `rate` × `part`/65536.
fn scale(rate: u64, part: u64) -> u64 {
    (u128::from(rate) * u128::from(part) / u128::from(ONE)) as u64
}

impl Meter {
    fn count(&mut self, bytes: u64, now: Instant) {
        let elapsed = now.since(self.since);
        if elapsed >= EPOCH {
            self.last = self.of(elapsed);
            (self.since, self.bytes) = (now, 0);
        }
        self.bytes += bytes;
    }

    /// In bits/s.
    fn rate(&self, now: Instant) -> u64 {
        let elapsed = now.since(self.since);
        if elapsed >= EPOCH { self.of(elapsed) } else { self.last.max(self.of(EPOCH)) }
    }

    fn of(&self, elapsed: Duration) -> u64 {
        bits_per_second(self.bytes, elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: u64 = 1_000_000_000;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// The paper's 40 Gbit/s line.
    fn config() -> Dcqcn {
        Dcqcn {
            rpg_max_rate: 40 * GIGABIT,
            rate_to_set_on_first_cnp: 40 * GIGABIT,
            ..Dcqcn::default()
        }
    }

    fn notified(config: &Dcqcn) -> Rate {
        let mut rate = Rate::default();
        rate.on_notification(at(0), config);
        rate
    }

    fn at_time(rate: &mut Rate, micros: u64, config: &Dcqcn) -> u64 {
        rate.allows(at(micros), Some(config));
        rate.limit().unwrap_or(config.rpg_max_rate)
    }

    /// Five timer periods return the rate to within 1/32 of half.
    #[test]
    fn the_first_cut_halves_and_fast_recovery_returns() {
        let config = config();
        let mut rate = notified(&config);
        let near = |value: u64, gigabits: f64| {
            let wanted = gigabits * GIGABIT as f64;
            assert!((value as f64 - wanted).abs() < 0.01 * wanted, "{value} for {wanted}");
        };
        near(at_time(&mut rate, 1, &config), 20.0);
        for (period, gigabits) in [(1, 30.0), (2, 35.0), (3, 37.5), (4, 38.75)] {
            near(at_time(&mut rate, 55 * period + 1, &config), gigabits);
        }
    }

    /// Equation 1 and figure 7 of the paper.
    #[test]
    fn the_estimate_of_congestion_follows_the_notifications() {
        let config = Dcqcn {
            initial_alpha_value: 512,
            rate_to_set_on_first_cnp: GIGABIT,
            rpg_ai_rate: 0,
            ..config()
        };
        let mut rate = notified(&config);
        let alpha = |rate: &Rate| rate.limiter.as_ref().unwrap().alpha as f64 / ONE as f64;
        assert!((alpha(&rate) - (0.5 + 0.5 / 256.0)).abs() < 1e-3);
        rate.allows(at(55 * 256), Some(&config));
        let wanted = (0.5 + 0.5 / 256.0) * (1.0 - 1.0 / 256.0_f64).powi(256);
        assert!((alpha(&rate) - wanted).abs() < 5e-3, "{}", alpha(&rate));
    }

    #[test]
    fn additive_and_hyper_increase() {
        let config = config();
        let mut rate = notified(&config);
        let limiter = rate.limiter.as_mut().unwrap();
        (limiter.current, limiter.target) = (10 * GIGABIT, 10 * GIGABIT);
        limiter.time_steps = 5;
        for _ in 0..10 {
            limiter.time_steps += 1;
            limiter.increase(&config);
        }
        let (target, current) = (limiter.target, limiter.current);
        assert_eq!(target, 10 * GIGABIT + 10 * 40_000_000);
        assert!(current > target - 80_000_000 && current <= target);
        limiter.byte_steps = 7;
        limiter.increase(&config);
        assert_eq!(limiter.target, target + 2 * 400_000_000);
    }

    #[test]
    fn repeated_notifications_bring_it_down_to_the_least_rate() {
        let config = config();
        let mut rate = notified(&config);
        let mut before = u64::MAX;
        for n in 1..=20 {
            rate.on_notification(at(n * 50), &config);
            let now = rate.limit().unwrap();
            assert!(now < before || now == config.rpg_min_rate);
            before = now;
        }
        assert_eq!(before, config.rpg_min_rate);
        let soon = rate.limit();
        rate.on_notification(at(1001), &config);
        assert_eq!(rate.limit(), soon, "one cut in 50 µs");
    }

    #[test]
    fn data_is_spread_and_the_limit_is_lifted_at_line_rate() {
        let config = Dcqcn { rate_to_set_on_first_cnp: GIGABIT, ..config() };
        let mut rate = notified(&config);
        assert!(rate.allows(at(0), Some(&config)));
        let mut sent = 0;
        // half a Gbit/s, in bursts of 50 µs
        while rate.allows(at(0), Some(&config)) {
            rate.on_sent(1000, at(0), Some(&config));
            sent += 1000;
        }
        assert!((1000..=4125).contains(&sent), "{sent}");
        let next = rate.deadline().unwrap();
        assert!(next > at(0) && !rate.allows(at(0), Some(&config)));
        rate.handle_timeout(next);
        assert!(rate.allows(next, Some(&config)) && rate.deadline().is_none());
        assert!(rate.allows(at(10_000_000), Some(&config)));
        assert_eq!(rate.limit(), None);
    }

    #[test]
    fn the_first_notification_finds_the_rate_that_was_measured() {
        let config = Dcqcn { rate_to_set_on_first_cnp: 0, ..config() };
        let mut rate = Rate::default();
        for n in 0..1000 {
            rate.on_sent(1250, at(n * 10), Some(&config)); // 1 Gbit/s
        }
        rate.on_notification(at(10_000), &config);
        let limit = rate.limit().unwrap();
        assert!((450_000_000..650_000_000).contains(&limit), "{limit}");
    }
}
