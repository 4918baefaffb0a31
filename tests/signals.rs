//! Faults and the program's signal handlers, which are per process: each case reruns this program.

use std::{
    env,
    ffi::{c_int, c_void},
    io, mem,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus},
    ptr::null_mut,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use roce::{Access, ForeignMemory, Memory, MemoryFault};

use crate::errors::fail;

const CASE: &str = "ROCE_TEST_CASE";
/// A multiple of any page size.
const PAGE: usize = 64 << 10;
const ALL: Access = Access::LOCAL_WRITE;
/// Longer than the library assumes its handler to be first.
const A_WHILE: Duration = Duration::from_millis(30);

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Reruns the calling test in its own process: its status, or `None` in there.
fn in_child(name: &str) -> Option<ExitStatus> {
    if env::var(CASE).is_ok_and(|case| case == name) {
        return None;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", crate::own_test::named(&format!("signals::{name}")), "--test-threads=1"])
        .env(CASE, name);
    // SAFETY: setrlimit may be called between fork and exec
    unsafe {
        command.pre_exec(|| {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            Ok(())
        })
    };
    let output = command.spawn().unwrap();
    Some(wait(output))
}

/// A handler may loop.
fn wait(mut child: std::process::Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

struct Pages(*mut u8);

impl Pages {
    fn new() -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping
        let start = unsafe {
            libc::mmap(null_mut(), 2 * PAGE, rights, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self(start.cast())
    }

    fn memory(&self) -> ForeignMemory {
        // SAFETY: no reference to these pages is ever made
        let memory = unsafe { ForeignMemory::new(self.0, 2 * PAGE, ALL) }.unwrap();
        self.protect(libc::PROT_NONE);
        memory
    }

    fn protect(&self, rights: c_int) {
        // SAFETY: a page of this mapping
        assert_eq!(unsafe { libc::mprotect(self.0.add(PAGE).cast(), PAGE, rights) }, 0);
    }

    fn touch(&self) {
        // SAFETY: none; the fault is the test
        unsafe { self.0.add(PAGE + 7).write_volatile(1) };
    }
}

/// A fault in each of our routines.
fn survive(memory: &ForeignMemory) {
    let mut bytes = [0; 100];
    assert_eq!(memory.read_at(PAGE as u64 - 50, &mut bytes), Err(MemoryFault));
    assert_eq!(memory.write_at(PAGE as u64 - 50, &bytes), Err(MemoryFault));
    assert_eq!(memory.load_u64(PAGE as u64), Err(MemoryFault));
    assert_eq!(memory.store_u64(PAGE as u64, 1), Err(MemoryFault));
    assert_eq!(memory.compare_swap(PAGE as u64, 0, 1), Err(MemoryFault));
    assert_eq!(memory.fetch_add(PAGE as u64, 1), Err(MemoryFault));
    assert_eq!(memory.write_at(0, &bytes), Ok(()));
}

fn set_action(signal: c_int, handler: usize, flags: c_int) -> libc::sigaction {
    // SAFETY: all zero is a valid value; these handlers can be called at any time
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) =
            (mem::zeroed(), mem::zeroed());
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, &mut before), 0);
        before
    }
}

fn set_handler(signal: c_int, handler: Handler) -> libc::sigaction {
    set_action(signal, handler as usize, libc::SA_SIGINFO)
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static CODE: AtomicUsize = AtomicUsize::new(0);
static WHERE: AtomicUsize = AtomicUsize::new(0);
static PAGES: AtomicUsize = AtomicUsize::new(0);

extern "C" fn repair(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel's
    unsafe {
        CODE.store((*info).si_code as usize, Ordering::Relaxed);
        WHERE.store((*info).si_addr() as usize, Ordering::Relaxed);
        libc::mprotect(
            (PAGES.load(Ordering::Relaxed) + PAGE) as *mut _,
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
        );
    }
}

#[test]
fn the_programs_own_handler_is_called_for_its_own_faults() {
    if let Some(status) = in_child("the_programs_own_handler_is_called_for_its_own_faults") {
        assert!(status.success(), "{status}");
        return;
    }
    set_handler(libc::SIGSEGV, repair);
    let pages = Pages::new();
    PAGES.store(pages.0 as usize, Ordering::Relaxed);
    let memory = pages.memory();
    survive(&memory);
    assert_eq!(CALLS.load(Ordering::Relaxed), 0);
    pages.touch();
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    assert_eq!(CODE.load(Ordering::Relaxed), 2, "SEGV_ACCERR");
    assert_eq!(WHERE.load(Ordering::Relaxed), pages.0 as usize + PAGE + 7);
    assert_eq!(memory.write_at(PAGE as u64, &[1]), Ok(()));
    pages.protect(libc::PROT_NONE);
    survive(&memory);
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
}

#[test]
fn a_fault_of_a_program_without_a_handler_kills() {
    if let Some(status) = in_child("a_fault_of_a_program_without_a_handler_kills") {
        assert_eq!(status.signal(), Some(libc::SIGSEGV));
        return;
    }
    set_action(libc::SIGSEGV, libc::SIG_DFL, 0);
    let pages = Pages::new();
    survive(&pages.memory());
    pages.touch();
}

/// Without this library the kernel does not let it be ignored, either.
#[test]
fn a_fault_that_the_program_ignores_kills() {
    if let Some(status) = in_child("a_fault_that_the_program_ignores_kills") {
        assert_eq!(status.signal(), Some(libc::SIGSEGV));
        return;
    }
    set_action(libc::SIGSEGV, libc::SIG_IGN, 0);
    let pages = Pages::new();
    let memory = pages.memory();
    survive(&memory);
    // sent, it is ignored
    // SAFETY: a number
    unsafe { libc::raise(libc::SIGSEGV) };
    survive(&memory);
    pages.touch();
}

#[test]
fn a_signal_that_is_sent_kills() {
    if let Some(status) = in_child("a_signal_that_is_sent_kills") {
        assert_eq!(status.signal(), Some(libc::SIGBUS));
        return;
    }
    set_action(libc::SIGBUS, libc::SIG_DFL, 0);
    let pages = Pages::new();
    survive(&pages.memory());
    // SAFETY: numbers
    unsafe { libc::kill(libc::getpid(), libc::SIGBUS) };
    thread::sleep(Duration::from_secs(10));
}

extern "C" fn leave(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: it ends the process
    unsafe { libc::_exit(42) };
}

#[test]
fn a_handler_that_comes_later_and_passes_nothing_on() {
    if let Some(status) = in_child("a_handler_that_comes_later_and_passes_nothing_on") {
        assert_eq!(status.code(), Some(42));
        return;
    }
    let pages = Pages::new();
    let memory = pages.memory();
    set_handler(libc::SIGSEGV, leave);
    thread::sleep(A_WHILE);
    survive(&memory);
    set_handler(libc::SIGSEGV, leave);
    // another registration notices at once
    let other = Pages::new();
    survive(&other.memory());
    survive(&memory);
    pages.touch();
}

static BEFORE: AtomicUsize = AtomicUsize::new(0);
static DEPTH: AtomicUsize = AtomicUsize::new(0);

/// Passes faults to the previous handler.
extern "C" fn polite(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    if DEPTH.fetch_add(1, Ordering::Relaxed) > 1 {
        // SAFETY: it ends the process, before the stack does
        unsafe { libc::_exit(1) };
    }
    // SAFETY: a handler that was there
    let before = unsafe { mem::transmute::<usize, Handler>(BEFORE.load(Ordering::Relaxed)) };
    before(signal, info, context);
    DEPTH.fetch_sub(1, Ordering::Relaxed);
}

#[test]
fn a_handler_that_comes_later_and_passes_on_to_ours() {
    if let Some(status) = in_child("a_handler_that_comes_later_and_passes_on_to_ours") {
        assert_eq!(status.code(), Some(42));
        return;
    }
    set_handler(libc::SIGSEGV, leave);
    let pages = Pages::new();
    let memory = pages.memory();
    BEFORE.store(set_handler(libc::SIGSEGV, polite).sa_sigaction, Ordering::Relaxed);
    survive(&memory); // perhaps first, passing on to ours
    thread::sleep(A_WHILE);
    survive(&memory); // ours, then the polite handler
    let calls = CALLS.load(Ordering::Relaxed);
    survive(&memory);
    assert_eq!(CALLS.load(Ordering::Relaxed), calls);
    pages.touch(); // ours, the polite handler, ours, the first
}

#[test]
fn round_in_circles_to_the_default() {
    if let Some(status) = in_child("round_in_circles_to_the_default") {
        assert_eq!(status.signal(), Some(libc::SIGSEGV));
        return;
    }
    set_action(libc::SIGSEGV, libc::SIG_DFL, 0);
    let pages = Pages::new();
    let memory = pages.memory();
    BEFORE.store(set_handler(libc::SIGSEGV, polite).sa_sigaction, Ordering::Relaxed);
    thread::sleep(A_WHILE);
    survive(&memory);
    pages.touch();
}

#[test]
fn a_handler_to_be_called_once() {
    if let Some(status) = in_child("a_handler_to_be_called_once") {
        assert_eq!(status.signal(), Some(libc::SIGSEGV));
        return;
    }
    set_action(libc::SIGSEGV, repair as *const () as usize, libc::SA_SIGINFO | libc::SA_RESETHAND);
    let pages = Pages::new();
    PAGES.store(pages.0 as usize, Ordering::Relaxed);
    survive(&pages.memory());
    pages.touch();
    pages.protect(libc::PROT_NONE);
    if CALLS.load(Ordering::Relaxed) == 1 {
        pages.touch();
    }
}

extern "C" fn one_of_many<const N: usize>(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    leave(0, null_mut(), null_mut());
}

/// Copies then go through the kernel: by a pipe if the usual call is refused.
#[test]
fn a_program_that_always_installs_its_handler_first() {
    if let Some(status) = in_child("a_program_that_always_installs_its_handler_first") {
        assert_eq!(status.code(), Some(42));
        return;
    }
    let pages = Pages::new();
    let memory = pages.memory();
    let many: [Handler; 9] = [
        one_of_many::<0>,
        one_of_many::<1>,
        one_of_many::<2>,
        one_of_many::<3>,
        one_of_many::<4>,
        one_of_many::<5>,
        one_of_many::<6>,
        one_of_many::<7>,
        one_of_many::<8>,
    ];
    for handler in many {
        set_handler(libc::SIGSEGV, handler);
        thread::sleep(A_WHILE);
        survive(&memory);
    }
    let copy = |words: &[u8]| {
        assert_eq!(memory.write_at(13, words), Ok(()));
        let mut bytes = vec![0; words.len()];
        assert_eq!(memory.read_at(13, &mut bytes), Ok(()));
        assert_eq!(bytes, words);
    };
    copy(b"through the kernel");
    for call in [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev] {
        if let Err(error) = fail(call, libc::EPERM) {
            println!("calls cannot be refused here: {error}");
        }
    }
    copy(b"through a pipe");
    assert_eq!(memory.fetch_add(0, 1), Err(MemoryFault));
    pages.touch();
}

#[test]
fn a_thread_that_blocks_the_signals() {
    if let Some(status) = in_child("a_thread_that_blocks_the_signals") {
        assert!(status.success(), "{status}");
        return;
    }
    let pages = Pages::new();
    let memory = pages.memory();
    let mask = |how: c_int, set: *const libc::sigset_t| {
        // SAFETY: sets that are initialised
        unsafe {
            let mut before = mem::zeroed();
            assert_eq!(
                libc::pthread_sigmask(how, set, &mut before),
                0,
                "{}",
                io::Error::last_os_error()
            );
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGUSR1]
                .map(|signal| libc::sigismember(&before, signal) == 1)
        }
    };
    // SAFETY: it is filled
    let (every, one) = unsafe {
        let (mut every, mut one) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&mut every);
        libc::sigaddset(&mut one, libc::SIGBUS);
        (every, one)
    };
    mask(libc::SIG_SETMASK, &one);
    survive(&memory);
    assert_eq!(mask(libc::SIG_SETMASK, &every), [false, true, false]);
    survive(&memory);
    assert_eq!(mask(libc::SIG_BLOCK, &one), [true; 3]);
}

/// Address of a variable of [`where_am_i`].
static STACK: AtomicUsize = AtomicUsize::new(0);

extern "C" fn where_am_i(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    STACK.store(&raw const signal as usize, Ordering::SeqCst);
    repair(signal, info, context);
}

#[test]
fn a_thread_with_a_stack_for_handlers() {
    if let Some(status) = in_child("a_thread_with_a_stack_for_handlers") {
        return assert!(status.success(), "{status}");
    }
    const SIZE: usize = 16 << 10;
    set_handler(libc::SIGSEGV, where_am_i);
    let (foreign, own) = (Pages::new(), Pages::new());
    PAGES.store(own.0 as usize, Ordering::Relaxed);
    let memory = foreign.memory();
    let mut stack = vec![0u8; SIZE];
    let start = stack.as_mut_ptr();
    let wanted = libc::stack_t { ss_sp: start.cast(), ss_flags: 0, ss_size: SIZE };
    // SAFETY: the stack stays, and its length is true; the former stack comes back
    unsafe {
        let mut before = mem::zeroed();
        assert_eq!(libc::sigaltstack(&raw const wanted, &raw mut before), 0);
        survive(&memory);
        own.protect(libc::PROT_NONE);
        own.touch();
        assert_eq!(libc::sigaltstack(&raw const before, null_mut()), 0);
    }
    let at = STACK.load(Ordering::SeqCst);
    assert!((start as usize..start as usize + SIZE).contains(&at), "it ran elsewhere");
}

#[test]
fn many_threads_that_fault_at_once() {
    if let Some(status) = in_child("many_threads_that_fault_at_once") {
        assert!(status.success(), "{status}");
        return;
    }
    let pages = Pages::new();
    let memory = pages.memory();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5000).for_each(|_| survive(&memory)));
        }
    });
}
