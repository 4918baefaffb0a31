"""Several transfers at once: from eight hosts to one, and READs beside WRITEs. Their sum counts,
against one WRITE of 1 MiB.
"""

import contextlib
from dataclasses import replace

from lab.load import bandwidth
from lab.load.case import Bar, Case, Sample
from lab.load.network import switch, wire
from lab.load.perftest import PORT, Losses
from lab.load.turns import by_turns
from lab.programs import wait

SENDERS = 8
SECONDS = 90


def cases():
    yield Case("crowd/incast", f"{SENDERS}-hosts", Bar(0.5, 0.8, 0.2))
    yield Case("crowd/mixed", "read-beside-write", Bar(0.7, 1.0, 0.3), short=True)


def measure(lab, group, cases):
    with switch(lab, SENDERS + 1) if group == "crowd/incast" else wire(lab) as hosts:
        server, clients = hosts[0], hosts[1:]
        write, read = (
            lab.scaled(plan) for plan in (bandwidth.YARDSTICK, bandwidth.PLANS["read-1M"])
        )
        if group == "crowd/incast":
            tests = [(replace(write, count=200), client) for client in clients]
        else:
            tests = [(write, clients[0]), (read, clients[0])]
        yardstick, outcomes = by_turns(
            lambda: lab.runner.run(write, server, clients[0], SECONDS),
            [lambda: together(lab, tests, server)],
            lab.turns(group),
        )
    return [(Case(group, "yardstick"), yardstick), *zip(cases, outcomes, strict=True)]


def together(lab, tests, server):
    """Runs all at once: pairs of a plan and a client's host."""
    hosts = [server, *(client for _, client in tests)]
    with Losses(hosts) as losses, contextlib.ExitStack() as stack:
        pairs = [
            stack.enter_context(lab.runner.started(plan, server, client, PORT + number))
            for number, (plan, client) in enumerate(tests)
        ]
        wait([program for pair in pairs for program in pair.programs], SECONDS)
    samples = [pair.sample() for pair in pairs]
    whole = Sample(0.0, losses.lost, losses.datagrams)
    if any(sample.value is None for sample in samples):
        whole.value = None
        for sample in samples:
            whole.report += sample.report
    else:
        whole.value = sum(sample.value for sample in samples)
    return whole
