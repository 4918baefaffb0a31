"""The suite "load": bandwidth, latency and losses under load, as ratios."""

import itertools
import time
from dataclasses import replace
from pathlib import Path

from lab import binaries
from lab.dropin.hosts import place_ours
from lab.load import bandwidth, baseline, crowd, datagrams, latency, loss, steady
from lab.load.network import SlowLinks
from lab.load.perftest import LEAST_COUNT, Runner
from lab.load.tables import bandwidth_table, bar_table, cell, problems
from lab.load.turns import Turns
from lab.report import CaseTable, Result, say
from lab.requirements import Packages

PACKAGES = ["perftest", "ibverbs-utils", "nftables", "iproute2", "util-linux"]

# The first words of the groups.
PARTS = {
    "bandwidth": bandwidth,
    "steady": steady,
    "latency": latency,
    "loss": loss,
    "crowd": crowd,
    "datagrams": datagrams,
    "baseline": baseline,
}

# Rounds of a group.
ROUNDS = 3
# In the short form, a single one of those that take longest.
LONG = ("bandwidth", "steady", "crowd")
# Time after which nothing more begins on a machine that is far too slow: what was not measured
# then has failed. It is twice what a usual machine needs.
SECONDS, SHORT_SECONDS = 60 * 60, 8 * 60


def cases():
    return [case for part in PARTS.values() for case in part.cases()]


def of_form(options, cases):
    """Those of the cases that run with these options."""
    return [
        case
        for case in cases
        if (case.short or not options.short)
        and (options.baseline or not case.group.startswith("baseline/"))
    ]


def add_arguments(parser):
    parser.add_argument(
        "--short", action="store_true", help="the short form, with lower bars, for shared machines"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"rounds of each measurement; by default {ROUNDS}, but one beside other programs, and "
        "in the short form one of those that take longest",
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="DIR",
        help="directory with `roce` and `libroce_abi.so` of an older build, to compare with",
    )


def requirements(chosen):
    return [Packages(PACKAGES), SlowLinks()]


def refusal(options, chosen):
    """Reason why nothing can be run, if there is one."""
    if options.baseline and not (options.baseline / "libroce_abi.so").exists():
        return f"there is no libroce_abi.so in {options.baseline}"
    if not chosen:
        return "all of these cases want --baseline, or are not part of the short form"
    return ""


def run(options, chosen, logs):
    """Runs the cases; returns the number of failed ones."""
    groups = [
        (group, list(members))
        for group, members in itertools.groupby(chosen, key=lambda case: case.group)
    ]
    lab = Lab(options, logs)
    table, measured, started = CaseTable(chosen), {}, time.monotonic()
    try:
        for group, members in groups:
            lab.measure(group, members, table, measured)
    finally:
        # After Ctrl-C, what there is.
        print()
        print(bandwidth_table({case.name: outcome for case, outcome in measured.items()}))
        print(bar_table([row for row in measured.items() if row[0] in chosen], options.short))
    say(f"{len(chosen)} cases in {time.monotonic() - started:.0f} s")
    table.print_summary()
    return table.failed


class Lab:
    """What the parts share."""

    def __init__(self, options, logs):
        self.logs, self.baseline, self.short = logs, options.baseline, options.short
        self.roce = place_ours(binaries.roce(), binaries.library(), logs)
        self.runner = Runner(logs)
        self.wanted = options.rounds
        self.end = time.monotonic() + (SHORT_SECONDS if options.short else SECONDS)
        self.networks = itertools.count()

    def scaled(self, plan):
        """A plan with as many messages as this form has time for."""
        return replace(plan, count=max(plan.count // 2, LEAST_COUNT)) if self.short else plan

    def next_network(self):
        """Number of a network; none is used twice, because its hosts have directories."""
        return next(self.networks)

    def measure(self, group, members, table, measured):
        """Measures cases of a group."""
        begun = time.monotonic()
        self.rounds = Turns(group, self.wanted or rounds_of(group, self.short), self.end)
        rows = PARTS[group.split("/")[0]].measure(self, group, members)
        measured.update(rows)
        seconds = time.monotonic() - begun
        for case, outcome in rows:
            if case in members:
                found = problems(case, outcome, self.short)
                if self.rounds.broken_off and not found:
                    found = ["the time was over before the last round"]
                table.add(case, Result(found, outcome.report, seconds / len(rows), cell(outcome)))

    def turns(self, group):
        """The rounds of a group that is measured."""
        assert group == self.rounds.group
        return self.rounds


def rounds_of(group, short):
    """Beside other programs only that none fails is wanted."""
    single = group.endswith("/busy") or (short and group.split("/")[0] in LONG)
    return 1 if single else ROUNDS
