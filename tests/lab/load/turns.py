"""Measuring by turns: yardstick, case, yardstick, case, …

The machine's speed changes while it is measured, so a figure is divided by the yardsticks right
before and right behind it.
"""

from lab.load.case import Outcome

# A case that fails this often is not run again.
FAILURES = 2


def by_turns(yardstick, runs, rounds, progress=lambda text: None):
    """(outcome of the yardstick, [outcome of each run]); all are functions that return samples."""
    measured, outcomes = Outcome(), [Outcome() for _ in runs]

    def measure_yardstick():
        if measured.failed >= FAILURES:
            return None
        sample = yardstick()
        measured.add(sample, None)
        return sample.value

    before = measure_yardstick()
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for run, outcome in zip(runs, outcomes, strict=True):
            if outcome.failed >= FAILURES:
                continue
            sample = run()
            after = measure_yardstick()
            both = [value for value in (before, after) if value]
            outcome.add(sample, sum(both) / len(both) if both else None)
            before = after
    return measured, outcomes
