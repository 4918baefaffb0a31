"""Measuring by turns: yardstick, case, yardstick, case, …

The machine's speed changes while it is measured, so a figure is divided by the yardsticks right
before and right behind it. The number of rounds is settled before, and no figure changes it. What
fails has failed, and is not run any further.
"""

import math
import time

from lab.load.case import Outcome
from lab.report import say


class Turns:
    """The rounds of a group. At `end`, by the monotonic clock, nothing more begins, even within a
    round; then it was `broken_off`.
    """

    def __init__(self, group, rounds, end=math.inf):
        self.group, self.rounds, self.end = group, rounds, end
        self.broken_off = False

    @property
    def over(self):
        self.broken_off = self.broken_off or time.monotonic() > self.end
        return self.broken_off

    def __iter__(self):
        for number in range(self.rounds):
            if self.over:
                return
            say(f"{self.group}: round {number + 1} of {self.rounds}")
            yield number


def by_turns(yardstick, runs, turns):
    """(outcome of the yardstick, [outcome of each run]); all are functions that return samples."""
    measured, outcomes = Outcome(), [Outcome() for _ in runs]

    def measure_yardstick():
        if measured.failed:
            return None
        sample = yardstick()
        measured.add(sample, None)
        return sample.value

    before = measure_yardstick()
    for _ in turns:
        for run, outcome in zip(runs, outcomes, strict=True):
            if outcome.failed or measured.failed or turns.over:
                continue
            sample = run()
            after = measure_yardstick()
            both = [value for value in (before, after) if value]
            outcome.add(sample, sum(both) / len(both) if both else None)
            before = after
    if measured.failed:
        for outcome in outcomes:
            outcome.lacks_yardstick(measured.report)
    return measured, outcomes
