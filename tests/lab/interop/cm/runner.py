"""Runs cases of connection management, of which slow ones run beside the others."""

import re
import shlex
import time
from collections import Counter
from dataclasses import dataclass

from lab import proc_net
from lab.interop.cm.case import GROUP, CmCase
from lab.namespaces import HOST_IPV4, HOST_IPV6
from lab.report import Result
from lab.running import GuestProgram, HostProgram, describe_guest, wait, wait_until

# Ten times what a hundred programs in a row need in the guest.
CASE_SECONDS = 180
# The kernel sends a request 16 times, 4.6 s or so apart, and has no setting for that.
SLOW_SECONDS = 300
LISTEN_SECONDS = 10
# Time from the open port to the listening program.
LISTEN_DELAY = 0.2


@dataclass
class StartedCase:
    """A case under way."""

    case: CmCase
    host: str  # our address in it
    started: float
    console: int  # length of the guest kernel's log before
    programs: list
    problems: list


class CmRunner:
    """Runs cases with one guest."""

    def __init__(self, bridge, guest, binary, directory):
        self.bridge = bridge
        self.guest = guest
        self.binary = binary
        self.directory = directory
        self.count = 0
        self.slow = {}  # slow cases under way, by name

    def start_slow(self, cases):
        """Starts the slow ones; `run` finishes them."""
        for case in cases:
            if case.slow:
                self.slow[case.name] = self.start(case)

    def close(self):
        for started in self.slow.values():
            for program in started.programs:
                program.end()

    def run(self, case):
        return self.finish(self.slow.pop(case.name, None) or self.start(case))

    def start(self, case):
        host = HOST_IPV4 if case.family == "ipv4" else HOST_IPV6
        # Beside others it needs a device of its own.
        host = self.bridge.add_address() if case.slow or case.own_address else host
        console = len(self.guest.console_text())
        started = StartedCase(case, host, time.monotonic(), console, [], [])
        order = [self.start_ours, self.start_stock]
        ready = self.host_ready
        if case.role == "client":
            order, ready = order[::-1], self.guest_ready
        try:
            if not case.alone:
                started.programs.append(order[0](started))
                if not wait_until(lambda: ready(started), LISTEN_SECONDS, pause=0.05):
                    started.problems.append(f"{started.programs[0].label} does not listen")
            if not started.problems:
                started.programs.append(order[1](started))
        except BaseException:
            for program in started.programs:
                program.end()
            raise
        return started

    def finish(self, started):
        case, programs, result = started.case, started.programs, Result(started.problems)
        ending = programs[1:] if case.endless else programs
        try:
            if case.slow and not result.problems:
                wait_until(lambda: all_ended(ending), SLOW_SECONDS, pause=0.05)
            elif not result.problems:
                wait(ending, CASE_SECONDS + case.opens * self.bridge.open_seconds)
        finally:
            for program in programs:
                program.end()
        for number, program in enumerate(programs):
            result.problems += program_problems(case, program, case.endless and number == 0)
            program.describe(result)
        describe_guest(result, self.guest, started.console)
        result.seconds = time.monotonic() - started.started
        return result

    def start_ours(self, started):
        case = started.case
        self.count += 1
        argv = self.filled(started, case.ours)
        if case.ours[0] not in ["sh", "{steps}"]:
            rules = self.filled(started, case.faults)
            faults = [word for rule in rules for word in ("--fault", rule)]
            argv = [str(self.binary), *argv, "--device", self.bridge.device(started.host), *faults]
        path = self.directory / f"cm{self.guest.number}-{self.count}-ours"
        return HostProgram(self.bridge, argv, path)

    def start_stock(self, started):
        # Both outputs are in one file, and the program writes to each in its own time: errors come
        # last.
        program = shlex.join(self.filled(started, started.case.stock))
        command = f"{program} 2>errors; status=$?; cat errors; exit $status"
        return GuestProgram(self.guest, ["sh", "-c", command])

    def filled(self, started, words):
        directory = self.binary.parent
        values = {
            "host": started.host,
            "device": self.bridge.device(started.host),
            "guest": self.guest.address(started.case.family),
            "roce": self.binary,
            "examples": directory / "examples",
            "steps": directory / "roce-interop-steps",
        }
        for name, value in values.items():
            words = [word.replace("{" + name + "}", str(value)) for word in words]
        return words

    def host_ready(self, started):
        """True if our server listens, or has ended."""
        [program] = started.programs
        if program.poll() is not None:
            return True
        if program.argv[1] == "mckey":
            return "receiving data transfers" in program.stdout()
        if started.case.tool == "rdma_client":
            # it opens every device before it listens, and others have the address meanwhile
            return f"listening on {started.host}:" in program.stdout()
        if not self.bridge.is_open(self.guest, started.host):
            return False
        time.sleep(LISTEN_DELAY)
        return True

    def guest_ready(self, started):
        """True if the guest's server listens, or has ended."""
        [program] = started.programs
        sign, command = "LISTEN", "rdma resource show cm_id"
        if "mckey" in program.argv[2]:
            sign, command = proc_net.group(GROUP), "cat /proc/net/igmp"
        return program.poll() is not None or sign in self.guest.run(command)[1]


def all_ended(programs):
    return all(program.poll() is not None for program in programs)


def program_problems(case, program, endless):
    """Problems of a program; an endless one, which was ended, has no exit status."""
    ours = program.label == "ours"
    status = case.ours_status if ours else case.stock_status
    wanted_lines = case.ours_lines if ours else case.stock_lines
    if program.status is None and not endless:
        return [f"{program.label} did not end by itself"]
    problems = []
    if status is not None and program.status != status and not endless:
        problems.append(f"{program.label} ended with exit status {program.status}, wanted {status}")
    lines = (program.stdout() + program.stderr()).splitlines()
    for line, wanted in Counter(wanted_lines).items():
        found = sum(bool(re.fullmatch(line, other)) for other in lines)
        if found < wanted and len(problems) < 3:
            text = f"{program.label} printed {found} instead of {wanted} lines like: {line}"
            problems.append(text)
    return problems
