"""rdma-core's own tests of the verbs, as Debian ships them.

`pyverbs-expected.txt` lists the tests that pass. A test that fails is a failure, and so is one of
that list that does not pass. Of the 273 tests 171 are for devices of any kind; the others are for
hardware of two vendors.
"""

import gzip
import json
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from lab.dropin.pyverbs_page import write_page
from lab.host import LabError
from lab.image import PYTHON
from lab.report import Result
from lab.requirements import PyverbsTests
from lab.running import HostProgram, wait

SOURCES = Path(__file__).resolve().parent
EXPECTED = SOURCES / "pyverbs-expected.txt"
# The program that runs a module.
RUNNER = "pyverbs_module.py"
# Modules of tests for devices of any kind, so that cases are listed without the package.
MODULES = [
    *("addr", "atomic", "cq", "cq_events", "cqex", "cuda_dmabuf", "device", "flow", "fork", "mr"),
    *("odp", "parent_domain", "pd", "qp", "qpex", "rdmacm", "relaxed_ordering", "rss_traffic"),
    *("shared_pd", "tag_matching"),
]
# Those with raw packets: every test of theirs passes on a raw device.
RAW_MODULES = ["flow", "qp"]
VENDORS = ("mlx5", "efa")
MODULE_SECONDS = 120


@dataclass(frozen=True)
class PyverbsCase:
    """A module of tests."""

    module: str
    raw: bool = False  # on a raw device, as root

    place = "loopback"
    in_guest = False

    @property
    def name(self):
        return f"pyverbs/{'raw/' if self.raw else ''}{self.module}"


def pyverbs_cases():
    raw = [PyverbsCase(module, raw=True) for module in RAW_MODULES]
    return [*(PyverbsCase(module) for module in MODULES), *raw]


class PyverbsRunner:
    """Runs modules, each in a process of its own."""

    def __init__(self, directory):
        self.place = unpack(directory)
        self.directory = directory
        self.outcomes = {}  # test's name -> (word, text)

    def run(self, case, host):
        started = time.monotonic()
        name = f"{'raw_' if case.raw else ''}{case.module}"
        results = self.place / "results" / f"{name}.json"
        argv = [PYTHON, self.place / RUNNER, self.place, f"test_{case.module}", results]
        argv += ["--dev", host.device, "--gid", host.facts()["gid"]]
        path = self.directory / f"pyverbs_{name}"
        how = {"variables": host.variables} if case.raw else {"sysfs": True}
        program = HostProgram(host.sandbox, [str(word) for word in argv], path, **how)
        program.label = "the module"
        try:
            wait([program], MODULE_SECONDS)
        finally:
            program.end()
        outcomes = outcomes_of(results, program.status)
        if case.raw:
            others = {name: text for name, (word, text) in outcomes.items() if word != "pass"}
            result = Result([f"{name} does not pass: {why}" for name, why in others.items()])
        else:
            self.outcomes.update(outcomes)
            result = Result(judge(case.module, outcomes))
        if program.status != 0:
            result.problems.append(f"the module ended with exit status {program.status}")
        result.report = [(name, text) for name, (word, text) in outcomes.items() if word == "fail"]
        program.describe(result)
        counts = Counter(word for word, _ in outcomes.values())
        parts = [f"{counts[word]} {word}" for word in ["pass", "skip", "fail"] if counts[word]]
        result.note = ", ".join(parts)
        result.seconds = time.monotonic() - started
        return result

    def pin(self):
        """Writes down which tests pass and which are skipped."""
        passed = [name for name, (word, _) in sorted(self.outcomes.items()) if word == "pass"]
        EXPECTED.write_text("".join(f"{name}\n" for name in passed))
        write_page(self.outcomes)


def unpack(directory):
    """Copies the tests to where nobody can read them; returns the directory."""
    place = directory / "pyverbs"
    (place / "tests").mkdir(parents=True)
    for path in Path(PyverbsTests().directory).iterdir():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (place / "tests" / path.name.removesuffix(".gz")).write_bytes(data)
    shipped = {path.stem.removeprefix("test_") for path in (place / "tests").glob("test_*")}
    modules = sorted(name for name in shipped if not name.startswith(VENDORS))
    if modules != MODULES:
        raise LabError(f"this version of pyverbs has other modules of tests: {' '.join(modules)}")
    shutil.copy(SOURCES / RUNNER, place)
    (place / "results").mkdir()
    (place / "results").chmod(0o777)
    return place


def outcomes_of(results, status):
    outcomes = {}
    for line in results.read_text().splitlines() if results.exists() else []:
        name, word, text = json.loads(line)
        # A test that fails while it is torn down has passed before.
        if outcomes.get(name, ("begun", ""))[0] != "fail":
            outcomes[name] = word, text
    ended = ("fail", f"the process ended in it ({status})")
    return {
        name: ended if word == "begun" else (word, text) for name, (word, text) in outcomes.items()
    }


def judge(module, outcomes):
    """Problems of a module's outcomes."""
    listed = EXPECTED.read_text().split() if EXPECTED.exists() else []
    expected = {name for name in listed if name.split(".")[1] == f"test_{module}"}
    passed = {name for name, (word, _) in outcomes.items() if word == "pass"}
    failed = {name for name, (word, _) in outcomes.items() if word == "fail"}
    missing = sorted(expected - passed - failed)
    reasons = [outcomes.get(name, ("", "it did not run"))[1] for name in missing]
    new = sorted(passed - expected)
    return [
        *(f"{name} fails" for name in sorted(failed)),
        *(f"{name} does not pass: {why}" for name, why in zip(missing, reasons, strict=True)),
        *(f"{name} passes and is not in {EXPECTED.name}: --pin" for name in new),
    ]
