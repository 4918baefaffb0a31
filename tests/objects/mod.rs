//! On real unprivileged devices.

mod address;
mod completion;
mod counters;
mod device;
mod device_memory;
mod domain;
mod hanging;
mod posting;

use std::{
    thread,
    time::{Duration, Instant},
};

use roce::{
    Access, CompletionQueue, Context, Device, OpenOptions, QpInitAttr, QpType, QueuePair, Wc,
};

use crate::watchdog;

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);
const TIMEOUT: Duration = Duration::from_secs(20);

fn loopback(options: OpenOptions) -> Context {
    watchdog::start(roce_provider::describe_engines);
    Device::named("roce_lo").unwrap().open(options).unwrap()
}

fn open() -> Context {
    loopback(OpenOptions::default())
}

#[track_caller]
fn next(cq: &CompletionQueue) -> Wc {
    let start = Instant::now();
    loop {
        if let Some(wc) = cq.poll_one() {
            return wc;
        }
        assert!(start.elapsed() < TIMEOUT, "no completion");
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn connected(
    a: &Context,
    cq_a: &CompletionQueue,
    b: &Context,
    cq_b: &CompletionQueue,
) -> (QueuePair, QueuePair) {
    let qp = |context: &Context, cq| {
        context.alloc_pd().unwrap().create_qp(&QpInitAttr::new(QpType::Rc, cq)).unwrap()
    };
    let (qp_a, qp_b) = (qp(a, cq_a), qp(b, cq_b));
    qp_a.connect_to(qp_b.endpoint(0).unwrap()).unwrap();
    qp_b.connect_to(qp_a.endpoint(0).unwrap()).unwrap();
    (qp_a, qp_b)
}
