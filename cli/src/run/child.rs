//! `roce run` beside the program.

use std::{
    io, mem,
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitCode, ExitStatus},
    ptr,
};

use roce::Reaper;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::retry_on_intr,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use super::live::Live;

const PASSED_ON: [libc::c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];
/// `SI_KERNEL`: a signal of the terminal, for example.
const BY_KERNEL: i32 = 0x80;

/// Runs the program; then notifies peers (reaper) and draws the last packets.
pub(super) fn run(
    mut command: Command,
    mut reaper: Option<Reaper>,
    live: Option<Live>,
) -> io::Result<ExitCode> {
    if let Some((name, value)) = reaper.as_ref().map(Reaper::variable) {
        command.env(name, value);
    }
    let (signals, before) = take_signals()?;
    // SAFETY: allowed between fork and exec; the mask is this thread's former mask
    unsafe {
        command.pre_exec(move || {
            match libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        });
    }
    let mut child = command.spawn()?;
    let end_drawing = live.map(Live::start);
    let status = wait(reaper.as_mut(), &mut child, &signals).or_else(|_| child.wait());
    if let Some(reaper) = reaper {
        reaper.finish();
    }
    if let Some(end) = end_drawing {
        end();
    }
    Ok(status.map_or(ExitCode::FAILURE, exit_code))
}

fn take_signals() -> io::Result<(OwnedFd, libc::sigset_t)> {
    // SAFETY: all zero is an empty set
    let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: the initialised sets outlive the calls, which change only this thread's mask; no
    // other thread exists yet
    let descriptor = unsafe {
        for signal in PASSED_ON {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it
    Ok((unsafe { OwnedFd::from_raw_fd(descriptor) }, before))
}

/// Passes signals on; the reaper watches the program's other processes.
fn wait(
    mut reaper: Option<&mut Reaper>,
    child: &mut Child,
    signals: &OwnedFd,
) -> io::Result<ExitStatus> {
    let program = Pid::from_child(child);
    let end = pidfd_open(program, PidfdFlags::empty())?;
    loop {
        let ends = [end.as_fd(), signals.as_fd()];
        match &mut reaper {
            Some(reaper) => reaper.wait(&ends)?,
            None => {
                let mut polled = ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN));
                retry_on_intr(|| poll(&mut polled, None))?;
            }
        }
        while let Some((signal, code)) = next_signal(signals) {
            // The terminal signals the program, too.
            if code != BY_KERNEL {
                let _ = kill_process(program, signal); // perhaps ended
            }
        }
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
    }
}

fn next_signal(signals: &OwnedFd) -> Option<(Signal, i32)> {
    // struct signalfd_siginfo: number, error, code
    let mut information = [0; 128];
    rustix::io::read(signals, &mut information).ok().filter(|length| *length == 128)?;
    let word = |at: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|byte| information[at + byte]));
    Some((Signal::from_named_raw(word(0))?, word(8)))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
