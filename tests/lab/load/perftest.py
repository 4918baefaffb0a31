"""perftest: a server and a client, what they print, and what their hosts' sockets lost.

A loss is one datagram as the system carries it: a run of up to 64 KiB on veth, a packet behind
`packet_by_packet` and `slow`. perftest has two buffers of a message for each queue pair at both
ends: 4 GiB for 1000 pairs of 1 MiB. A run in which its clocks disagree has not failed, and does not
count; if no run counts, the case has failed.
"""

import contextlib
import itertools
import re
from dataclasses import dataclass

from lab.dropin.case import Case, Program
from lab.load.case import Sample
from lab.load.sockets import UdpTotals, udp_totals
from lab.running import wait, wait_ready

READY_SECONDS = 60
# What perftest says before it begins if it could not compare a clock with the processor's, which
# does not always work where others have the processor. Its figures then are no numbers.
NO_CLOCK = "Correlation coefficient"
# perftest's own TCP port.
PORT = 18515

# The fewest messages that it sends.
LEAST_COUNT = 5

MIB = 1 << 20

# Linux grants no more to a socket as it is delivered (net.core.rmem_max).
USUAL_BUFFER = ("ROCE_RECEIVE_BUFFER=212992",)
# What the device asks for, as far as the system grants it.
LARGE_BUFFER = ()


@dataclass(frozen=True)
class Plan:
    """A test."""

    name: str
    tool: str
    size: int
    count: int  # messages of each queue pair
    pairs: int = 1
    depth: int = 128  # messages under way at once
    words: tuple = ()
    variables: tuple = USUAL_BUFFER
    run: tuple = ()  # options of the client's `roce run`
    seconds: int = 90  # time that it has, which is ample

    def command(self, host, port):
        facts = host.facts()
        bandwidth = ("-N", "-q", self.pairs, "-t", self.depth) if self.tool.endswith("bw") else ()
        count = () if "-D" in self.words else ("-n", self.count)
        words = [
            *(f"ib_{self.tool}", "-d", facts["device"], "-x", facts["gid"], "-F"),
            *("-p", port, "-s", self.size, *count, *bandwidth, *self.words),
        ]
        return [str(word) for word in words]


class Runner:
    """Runs tests; their outputs stay in `directory` until the end of the suite."""

    def __init__(self, directory):
        self.directory = directory
        self.numbers = itertools.count()

    def run(self, plan, server, client):
        """A run, as a `Sample` with the bandwidth in MiB/s or the median latency in µs."""
        with Losses([server, client]) as losses, self.started(plan, server, client) as pair:
            wait(pair.programs, plan.seconds)
        return pair.sample(losses)

    @contextlib.contextmanager
    def started(self, plan, server, client, port=PORT):
        """A test under way, which is ended at the end of the context."""
        with self.prepared(plan, server, port) as pair:
            pair.start_client(client)
            yield pair

    @contextlib.contextmanager
    def prepared(self, plan, server, port=PORT):
        """A test whose server waits for its client."""
        pair = Pair(plan, server, port, self.new_path(plan.name))
        try:
            pair.start_server()
            yield pair
        finally:
            for program in pair.programs:
                program.end()

    def new_path(self, name):
        """Beginning of the names of a program's outputs."""
        return self.directory / f"{next(self.numbers):04}-{re.sub(r'[^a-z0-9]+', '-', name)}"


class Pair:
    """A server and a client. The server alone if it has not become ready."""

    def __init__(self, plan, server, port, path):
        self.plan, self.server, self.port, self.path = plan, server, port, path
        self.programs = []
        self.ready = False

    def start_server(self):
        self.start(self.server, self.plan.command(self.server, self.port), "server", ())
        self.ready = wait_ready(
            self.programs[0], lambda: self.server.ready(f"tcp:{self.port}"), READY_SECONDS
        )

    def start_client(self, host):
        if self.ready:
            words = [*self.plan.command(host, self.port), self.server.address]
            self.start(host, words, "client", self.plan.run)

    def start(self, host, words, role, run):
        program = host.start(words, f"{self.path}-{role}", options(self.plan.variables, run))
        program.label = f"{self.plan.name}: {role}"
        self.programs.append(program)

    @property
    def ended(self):
        """True if both have done their work."""
        return len(self.programs) == 2 and all(program.status == 0 for program in self.programs)

    @property
    def runs(self):
        return len(self.programs) == 2 and all(p.poll() is None for p in self.programs)

    @property
    def figure(self):
        return figure(self.programs[-1].stdout(), self.plan.tool)

    @property
    def printed(self):
        """True if the client has printed a row, which it does at its end."""
        return len(self.programs) == 2 and bool(row(self.programs[-1].stdout()))

    @property
    def clockless(self):
        """True if the client said that it has no clock."""
        return any(NO_CLOCK in line for line in self.programs[-1].lines())

    def sample(self, losses=None):
        """What it showed, if both have ended."""
        return self.judged(self.ended, losses)

    def judged(self, good, losses=None):
        """What it showed, if it was `good`."""
        sample = Sample()
        if losses:
            sample.lost, sample.datagrams = losses.lost, losses.datagrams
        if good and self.clockless:
            sample.unmeasured = True
        elif good and self.figure is not None:
            sample.value = self.figure
        else:
            for program in self.programs:
                program.describe(sample)
                if program.status is None:
                    sample.report.append((program.label, "it did not end by itself"))
            sample.report = [(heading, shortened(text)) for heading, text in sample.report]
        return sample


class Losses:
    """What the sockets of hosts have received and lost in the context."""

    def __init__(self, hosts):
        # Programs of one host have the same totals.
        self.hosts = {host.sandbox.namespace.name: host for host in hosts}.values()

    def totals(self):
        return sum(map(udp_totals, self.hosts), UdpTotals())

    def __enter__(self):
        self.before = self.totals()
        return self

    def __exit__(self, *_):
        change = self.totals() - self.before
        self.lost = change.lost
        self.datagrams = change.received + self.lost


def options(variables, run=()):
    """Options with which `Host.start` starts a program."""
    return Case("", "", Program(()), run=run, variables=variables)


def shortened(text):
    """Beginning and end of a long output: perftest prints two lines for each queue pair."""
    lines = text.splitlines()
    if len(lines) > 40:
        lines[20:-15] = [f"({len(lines) - 35} more lines)"]
    return "\n".join(lines)


def figure(output, tool):
    """Average bandwidth in MiB/s or median latency in µs that a test printed; None if that is no
    number above 0.
    """
    # Bandwidth: bytes, iterations, peak, average; latency: bytes, iterations, min, max, median.
    column = 3 if tool.endswith("bw") else 4
    words = row(output)
    if len(words) > column and re.fullmatch(r"[\d.]+", words[column]):
        return float(words[column]) or None
    return None


def row(output):
    """Words of the last row that a test printed; none if there is none."""
    rows = re.findall(r"^ *\d+ +\d+ +(?:[\d.]+|-?inf|-?nan) .*$", output, re.MULTILINE)
    return rows[-1].split() if rows else []
