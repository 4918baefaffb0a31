"""Plays cases: starts the two sides of each, waits for both, and judges what they printed."""

import time
from dataclasses import dataclass, field

from capture import capture_problems
from net import listens
from tools import (
    PORT,
    guest_address,
    our_address,
    our_command,
    output_problems,
    refusal_problems,
    stock_command,
)

# Ten times what the slowest needs; short enough that a run in which nothing works still ends within the hour.
CASE_SECONDS = 30
LISTEN_SECONDS = 10
REFUSAL_SECONDS = 10
# How long one side may go on after the other has ended.
LAST_WORDS_SECONDS = 5


@dataclass
class Result:
    problems: list = field(default_factory=list)
    report: list = field(default_factory=list)  # (heading, text) pairs for the reader of a failure
    seconds: float = 0.0


class Matrix:
    def __init__(self, net, guest, binary, directory):
        self.net = net
        self.guest = guest
        self.binary = binary
        self.directory = directory
        self.started = 0

    def play(self, case):
        started = time.monotonic()
        result = Result()
        if case.refused:
            self.play_refusal(case, result)
        else:
            self.play_conversation(case, result)
        result.seconds = time.monotonic() - started
        return result

    def play_refusal(self, case, result):
        ours = self.start_ours(case)
        try:
            wait([ours], REFUSAL_SECONDS)
        finally:
            ours.end()
        result.problems += refusal_problems(case, ours.status, ours.stderr())
        ours.describe(result)

    def play_conversation(self, case, result):
        console_before = len(self.guest.console_text())
        sides = []
        try:
            first, second = self.start_ours, self.start_stock
            server_sockets = self.net.socket_table
            if case.role == "client":
                first, second = second, first
                server_sockets = self.guest.socket_table
            sides.append(first(case))
            if wait_for_listener(sides[0], server_sockets):
                sides.append(second(case))
                wait(sides, CASE_SECONDS)
            else:
                result.problems.append(f"{sides[0].who} does not listen on port {PORT}")
        finally:
            for side in sides:
                side.end()
        for side in sides:
            result.problems += side.problems(case)
            side.describe(result)
        if result.problems:
            result.report.append(("guest kernel", self.guest.console_text()[console_before:]))
            result.report.append(("rxe0 counters", self.guest.counters()))
        elif case.capture:
            result.problems += capture_problems(
                self.capture_path(), {our_address(case), guest_address(case, self.guest)}
            )

    def start_ours(self, case):
        self.started += 1
        argv = our_command(self.binary, case, self.guest, self.capture_path())
        return OurSide(self.net, argv, self.directory / f"{self.started}-ours")

    def start_stock(self, case):
        return StockSide(self.guest, stock_command(case, self.guest))

    def capture_path(self):
        return self.directory / f"{self.started}.pcapng"


class Side:
    """One running tool. `status` stays None until it has ended by itself."""

    status = None

    def problems(self, case):
        if self.status is None:
            return [f"{self.who} did not end by itself"]
        if self.status != 0:
            return [f"{self.who} ended with exit status {self.status}"]
        return output_problems(self.who, case, self.stdout())

    def describe(self, result):
        result.report.append((f"{self.who}: command", " ".join(self.argv)))
        result.report.append((f"{self.who}: output", self.stdout()))
        if self.stderr():
            result.report.append((f"{self.who}: errors", self.stderr()))


class OurSide(Side):
    who = "ours"

    def __init__(self, net, argv, path, **options):
        self.argv = argv
        # Files, for nobody reads a pipe while the tool runs.
        self.out = path.with_suffix(".out")
        self.err = path.with_suffix(".err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = net.start(argv, stdout=out, stderr=err, **options)

    def poll(self):
        self.status = self.process.poll()
        return self.status

    def end(self):
        if self.poll() is None:
            self.process.kill()
            self.process.wait()

    def stdout(self):
        return self.out.read_text(errors="replace")

    def stderr(self):
        return self.err.read_text(errors="replace")


class StockSide(Side):
    who = "stock"

    def __init__(self, guest, argv):
        self.argv = argv
        self.job = guest.start(argv)
        self.asked = 0.0

    def poll(self):
        # Not too often: an answer costs the emulated processor time that the tool wants.
        if self.status is None and time.monotonic() >= self.asked + 0.1:
            self.status = self.job.poll()
            self.asked = time.monotonic()
        return self.status

    def end(self):
        if self.status is None and self.job.poll() is None:
            self.job.kill()
        elif self.status is None:
            self.status = self.job.returncode

    def stdout(self):
        return self.job.output()

    def stderr(self):
        return ""  # in one file with the output


def wait_for_listener(server, sockets):
    """Whether the server came to listen; the client must not knock before."""
    deadline = time.monotonic() + LISTEN_SECONDS
    while not listens(sockets(), PORT):
        if server.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def wait(sides, seconds):
    """Waits until all have ended, but not for long once one of them has."""
    deadline = time.monotonic() + seconds
    ended = 0
    while time.monotonic() < deadline:
        still_running = [side.poll() for side in sides].count(None)
        if still_running == 0:
            return
        if len(sides) - still_running > ended:
            ended = len(sides) - still_running
            deadline = min(deadline, time.monotonic() + LAST_WORDS_SECONDS)
        time.sleep(0.01)
