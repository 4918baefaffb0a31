"""Running programs: on the host with our adapter, or in the guest with rxe."""

import os
import signal
import time
from contextlib import suppress

from lab import hang

# Time that one side may run on after the other has ended.
EXIT_SECONDS = 5

# What the stock rping may stumble over at its end, and what else it says then.
RACED, RACED_STATUS = "rdma_get_cm_event: Bad file descriptor", 255
RACED_BESIDES = {
    "client DISCONNECT EVENT...",
    "server DISCONNECT EVENT...",
    "wait for RDMA_READ_ADV state 10",
}


class RunningProgram:
    """A running program. `status` stays None until it has ended by itself."""

    status = None
    label = ""
    # True if it ran when the time was over.
    overdue = False
    # What it was doing then.
    hung = ""

    def describe(self, result):
        result.report.append((f"{self.label}: command", " ".join(self.argv)))
        result.report.append((f"{self.label}: output", self.stdout()))
        if self.stderr():
            result.report.append((f"{self.label}: errors", self.stderr()))
        if self.hung:
            result.report.append((f"{self.label}: had not ended", self.hung))

    def lines(self):
        return (self.stdout() + "\n" + self.stderr()).splitlines()


class HostProgram(RunningProgram):
    """A program on the host. `place` starts it: a namespace, or a sandbox in one."""

    label = "ours"

    def __init__(self, place, argv, path, **options):
        self.argv = argv
        # Files, because a pipe would fill up: nothing reads it while the program runs.
        self.out = path.with_suffix(".out")
        self.err = path.with_suffix(".err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = place.start(argv, stdout=out, stderr=err, **options)

    def poll(self):
        self.status = self.process.poll()
        return self.status

    def end(self):
        if self.poll() is None and self.overdue:
            self.hung = hang.describe_host(self.process.pid)
        # What it has started is in its session, and may be there still when it has ended.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stdout(self):
        return self.out.read_text(errors="replace")

    def stderr(self):
        return self.err.read_text(errors="replace")


class GuestProgram(RunningProgram):
    """A program in the guest."""

    label = "stock"

    def __init__(self, guest, argv):
        self.argv = argv
        self.job = guest.start(argv)
        self.polled = 0.0

    def poll(self):
        # Not too often: an answer takes time of the emulated processor that the program needs.
        if self.status is None and time.monotonic() >= self.polled + 0.1:
            self.status = self.job.poll()
            self.polled = time.monotonic()
        return self.status

    def end(self):
        if self.status is None and self.job.poll() is None:
            if self.overdue:
                self.hung = hang.describe_guest(self.job.guest, self.job.pid())
            self.job.kill()
        elif self.status is None:
            self.status = self.job.returncode

    def stdout(self):
        return self.job.output()

    def stderr(self):
        return ""  # in one file with the output


def wait(programs, seconds):
    """Waits until all have ended, but not for long once one of them has."""
    deadline = time.monotonic() + seconds
    ended = 0
    for program in programs:
        program.overdue = False
    while time.monotonic() < deadline:
        running = [program.poll() for program in programs].count(None)
        if running == 0:
            return
        if len(programs) - running > ended:
            ended = len(programs) - running
            deadline = min(deadline, time.monotonic() + EXIT_SECONDS)
        time.sleep(0.01)
    for program in programs:
        program.overdue = program.status is None


def wait_until(condition, seconds, pause=0.02):
    """Waits for a condition; False when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def wait_ready(server, ready, seconds):
    """Waits until a server is ready; False if it ends before, or the time is over."""
    deadline = time.monotonic() + seconds
    while not ready():
        if server.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def describe_guest(result, guest, console):
    """Adds to a failed result what the guest tells; `console` is the length of its log before."""
    if result.problems:
        result.report.append(("guest kernel", guest.console_text()[console:]))
        result.report.append(("rxe0 counters", guest.counters()))


def has_raced(program):
    """True if the stock rping has only stumbled at its end: it destroys its event channel while a
    thread of its own waits there, and that thread may still see it.
    """
    lines = {line.strip() for line in program.lines() if "ping data: " not in line} - {""}
    return program.status == RACED_STATUS and RACED in lines and lines <= RACED_BESIDES | {RACED}
