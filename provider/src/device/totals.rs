//! Counters of all shards, published as one device's.

use std::sync::Arc;

use roce_transport::event::Counters;

use crate::{counters::LinkCounters, engine::CounterSink, sync::Mutex};

struct Totals {
    publishers: Vec<Box<dyn CounterSink>>,
    parts: Vec<(Counters, LinkCounters)>,
}

struct Part {
    totals: Arc<Mutex<Totals>>,
    index: usize,
}

pub(super) fn parts(
    publishers: Vec<Box<dyn CounterSink>>,
    shards: usize,
) -> Vec<Vec<Box<dyn CounterSink>>> {
    if publishers.is_empty() {
        return (0..shards).map(|_| Vec::new()).collect();
    }
    let parts = vec![Default::default(); shards];
    let totals = Arc::new(Mutex::new(Totals { publishers, parts }));
    let part = |index| Box::new(Part { totals: totals.clone(), index }) as _;
    (0..shards).map(|index| vec![part(index)]).collect()
}

impl CounterSink for Part {
    fn publish(&mut self, counters: &Counters, link: &LinkCounters, gids: &[String]) {
        let Totals { publishers, parts } = &mut *self.totals.lock();
        parts[self.index] = (counters.clone(), link.clone());
        let (mut all, mut links) = <(Counters, LinkCounters)>::default();
        for (counters, link) in parts {
            all += counters;
            links += link.clone();
        }
        publishers.iter_mut().for_each(|publisher| publisher.publish(&all, &links, gids));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Last(Arc<Mutex<(u64, u64, u64)>>);

    impl CounterSink for Last {
        fn publish(&mut self, counters: &Counters, link: &LinkCounters, _: &[String]) {
            *self.0.lock() = (counters.sent_packets, link.sent_runs, link.longest_hold);
        }
    }

    #[test]
    fn what_is_published_is_the_sum() {
        let last = Arc::new(Mutex::default());
        let mut sinks = parts(vec![Box::new(Last(last.clone()))], 2);
        let mut publish = |shard: usize, packets, hold| {
            let mut counters = Counters::default();
            counters.sent_packets = packets;
            let mut link = LinkCounters { sent_runs: packets, ..LinkCounters::default() };
            link.longest_hold = hold;
            sinks[shard][0].publish(&counters, &link, &[]);
            *last.lock()
        };
        assert_eq!(publish(0, 10, 5), (10, 10, 5));
        assert_eq!(publish(1, 3, 9), (13, 13, 9));
        assert_eq!(publish(0, 11, 5), (14, 14, 9));
        assert!(parts(Vec::new(), 2).iter().all(Vec::is_empty));
    }
}
