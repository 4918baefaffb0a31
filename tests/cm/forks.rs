//! Children of a process whose other threads use ids during the fork.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use roce::cm::{EventChannel, PortSpace};

use super::World;

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
            // SAFETY: the child needs no other thread, and never returns into the test; the alarm
            // ends a child that waits
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: takes a number
                unsafe { libc::alarm(20) };
                let result = std::panic::catch_unwind(bind);
                // SAFETY: ends the child at once
                unsafe { libc::_exit(if result.is_ok() { 0 } else { 101 }) };
            }
            let mut status = 0;
            // SAFETY: the status lives until the call returns
            let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
            done.store(number + 1 == FORKS || status != 0, Ordering::Relaxed);
            assert_eq!((waited, status), (pid, 0), "14: it waited for ever");
        }
    });
}
