"""Datagrams that find no room in our own sockets while a transfer is under way, as a share of those
that come.
"""

import time

from lab.load.bandwidth import WIRES
from lab.load.case import Bar, Case, Outcome, Sample
from lab.load.network import wire
from lab.load.perftest import MIB, Losses, Plan
from lab.load.sockets import udp_totals
from lab.running import wait, wait_until

# Far longer than what is looked at.
SECONDS = 8
FIRST, WINDOW = 1.5, 3
PLANS = {
    "write-1M": Plan("write 1 MiB", "write_bw", MIB, 0, words=("-D", SECONDS)),
    "write-1M-64-pairs": Plan(
        "write 1 MiB, 64 pairs", "write_bw", MIB, 0, 64, 16, words=("-D", SECONDS)
    ),
    "read-1M": Plan("read 1 MiB", "read_bw", MIB, 0, words=("-D", SECONDS)),
}
BAR = Bar(0.001, 0.0, 0.05, at_most=True, form=".2%")


def cases():
    for network in WIRES:
        for what in PLANS:
            yield Case(
                f"steady/{network}", what, BAR, short=network == "mtu4096" and what != "read-1M"
            )


def measure(lab, group, cases):
    outcomes = [Outcome(unit="") for _ in cases]
    with wire(lab, WIRES[group.split("/")[1]]) as (server, client):
        for _ in lab.turns(group):
            for case, outcome in zip(cases, outcomes, strict=True):
                look(lab, PLANS[case.what], server, client, outcome)
    return list(zip(cases, outcomes, strict=True))


def look(lab, plan, server, client, outcome):
    with lab.runner.started(plan, server, client) as pair:
        before = udp_totals(server)

        def under_way():
            return (udp_totals(server) - before).received > 100

        if not pair.runs or not wait_until(under_way, 30, 0.1):
            outcome.add(pair.sample(), None)
            return
        time.sleep(FIRST)
        with Losses([server, client]) as losses:
            time.sleep(WINDOW)
        wait(pair.programs, SECONDS + 30)
    sample = pair.sample(losses)
    if losses.datagrams == 0:
        sample = Sample.failure("nothing came while it was looked at")
    outcome.add(sample, None)
    if not outcome.failed:
        outcome.ratios.append(losses.lost / losses.datagrams)
