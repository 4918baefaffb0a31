//! Shows where a test hangs, and aborts the program.
//!
//! libtest gives each test a thread. For a thread that is too old, the watchdog prints all threads'
//! stacks (system calls, if they block all signals), the engines' state and started
//! [programs](programs). With `--test-threads=1` tests run on the main thread, which is not
//! watched.

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

/// Seconds; `ROCE_TEST_SECONDS` overrides it.
const LIMIT: u64 = 180;
/// The watchdog's and the library's threads, as old as a device.
const OTHERS: [&str; 2] = ["watchdog", "roce"];

/// `describe` reports this process's engines.
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
        // an unnamed thread is the main thread or a sanitizer's
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

struct Thread {
    number: i32,
    name: String,
}

fn threads() -> Vec<Thread> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut numbers: Vec<i32> =
        tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let name = |number| about(number, "comm").trim_end().to_owned();
    numbers.into_iter().map(|number| Thread { number, name: name(number) }).collect()
}

/// A /proc file of a thread; empty if it has ended.
fn about(number: i32, file: &str) -> String {
    fs::read_to_string(format!("/proc/self/task/{number}/{file}")).unwrap_or_default()
}

impl Thread {
    /// In seconds.
    fn age(&self) -> u64 {
        let stat = about(self.number, "stat");
        // after the name, which may hold anything, the 20th field is the start time in ticks
        let started: Option<u64> = stat
            .rsplit_once(')')
            .and_then(|(_, fields)| fields.split_whitespace().nth(19)?.parse().ok());
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let now = uptime.split('.').next().and_then(|seconds| seconds.parse().ok());
        // SAFETY: numbers only
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

    fn print_stack(&self) {
        let signal = signal();
        if self.blocks(signal) {
            return;
        }
        PRINTING.store(self.number, Ordering::SeqCst);
        // SAFETY: numbers only; the handler is set
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

/// Thread to print its stack; 0: none.
static PRINTING: AtomicI32 = AtomicI32::new(0);

fn signal() -> i32 {
    libc::SIGRTMIN() + 7
}

/// Async-signal-unsafe calls are acceptable before the abort; if this blocks, the watchdog does
/// not.
extern "C" fn print_own_stack(_signal: i32) {
    say(&Backtrace::force_capture().to_string());
    PRINTING.store(0, Ordering::SeqCst);
}

/// Past libtest's capture.
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
