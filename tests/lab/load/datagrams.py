"""Bulk of UC and UD, which nothing repeats, over a slow link whose receiver can keep up: the share
of the packets that never leave the sender, and of those that the receiver's socket loses.
"""

from lab.load.case import Bar, Case, Outcome
from lab.load.network import count, counted, slow, wire
from lab.load.perftest import Losses, Plan
from lab.running import wait, wait_until

RATE = "100mbit"
PATH_MTU = 4096
# Time that the receiver has for the rest when the sender has printed its figure.
REST_SECONDS = 2
PLANS = {
    "ud": Plan("send 4 KiB by UD", "send_bw", 4096, 4000, words=("-c", "UD")),
    "uc": Plan("write 64 KiB by UC", "write_bw", 65536, 250, words=("-c", "UC")),
}
BARS = {
    "sent": Bar(0, 0, 0, at_most=True, form=".2%"),
    "received": Bar(0.001, 0, 0.05, at_most=True, form=".2%"),
}


def cases():
    for what in PLANS:
        for side, bar in BARS.items():
            yield Case(f"datagrams/{what}", side, bar, short=True)


def measure(lab, group, cases):
    plan = PLANS[group.split("/")[1]]
    outcomes = {side: Outcome() for side in BARS}
    with wire(lab) as (server, client):
        slow(client, RATE)
        for _ in lab.turns(group):
            count(server)
            sample = run(lab, plan, server, client)
            for outcome in outcomes.values():
                outcome.add(sample, None)
            if not outcomes["sent"].failed:
                packets = plan.count * plan.size // PATH_MTU
                outcomes["sent"].ratios.append(max(0, 1 - counted(server) / packets))
                outcomes["received"].ratios.append(sample.lost / sample.datagrams)
    return [(case, outcomes[case.what]) for case in cases]


def run(lab, plan, server, client):
    with Losses([server, client]) as losses, lab.runner.started(plan, server, client) as pair:
        # A server waits for ever for what was lost.
        wait_until(lambda: not pair.runs or pair.printed, plan.seconds, 0.1)
        wait(pair.programs, REST_SECONDS)
        printed = pair.printed
    return pair.judged(printed, losses)
