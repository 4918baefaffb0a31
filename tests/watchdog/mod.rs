//! A watchdog: a test that hangs says where, and ends the program.
//!
//! libtest gives each test a thread. Once one has lived too long, the watchdog prints the stack of
//! every thread of the process (of those that block all signals, the system call in which they
//! are), what the tests know of their engines, and the [programs](programs) that they have started,
//! and aborts. With `--test-threads=1` tests run on the main thread, which is as old as the
//! program; then it watches the threads of tests only.

pub(crate) mod programs;

use std::{
    backtrace::Backtrace,
    fs,
    io::Write,
    sync::{
        Once,
        atomic::{AtomicI32, Ordering},
    },
    thread,
    time::Duration,
};

/// Time after which a test hangs; `ROCE_TEST_SECONDS` sets another one.
const LIMIT: u64 = 180;
/// Name of the watchdog's own thread, and of those that the library starts: they are as old as a
/// device.
const OTHERS: [&str; 2] = ["watchdog", "roce"];

/// Starts the watchdog, once. `describe` tells what the engines of this process are doing.
pub(crate) fn start(describe: fn() -> String) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let limit = std::env::var("ROCE_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
        let limit = limit.unwrap_or(LIMIT);
        thread::Builder::new()
            .name(OTHERS[0].into())
            .spawn(move || watch(limit, describe))
            .unwrap();
    });
}

fn watch(limit: u64, describe: fn() -> String) {
    loop {
        thread::sleep(Duration::from_secs(1));
        // a thread without a name of its own is the main one, or a sanitizer's
        let program = about(std::process::id() as i32, "comm");
        let oldest = threads().into_iter().find(|thread| {
            thread.name != program.trim_end()
                && !OTHERS.contains(&thread.name.as_str())
                && thread.age() > limit
        });
        if let Some(thread) = oldest {
            report(&format!("the test {} has run for {limit} s", thread.name));
            say(&describe());
            programs::end_all();
            std::process::abort();
        }
    }
}

/// A thread of this process.
struct Thread {
    number: i32,
    name: String,
}

/// The threads of this process.
fn threads() -> Vec<Thread> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut numbers: Vec<i32> =
        tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let name = |number| about(number, "comm").trim_end().to_owned();
    numbers.into_iter().map(|number| Thread { number, name: name(number) }).collect()
}

/// A file of the kernel's about a thread; empty if it has ended.
fn about(number: i32, file: &str) -> String {
    fs::read_to_string(format!("/proc/self/task/{number}/{file}")).unwrap_or_default()
}

impl Thread {
    /// Seconds since it was started.
    fn age(&self) -> u64 {
        let stat = about(self.number, "stat");
        // behind the name, which may hold anything, the twentieth is the time of its start in ticks
        let started: Option<u64> = stat
            .rsplit_once(')')
            .and_then(|(_, fields)| fields.split_whitespace().nth(19)?.parse().ok());
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let now = uptime.split('.').next().and_then(|seconds| seconds.parse().ok());
        // SAFETY: takes a number and gives one
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
        match (started, now) {
            (Some(started), Some(now)) => u64::saturating_sub(now, started / ticks),
            _ => 0,
        }
    }

    fn blocks(&self, signal: i32) -> bool {
        let status = about(self.number, "status");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_none_or(|mask| mask & 1 << (signal - 1) != 0)
    }

    /// Has it print its stack, and waits for that.
    fn print_stack(&self) {
        let signal = signal();
        if self.blocks(signal) {
            return;
        }
        PRINTING.store(self.number, Ordering::SeqCst);
        // SAFETY: takes numbers; the handler is set
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), self.number, signal) };
        for _ in 0..200 {
            if PRINTING.load(Ordering::SeqCst) == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        say("  it prints nothing");
    }
}

/// Number of the thread that is to print its stack; 0: none.
static PRINTING: AtomicI32 = AtomicI32::new(0);

fn signal() -> i32 {
    libc::SIGRTMIN() + 7
}

/// On the thread whose stack it prints. The program is about to abort, so it may do what handlers
/// may not; if it waits for ever, the watchdog does not.
extern "C" fn print_own_stack(_signal: i32) {
    say(&Backtrace::force_capture().to_string());
    PRINTING.store(0, Ordering::SeqCst);
}

/// Prints past libtest, which keeps what tests print.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn report(why: &str) {
    say(&format!("watchdog: {why}"));
    let handler: extern "C" fn(i32) = print_own_stack;
    // SAFETY: the handler lives as long as the program
    unsafe { libc::signal(signal(), handler as libc::sighandler_t) };
    for thread in threads() {
        let Thread { number, name } = &thread;
        say(&format!(
            "thread {number} {name}: {} system call {}",
            about(*number, "wchan"),
            about(*number, "syscall").trim_end()
        ));
        if name != OTHERS[0] {
            thread.print_stack();
        }
    }
}
