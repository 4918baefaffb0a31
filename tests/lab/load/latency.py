"""Latency of a bystander on a slow link, while another process of the same address answers READs of
512 MiB over it, or in the short form of 64 MiB. It is measured against the time that a packet waits
in the link's queue anyway, and the latency of two other hosts, which have the same processors but
another link.
"""

import time
from statistics import median

from lab.load.case import Bar, Case, Outcome, Sample
from lab.load.network import queue, slow, wire
from lab.load.perftest import MIB, USUAL_BUFFER, Losses, Plan, options
from lab.running import wait, wait_until

# Rates, in bits a second.
RATES = {"100mbit": 100e6, "1gbit": 1e9}
# All sleep until something arrives: programs that poll would wait for the processor, not for the
# link.
BULK = Plan("read 512 MiB", "read_bw", 512 * MIB, 1000, depth=2, words=("-e",))
# perftest fills its buffers with random bytes, which takes 20 s for that size.
SHORT_BULK = Plan("read 64 MiB", "read_bw", 64 * MIB, 8000, depth=2, words=("-e",))
BULK_PORT = 18600
MESSAGES = {"100mbit": 150, "1gbit": 1200}
BAR = Bar(2.0, 1.2, 8.0, at_most=True)
# Time of the bulk before it is looked at.
FIRST = 2
OPEN_SECONDS = 10


def cases():
    for rate in RATES:
        yield Case(f"latency/{rate}", "send-beside-read", BAR, short=rate == "1gbit")
        yield Case(f"latency/{rate}", "open-beside-read", None, short=rate == "1gbit")
        yield Case(f"latency/{rate}", "read-goes-on", None, short=rate == "1gbit")


def measure(lab, group, cases):
    return Bystander(lab, group).measure(cases)


class Bystander:
    """A group's measurement. The first host answers READs over a slow link, the second asks."""

    def __init__(self, lab, group):
        self.lab, self.group = lab, group
        self.rate = group.split("/")[1]
        self.bulk = SHORT_BULK if lab.short else BULK
        count = MESSAGES[self.rate]
        self.plan = Plan("send latency", "send_lat", 64, count, words=("-e",))
        self.outcomes = {
            "send-beside-read": Outcome(unit="µs"),
            "open-beside-read": Outcome(unit="s"),
            "read-goes-on": Outcome(unit=""),
        }

    def measure(self, cases):
        run = self.lab.runner.started
        with wire(self.lab) as hosts, wire(self.lab) as others:
            server, _ = hosts
            slow(server, self.rate)
            with Losses(hosts) as losses, run(self.bulk, *hosts, BULK_PORT) as bulk:
                if wait_until(lambda: backlog(server) > 0, 60, 0.1):
                    time.sleep(FIRST)
                    for _ in self.lab.turns(self.group):
                        self.look(hosts, others)
                self.outcomes["read-goes-on"].add(self.bulk_sample(bulk, server), None)
        self.outcomes["read-goes-on"].lost = losses.lost
        self.outcomes["read-goes-on"].datagrams = losses.datagrams
        return [(case, self.outcomes[case.what]) for case in cases]

    def look(self, hosts, others):
        server, delays, outcome = hosts[0], [], self.outcomes["send-beside-read"]
        elsewhere = [self.lab.runner.run(self.plan, *others)]
        with self.lab.runner.started(self.plan, *hosts) as pair:

            def ended():
                delays.append(backlog(server) * 8e6 / RATES[self.rate])
                return not pair.runs

            wait_until(ended, self.plan.seconds, 0.05)
            wait(pair.programs, 10)
        elsewhere.append(self.lab.runner.run(self.plan, *others))
        for sample in elsewhere:
            if sample.value is None and not sample.unmeasured:
                outcome.lacks_yardstick(sample.report)
        # The tool prints half of the median round trip, of which one way waits in the queue. The
        # median passes over the time in which the programs start.
        quiet = [sample.value for sample in elsewhere if sample.value]
        own = median(delays) / 2 + sum(quiet) / len(quiet) if quiet else None
        outcome.add(pair.sample(), own)
        for host in hosts:
            self.outcomes["open-beside-read"].add(self.open_device(host), None)

    def open_device(self, host):
        """Opens the device in one more process."""
        path = self.lab.runner.new_path("open")
        started = time.monotonic()
        program = host.start(["ibv_devinfo", "-d", host.device], path, options(USUAL_BUFFER))
        try:
            wait([program], OPEN_SECONDS)
        finally:
            program.end()
        if program.status == 0 and "PORT_ACTIVE" in program.stdout():
            return Sample(time.monotonic() - started)
        sample = Sample()
        program.describe(sample)
        return sample

    def bulk_sample(self, bulk, server):
        """The READs must be under way still."""
        moving = queue(server)["bytes"]
        time.sleep(1)
        if bulk.runs and queue(server)["bytes"] > moving:
            return Sample(1.0)
        return bulk.sample()


def backlog(host):
    return queue(host)["backlog"]
