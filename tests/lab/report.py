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


# So many cases may fail once and pass when they run again, and the run passes: machines are shared.
# A defect that is not rare fails in more of them, or twice.
REPEATED = 3


class CaseTable:
    """Prints each case as it ends, and counts. A case that fails runs again, the first few times
    that this happens. Threads may share it.
    """

    def __init__(self, cases):
        self.width = max(len(case.name) for case in cases)
        self.count = len(cases)
        self.problems = {}  # name -> problems, of cases that have failed
        self.passed_again = set()  # names of those that then passed
        self.lock = threading.Lock()

    @property
    def failed(self):
        return len(self.problems) - len(self.passed_again)

    def run(self, case, execute):
        """Runs a case by a function that returns its result."""
        if self.add(case, execute()):
            self.add(case, execute())

    def add(self, case, result):
        """Prints and counts a result; returns true if the case is to run again."""
        good = "refused" if getattr(case, "refused", False) else "ok"
        word = "FAIL" if result.problems else good
        line = f"{case.name:{self.width}}  {word:7}  {result.seconds:6.2f} s  {result.note}"
        with self.lock:
            print(line.rstrip(), flush=True)
            again = case.name in self.problems
            if result.problems:
                self.problems[case.name] = result.problems
                explain(result)
            elif again:
                self.passed_again.add(case.name)
            return bool(result.problems) and not again and len(self.problems) <= REPEATED

    def print_summary(self):
        """Prints what has failed once more: a log is read from its end."""
        for name, problems in self.problems.items():
            word = "failed once, and passed again" if name in self.passed_again else "failed"
            print(f"{name}: {word}: {'; '.join(problems)}")
        print(f"{self.count - self.failed} passed, {self.failed} failed", flush=True)


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
