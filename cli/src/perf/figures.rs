use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::plan::{Amount, Plan};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flow {
    pub(super) messages: u64,
    pub(super) time: Duration,
}

impl Flow {
    /// `None`: no messages.
    fn rate(&self) -> Option<f64> {
        (self.messages > 0 && !self.time.is_zero())
            .then(|| self.messages as f64 / self.time.as_secs_f64())
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Bandwidth {
    pub(super) size: usize,
    pub(super) flow: Flow,
    pub(super) back: Option<Flow>,
    /// Most messages per second of this side, if it took long enough.
    pub(super) peak: Option<f64>,
    pub(super) start: Instant,
}

impl Bandwidth {
    /// Threads count from the first post of any to the last completion of any.
    pub(super) fn together(parts: &[Self]) -> Option<Self> {
        let [one] = parts else {
            let start = parts.iter().map(|part| part.start).min()?;
            let end = parts.iter().map(|part| part.start + part.flow.time).max()?;
            let messages = parts.iter().map(|part| part.flow.messages).sum();
            let flow = Flow { messages, time: end - start };
            return Some(Self { size: parts[0].size, flow, back: None, peak: None, start });
        };
        Some(*one)
    }

    pub(super) fn messages(&self) -> u64 {
        self.flow.messages + self.back.map_or(0, |back| back.messages)
    }

    /// Both directions; `None`: one had no messages.
    fn rate(&self) -> Option<f64> {
        let back = self.back.as_ref().map_or(Some(0.0), Flow::rate)?;
        Some(self.flow.rate()? + back)
    }
}

/// Times, ascending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Latency {
    size: usize,
    nanos: Vec<u64>,
    /// Messages in each time.
    share: u32,
}

impl Latency {
    pub(super) fn new(size: usize, mut nanos: Vec<u64>, share: u32) -> Self {
        nanos.sort_unstable();
        Self { size, nanos, share }
    }

    fn micros(&self, nanos: f64) -> f64 {
        nanos / 1e3 / f64::from(self.share)
    }

    /// `None`: too few messages.
    fn percentile(&self, per_mille: usize) -> Option<f64> {
        let count = self.nanos.len();
        let above = count * (1000 - per_mille) / 1000;
        let at = (count * per_mille).div_ceil(1000).max(1) - 1;
        (above > 0).then(|| self.micros(self.nanos[at] as f64))
    }

    fn average(&self) -> Option<f64> {
        (!self.nanos.is_empty())
            .then(|| self.micros(self.nanos.iter().sum::<u64>() as f64 / self.nanos.len() as f64))
    }

    fn deviation(&self) -> Option<f64> {
        let average = self.average()?;
        let square = |&nanos: &u64| (self.micros(nanos as f64) - average).powi(2);
        Some((self.nanos.iter().map(square).sum::<f64>() / self.nanos.len() as f64).sqrt())
    }

    fn end(&self, end: Option<&u64>) -> Option<f64> {
        end.map(|&nanos| self.micros(nanos as f64))
    }

    /// Minimum, maximum, median, average, standard deviation, 99 %, 99.9 %.
    fn all(&self) -> [Option<f64>; 7] {
        [
            self.end(self.nanos.first()),
            self.end(self.nanos.last()),
            // also of one message
            self.percentile(500).or(self.end(self.nanos.first())),
            self.average(),
            self.deviation(),
            self.percentile(990),
            self.percentile(999),
        ]
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Figures {
    Bandwidth(Bandwidth),
    Latency(Latency),
}

impl Figures {
    pub(super) fn messages(&self) -> u64 {
        match self {
            Self::Bandwidth(bandwidth) => bandwidth.messages(),
            Self::Latency(latency) => latency.nanos.len() as u64,
        }
    }

    pub(super) fn heading(plan: &Plan, gbits: bool) -> String {
        if plan.latency {
            return " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    \
                    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
                .to_owned();
        }
        let unit = if gbits { "Gb" } else { "MB" };
        format!(
            " #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]"
        )
    }

    /// An unmeasured figure is a dash.
    pub(super) fn line(&self, gbits: bool) -> String {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        match self {
            Self::Bandwidth(bandwidth) => {
                let size = bandwidth.size as f64;
                let scale = if gbits { size * 8.0 / 1e9 } else { size / f64::from(1 << 20) };
                // A peak is one-way.
                let peak = bandwidth.peak.filter(|_| bandwidth.back.is_none());
                let (peak, rate) = (peak.map(|peak| peak * scale), bandwidth.rate());
                format!(
                    " {:<10} {:<14} {:<18} {:<23} {}",
                    bandwidth.size,
                    bandwidth.messages(),
                    number(peak, 2),
                    number(rate.map(|rate| rate * scale), 2),
                    number(rate.map(|rate| rate / 1e6), 6)
                )
            }
            Self::Latency(latency) => {
                let [min, max, median, average, deviation, p99, p999] =
                    latency.all().map(|value| number(value, 2));
                format!(
                    " {:<7} {:<14} {min:<14} {max:<12} {median:<16} {average:<14} {deviation:<15} \
                     {p99:<22} {p999}",
                    latency.size,
                    latency.nanos.len()
                )
            }
        }
    }

    /// An unmeasured figure is null.
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Bandwidth(bandwidth) => {
                let bytes = |rate: Option<f64>| rate.map(|rate| rate * bandwidth.size as f64);
                let back = bandwidth.back.map(
                    |back| json!({ "messages": back.messages, "seconds": back.time.as_secs_f64() }),
                );
                json!({
                    "bytes": bandwidth.size,
                    "messages": bandwidth.flow.messages,
                    "seconds": bandwidth.flow.time.as_secs_f64(),
                    "back": back,
                    "messages_per_second": bandwidth.rate(),
                    "bytes_per_second": bytes(bandwidth.rate()),
                    "peak_bytes_per_second": bytes(bandwidth.peak),
                })
            }
            Self::Latency(latency) => {
                let [min, max, median, average, stdev, p99, p999] = latency.all();
                json!({
                    "bytes": latency.size,
                    "messages": latency.nanos.len(),
                    "usec": {
                        "min": min,
                        "max": max,
                        "median": median,
                        "average": average,
                        "stdev": stdev,
                        "p99": p99,
                        "p99.9": p999,
                    },
                })
            }
        }
    }
}

pub(super) fn document(plan: &Plan, device: &str, mtu: u32, results: &[Figures]) -> Value {
    let (iters, seconds) = match plan.amount {
        Amount::Iters(count) => (Some(count), None),
        Amount::Time(time) => (None, Some(time.as_secs_f64())),
    };
    json!({
        "test": plan.test.word(),
        "measures": if plan.latency { "latency" } else { "bandwidth" },
        "device": device,
        "mtu": mtu,
        "qps": plan.qps,
        "threads": plan.threads,
        "tx_depth": (!plan.latency).then_some(plan.depth),
        "iterations": iters,
        "duration": seconds,
        "bidirectional": plan.both_ways,
        "events": plan.events,
        "results": results.iter().map(Figures::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_as_many_messages_as_they_need() {
        let of = |count: u64| Latency::new(8, (1..=count).rev().map(|n| n * 1000).collect(), 1);
        let thousand = of(1000).all().map(|value| value.map(f64::round));
        assert_eq!(
            thousand,
            [1.0, 1000.0, 500.0, 501.0, 289.0, 990.0, 999.0].map(Some),
            "minimum, maximum, median, average, deviation, 99 %, 99.9 %"
        );
        assert_eq!(of(999).all()[6], None);
        assert_eq!(of(100).all()[5], Some(99.0));
        assert_eq!(of(99).all()[5], None);
        assert_eq!(
            of(1).all(),
            [Some(1.0), Some(1.0), Some(1.0), Some(1.0), Some(0.0), None, None]
        );
        assert_eq!(of(0).all(), [None; 7]);
    }

    #[test]
    fn half_of_a_round_trip_is_one_way() {
        let there_and_back = Latency::new(8, vec![3000, 1000], 2);
        assert_eq!(there_and_back.all()[..3], [Some(0.5), Some(1.5), Some(0.5)]);
    }

    #[test]
    fn what_was_not_measured_is_a_dash_or_null() {
        let nothing = Flow { messages: 0, time: Duration::from_secs(1) };
        let bandwidth =
            Bandwidth { size: 64, flow: nothing, back: None, peak: None, start: Instant::now() };
        let figures = Figures::Bandwidth(bandwidth);
        assert_eq!(
            figures.line(false).split_whitespace().collect::<Vec<_>>(),
            ["64", "0", "-", "-", "-"]
        );
        assert_eq!(figures.json()["bytes_per_second"], Value::Null);
    }

    #[test]
    fn both_ways_add_up() {
        let flow = Flow { messages: 1 << 10, time: Duration::from_secs(1) };
        let back = Flow { messages: 1 << 11, time: Duration::from_secs(2) };
        let start = Instant::now();
        let bandwidth = Bandwidth { size: 1 << 20, flow, back: Some(back), peak: Some(1.0), start };
        let line = Figures::Bandwidth(bandwidth).line(false);
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["1048576", "3072", "-", "2048.00", "0.002048"]
        );
        let line = Figures::Bandwidth(Bandwidth { back: None, ..bandwidth }).line(true);
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["1048576", "1024", "0.01", "8.59", "0.001024"]
        );
    }

    #[test]
    fn threads_count_from_the_first_post_to_the_last_completion() {
        let now = Instant::now();
        let of = |since: u64, messages, time| Bandwidth {
            size: 8,
            flow: Flow { messages, time: Duration::from_secs(time) },
            back: None,
            peak: Some(1.0),
            start: now + Duration::from_secs(since),
        };
        let one = of(0, 10, 4);
        assert_eq!(Bandwidth::together(&[one]), Some(one));
        let all = Bandwidth::together(&[of(1, 5, 4), one, of(2, 7, 1)]).unwrap();
        assert_eq!(
            (all.flow, all.peak),
            (Flow { messages: 22, time: Duration::from_secs(5) }, None)
        );
        assert_eq!(Bandwidth::together(&[]), None);
    }
}
