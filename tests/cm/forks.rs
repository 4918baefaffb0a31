//! Children of a process whose other threads use ids during the fork.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use roce::cm::{EventChannel, PortSpace};

use super::{
    World,
    forked::{fork, wait},
};

#[test]
fn a_child_finds_the_table_of_ports_free() {
    const FORKS: u32 = 200;
    let _world = World::new(PortSpace::Tcp); // the first device registers the fork handlers
    let done = AtomicBool::new(false);
    let bind = || {
        let id = EventChannel::new().unwrap().create_id(PortSpace::Tcp);
        id.bind_addr("0.0.0.0:0".parse().unwrap()).unwrap();
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    bind();
                }
            });
        }
        for number in 0..FORKS {
            let status = wait(fork(|| {
                // SAFETY: takes a number
                unsafe { libc::alarm(20) }; // ends a child that waits
                bind();
                0
            }));
            done.store(number + 1 == FORKS || !status.success(), Ordering::Relaxed);
            assert!(status.success(), "{status}; after signal 14: it waited for ever");
        }
    });
}
