"""Reports: the result of a case, the lines about it, and the logs of a failed run."""

import shutil
import sys
import threading
from dataclasses import dataclass, field

from lab.host import cache_dir


@dataclass
class Result:
    """Result of a case: it has failed if there are problems."""

    problems: list = field(default_factory=list)
    report: list = field(default_factory=list)  # (heading, text), shown of a failed case
    seconds: float = 0.0
    note: str = ""  # shown behind the case's name


class CaseTable:
    """Prints each case as it ends, and counts. Threads may share it."""

    def __init__(self, cases):
        self.width = max(len(case.name) for case in cases)
        self.passed = 0
        self.problems = {}  # name -> problems, of cases that have failed
        self.lock = threading.Lock()

    @property
    def failed(self):
        return len(self.problems)

    def add(self, case, result):
        """Prints and counts a result. A case has one."""
        good = "refused" if getattr(case, "refused", False) else "ok"
        word = "FAIL" if result.problems else good
        line = f"{case.name:{self.width}}  {word:7}  {result.seconds:6.2f} s  {result.note}"
        with self.lock:
            print(line.rstrip(), flush=True)
            if result.problems:
                self.problems[case.name] = result.problems
                explain(result)
            else:
                self.passed += 1

    def print_summary(self):
        """Prints what has failed once more: a log is read from its end."""
        for name, problems in self.problems.items():
            print(f"{name}: failed: {'; '.join(problems)}")
        print(f"{self.passed} passed, {self.failed} failed", flush=True)


def explain(result):
    for problem in result.problems:
        print(f"    {problem}")
    for heading, text in result.report:
        print(f"    {heading}:")
        for line in text.splitlines() or ["(nothing)"]:
            print(f"        {line}")
    sys.stdout.flush()


def keep_logs(logs, name, failed):
    """Keeps the logs of the last failed run, and no others."""
    if failed:
        place = cache_dir() / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.move(logs, place)
        say(f"logs and captures: {place}")
    else:
        shutil.rmtree(logs)


def say(text):
    print(text, file=sys.stderr, flush=True)
