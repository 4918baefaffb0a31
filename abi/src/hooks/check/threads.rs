//! Which threads can still act, by the kernel's states.
//!
//! Read first: proc(5), `/proc/pid/task/tid/syscall` and the `tfd` lines of `/proc/pid/fdinfo`.

use std::{
    ffi::{c_int, c_long},
    fs::{self, File},
    mem,
    os::unix::fs::FileExt,
    path::Path,
    process,
};

/// Prefix of this library's thread names.
const OWN: &str = "roce";
/// Most descriptors read per call.
const MOST: usize = 4096;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Thread {
    pub(super) id: u32,
    /// System call and arguments; empty while running.
    call: Vec<u64>,
    /// Context switches.
    switches: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    /// Runs, or sleeps for a time.
    GoesOn,
    /// Waits without a limit.
    WaitsForThread,
    /// A descriptor may wake it. `once`: of these, epoll reports an event once (`EPOLLET`,
    /// `EPOLLONESHOT`).
    WaitsFor { descriptors: Vec<c_int>, once: Vec<c_int>, is_limited: bool },
    /// An event outside the process may wake it.
    Blocked,
}

/// `None` if unreadable, or if a timer's signal may wake a thread.
pub(super) fn all() -> Option<Vec<Thread>> {
    // SAFETY: Zeros are valid.
    let mut timer: libc::itimerval = unsafe { mem::zeroed() };
    // SAFETY: `timer` is writable.
    let known = unsafe { libc::getitimer(libc::ITIMER_REAL, &raw mut timer) } == 0;
    if !known || (timer.it_value.tv_sec, timer.it_value.tv_usec) != (0, 0) {
        return None;
    }
    let mut found = Vec::new();
    for thread in fs::read_dir("/proc/self/task").ok()?.filter_map(Result::ok) {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        let id = thread.file_name().to_str()?.parse().ok()?;
        match (name.starts_with(OWN), id == process::id()) {
            (true, true) => return None, // this library's threads have its name
            (true, false) => {}
            (false, _) => found.push(Thread::read(id)),
        }
    }
    Some(found)
}

/// Keeps unchanged threads: their states held at one time.
pub(super) fn still(seen: Vec<Thread>) -> Vec<Thread> {
    seen.into_iter().filter(|thread| *thread == Thread::read(thread.id)).collect()
}

/// True if a thread waits for another.
pub(super) fn any_joins() -> bool {
    let waits = |thread: &Thread| thread.doing() == Activity::WaitsForThread;
    all().is_some_and(|threads| threads.iter().any(waits))
}

pub(super) fn is_alone() -> bool {
    all().is_some_and(|threads| threads.len() == 1)
}

pub(super) fn is_gone(id: u32) -> bool {
    !Path::new(&format!("/proc/self/task/{id}")).exists()
}

pub(super) fn waits_for(id: u32, descriptor: c_int) -> bool {
    Thread::read(id).doing().is_for(descriptor)
}

pub(super) fn this() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

impl Thread {
    fn read(id: u32) -> Self {
        let read = |file| fs::read_to_string(format!("/proc/self/task/{id}/{file}"));
        let line = read("syscall").unwrap_or_default();
        let number = |word: &str| match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(), // -1: no system call
        };
        let call = line.split_whitespace().map(number).collect::<Option<_>>().unwrap_or_default();
        let status = read("status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Self { id, call, switches: line.and_then(|number| number.trim().parse().ok()) }
    }

    pub(super) fn doing(&self) -> Activity {
        let [number, arguments @ ..] = &self.call[..] else { return Activity::GoesOn };
        let at = |index: usize| arguments.get(index).copied().unwrap_or_default();
        let [first, second, third, fourth, fifth] = [0, 1, 2, 3, 4].map(at);
        let waits = matches!(second as c_int & !FUTEX_FLAGS, 0 | 6 | 9 | 13);
        let poll = || polled(first, second as usize);
        let select = || selected(first as usize, [second, third, fourth]);
        let mut once = Vec::new();
        let mut epoll = || registered(first as c_int, &mut once);
        let (descriptors, is_limited) = match *number as c_long {
            libc::SYS_futex if waits && fourth == 0 => return Activity::WaitsForThread,
            libc::SYS_futex | libc::SYS_nanosleep | libc::SYS_clock_nanosleep => {
                return Activity::GoesOn;
            }
            libc::SYS_ppoll => (poll(), third != 0),
            libc::SYS_pselect6 => (select(), fifth != 0),
            libc::SYS_epoll_pwait => (epoll(), fourth as c_int >= 0),
            libc::SYS_epoll_pwait2 => (epoll(), fourth != 0),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => (poll(), third as c_int >= 0),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => (select(), fifth != 0),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => (epoll(), fourth as c_int >= 0),
            _ => return Activity::Blocked,
        };
        match descriptors {
            Some(descriptors) => Activity::WaitsFor { descriptors, once, is_limited },
            None => Activity::Blocked,
        }
    }
}

impl Activity {
    pub(super) fn is_for(&self, descriptor: c_int) -> bool {
        matches!(self, Self::WaitsFor { descriptors, .. } if descriptors.contains(&descriptor))
    }
}

/// `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME`. Without them 0, 6, 9 and 13 wait: `FUTEX_WAIT`,
/// `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`, `FUTEX_LOCK_PI2`.
const FUTEX_FLAGS: c_int = 128 | 256;

/// Reads memory, perhaps unmapped.
fn memory(address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, address).ok()?;
    Some(bytes)
}

fn polled(address: u64, number: usize) -> Option<Vec<c_int>> {
    const SIZE: usize = size_of::<libc::pollfd>();
    let bytes = memory(address, number.min(MOST) * SIZE)?;
    let descriptor = |entry: &[u8]| entry.first_chunk().map(|first| c_int::from_ne_bytes(*first));
    bytes.chunks(SIZE).map(descriptor).collect()
}

/// In any of the sets, whose addresses may be 0.
fn selected(limit: usize, sets: [u64; 3]) -> Option<Vec<c_int>> {
    let limit = limit.min(MOST);
    let mut any = vec![0_u8; limit.div_ceil(8)];
    for address in sets.into_iter().filter(|address| *address != 0) {
        let set = memory(address, any.len())?;
        any.iter_mut().zip(set).for_each(|(any, byte)| *any |= byte);
    }
    let is_set = |at: &usize| any.get(at / 8).is_some_and(|byte| byte & (1 << (at % 8)) != 0);
    Some((0..limit).filter(is_set).filter_map(|at| at.try_into().ok()).collect())
}

/// Adds to `once` those that are edge-triggered, or disabled after an event.
fn registered(epoll: c_int, once: &mut Vec<c_int>) -> Option<Vec<c_int>> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{epoll}")).ok()?;
    let mut all = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("tfd:")) {
        let mut words = line.split_whitespace();
        let descriptor = words.next()?.parse().ok()?;
        let events = u32::from_str_radix(words.nth(1)?, 16).ok()?.cast_signed();
        if events & libc::EPOLLET != 0 || events & libc::EPOLLIN == 0 {
            once.push(descriptor);
        }
        all.push(descriptor);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsRawFd, sync::mpsc, thread};

    use super::*;

    fn doing(wait: impl FnOnce() + Send + 'static, end: impl FnOnce()) -> Activity {
        let (say, hear) = mpsc::channel();
        let other = thread::spawn(move || {
            say.send(this()).unwrap();
            wait();
        });
        let id = hear.recv().unwrap();
        let found = loop {
            let seen = Thread::read(id);
            match (seen.doing(), &still(vec![seen])[..]) {
                (Activity::GoesOn, _) | (_, []) => thread::yield_now(),
                (found, _) => break found,
            }
        };
        end();
        other.join().unwrap();
        found
    }

    #[test]
    fn what_a_thread_waits_for_is_known() {
        let (said, heard) = mpsc::channel::<()>();
        let waits = move || {
            let _ = heard.recv();
        };
        assert_eq!(doing(waits, || drop(said)), Activity::WaitsForThread);

        for limit in [-1, 60_000] {
            let (reader, writer) = std::io::pipe().unwrap();
            let fd = reader.as_raw_fd();
            let wait = move || {
                let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: `wanted` is writable.
                unsafe { libc::poll(&raw mut wanted, 1, limit) };
                drop(reader);
            };
            let wanted = Activity::WaitsFor {
                descriptors: vec![fd],
                once: Vec::new(),
                is_limited: limit >= 0,
            };
            assert_eq!(doing(wait, || drop(writer)), wanted);
        }
    }

    #[test]
    fn descriptors_of_select_and_epoll_are_known() {
        let (reader, writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        let wait = move || {
            // SAFETY: `set` is writable.
            unsafe {
                let mut set: libc::fd_set = mem::zeroed();
                libc::FD_SET(fd, &raw mut set);
                let none = std::ptr::null_mut();
                libc::select(fd + 1, &raw mut set, none, none, std::ptr::null_mut());
            }
            drop(reader);
        };
        let wanted = |fd, once: &[c_int]| Activity::WaitsFor {
            descriptors: vec![fd],
            once: once.to_vec(),
            is_limited: false,
        };
        assert_eq!(doing(wait, || drop(writer)), wanted(fd, &[]));

        for mode in [0, libc::EPOLLET] {
            let (reader, writer) = std::io::pipe().unwrap();
            let fd = reader.as_raw_fd();
            let wait = move || {
                // SAFETY: `event` is writable.
                unsafe {
                    let epoll = libc::epoll_create1(0);
                    let events = (libc::EPOLLIN | mode).cast_unsigned();
                    let mut event = libc::epoll_event { events, u64: 0 };
                    libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event);
                    libc::epoll_wait(epoll, &raw mut event, 1, -1);
                    libc::close(epoll);
                }
                drop(reader);
            };
            let once = if mode == 0 { vec![] } else { vec![fd] };
            assert_eq!(doing(wait, || drop(writer)), wanted(fd, &once));
        }
    }
}
