"""Bandwidth of READs and of many queue pairs, against WRITEs of 1 MiB on one queue pair."""

import contextlib

from lab.dropin.hosts import HostPair
from lab.load.case import Bar, Case
from lab.load.others import OtherPrograms
from lab.load.perftest import MIB, Plan
from lab.load.turns import by_turns

YARDSTICK = Plan("write 1 MiB", "write_bw", MIB, 1000)

# Messages so few that the memory suffices: perftest has two buffers of a message for each queue
# pair, on both sides.
PLANS = {
    "read-1M": Plan("read 1 MiB", "read_bw", MIB, 1000),
    "read-16M": Plan("read 16 MiB", "read_bw", 16 * MIB, 64),
    "read-256M": Plan("read 256 MiB", "read_bw", 256 * MIB, 5, depth=4),
    "write-1M-16-pairs": Plan("write 1 MiB, 16 pairs", "write_bw", MIB, 64, 16, 64),
    "write-1M-64-pairs": Plan("write 1 MiB, 64 pairs", "write_bw", MIB, 16, 64, 16),
    "write-256K-256-pairs": Plan("write 256 KiB, 256 pairs", "write_bw", MIB // 4, 16, 256, 16),
    "write-1M-1000-pairs": Plan("write 1 MiB, 1000 pairs", "write_bw", MIB, 5, 1000, 5),
}
BARS = {
    "read-1M": Bar(0.8, 1.0, 0.5),
    "read-16M": Bar(0.8, 1.0, 0.5),
    "read-256M": Bar(0.8, 1.0, 0.4),
    "write-1M-16-pairs": Bar(0.8, 1.0, 0.5),
    "write-1M-64-pairs": Bar(0.8, 1.0, 0.5),
    "write-256K-256-pairs": Bar(0.7, 1.0, 0.4),
    "write-1M-1000-pairs": Bar(0.6, 1.0, 0.3),
}

# Path MTU -> MTU of the wire.
WIRES = {4096: 4200, 1024: 1500}
STATES = ["quiet", "busy"]


def bandwidth_cases():
    for path_mtu in WIRES:
        for state in STATES:
            for what, bar in BARS.items():
                short = path_mtu == 4096 and state == "quiet" and what != "write-1M-1000-pairs"
                # On the busy machine only that none fails is wanted: who gets the processor is
                # the system's choice.
                wanted = bar if state == "quiet" else None
                yield Case(f"bandwidth/mtu{path_mtu}/{state}", what, wanted, short)


def measure(lab, group, cases):
    """Measures the cases of a group; returns [(case, outcome)], the yardstick's case first."""
    _, mtu, state = group.split("/")
    with HostPair(0, lab.roce, WIRES[int(mtu.removeprefix("mtu"))]) as pair:
        server, client = pair.hosts
        others = OtherPrograms() if state == "busy" else contextlib.nullcontext()
        seconds = 120 if state == "busy" else 60

        def run(plan):
            return lambda: lab.runner.run(plan, server, client, seconds)

        runs = [run(PLANS[case.what]) for case in cases]
        with others:
            yardstick, outcomes = by_turns(run(YARDSTICK), runs, lab.rounds, lab.progress(group))
    return [(Case(group, "yardstick"), yardstick), *zip(cases, outcomes, strict=True)]
