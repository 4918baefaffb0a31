"""The suite "load": bandwidth and latency under load, as ratios."""

import itertools
import time

from lab import binaries
from lab.dropin.hosts import place_ours
from lab.load import bandwidth
from lab.load.perftest import Runner
from lab.load.tables import bandwidth_table, bar_table, cell, problems
from lab.report import CaseTable, Result, say
from lab.requirements import Packages

PACKAGES = ["perftest", "iproute2", "util-linux"]
ROUNDS = 5
SHORT_ROUNDS = 3


def cases():
    return list(bandwidth.bandwidth_cases())


def add_arguments(parser):
    parser.add_argument(
        "--short", action="store_true", help="the short form, with lower bars, for shared machines"
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help=f"rounds; by default {ROUNDS}, or {SHORT_ROUNDS}"
    )


def requirements(chosen):
    return [Packages(PACKAGES)]


def refusal(options, chosen):
    """Reason why nothing can be run, if there is one."""
    if options.short and not any(case.short for case in chosen):
        return "the short form has none of these cases"
    return ""


def run(options, chosen, logs):
    """Runs the cases; returns the number of failed ones."""
    if options.short:
        chosen = [case for case in chosen if case.short]
    lab = Lab(options, logs)
    table, rows, started = CaseTable(chosen), [], time.monotonic()
    for group, members in itertools.groupby(chosen, key=lambda case: case.group):
        begun = time.monotonic()
        measured = bandwidth.measure(lab, group, list(members))
        for case, outcome in measured:
            rows.append((case, outcome))
            if case in chosen:
                result = Result(problems(case, outcome, options.short), outcome.report)
                result.seconds = (time.monotonic() - begun) / len(measured)
                result.note = cell(outcome)
                table.add(case, result)
    print(bandwidth_table({case.name: outcome for case, outcome in rows}))
    print(bar_table(rows, options.short))
    print()
    say(f"{len(chosen)} cases in {time.monotonic() - started:.0f} s")
    table.print_summary()
    return table.failed


class Lab:
    """What measurements share."""

    def __init__(self, options, logs):
        self.short = options.short
        self.rounds = options.rounds or (SHORT_ROUNDS if options.short else ROUNDS)
        self.roce = place_ours(binaries.roce(), binaries.library(), logs)
        self.runner = Runner(logs)

    def progress(self, group):
        return lambda text: say(f"{group}: {text}")
