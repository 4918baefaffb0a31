"""Measuring by turns: yardstick, case, yardstick, case, …

The machine's speed changes while it is measured, so a figure is divided by the yardsticks right
before and right behind it.
"""

import math
import time

from lab.load.case import Outcome
from lab.report import say

# A case that fails this often is not run again.
FAILURES = 2


class Turns:
    """The rounds of a group: so many, but fewer if they take longer than `seconds`. Even the first
    is broken off at `end`, by the monotonic clock.
    """

    def __init__(self, group, rounds, seconds, end=math.inf):
        self.group, self.rounds, self.seconds, self.end = group, rounds, seconds, end

    @property
    def over(self):
        return time.monotonic() > self.end

    def __iter__(self):
        started = time.monotonic()
        for number in range(self.rounds):
            say(f"{self.group}: round {number + 1} of {self.rounds}")
            yield number
            passed = time.monotonic() - started
            if passed * (number + 2) / (number + 1) > self.seconds:
                return


def by_turns(yardstick, runs, turns):
    """(outcome of the yardstick, [outcome of each run]); all are functions that return samples."""
    measured, outcomes = Outcome(), [Outcome() for _ in runs]

    def measure_yardstick():
        if measured.failed >= FAILURES:
            return None
        sample = yardstick()
        measured.add(sample, None)
        return sample.value

    before = measure_yardstick()
    for _ in turns:
        for run, outcome in zip(runs, outcomes, strict=True):
            if outcome.failed >= FAILURES or turns.over:
                continue
            sample = run()
            after = measure_yardstick()
            both = [value for value in (before, after) if value]
            outcome.add(sample, sum(both) / len(both) if both else None)
            before = after
    return measured, outcomes
