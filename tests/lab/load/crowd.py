"""Several transfers at once: from eight hosts to one, READs beside WRITEs, and to four servers at
one address. Their sum counts, against one transfer of WRITEs.
"""

import contextlib
import time
from dataclasses import replace

from lab.load import bandwidth
from lab.load.case import Bar, Case, Sample
from lab.load.network import switch, wire
from lab.load.perftest import PORT, Losses
from lab.load.turns import by_turns
from lab.running import wait

SENDERS = 8
SERVERS = 4
# Each goes on for so long, so that all are under way at once; the processes start one by one.
DURATION = ("-D", 6)
WRITE = replace(bandwidth.YARDSTICK, words=DURATION)
READ = replace(bandwidth.PLANS["read-1M"], words=DURATION)
SECONDS = 60


def cases():
    yield Case("crowd/incast", f"{SENDERS}-hosts", Bar(0.5, 0.8, 0.1))
    yield Case("crowd/mixed", "read-beside-write", Bar(0.7, 1.0, 0.15), short=True)
    yield Case("crowd/servers", f"{SERVERS}-at-one-address", Bar(0.7, 1.0, 0.15))


def measure(lab, group, cases):
    with switch(lab, SENDERS + 1) if group == "crowd/incast" else wire(lab) as hosts:
        server, clients = hosts[0], hosts[1:]
        if group == "crowd/incast":
            tests = [(WRITE, client) for client in clients]
        elif group == "crowd/servers":
            tests = [(WRITE, clients[0])] * SERVERS
        else:
            tests = [(WRITE, clients[0]), (READ, clients[0])]
        yardstick, outcomes = by_turns(
            lambda: lab.runner.run(WRITE, server, clients[0]),
            [lambda: together(lab, tests, server)],
            lab.turns(group),
        )
    return [(Case(group, "yardstick"), yardstick), *zip(cases, outcomes, strict=True)]


def together(lab, tests, server):
    """Runs all at once: pairs of a plan and a client's host."""
    hosts = [server, *(client for _, client in tests)]
    with Losses(hosts) as losses, contextlib.ExitStack() as stack:
        pairs = [
            stack.enter_context(lab.runner.prepared(plan, server, PORT + number))
            for number, (plan, _) in enumerate(tests)
        ]
        for pair, (_, client) in zip(pairs, tests, strict=True):
            pair.start_client(client)
        end = time.monotonic() + SECONDS
        for pair in pairs:
            wait(pair.programs, max(1, end - time.monotonic()))
    samples = [pair.sample() for pair in pairs]
    return summed(samples, losses)


def summed(samples, losses):
    """What all of them showed together."""
    whole = Sample(lost=losses.lost, datagrams=losses.datagrams)
    failed = [sample for sample in samples if sample.value is None and not sample.unmeasured]
    if failed:
        whole.report = [line for sample in failed for line in sample.report]
    elif any(sample.unmeasured for sample in samples):
        whole.unmeasured = True
    else:
        whole.value = sum(sample.value for sample in samples)
    return whole
