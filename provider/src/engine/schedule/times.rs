//! Times and counts of the schedule; docs/performance.md has the measurements.

use std::time::Duration;

const fn us(time: u64) -> Duration {
    Duration::from_micros(time)
}

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

// Corking.

/// Corked packets leave with the next call after this.
pub(in crate::engine) const CORK: Duration = us(20);
/// Delay of the flushing timer; a posting program comes earlier.
pub(in crate::engine) const CORK_TIMER: Duration = us(60);
/// Delay of the acknowledgement timer: ping-pong traffic rarely resets it, which costs a virtual
/// machine some microseconds.
pub(in crate::engine) const ACK_TIMER: Duration = us(500);
/// Longest wait of acknowledgements for a preempted program; peers retry after some milliseconds.
pub(in crate::engine) const ACK_LONGEST: Duration = ms(5);
/// Maximum gap between close posts: a few times the cost of a send call.
pub(in crate::engine) const CLOSELY: Duration = us(10);
/// Poll interval below which a program counts as polling.
pub(in crate::engine) const POLLS: Duration = ms(1);
/// Unserved time after which a posting program serves: thousands of posts may come before its next
/// poll.
pub(in crate::engine) const UNSERVED: Duration = us(500);
/// Largest corked request in bytes: one packet at the largest path MTU. Longer requests end a run
/// with a shorter packet.
pub(in crate::engine) const LARGEST: usize = 4 * 1024;
/// Approximate header bytes per request.
pub(in crate::engine) const HEADERS: usize = 64;
/// Corking pause after a timer flush, first and longest: costs such a program 1 %; a program that
/// only paused recovers soon.
pub(in crate::engine) const UNCORKED: [Duration; 2] = [us(500), ms(10)];
/// Requests sent together while the program has events to take: the peer handles them meanwhile.
/// With 20 connections on two processors 8 gives 13 % more round trips than all at the end.
pub(in crate::engine) const TOGETHER: usize = 8;
/// Pause of corking for events after a timer flush, first and longest.
pub(in crate::engine) const APART: [Duration; 2] = [ms(100), Duration::from_secs(10)];
/// Timely flushes after which a late one is forgotten.
pub(in crate::engine) const IN_TIME: u32 = 8;

// Spinning.

/// Spin time after the last packet: sleep and wakeup take longer than most gaps.
pub(in crate::engine) const LINGER: Duration = us(50);
/// Longest spin of the background thread without other work.
pub(in crate::engine) const LINGER_MOST: Duration = ms(10);
/// A longer yield of the background thread ran another thread, perhaps the program's.
pub(in crate::engine) const SWITCH: Duration = us(5);
/// A longer yield ran a busy thread; a peer's program on the same processor responds sooner.
pub(in crate::engine) const SLICE: Duration = us(500);
/// Time without spinning after a yield to others, first and longest: they may keep the processor
/// for milliseconds.
pub(in crate::engine) const CROWDED: [Duration; 2] = [ms(10), Duration::from_secs(1)];
/// Maximum idle yields between two busy ones under contention; rarer ones are background load.
pub(in crate::engine) const RARE_YIELDS: u32 = 4;
/// Idle yields after which contention is over.
pub(in crate::engine) const ALONE_YIELDS: u32 = 16;
/// Empty polls before a program's thread yields, with and without contention. With 256 threads on
/// two processors 8 gives 2 to 3 times the throughput.
pub(in crate::engine) const YIELD_AFTER: [u32; 2] = [8, 64];

// Duties of the background thread.

/// Interval of checks that a program still polls.
pub(in crate::engine) const CHECK_INTERVAL: Duration = ms(1);
/// Checks before they become rarer; each costs the program time.
pub(in crate::engine) const STEADY: u32 = 16;
/// Interval of the rarer checks.
pub(in crate::engine) const CHECK_INTERVAL_STEADY: Duration = ms(4);
/// A polling program that has not served for this long is absent.
pub(in crate::engine) const ABSENT: Duration = us(250);
/// Assistance after an absence delayed work, first and longest.
pub(in crate::engine) const ASSISTS: [Duration; 2] = [ms(20), Duration::from_secs(1)];
/// Consecutive absences of an event loop before the thread serves; after one or two it may await a
/// processor.
pub(in crate::engine) const ABSENCES: u32 = 4;
/// Consecutive needless wakeups after which an event loop is not woken.
pub(in crate::engine) const EMPTY_WAKEUPS: u64 = 16;
/// Pause of an event loop's wakeups while queue pairs are destroyed.
pub(in crate::engine) const LOOP_PAUSE: Duration = ms(20);

// Threads of the program that wait.

/// Longest service of a waiting thread without its result.
pub(in crate::engine) const SERVES: Duration = ms(10);
/// Time without serving while other threads poll, first and longest.
pub(in crate::engine) const POLLED: [Duration; 2] = [ms(10), Duration::from_secs(1)];
/// Waits without other threads after which none counts as polling.
pub(in crate::engine) const UNPOLLED: u32 = 16;
/// Time from the start of a wait in which the next is expected.
pub(in crate::engine) const RETURNS: Duration = ms(1);

// The lock.

/// Longest that a thread spins for the lock before it sleeps. At 20 µs, threads that poll and post
/// on two processors alternate with each request, which may halve their rate.
pub(in crate::engine) const LOCK_SPIN: Duration = us(8);
/// Longest that a thread leaves the lock to others.
pub(in crate::engine) const GIVE_WAY: Duration = us(100);
/// Part of it that spins.
pub(in crate::engine) const GIVE_WAY_SPIN: Duration = us(20);
/// No new turn starts after this while others want the lock.
pub(in crate::engine) const BUDGET: Duration = us(50);
/// No new runs are sent in a turn after this.
pub(in crate::engine) const SENDING: Duration = us(100);
/// Lock holds above this are too long.
pub(in crate::engine) const LONG_HOLD: Duration = us(200);
