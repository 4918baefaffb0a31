//! Random C calls, valid, wrong and inconsistent, by two threads that share objects.
//!
//! `RANDOM_SEEDS=100..2000 cargo test -p roce-abi --test main random::` tries other seeds;
//! `.ci/asan` runs under AddressSanitizer.

use std::{
    env,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

mod calls;
mod connections;
mod requests;
mod rng;
mod world;

use crate::{common, own_test, programs::library, watchdog};
use rng::Rng;
use world::{Shared, World};

const SEEDS: &str = "RANDOM_SEEDS";
const INSIDE: &str = "RANDOM_INSIDE";
/// Per thread and seed.
const CALLS: usize = 400;
const THREADS: u64 = 2;
/// For all.
const LIMIT: Duration = Duration::from_secs(300);

/// In a process that names its last seed.
#[test]
fn any_calls_leave_everything_whole() {
    let seeds = env::var(SEEDS).unwrap_or("0..20".to_owned());
    if env::var_os(INSIDE).is_some() {
        return play(&seeds);
    }
    let directory = common::Directory::new();
    let running = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            own_test::named("random::any_calls_leave_everything_whole"),
            "--nocapture",
        ])
        .env(SEEDS, &seeds)
        .env(INSIDE, "1")
        .env("XDG_RUNTIME_DIR", directory.file(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let done = watchdog::programs::wait_with_output(running, LIMIT);
    let said = String::from_utf8_lossy(&done.stderr);
    let begun = said.lines().rev().find(|line| line.starts_with("seed ")).unwrap_or_default();
    assert!(done.status.success(), "{}, after it began with {begun}:\n{said}", done.status);
}

fn play(seeds: &str) {
    let (first, end) = seeds.split_once("..").expect("FIRST..END");
    for seed in first.parse::<u64>().unwrap()..end.parse().unwrap() {
        eprintln!("seed {seed}");
        let shared = Shared::open();
        let done = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|number| {
                    let shared = &shared;
                    scope.spawn(move || {
                        let mut world = World::new(shared, Rng::new(seed * THREADS + number));
                        let done = (0..CALLS).filter(|_| world.call()).count();
                        world.close();
                        done
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        shared.close();
        assert!(done > 100, "with seed {seed} only {done} calls did something");
    }
}
