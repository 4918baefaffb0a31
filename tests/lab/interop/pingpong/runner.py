"""Runs pingpongs: starts both tools, waits for them, and judges their output."""

import time

from lab.interop.pingpong.capture import capture_problems
from lab.interop.pingpong.tools import (
    PORT,
    guest_address,
    our_address,
    our_command,
    output_problems,
    refusal_problems,
    stock_command,
)
from lab.proc_net import listens
from lab.report import Result
from lab.running import GuestProgram, HostProgram, describe_guest, wait, wait_ready

# Ten times the time of the slowest; short enough that a run in which nothing works ends within the
# hour.
CASE_SECONDS = 30
LISTEN_SECONDS = 10
REFUSAL_SECONDS = 10


class PingpongRunner:
    """Runs pingpongs with one guest."""

    def __init__(self, bridge, guest, binary, directory):
        self.bridge = bridge
        self.guest = guest
        self.binary = binary
        self.directory = directory
        self.started = 0

    def close(self):
        """Has nothing to close: no program outlives its case."""

    def run(self, case):
        started = time.monotonic()
        result = Result()
        if case.refused:
            self.run_refusal(case, result)
        else:
            self.run_pingpong(case, result)
        result.seconds = time.monotonic() - started
        return result

    def run_refusal(self, case, result):
        ours = self.start_ours(case)
        try:
            wait([ours], REFUSAL_SECONDS)
        finally:
            ours.end()
        result.problems += refusal_problems(case, ours.status, ours.stderr())
        ours.describe(result)

    def run_pingpong(self, case, result):
        console = len(self.guest.console_text())
        programs = []
        starts, place = [self.start_ours, self.start_stock], self.bridge
        if case.role == "client":
            starts, place = starts[::-1], self.guest
        try:
            server = starts[0](case)
            programs.append(server)
            # The client must not connect before the server listens.
            if wait_ready(
                server, lambda: listens(place.table("tcp", "tcp6"), PORT), LISTEN_SECONDS
            ):
                programs.append(starts[1](case))
                wait(programs, CASE_SECONDS)
            else:
                result.problems.append(f"{server.label} does not listen on port {PORT}")
        finally:
            for program in programs:
                program.end()
        for program in programs:
            result.problems += program_problems(case, program)
            program.describe(result)
        describe_guest(result, self.guest, console)
        if case.capture and not result.problems:
            addresses = {our_address(case), guest_address(case, self.guest)}
            result.problems += capture_problems(self.capture_path(), addresses)

    def start_ours(self, case):
        self.started += 1
        argv = our_command(self.binary, case, self.bridge, self.guest, self.capture_path())
        return HostProgram(self.bridge, argv, self.directory / f"{self.started}-ours")

    def start_stock(self, case):
        return GuestProgram(self.guest, stock_command(case, self.bridge, self.guest))

    def capture_path(self):
        return self.directory / f"{self.started}.pcapng"


def program_problems(case, program):
    if program.status is None:
        return [f"{program.label} did not end by itself"]
    if program.status != 0:
        return [f"{program.label} ended with exit status {program.status}"]
    return output_problems(program.label, case, program.stdout())
