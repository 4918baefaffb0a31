//! Every time and count that the schedule decides by, with its reason. Where a reason is a
//! measurement, docs/performance.md has it.

use std::time::Duration;

const fn us(time: u64) -> Duration {
    Duration::from_micros(time)
}

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

// Corking.

/// After so long what is corked leaves with the next call of the program.
pub(in crate::engine) const CORK: Duration = us(20);
/// After so long it leaves without a call: a program that goes on posting is there before.
pub(in crate::engine) const CORK_TIMER: Duration = us(60);
/// After so long acknowledgements leave without a call. To set a timer costs a virtual machine some
/// microseconds; while messages go back and forth it is set again that long before it wakes
/// anybody.
pub(in crate::engine) const ACK_TIMER: Duration = us(500);
/// The longest that acknowledgements wait for a program that others keep from the processor. Peers
/// ask again after some milliseconds.
pub(in crate::engine) const ACK_LONGEST: Duration = ms(5);
/// A post so soon after the last one follows it closely: a few times what a call that sends takes.
pub(in crate::engine) const CLOSELY: Duration = us(10);
/// A program that polls does so within this time.
pub(in crate::engine) const POLLS: Duration = ms(1);
/// After so long without service a program that posts one request after the other serves with a
/// post: it may have thousands of them to post before it polls again.
pub(in crate::engine) const UNSERVED: Duration = us(500);
/// Bytes of the largest request that is corked: what a packet has at the largest path MTU. A
/// request of several packets ends with a shorter one, with which a run ends, too.
pub(in crate::engine) const LARGEST: usize = 4 * 1024;
/// Bytes of headers, about, for each request.
pub(in crate::engine) const HEADERS: usize = 64;
/// Corking is off for this long after the timer had to flush: at first, and at most. Such a program
/// loses a hundredth of its time. A program that only paused is soon corked again.
pub(in crate::engine) const UNCORKED: [Duration; 2] = [us(500), ms(10)];
/// Events to take are no reason to wait for this long after the timer had to flush: at first, and
/// at most. One such wait in that time costs little.
pub(in crate::engine) const APART: [Duration; 2] = [ms(100), Duration::from_secs(10)];
/// Number of times that the program was there before the timer, after which that is forgotten.
pub(in crate::engine) const IN_TIME: u32 = 8;

// Spinning.

/// A thread looks for so long after the last packet before it sleeps: to sleep and to be woken
/// takes longer than most packets are apart.
pub(in crate::engine) const LINGER: Duration = us(50);
/// The longest that the background thread does so without attending to anything else.
pub(in crate::engine) const LINGER_MOST: Duration = ms(10);
/// A yield of the background thread that takes longer has let somebody else run: it may be the
/// program itself.
pub(in crate::engine) const SWITCH: Duration = us(5);
/// A yield that takes longer was to somebody who has enough to do. The peer's program, which may be
/// on the same processor, takes less to answer.
pub(in crate::engine) const SLICE: Duration = us(500);
/// A thread that has yielded to others sleeps at once for so long, at first and at most: they may
/// take milliseconds before it has the processor again.
pub(in crate::engine) const CROWDED: [Duration; 2] = [ms(10), Duration::from_secs(1)];
/// Number of yields to nobody between two to others, at most, if others want the processor:
/// somebody now and then, for a moment, is whoever shares the machine.
pub(in crate::engine) const RARE_YIELDS: u32 = 4;
/// Number of yields to nobody after which nobody else wants the processor any more.
pub(in crate::engine) const ALONE_YIELDS: u32 = 16;
/// Number of polls in vain after which a program's thread yields: as few as the first where others
/// want the processor, as many as the second where nobody does. With 256 threads on two processors
/// the first is worth 2 to 3 times the throughput, with four threads nothing.
pub(in crate::engine) const YIELD_AFTER: [u32; 2] = [8, 64];

// Duties of the background thread.

/// Time between two looks whether a program still polls.
pub(in crate::engine) const LOOK: Duration = ms(1);
/// Number of looks at a program that polls after which they become rarer: each costs the program
/// time.
pub(in crate::engine) const STEADY: u32 = 16;
/// Time between two of the rarer looks.
pub(in crate::engine) const LOOK_LESS: Duration = ms(4);
/// A program that polls serves within this time, else it is absent.
pub(in crate::engine) const ABSENT: Duration = us(250);
/// The thread assists a program that was absent while something waited for so long, at first and at
/// most.
pub(in crate::engine) const ASSISTS: [Duration; 2] = [ms(20), Duration::from_secs(1)];
/// Number of looks in a row at which a program's event loop is absent, after which the thread
/// serves. Once or twice it has perhaps been woken, and waits for a processor.
pub(in crate::engine) const ABSENCES: u32 = 4;
/// Number of times in a row that an event loop is woken without anything for it, after which it no
/// longer is.
pub(in crate::engine) const IN_VAIN: u64 = 16;
/// Time for which an event loop is not woken where queue pairs are destroyed.
pub(in crate::engine) const LOOP_PAUSE: Duration = ms(20);

// Threads of the program that wait.

/// The longest that such a thread serves without having what it waits for.
pub(in crate::engine) const SERVES: Duration = ms(10);
/// None serves for so long, at first and at most, while other threads of the program poll: they
/// serve, and it would only be woken for nothing.
pub(in crate::engine) const POLLED: [Duration; 2] = [ms(10), Duration::from_secs(1)];
/// Number of waits beside nobody after which no other thread polls any more.
pub(in crate::engine) const UNPOLLED: u32 = 16;
/// The next wait is to be expected within this time from the beginning of one.
pub(in crate::engine) const AGAIN: Duration = ms(1);

// The lock.

/// The longest that a thread leaves the lock to others that wait for it.
pub(in crate::engine) const GIVE_WAY: Duration = us(100);
/// It does so without leaving the processor for so long.
pub(in crate::engine) const GIVE_WAY_SPIN: Duration = us(20);
/// No further turn is begun after so long before others can have the lock.
pub(in crate::engine) const BUDGET: Duration = us(50);
/// No further runs are sent in a turn after so long.
pub(in crate::engine) const SENDING: Duration = us(100);
/// The lock should not be held for longer.
pub(in crate::engine) const LONG_HOLD: Duration = us(200);
