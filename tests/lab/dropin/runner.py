"""Runs cases: starts the server, waits until it is ready, starts the client, and judges both."""

import re
import time

from lab.report import Result
from lab.running import has_raced, wait, wait_ready

READY_SECONDS = 15
# Time for a program to react to a command of root.
REACTION_SECONDS = 0.3
# Time for a client to be refused; a guest is slow.
REFUSAL_SECONDS = 10
# Signs of a client that came before the server listened.
REFUSED = ["REJECTED", "Connection refused", "UNREACHABLE", "Unexpected CM event bl blka 8"]


class CaseRunner:
    """Runs cases. Their outputs stay in `directory`; `built` are further words of command lines."""

    def __init__(self, directory, built):
        self.directory = directory
        self.built = built

    def run(self, case, server_host, client_host):
        return StartedCase(self, case, server_host, client_host).run()


class StartedCase:
    """A case under way. A case of one program runs it on the client's host."""

    def __init__(self, runner, case, server_host, client_host):
        self.case, self.server_host, self.client_host = case, server_host, client_host
        self.stem = str(runner.directory / re.sub(r"[^\w-]", "_", case.name))
        self.words = {"server": server_host.address, **runner.built}
        self.programs = []
        self.result = Result()

    def run(self):
        started = time.monotonic()
        for command in self.case.before:
            self.server_host.as_root(command)
        try:
            if self.case.server:
                self.start_server()
            if not self.result.problems:
                self.run_client()
            self.look_at_endings()
        finally:
            for program in self.programs:
                program.end()
            for command in self.case.after:
                self.server_host.as_root(command)
        for program in self.programs:
            self.result.problems += problems(program)
            program.describe(self.result)
        self.result.seconds = time.monotonic() - started
        return self.result

    def start_server(self):
        server = self.start(self.case.server, self.server_host, "server")
        self.programs.append(server)
        ready = self.case.ready

        def is_ready():
            if ready == "line":
                return not missing(server, server.program.lines)
            return self.server_host.ready(ready)

        if not wait_ready(server, is_ready, READY_SECONDS):
            self.result.problems.append(f"the server is not ready ({ready})")

    def run_client(self):
        case = self.case
        client = self.start_client()
        self.programs.append(client)
        for command in case.during:
            wait_for_lines(client, client.program.lines[:1])
            self.server_host.as_root(command)
            time.sleep(REACTION_SECONDS)
        if case.during:
            wait_for_lines(client, client.program.lines)
        if case.ready == "cm":
            self.await_listener()
        wait([program for program in self.programs if not program.program.endless], case.seconds)

    def start_client(self):
        label = "client" if self.case.server else "program"
        return self.start(self.case.client, self.client_host, label)

    def start(self, program, host, label):
        words = {**host.facts(), **self.words}
        argv = [
            re.sub(r"\{(\w+)\}", lambda match: str(words[match[1]]), str(word))
            for word in program.argv
        ]
        started = host.start(argv, f"{self.stem}-{label}", self.case)
        started.label, started.program = label, program
        return started

    def await_listener(self):
        """Starts a client again that was refused, for as long as the server may not listen yet:
        nothing else shows when it does.
        """
        deadline = time.monotonic() + READY_SECONDS
        while len(self.programs) == 2 and time.monotonic() < deadline:
            server, client = self.programs
            wait([client], 1 if client.program.endless else REFUSAL_SECONDS)
            runs = server.poll() is None
            if not (runs and client.status is not None and problems(client) and refused(client)):
                return
            time.sleep(0.5)
            self.result.note = "the client came before the server listened"
            self.programs[1] = self.start_client()

    def look_at_endings(self):
        hosts = [self.server_host, self.client_host]
        for program, host in zip(self.programs, hosts, strict=False):
            if program.poll() is None and not program.program.endless:
                heading = f"{program.label}, which has not ended"
                self.result.report.append((heading, host.look(program)))


def refused(program):
    return any(word in line for line in program.lines() for word in REFUSED)


def wait_for_lines(program, lines):
    deadline = time.monotonic() + READY_SECONDS
    while missing(program, lines) and program.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def missing(program, lines):
    """Expressions that no line of the program's output matches."""
    printed = [line.strip() for line in program.lines()]
    return [line for line in lines if not any(re.fullmatch(line, one) for one in printed)]


def problems(program):
    expected, label, found = program.program, program.label, []
    if program.status is None and not expected.endless:
        found.append(f"the {label} did not end by itself")
    elif (
        program.status is not None
        and expected.status not in (None, program.status)
        and not has_raced(program)
    ):
        found.append(f"the {label} ended with {program.status}, wanted {expected.status}")
    lines = missing(program, expected.lines)[:3]
    found += [f"the {label} did not print a line like: {line}" for line in lines]
    found += [
        f"the {label} printed: {line}"
        for line in program.lines()
        for text in expected.forbidden
        if text in line
    ]
    return found
