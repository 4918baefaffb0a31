"""WRITEs of 64 KiB over a network that loses packets or whole runs of them, or changes their order,
against the same network without.
"""

from dataclasses import replace

from lab.load.case import Bar, Case
from lab.load.network import lose, packet_by_packet, wire
from lab.load.perftest import Plan
from lab.load.turns import by_turns

PLANS = {
    # As behind a network card, which cuts runs into packets.
    "loss/packets": Plan("write 64 KiB", "write_bw", 65536, 2000),
    # As on a virtual network, and in a switch whose queue is full.
    "loss/runs": Plan("write 64 KiB", "write_bw", 65536, 8000),
    # Slower, because packets leave one by one where there are faults.
    "loss/fault": Plan("write 64 KiB", "write_bw", 65536, 1000),
}
# The share that each host does not receive.
SHARES = {"1%": 0.01, "0.1%": 0.001}
# The yardstick has a fault, too, which never hits.
FAULTS = {"reorder-1%": "reorder 1%"}
NO_FAULT = "reorder 0% psn 0..0"
BARS = {"1%": Bar(0.3, 0.6, 0.07), "0.1%": Bar(0.6, 0.9, 0.15), "reorder-1%": Bar(0.3, 0.6, 0.07)}


def cases():
    for group in ("loss/packets", "loss/runs"):
        for what in SHARES:
            short = group == "loss/packets" and what == "1%"
            yield Case(group, what, BARS[what], short)
    for what in FAULTS:
        yield Case("loss/fault", what, BARS[what], short=True)


def measure(lab, group, cases):
    with wire(lab) as hosts:
        if group == "loss/packets":
            for host in hosts:
                packet_by_packet(host)

        def run(what):
            def measured():
                share = SHARES.get(what, 0)
                for host in hosts:
                    lose(host, share)
                plan = PLANS[group]
                if group == "loss/fault":
                    plan = replace(plan, run=("--fault", FAULTS.get(what, NO_FAULT)))
                return lab.runner.run(plan, *hosts)

            return measured

        runs = [run(case.what) for case in cases]
        yardstick, outcomes = by_turns(run(None), runs, lab.turns(group))
    return [(Case(group, "yardstick"), yardstick), *zip(cases, outcomes, strict=True)]
