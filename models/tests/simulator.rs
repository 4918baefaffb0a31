//! Promises of the engine to programs, in virtual time. Times are those of the simulator's costs.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use roce_models::simulator::{
    Completion, Costs, Device, Operation, Simulation, figures, now, pause, work,
};

/// The timer of corked requests (docs/architecture/sending.md).
const CORK_TIMER: u64 = 60_000;
/// Longest interval of looks at a polling program, and time without a call after which it is
/// absent (docs/architecture/engine.md).
const LOOK: u64 = 4_000_000;
const ABSENT: u64 = 250_000;
/// Clock readings, locks and short system calls beside a cost.
const BESIDE: u64 = 5_000;

const fn us(time: u64) -> Duration {
    Duration::from_micros(time)
}

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// Costs with time slices of 0.1 ms for background threads, which preempt.
fn short_slices() -> Costs {
    Costs { short_slice: Some(100_000), ..Costs::default() }
}

fn median(times: &[u64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2] as f64 / 1e3
}

fn longest(times: &[u64]) -> u64 {
    times.iter().copied().max().expect("something was measured")
}

/// Runs the simulation with a program named `program`, and returns its measurements.
fn measure(
    simulation: &mut Simulation,
    program: impl FnOnce(&dyn Fn(u64)) + Send + 'static,
) -> Vec<u64> {
    let (sender, measured) = mpsc::channel();
    simulation.program("program", move || program(&|time| sender.send(time).unwrap()));
    simulation.run();
    measured.iter().collect()
}

type Program = fn(&Device);
/// A program's way to wait for a message with this number.
type Receive = fn(&Device, u64);

fn has_received(device: &Device) -> bool {
    let mut found = false;
    while let Some(completion) = device.poll(0) {
        found |= matches!(completion, Completion::Received(_));
    }
    found
}

fn poll(device: &Device, _: u64) {
    while !matches!(device.poll(0), Some(Completion::Received(_))) {}
}

fn poll_and_spin(device: &Device, number: u64) {
    while device.poll(0) != Some(Completion::Sent(number)) {}
    device.spin(number);
}

fn wait(device: &Device, _: u64) {
    while !has_received(device) {
        device.arm(0);
        if has_received(device) {
            return;
        }
        device.wait(0);
    }
}

fn wait_in_loop(device: &Device, _: u64) {
    loop {
        for queue in device.sleep_in_loop(None) {
            if device.take(queue) {
                device.arm(queue);
                if has_received(device) {
                    return;
                }
            }
        }
    }
}

/// Processor time of a call.
fn time_of(program: &str, call: impl FnOnce()) -> u64 {
    let before = figures(program).ran;
    call();
    (figures(program).ran - before).as_nanos() as u64
}

/// Returns the time of the call.
fn post_at_once(device: &Device, program: &str, operation: Operation, number: u64) -> u64 {
    let took = time_of(program, || device.post(0, operation, number));
    let Costs { send, receive, packet, switch, .. } = Costs::default();
    let of_another = receive + packet + send; // a turn under the lock, at most
    assert!(took < send + 1_000 + of_another + switch, "{program}: {number} took {took} ns");
    let last = device.sent().requests.last().map(|sent| sent.0);
    assert_eq!(last, Some(number), "{program}: it waits");
    took
}

#[test]
fn a_lone_message_leaves_at_once() {
    let kinds: [(&str, Receive, Operation); 4] = [
        ("polls", poll, Operation::Send),
        ("spins on memory", poll_and_spin, Operation::Write),
        ("sleeps", wait, Operation::Send),
        ("event loop", wait_in_loop, Operation::Send),
    ];
    for (kind, receive, operation) in kinds {
        for processors in [1, 2, 16] {
            let mut simulation = Simulation::new(processors, Costs::default());
            let [a, b] = Device::pair(&mut simulation, 1);
            let (rounds, peer) = (100, b.clone());
            if kind == "event loop" {
                [&a, &b].into_iter().for_each(Device::expose);
            }
            simulation.program("peer", move || {
                for number in 1..=rounds {
                    receive_first(&b, receive, operation, number);
                    post_at_once(&b, "peer", operation, number);
                }
            });
            let times = measure(&mut simulation, move |measured| {
                for number in 1..=rounds {
                    let start = now();
                    let took = post_at_once(&a, "program", operation, number);
                    receive(&a, number);
                    measured(now() - start);
                    measured(took);
                    work(us(20));
                }
            });
            let calls = peer.sent().calls;
            let of = |index| -> Vec<u64> { times.iter().copied().skip(index).step_by(2).collect() };
            println!(
                "{kind}, {processors} processors: sent after {:.1} µs, at most {} ns, \
                 round trip {:.1} µs, {calls} calls of the peer",
                median(&of(1)),
                longest(&of(1)),
                median(&of(0))
            );
            // its acknowledgements leave with its responses
            assert!(kind != "polls" || calls < rounds + 5, "{calls} calls");
        }
    }
}

/// The peer of a program that spins on memory has nothing to poll for before its first response.
fn receive_first(device: &Device, receive: Receive, operation: Operation, number: u64) {
    if operation == Operation::Write {
        while device.memory() < number {
            let _ = device.poll(0);
        }
    } else {
        receive(device, number);
    }
}

#[test]
fn the_first_of_a_burst_leaves_at_once() {
    let mut simulation = Simulation::new(16, Costs::default());
    let [a, b] = Device::pair(&mut simulation, 1);
    let (rounds, burst) = (50, 8);
    simulation.program("peer", move || {
        let mut left = rounds * burst;
        while left > 0 {
            left -= u64::from(matches!(b.poll(0), Some(Completion::Received(_))));
        }
    });
    let sent = a.clone();
    measure(&mut simulation, move |_| {
        let _ = a.poll(0); // only polling programs are corked
        for round in 0..rounds {
            post_at_once(&a, "program", Operation::Send, round * burst);
            (1..burst).for_each(|next| a.post(0, Operation::Send, round * burst + next));
            let mut left = burst;
            while left > 0 {
                left -= u64::from(matches!(a.poll(0), Some(Completion::Sent(_))));
            }
            work(us(20));
        }
    });
    let sent = sent.sent();
    println!("{} messages in {} calls", sent.requests.len(), sent.calls);
    assert_eq!(sent.calls, 2 * rounds, "the first of a burst, and all others");
}

#[test]
fn a_polling_program_does_not_wait_for_the_background_thread() {
    for processors in [2, 16] {
        let mut simulation = Simulation::new(processors, Costs::default());
        let device = Device::alone(&mut simulation);
        let counters = device.clone();
        let times = measure(&mut simulation, move |measured| {
            pause(ms(980)); // counters are published after 1 s
            let messages = 400;
            (1..=messages).for_each(|n| device.arrives(us(100 * n), Operation::Send, n));
            let mut received = 0;
            while received < messages {
                let start = now();
                let found = device.poll(0).is_some();
                measured(now() - start);
                received += u64::from(found);
                if found {
                    let start = now();
                    device.post(0, Operation::Send, received);
                    measured(now() - start);
                }
            }
        });
        let costs = Costs::default();
        let bound = costs.packet + costs.receive + costs.send + 2_000;
        println!("{processors} processors: longest call {} ns of {}", longest(&times), times.len());
        assert!(longest(&times) < bound, "{} ns", longest(&times));
        assert_eq!((counters.finds(), counters.assists()), (0, 0));
    }
}

/// Delays of WRITEs that arrive `gap` after the program's latest call.
fn spin_on_memory(simulation: &mut Simulation, polls: Duration, gap: Duration) -> Vec<u64> {
    let device = Device::alone(simulation);
    measure(simulation, move |measured| {
        let start = now();
        while now() - start < polls.as_nanos() as u64 {
            let _ = device.poll(0);
        }
        for number in 1..=100 {
            device.post(0, Operation::Write, number);
            let _ = device.poll(0);
            device.arrives(gap, Operation::Write, number);
            let arrives = now() + gap.as_nanos() as u64;
            device.spin(number);
            measured(now() - arrives);
        }
    })
}

#[test]
fn a_program_that_spins_on_memory_is_served() {
    let costs = Costs::default();
    for (polls, look, gap, later) in [
        (ms(5), LOOK / 4, us(20), 5_000),
        (ms(100), LOOK, us(20), 5_000),
        (ms(101), LOOK, us(20), 5_000),
        (ms(103), LOOK, us(20), 5_000),
        // assistance ends with a call and 50 µs without packets
        (ms(5), LOOK / 4, us(200), ABSENT + costs.wakeup + BESIDE),
    ] {
        let mut simulation = Simulation::new(16, costs);
        let delays = spin_on_memory(&mut simulation, polls, gap);
        let (first, rest) = (delays[0], longest(&delays[1..]));
        println!(
            "polled for {polls:?}, WRITEs {gap:?} after a call: first {:.1} µs, then median {:.1}, \
             longest {:.1} µs",
            first as f64 / 1e3,
            median(&delays[1..]),
            rest as f64 / 1e3
        );
        assert!(first < look + 2 * (ABSENT + costs.wakeup) + BESIDE, "first {first} ns");
        assert!(rest < later, "then {rest} ns");
    }
}

#[test]
fn a_program_that_spins_on_memory_without_a_free_processor_is_served_in_time_slices() {
    // a look at the program takes two wake-ups
    for (costs, slices) in [(Costs::default(), 2), (short_slices(), 0)] {
        let mut simulation = Simulation::new(1, costs);
        let delays = spin_on_memory(&mut simulation, ms(5), us(20));
        let (first, rest) = (delays[0], longest(&delays[1..]));
        println!("{slices} slices: first {first} ns, then {} µs, {rest} ns", median(&delays[1..]));
        let bound = slices * costs.slice + 3 * BESIDE;
        assert!(first < LOOK / 4 + 2 * ABSENT + bound, "first {first} ns");
        assert!(rest < bound, "then {rest} ns");
    }
}

/// Wake-ups of the background thread in 10 s, from half a second after the program's last call.
fn idle_wakeups(simulation: &mut Simulation, program: Program) -> u64 {
    let device = Device::alone(simulation);
    simulation.program("other", move || {
        (1..=100).for_each(|n| device.arrives(us(500 * n), Operation::Send, n));
        device.arrives(ms(12_000), Operation::Send, 101);
        program(&device);
    });
    let wakeups = measure(simulation, |measured| {
        pause(ms(1_500)); // counters are published after 1 s
        let before = figures("a").wakeups;
        pause(ms(10_000));
        measured(figures("a").wakeups - before);
    });
    wakeups[0]
}

#[test]
fn an_idle_device_costs_no_wakeups() {
    let programs: [(_, Program); 5] = [
        ("does nothing", |_| pause(ms(12_000))),
        ("polls", |device| {
            (0..100).for_each(|_| poll(device, 0));
            pause(ms(12_000));
        }),
        ("posts a burst", |device| {
            (0..100).for_each(|_| poll(device, 0));
            (0..8).for_each(|number| device.post(0, Operation::Send, number));
            pause(ms(12_000));
        }),
        ("sleeps", |device| (0..101).for_each(|_| wait(device, 0))),
        ("event loop", |device| {
            device.expose();
            (0..101).for_each(|_| wait_in_loop(device, 0));
        }),
    ];
    for (name, program) in programs {
        let mut simulation = Simulation::new(2, Costs::default());
        let wakeups = idle_wakeups(&mut simulation, program);
        println!("{name}: {wakeups} wake-ups");
        assert_eq!(wakeups, 0, "{name}");
    }
}

#[test]
fn a_program_that_sleeps_is_woken_by_what_arrives() {
    let costs = Costs::default();
    // The background thread looks at a program that serves: two wake-ups each 4 ms. After 2.5 ms
    // without a packet it leaves the sockets to a thread that sleeps, which then wakes it once.
    // Beside an event loop it serves timers each millisecond.
    let kinds: [(&str, Receive, [u64; 3]); 2] =
        [("sleeps", wait, [12, 50, 505]), ("event loop", wait_in_loop, [35, 140, 660])];
    for (kind, receive, most) in kinds {
        for index in 0..6 {
            let (processors, most) = (1 + index / 3, most[index % 3]);
            let gap = [us(200), ms(1), ms(5)][index % 3];
            let mut simulation = Simulation::new(processors, costs);
            let device = Device::alone(&mut simulation);
            let measured = measure(&mut simulation, move |measured| {
                if kind == "event loop" {
                    device.expose();
                }
                for number in 1..=200 {
                    device.arrives(gap, Operation::Send, number);
                    let (arrives, before) = (now() + gap.as_nanos() as u64, wakeups(&device));
                    receive(&device, number);
                    if number > 100 {
                        let after = wakeups(&device);
                        measured(now() - arrives);
                        (0..3).for_each(|index| measured(after[index] - before[index]));
                    }
                }
            });
            let of = |index: usize| -> Vec<u64> {
                measured.iter().copied().skip(index).step_by(4).collect()
            };
            let delay = longest(&of(0));
            let background: u64 = of(2).iter().sum();
            println!(
                "{kind}, {processors} processors, every {gap:?}: {delay} ns, \
                 {background} other wake-ups for 100"
            );
            assert!(delay < costs.wakeup + costs.packet + costs.receive + costs.send + BESIDE);
            assert!(of(1).iter().all(|&wakeups| wakeups == 1), "{:?}", of(1));
            assert!(of(3).iter().all(|&finds| finds == 0), "{:?}", of(3));
            assert!(background <= most, "{background} of {most}");
        }
    }
}

/// Wake-ups of the program and of the background thread, and times that this has found packets.
fn wakeups(device: &Device) -> [u64; 3] {
    [figures("program").wakeups, figures("a").wakeups, device.finds()]
}

/// Longest time from a post to its send call, of bursts before `then`.
fn corked_for(processors: usize, burners: usize, costs: Costs, then: fn(Duration)) -> u64 {
    let mut simulation = Simulation::new(processors, costs);
    let device = Device::alone(&mut simulation);
    (0..burners).for_each(|_| simulation.burner());
    let sent = device.clone();
    let posted = measure(&mut simulation, move |measured| {
        then(ms(20));
        for round in 0..10 {
            let _ = device.poll(0);
            for number in 3 * round..3 * round + 3 {
                measured(now());
                device.post(0, Operation::Send, number);
            }
            then(ms(20));
        }
    });
    let sent = sent.sent().requests;
    assert_eq!(sent.len(), posted.len());
    let times: Vec<_> = sent.iter().map(|&(number, at)| at - posted[number as usize]).collect();
    longest(&times)
}

#[test]
fn corked_requests_leave_in_time() {
    let costs = Costs::default();
    let bound = CORK_TIMER + costs.wakeup + costs.send + 2 * BESIDE;
    for (name, then) in [("works", work as fn(Duration)), ("sleeps", pause)] {
        let longest = corked_for(2, 0, costs, then);
        println!("the program {name}: {longest} ns");
        assert!(longest > CORK_TIMER && longest < bound, "{longest} ns");
        for (processors, burners) in [(1, 1), (1, 3), (2, 3)] {
            let [late, soon] =
                [costs, short_slices()].map(|it| corked_for(processors, burners, it, then));
            println!("{burners} others, {processors} processors: {late} ns, {soon} ns");
            assert!(soon < bound, "{soon} ns");
            assert!(late < bound + (1 + burners as u64) * costs.slice, "{late} ns");
        }
    }
}

#[test]
fn a_program_that_is_preempted_is_not_absent() {
    for (processors, burners) in [(1, 1), (1, 3), (2, 4)] {
        for costs in [Costs::default(), short_slices()] {
            let mut simulation = Simulation::new(processors, costs);
            let device = Device::alone(&mut simulation);
            (0..burners).for_each(|_| simulation.burner());
            let counters = device.clone();
            let slept = measure(&mut simulation, move |measured| {
                (1..=600).for_each(|n| device.arrives(us(500 * n), Operation::Send, n));
                let mut received = 0;
                let mut before = now();
                while received < 600 {
                    received += u64::from(device.poll(0).is_some());
                    measured(now() - before);
                    before = now();
                }
            });
            let (slept, finds, assists) = (longest(&slept), counters.finds(), counters.assists());
            println!("{burners} others on {processors}: away {slept} ns, {finds} finds");
            assert!(slept > ABSENT, "it was never preempted");
            assert_eq!(assists, 0, "taken for absent; {finds} finds");
        }
    }
}

#[test]
fn event_loops_exchange_messages() {
    let least = [(4, 1, 100_000), (4, 2, 45_000), (20, 1, 130_000), (20, 2, 210_000)];
    for (connections, processors, least) in least {
        let mut simulation = Simulation::new(processors, Costs::default());
        let [a, b] = Device::pair(&mut simulation, connections);
        [&a, &b].into_iter().for_each(Device::expose);
        simulation.program("peer", move || _ = echo(&b, ms(80)));
        let rounds = measure(&mut simulation, move |measured| {
            (0..connections).for_each(|queue| a.post(queue, Operation::Send, 1));
            echo(&a, ms(20)); // until the engine knows the event loop
            let before = a.finds();
            measured(echo(&a, ms(50)));
            measured(a.finds() - before);
        });
        let (rate, finds) = (rounds[0] * 20, rounds[1]);
        println!(
            "{connections} connections, {processors} processors: {rate} round trips a second, {finds} other finds"
        );
        assert_eq!(finds, 0);
        assert!(rate > least, "{rate} round trips a second");
    }
}

#[test]
fn the_program_receives_once_its_event_loop_begins() {
    for processors in [1, 2] {
        let mut simulation = Simulation::new(processors, Costs::default());
        let device = Device::alone(&mut simulation);
        device.expose();
        let spun = measure(&mut simulation, move |measured| {
            (1..=500).for_each(|n| device.arrives(us(30 * n), Operation::Send, n));
            pause(ms(3)); // the background thread receives
            device.arm(0);
            let (start, mut ran) = (now(), figures("a").ran);
            while now() - start < 8_000_000 {
                for queue in device.sleep_in_loop(Some(ms(1))) {
                    if device.take(queue) {
                        device.arm(queue);
                        while device.poll(queue).is_some() {}
                    }
                }
                if now() - start < 5_000_000 {
                    ran = figures("a").ran;
                }
            }
            measured((figures("a").ran - ran).as_nanos() as u64);
        });
        println!("{processors} processors: {} ns of 3 ms", spun[0]);
        assert!(spun[0] < 400_000, "{} ns", spun[0]);
    }
}

/// WRITEs in 10 ms of threads that post one and poll until it is acknowledged, on two processors;
/// the peer polls on a third.
fn writes(threads: usize) -> u64 {
    let mut simulation = Simulation::new(3, Costs::default());
    let [a, b] = Device::pair(&mut simulation, threads);
    let is_over = |start: u64| now() - start > 10_000_000;
    simulation.program("peer", move || {
        let start = now();
        while !is_over(start) {
            let _ = b.poll(0);
        }
    });
    let (sender, counts) = mpsc::channel();
    let device = Arc::new(a);
    for queue in 0..threads {
        let (device, sender) = (device.clone(), sender.clone());
        simulation.program("thread", move || {
            let (start, mut count) = (now(), 0);
            while !is_over(start) {
                device.post(queue, Operation::Write, count + 1);
                while !is_over(start) {
                    if device.poll(queue).is_some() {
                        count += 1;
                        break;
                    }
                }
            }
            sender.send(count).unwrap();
        });
    }
    drop(sender);
    simulation.run();
    counts.iter().sum()
}

#[test]
fn threads_that_poll_and_post_gain_from_a_second_processor() {
    let one = writes(1);
    for threads in [16, 64] {
        let all = writes(threads);
        println!("{threads} threads: {all} WRITEs, one: {one}");
        assert!(all * 4 > one * 5, "{threads} threads: {all} WRITEs, one: {one}");
    }
}

/// Responds to messages of four connections for a time; returns their number.
fn echo(device: &Device, time: Duration) -> u64 {
    let (start, mut count) = (now(), 0);
    while now() - start < time.as_nanos() as u64 {
        for queue in device.sleep_in_loop(Some(ms(10))) {
            if !device.take(queue) {
                continue;
            }
            device.arm(queue);
            while let Some(completion) = device.poll(queue) {
                if matches!(completion, Completion::Received(_)) {
                    count += 1;
                    device.post(queue, Operation::Send, count);
                }
            }
        }
    }
    count
}

#[test]
fn a_simulation_is_the_same_each_time() {
    let run = || {
        let mut simulation = Simulation::new(2, Costs::default());
        let [a, b] = Device::pair(&mut simulation, 4);
        [&a, &b].into_iter().for_each(Device::expose);
        simulation.burner();
        simulation.program("peer", move || _ = echo(&b, ms(20)));
        measure(&mut simulation, move |_| {
            (0..4).for_each(|queue| a.post(queue, Operation::Send, 1));
            echo(&a, ms(10));
        });
        format!("{simulation:?}")
    };
    assert_eq!(run(), run());
}
