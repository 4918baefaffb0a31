//! Completion queues: the engine's thread adds; program threads poll, arm and sleep.

use std::sync::Arc;

use loom::thread;
use roce_transport::{
    addr::Qpn,
    time::Instant,
    work::{Wc, WcOk, WcOpcode},
};

use crate::{
    atomic::{AtomicU64, Ordering},
    bell::Bell,
    check,
    ids::CqId,
    work::{CompletionQueue, CqRoom, NotifyKind, Pushed, Validity},
};

struct Queue {
    cq: CompletionQueue,
    validity: Validity,
}

impl Queue {
    fn new() -> Arc<Self> {
        let cq = CompletionQueue::new(CqId(1), CqRoom::new(2));
        Arc::new(Self { cq, validity: Validity::default() })
    }

    fn push(&self, wr_id: u64) -> Pushed {
        self.push_as(NotifyKind::Next, wr_id)
    }

    fn push_as(&self, kind: NotifyKind, wr_id: u64) -> Pushed {
        let solicited = kind == NotifyKind::Solicited;
        let result = Ok(WcOk::new(WcOpcode::Send, 0));
        let wc = Wc { wr_id, qpn: Qpn::new(2), timestamp: Instant::ZERO, result };
        self.cq.push(wc, &self.validity, solicited, Instant::ZERO)
    }

    fn pop(&self) -> Option<u64> {
        self.cq.pop().map(|wc| wc.wr_id)
    }
}

/// Handling of a completion between the last poll and arming.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// Ignored.
    Careless,
    /// The program polls after arming, as the specification demands.
    PollsAgain,
    /// The queue raises an event, as on network adapters.
    IsTold,
    /// The same for solicited completions.
    IsToldOfSolicited,
}

/// A program sleeps until a requested event.
pub fn an_armed_reader_sleeps(reader: Reader) {
    check(3, move || {
        const COUNT: u64 = 2;
        let kind = match reader {
            Reader::IsToldOfSolicited => NotifyKind::Solicited,
            _ => NotifyKind::Next,
        };
        let (queue, channel) = (Queue::new(), Arc::new(Bell::default()));
        let engine = {
            let (queue, channel) = (queue.clone(), channel.clone());
            thread::spawn(move || {
                for number in 0..COUNT {
                    match queue.push_as(kind, number) {
                        Pushed::Waking => channel.ring(),
                        pushed => assert_eq!(pushed, Pushed::Quietly),
                    }
                }
            })
        };
        let mut next = 0;
        let mut take_all = || {
            while let Some(number) = queue.pop() {
                assert_eq!(number, next, "completions are lost");
                next += 1;
            }
            next
        };
        while take_all() < COUNT {
            match reader {
                Reader::Careless | Reader::PollsAgain => queue.cq.req_notify(kind),
                Reader::IsTold | Reader::IsToldOfSolicited => {
                    if queue.cq.req_notify_unpolled(kind) {
                        channel.ring();
                    }
                }
            }
            if reader == Reader::PollsAgain && take_all() == COUNT {
                break;
            }
            channel.wait();
            channel.clear();
        }
        engine.join().unwrap();
    });
}

/// Data precedes its completion.
pub fn a_completion_follows_its_data() {
    check(3, || {
        let (queue, memory) = (Queue::new(), Arc::new(AtomicU64::new(0)));
        let engine = {
            let (queue, memory) = (queue.clone(), memory.clone());
            thread::spawn(move || {
                memory.store(7, Ordering::Relaxed);
                queue.push(0);
            })
        };
        if queue.pop().is_some() {
            assert_eq!(memory.load(Ordering::Relaxed), 7, "the data comes after its completion");
        }
        engine.join().unwrap();
    });
}

/// Two threads poll during a resize.
pub fn takers_meet_a_resize() {
    check(1, || {
        let queue = Queue::new();
        assert_eq!(queue.push(0), Pushed::Quietly);
        let takers = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || [queue.pop(), queue.pop()])
        });
        assert_eq!(queue.push(1), Pushed::Quietly);
        queue.cq.resize(4, queue.cq.lacks(4)).unwrap();
        assert_eq!(queue.push(2), Pushed::Quietly);
        let mut all = Vec::new();
        for taker in takers {
            let taken: Vec<u64> = taker.join().unwrap().into_iter().flatten().collect();
            assert!(taken.is_sorted(), "{taken:?}");
            all.extend(taken);
        }
        all.extend(std::iter::from_fn(|| queue.pop()));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2], "completions are lost");
    });
}
