"""Bandwidth of READs and of many queue pairs, against WRITEs of 1 MiB on one queue pair: over a
wire, and through memory that the processes of one host share.
"""

import contextlib
from dataclasses import replace

from lab.load.case import Bar, Case
from lab.load.network import loopback, wire
from lab.load.others import OtherPrograms
from lab.load.perftest import LARGE_BUFFER, MIB, Plan
from lab.load.turns import by_turns

YARDSTICK = Plan("write 1 MiB", "write_bw", MIB, 1000)
# One queue pair that goes over as much memory as many: no cache holds it.
LARGE_YARDSTICK = Plan("write 64 MiB", "write_bw", 64 * MIB, 20, depth=4)

# Messages so few that the memory suffices: perftest has two buffers of a message for each queue
# pair, on both sides.
PLANS = {
    "read-1M": Plan("read 1 MiB", "read_bw", MIB, 1000),
    "read-16M": Plan("read 16 MiB", "read_bw", 16 * MIB, 64),
    "read-256M": Plan("read 256 MiB", "read_bw", 256 * MIB, 5, depth=4),
    # What memory alone costs: no cache holds so much, and pages are touched for the first time.
    "write-256M": Plan("write 256 MiB", "write_bw", 256 * MIB, 5, depth=4),
    "write-1M-16-pairs": Plan("write 1 MiB, 16 pairs", "write_bw", MIB, 64, 16, 64),
    "write-1M-64-pairs": Plan("write 1 MiB, 64 pairs", "write_bw", MIB, 16, 64, 16),
    "write-256K-256-pairs": Plan("write 256 KiB, 256 pairs", "write_bw", MIB // 4, 16, 256, 16),
    "write-1M-1000-pairs": Plan(
        "write 1 MiB, 1000 pairs", "write_bw", MIB, 5, 1000, 5, seconds=180
    ),
    "write-1M-large-buffer": replace(
        YARDSTICK, name="write 1 MiB, large socket buffers", variables=LARGE_BUFFER
    ),
}
BARS = {
    "read-1M": Bar(0.8, 1.0, 0.25),
    "read-16M": Bar(0.8, 1.0, 0.25),
    "read-256M": Bar(0.8, 1.0, 0.1),
    "write-1M-16-pairs": Bar(0.8, 1.0, 0.25),
    "write-1M-64-pairs": Bar(0.8, 1.0, 0.25),
    "write-256K-256-pairs": Bar(0.7, 1.0, 0.2),
    "write-1M-1000-pairs": Bar(0.6, 1.0, 0.15),
    # The yardstick itself must not suffer from its small buffers.
    "write-1M-large-buffer": Bar(1.25, 1.0, 3.0, at_most=True),
}

# Name of the network -> MTU of the wire: 1500 leaves a path MTU of 1024. Shared memory has none.
WIRES = {"mtu4096": 4200, "mtu1024": 1500}
# What goes through shared memory is as fast as copies are, and those are several times as fast
# within a cache: what goes over more memory has a yardstick that does, too. There is no socket
# buffer; and perftest takes long to get its memory for 1000 queue pairs.
MEMORIES = {
    "memory": {"read-1M", "read-16M", "write-1M-16-pairs"},
    "large-memory": {"read-256M", "write-256M", "write-1M-64-pairs", "write-256K-256-pairs"},
}
NETWORKS = [*WIRES, *MEMORIES]
STATES = ["quiet", "busy"]
# The short form has these: enough to see that READs, and many queue pairs, are as fast.
SHORT = {
    "mtu4096": {*PLANS} - {"write-1M-1000-pairs"},
    "memory": {"read-1M"},
    "large-memory": {"read-256M", "write-256K-256-pairs"},
}


def cases():
    for network in NETWORKS:
        for state in STATES:
            for what in PLANS:
                if what not in MEMORIES.get(network, PLANS):
                    continue
                # A path MTU of 1024 takes long for so many.
                if network == "mtu1024" and what == "write-1M-1000-pairs":
                    continue
                short = state == "quiet" and what in SHORT.get(network, ())
                # Beside other programs only that none fails is wanted: who gets the processor is
                # the system's choice.
                bar = BARS.get(what) if state == "quiet" else None
                yield Case(f"bandwidth/{network}/{state}", what, bar, short)


def yardstick_of(network):
    return LARGE_YARDSTICK if network == "large-memory" else YARDSTICK


def measure(lab, group, cases):
    _, network, state = group.split("/")
    place = wire(lab, WIRES[network]) if network in WIRES else loopback(lab)
    others = OtherPrograms() if state == "busy" else contextlib.nullcontext()
    with place as (server, client), others:

        def run(plan):
            return lambda: lab.runner.run(lab.scaled(plan), server, client)

        runs = [run(PLANS[case.what]) for case in cases]
        yardstick, outcomes = by_turns(run(yardstick_of(network)), runs, lab.turns(group))
    return [(Case(group, "yardstick"), yardstick), *zip(cases, outcomes, strict=True)]
