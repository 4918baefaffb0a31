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

# Rounds, and the seconds that a whole run may take for them.
ROUNDS, SECONDS = 5, 25 * 60
SHORT_ROUNDS, SHORT_SECONDS = 2, 180
# Time beyond that, after which nothing more begins on a machine that is far too slow.
SPARE_SECONDS = 30


def cases():
    return [case for part in PARTS.values() for case in part.cases()]


def add_arguments(parser):
    parser.add_argument(
def of_form(options, cases):
    """Those of the cases that run with these options."""
    return [
        case
        for case in cases
        if (case.short or not options.short)
        and (options.baseline or not case.group.startswith("baseline/"))
    ]


        "--short", action="store_true", help="the short form, with lower bars, for shared machines"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"most rounds of a measurement; by default {ROUNDS}, in the short form {SHORT_ROUNDS}",
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
    lab = Lab(options, logs, {group: len(members) for group, members in groups})
    table, measured, started = CaseTable(chosen), {}, time.monotonic()
    try:
        for group, members in groups:
            while members:
                members = lab.measure(group, members, table, measured)
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

    def __init__(self, options, logs, sizes):
        self.logs, self.baseline, self.short = logs, options.baseline, options.short
        self.roce = place_ours(binaries.roce(), binaries.library(), logs)
        self.runner = Runner(logs)
        self.rounds = options.rounds or (SHORT_ROUNDS if options.short else ROUNDS)
        self.end = time.monotonic() + (SHORT_SECONDS if options.short else SECONDS)
        self.waiting = sizes  # group -> number of cases
        self.networks = itertools.count()

    def scaled(self, plan):
        """A plan with as many messages as this form has time for."""
        return replace(plan, count=max(plan.count // 2, LEAST_COUNT)) if self.short else plan

    def next_network(self):
        """Number of a network; none is used twice, because its hosts have directories."""
        return next(self.networks)

    def measure(self, group, members, table, measured):
        """Measures cases of a group; returns those that are to be measured again."""
        begun = time.monotonic()
        rows = PARTS[group.split("/")[0]].measure(self, group, members)
        measured.update(rows)
        seconds, again = time.monotonic() - begun, []
        for case, outcome in rows:
            if case in members:
                found = problems(case, outcome, self.short)
                result = Result(found, outcome.report, seconds / len(rows), cell(outcome))
                if table.add(case, result):
                    again.append(case)
        if again:
            # with as much time as they had
            self.waiting[group] = len(again)
            self.end += seconds
        return again

    def turns(self, group):
        """The rounds of a group: it has its share of the time that is left."""
        left = self.end - time.monotonic()
        share = self.waiting[group] / sum(self.waiting.values())
        del self.waiting[group]
        return Turns(group, self.rounds, left * share, self.end + SPARE_SECONDS)
