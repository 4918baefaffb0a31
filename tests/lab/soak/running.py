"""An exchange under way: its programs, what is done to them, and how they are judged."""

import re
import signal
from pathlib import Path

from lab.dropin.runner import missing, refused
from lab.running import EXIT_SECONDS, has_raced

# Time that an undisturbed exchange has: far more than it needs on a busy machine.
SECONDS = 120
# Time that a program has to notice that the other one failed, or was killed.
NOTICE_SECONDS = 15
# Time from a server's start to that of its client, where nothing shows that it listens.
LISTEN_SECONDS = 0.6
# Time from a client's start until it is connected.
CONNECT_SECONDS = 1.0


class Running:
    """An exchange under way. `step` is called again and again until it returns True."""

    def __init__(self, exchange, fate, faults, hosts, stem, port):
        self.exchange, self.fate, self.faults = exchange, fate, faults
        self.hosts = dict(zip(["server", "client"], hosts, strict=True))
        self.stem, self.port = stem, port
        self.programs, self.ended = {}, {}
        # Nobody sends again what is lost when the owner of an address ends or is stopped.
        self.excuse = "" if exchange.reliable else "unreliable"
        self.fated = self.stopped = None
        self.waited = False  # for a peer that had gone
        self.cut = False  # by the link, for a moment
        self.early = 0  # clients that came before the server listened
        self.problems, self.report = [], []

    def begin(self, now):
        self.begun = now
        self.client_due = None
        if self.exchange.server:
            self.start("server")
        else:
            self.client_due = now

    def start(self, role):
        number = sum(1 for _ in self.stem.parent.glob(f"{self.stem.name}-{role}*.out"))
        host = self.hosts[role]
        program = getattr(self.exchange, role)
        words = {"server": self.hosts["server"].address, "port": self.port, **host.facts()}
        words["roce"] = host.sandbox.roce
        argv = [
            re.sub(r"\{(\w+)\}", lambda match: str(words[match[1]]), str(word))
            for word in program.argv
        ]
        started = host.start(argv, Path(f"{self.stem}-{role}-{number}"), self)
        started.label, started.program = role, program
        self.programs[role] = started

    # What `Host.start` asks for.
    sysfs, variables = False, ()

    @property
    def run(self):
        return tuple(map(str, self.faults))

    def step(self, now):
        """True when it is over."""
        for role, program in self.programs.items():
            if role not in self.ended and program.poll() is not None:
                self.ended[role] = now
        if "client" not in self.programs:
            self.await_server(now)
        else:
            self.meet_fate(now)
        if self.refused_client(now):
            self.early += 1
            self.programs.pop("client")
            self.ended.pop("client")
            self.client_due = now + LISTEN_SECONDS
        return self.is_over(now)

    def await_server(self, now):
        if self.client_due is None:
            if not self.exchange.stream:
                self.client_due = now + LISTEN_SECONDS
            elif self.hosts["server"].ready(f"tcp:{self.port}"):
                self.client_due = now
        if self.client_due is not None and now >= self.client_due:
            self.start("client")
            self.client_begun = now

    def connected(self, now):
        """True if it has had time to connect."""
        return "client" in self.programs and now > self.client_begun + CONNECT_SECONDS

    @property
    def is_stopped_for_long(self):
        return self.stopped and self.fate.excuses

    def refused_client(self, now):
        """True if the client came before the server listened."""
        return (
            "client" in self.ended
            and "server" not in self.ended
            and self.programs["client"].status != 0
            and now < self.begun + NOTICE_SECONDS
            and refused(self.programs["client"])
        )

    def meet_fate(self, now):
        fate = self.fate
        program = self.programs.get(fate.whom)
        if self.stopped and now >= self.stopped:
            self.stopped = None
            program.process.send_signal(signal.SIGCONT)
        if fate.what == "none" or self.fated or now < self.client_begun + fate.at:
            return
        self.fated = now
        if program is None or fate.whom in self.ended:
            return
        if fate.excuses:
            self.excuse = fate.what
        if fate.what == "kill":
            program.process.kill()
        else:
            program.process.send_signal(signal.SIGSTOP)
            self.stopped = now + fate.seconds

    def is_over(self, now):
        if self.stopped:
            return False
        if self.programs and len(self.ended) == (2 if self.exchange.server else 1):
            return True
        first = min(self.ended.values(), default=None)
        patience = NOTICE_SECONDS if self.excuse else EXIT_SECONDS
        if first is not None and now > first + patience:
            if self.excuse:
                # It waits for a message of a peer that has gone, as it would with an adapter.
                self.waited = True
            else:
                self.hung(f"the other program ended {patience} s ago")
            return True
        if now > self.begun + SECONDS:
            # Of two programs that have lost each other one has a request under way, which fails.
            if self.exchange.reliable or not self.excuse:
                self.hung(f"none has ended for {SECONDS} s")
            return True
        return False

    def hung(self, why):
        for role, program in self.programs.items():
            if role not in self.ended:
                self.problems.append(f"the {role} hangs: {why}")
                heading = f"{role}, which has not ended"
                self.report.append((heading, self.hosts[role].look(program)))

    def judge(self):
        """Ends what still runs, and finds the problems."""
        for role, program in self.programs.items():
            killed = self.fate.what == "kill" and self.fate.whom == role and self.fated
            if role not in self.ended:
                program.end()
            elif not (killed and program.status == -signal.SIGKILL):
                self.judge_status(role, program)
            bad = [line for line in program.lines() for text in FATAL if text in line]
            self.problems += [f"the {role} printed: {line}" for line in bad]
        if "client" not in self.programs and not self.excuse:
            self.problems.append("the server was not ready")
        for program in self.programs.values():
            program.describe(self)

    def judge_status(self, role, program):
        if self.excuse and self.exchange.stream and program.status == -signal.SIGPIPE:
            return  # it wrote to the stream that the other program's end has closed
        if self.was_left(role, program) or self.was_torn(program) or has_raced(program):
            return
        if program.status < 0:
            self.problems.append(f"the {role} died of signal {-program.status}")
        elif not self.excuse:
            if program.status != 0:
                self.problems.append(f"the {role} ended with {program.status}")
            for line in missing(program, program.program.lines):
                self.problems.append(f"the {role} did not print a line like: {line}")

    def was_left(self, role, program):
        """True if the other program had got everything, and has left a lost answer unrepeated."""
        if not self.exchange.leaves or not any("drop" in str(word) for word in self.faults):
            return False
        others = self.programs.keys() - {role}  # none if a server ended before it was ready
        return any(LEFT in line for line in program.lines()) and any(
            self.programs[other].status == 0 and self.ended[other] <= self.ended[role]
            for other in others
        )

    def was_torn(self, program):
        """True if perftest has taken a part of a message over TCP for the whole: what is lost while
        the link is down, TCP sends again in pieces.
        """
        return self.cut and any(TORN in line for line in program.lines())

    @property
    def outcome(self):
        if self.problems:
            return "failed"
        if not self.excuse:
            return "whole"
        return "waited" if self.waited else "ended"


# What a request says that nobody answers any more.
LEFT = "retry counter exceeded"

# What perftest says of a message that it did not read as a whole.
TORN = "ethernet_read_keys: Couldn't read remote address"

# Damaged data, and what must never be printed, whatever was done to the program.
FATAL = ("invalid data", "data mismatch", "panicked", "verification failed")
