//! Program threads beside the background thread, and events that none may sleep through.

use std::{sync::Arc, time::Duration};

use loom::thread;

use super::{
    schedule::cork::{Load, Next},
    serve::Engine,
    shard::Shard,
    sleep::System,
};
use crate::{check, clock, ring::runs};

/// A timer's delay: shorter sleeps end by themselves.
const SOON: Duration = Duration::from_millis(1);
/// Delay of a timer that no thread waits for.
const LATE: Duration = Duration::from_secs(3600);

/// Runs a program beside the background thread and a sender of `sent` runs. The last runs are for
/// the program's threads, in order.
fn run(preemptions: usize, sent: u64, late: bool, program: fn(&Arc<Engine>)) {
    check(preemptions, move || {
        clock::begin();
        let (sender, link) = runs::link();
        let system = System::default();
        let awaited: Vec<_> = (0..sent).rev().zip((0..2).rev()).collect();
        let mut shard = Shard::new(link, awaited, system.clone());
        shard.rare = late.then(|| clock::now().plus(LATE));
        shard.acknowledged = (sent == 1).then_some(0); // without a run
        let engine = Arc::new(Engine::new(shard, system.clone()));
        let background = {
            let engine = engine.clone();
            thread::spawn(move || engine.serve_until_stopped())
        };
        let other = (sent > 0).then(|| {
            thread::spawn(move || {
                sender.send(sent, || system.ring_wakeup());
            })
        });
        program(&engine);
        engine.stop_background();
        background.join().unwrap();
        other.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// Arrivals after a program's last poll.
pub fn requests_are_served_beside_a_program_that_sleeps() {
    run(2, 2, false, |engine| {
        engine.progress();
        engine.system.wait_for(1);
    });
}

/// A timer set by a sleeping thread shortens the background thread's sleep.
pub fn a_timer_fires() {
    for late in [false, true] {
        run(3, 0, late, |engine| {
            engine.command_shard(|shard, now| shard.timer = Some((now.plus(SOON), 0)));
            engine.system.wait_for(0);
        });
    }
}

/// Counters are published despite a poll.
pub fn counters_are_published() {
    run(2, 0, false, |engine| {
        engine.command_shard(|shard, now| {
            shard.publication.start(now.plus(SOON));
            (shard.publication.counted, shard.reader) = (true, Some(0));
        });
        engine.progress();
        engine.system.wait_for(0);
    });
}

/// Waits on the sockets.
pub fn a_thread_that_waits_on_the_sockets_is_woken() {
    run(2, 1, false, |engine| wait(engine, 1));
}

/// Arrivals after a thread stops waiting on the sockets.
pub fn requests_are_served_after_a_thread_that_waited() {
    run(2, 2, false, |engine| {
        wait(engine, 0);
        engine.system.wait_for(1);
    });
}

/// A thread may take the other thread's event.
pub fn two_threads_that_wait_on_the_sockets_are_woken() {
    run(1, 2, false, |engine| {
        let other = engine.clone();
        let other = thread::spawn(move || wait(&other, 0));
        wait(engine, 1);
        other.join().unwrap();
    });
}

/// Serves until the event.
pub fn a_thread_that_serves_is_woken() {
    run(2, 1, false, |engine| serve(engine, 1));
}

/// Arrivals after a thread stops serving.
pub fn requests_are_served_after_a_thread_that_served() {
    run(2, 2, false, |engine| {
        serve(engine, 0);
        engine.system.wait_for(1);
    });
}

/// Two threads wait; one serves.
pub fn two_threads_of_which_one_serves_are_woken() {
    run(1, 2, false, |engine| {
        let other = engine.clone();
        let other = thread::spawn(move || serve(&other, 0));
        serve(engine, 1);
        other.join().unwrap();
    });
}

/// Like a completion channel.
fn serve(engine: &Engine, number: usize) {
    while !engine.system.has(number) {
        if !engine.serve_until(&number, None, || engine.system.has(number)).unwrap() {
            engine.begin_sleep();
            engine.system.wait_for(number);
            engine.end_sleep();
        }
    }
}

/// Like an event channel of ids.
fn wait(engine: &Engine, number: usize) {
    loop {
        if engine.system.has(number) {
            return;
        }
        engine.progress();
        if engine.system.has(number) {
            return;
        }
        engine.wait_on_sockets(&number, None).unwrap();
    }
}

/// Sleeps on a descriptor of the background thread.
pub fn a_thread_with_an_event_loop_is_woken() {
    run(2, 1, false, |engine| {
        engine.progress();
        engine.hand_over();
        engine.progress();
        engine.system.wait_for(1);
    });
}

/// Arrivals make the descriptor readable, too.
pub fn a_thread_with_an_event_loop_on_the_sockets_is_woken() {
    run(2, 1, false, |engine| {
        let system = &engine.system;
        while !system.has(1) {
            if !engine.enter_loop() {
                engine.hand_over();
            }
            engine.progress();
            system.wait_in_loop(1);
            engine.serve_in_loop(true, || system.has(1));
            thread::yield_now(); // the lock may still be taken
        }
    });
}

/// Enters an event loop, then sleeps elsewhere.
pub fn requests_are_served_beside_an_event_loop_that_is_left() {
    run(2, 2, false, |engine| {
        engine.enter_loop();
        engine.system.wait_for(1);
    });
}

/// Ends an event loop that other threads may count on.
pub fn requests_are_served_after_an_event_loop() {
    run(2, 2, false, |engine| {
        engine.enter_loop();
        engine.progress();
        engine.leave_loop();
        engine.system.wait_for(1);
    });
}

/// Sleeps until posted requests have left.
pub fn what_is_corked_leaves() {
    run(2, 0, false, |engine| {
        engine.progress();
        let now = clock::now();
        for number in [1, 0] {
            let mut shard = engine.lock();
            let mut load = Load::default();
            load.add(64);
            shard.posted = Some(number);
            engine.cork_or_send(&mut shard, now, load);
            shard.cork.observer().record_end(now);
        }
        engine.system.wait_for(0);
    });
}

/// Sleeps until an acknowledgement has left.
pub fn what_acknowledges_leaves() {
    run(2, 1, false, |engine| {
        {
            let mut shard = engine.lock();
            let now = clock::now();
            shard.cork.change(|cork| cork.find(now, true));
            // an earlier response
            shard.cork.change(|cork| cork.post(now, Load::default(), 0, Next::Polls));
        }
        engine.progress();
        engine.system.wait_for(0);
    });
}

/// `stop` ends the background thread anywhere.
pub fn the_background_thread_ends() {
    run(3, 0, true, |engine| _ = engine.progress());
}
