"""What a run tells, and what it leaves."""

import shutil
import sys

from lab import cache_dir


def explain(result):
    for problem in result.problems:
        print(f"    {problem}")
    for heading, text in result.report:
        print(f"    {heading}:")
        for line in text.splitlines() or ["(nothing)"]:
            print(f"        {line}")
    sys.stdout.flush()


def put_away(logs, name, keep):
    """Keeps the logs of the last failed run, and no others."""
    if keep:
        place = cache_dir() / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.move(logs, place)
        say(f"logs and captures: {place}")
    else:
        shutil.rmtree(logs)


def say(text):
    print(text, file=sys.stderr, flush=True)
