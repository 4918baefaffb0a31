"""perftest: a server and a client, what they print, and what their hosts' sockets lost."""

import itertools
import re
from dataclasses import dataclass

from lab.dropin.case import Case as Options
from lab.dropin.case import Program
from lab.load.case import Sample
from lab.load.sockets import udp_totals
from lab.programs import wait, wait_ready

READY_SECONDS = 60
# Most runs of a test whose clock is doubtful: perftest compares it with the processor's, which does
# not always work where others have the processor.
ATTEMPTS = 4
# Linux grants no more to a socket as it is delivered (net.core.rmem_max).
USUAL_BUFFER = "ROCE_RECEIVE_BUFFER=212992"

MIB = 1 << 20


@dataclass(frozen=True)
class Plan:
    """A test of bandwidth."""

    name: str
    tool: str
    size: int
    count: int  # messages of each queue pair
    pairs: int = 1
    depth: int = 128  # messages under way at once
    words: tuple = ()

    def command(self, host, port):
        facts = host.facts()
        words = [
            *(f"ib_{self.tool}", "-d", facts["device"], "-x", facts["gid"], "-F", "-N"),
            *("-p", port, "-s", self.size, "-n", self.count, "-q", self.pairs, "-t", self.depth),
            *self.words,
        ]
        return [str(word) for word in words]


class Runner:
    """Runs tests; their outputs stay in `directory` until the end of the suite."""

    def __init__(self, directory):
        self.directory = directory
        self.numbers = itertools.count()

    def run(self, plan, server, client, seconds, variables=(USUAL_BUFFER,)):
        """A run of a test, as a `Sample` with the bandwidth in MiB/s."""
        for _ in range(ATTEMPTS):
            sample, doubtful = self.attempt(plan, server, client, seconds, variables)
            if not doubtful:
                break
        return sample

    def attempt(self, plan, server, client, seconds, variables):
        totals = [udp_totals(host) for host in (server, client)]
        pair = self.start(plan, server, client, variables)
        try:
            wait(pair, seconds)
        finally:
            for program in pair:
                program.end()
        sample = Sample()
        for host, before in zip((server, client), totals, strict=True):
            change = udp_totals(host) - before
            sample.lost += change.lost
            sample.sent += change.sent
        output = pair[-1].stdout()
        figure = bandwidth(output)
        ended = len(pair) == 2 and all(program.status == 0 for program in pair)
        if ended and figure is not None:
            sample.value = figure
        else:
            for program in pair:
                program.describe(sample)
        return sample, ended and (figure is None or "Correlation coefficient" in output)

    def start(self, plan, server, client, variables, port=18515):
        """[server, client], or the server alone if it has not become ready."""
        stem = f"{next(self.numbers):04}-{re.sub(r'[^a-z0-9]+', '-', plan.name)}"
        options = Options("", "", Program(()), variables=variables)
        path = self.directory / stem
        first = server.start(plan.command(server, port), f"{path}-server", options)
        first.label = f"{plan.name}: server"
        if not wait_ready(first, lambda: server.ready(f"tcp:{port}"), READY_SECONDS):
            return [first]
        words = [*plan.command(client, port), server.address]
        second = client.start(words, f"{path}-client", options)
        second.label = f"{plan.name}: client"
        return [first, second]


def bandwidth(output):
    """Average in MiB/s that a test printed; None without a finite one."""
    rows = re.findall(r"^ *\d+ +\d+ +[\d.]+ +([\d.]+)\s", output, re.MULTILINE)
    return float(rows[-1]) if rows and float(rows[-1]) > 0 else None
