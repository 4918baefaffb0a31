"""rdma-core's own tests of the verbs, as Debian ships them, or of another version.

A list has the tests that pass. A test that fails is a failure, and so is one of that list that does
not pass. Of the 273 tests of Debian's version 171 are for devices of any kind; the others are for
hardware of two vendors.
"""

import gzip
import json
import re
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from lab.host import LabError
from lab.image import PYTHON
from lab.report import Result
from lab.requirements import PyverbsTests
from lab.running import HostProgram, wait

SOURCES = Path(__file__).resolve().parent
# The program that runs a module.
RUNNER = "pyverbs_module.py"
# Modules of tests for devices of any kind, so that cases are listed without the package.
MODULES = (
    *("addr", "atomic", "cq", "cq_events", "cqex", "cuda_dmabuf", "device", "flow", "fork", "mr"),
    *("odp", "parent_domain", "pd", "qp", "qpex", "rdmacm", "relaxed_ordering", "rss_traffic"),
    *("shared_pd", "tag_matching"),
)
# Those with raw packets: every test of theirs passes on a raw device.
RAW_MODULES = ["flow", "qp"]
# What the names of the other modules begin with.
VENDORS = ("efa", "mlx5")
MODULE_SECONDS = 120


@dataclass(frozen=True)
class Edition:
    """A version of the tests: what the names of its cases begin with, its modules for devices of
    any kind, and the list of the tests that pass.
    """

    name: str
    modules: tuple
    expected: Path

    def listed(self):
        return self.expected.read_text().split() if self.expected.exists() else []


DEBIAN = Edition("pyverbs", MODULES, SOURCES / "pyverbs-expected.txt")


@dataclass(frozen=True)
class PyverbsCase:
    """A module of tests, or those for the hardware of a vendor."""

    module: str
    raw: bool = False  # on a raw device, as root
    edition: Edition = DEBIAN
    condition: str = ""
    left_out: str = ""  # regular expression of the names of tests
    # As of other cases.
    run: tuple = ()
    variables: tuple = ()

    place = "loopback"
    in_guest = False

    @property
    def name(self):
        raw = ["raw"] * self.raw
        condition = [self.condition] * bool(self.condition)
        return "/".join([self.edition.name, *raw, self.module, *condition])

    @property
    def modules(self):
        """What the modules' names match."""
        return f"test_{self.module}" + "*" * (self.module in VENDORS)

    def has(self, name):
        """True if a test of this name is one of the case."""
        left_out = self.left_out and re.search(self.left_out, name)
        return fnmatchcase(name.split(".")[1], self.modules) and not left_out


def pyverbs_cases():
    raw = [PyverbsCase(module, raw=True) for module in RAW_MODULES]
    return [*(PyverbsCase(module) for module in MODULES), *raw]


class PyverbsRunner:
    """Runs modules of an edition that is in `place`, each in a process of its own. With `pin`
    whatever passes is as expected.
    """

    def __init__(self, directory, edition, place, pin=False):
        self.directory, self.edition, self.place, self.pinned = directory, edition, place, pin
        shipped = {path.stem.removeprefix("test_") for path in (place / "tests").glob("test_*.py")}
        modules = sorted(name for name in shipped if not name.startswith(VENDORS))
        if modules != sorted(edition.modules):
            raise LabError(f"these tests of pyverbs have other modules: {' '.join(modules)}")
        shutil.copy(SOURCES / RUNNER, place)
        (place / "results").mkdir()
        (place / "results").chmod(0o777)
        self.outcomes = {}  # test's name -> (word, text), of cases without a condition

    def run(self, case, pair):
        started = time.monotonic()
        host = pair.raw[0] if case.raw else pair.hosts[0]
        name = case.name.replace("/", "_")
        results = self.place / "results" / f"{name}.json"
        argv = [PYTHON, self.place / RUNNER, self.place, case.modules, results, case.left_out]
        argv += ["--dev", host.device, "--gid", host.facts()["gid"]]
        how = {"options": case.run, "variables": case.variables, "sysfs": not case.raw}
        if case.raw:
            how["variables"] += host.variables
        path = self.directory / name
        program = HostProgram(host.sandbox, [str(word) for word in argv], path, **how)
        program.label = "the module"
        try:
            wait([program], MODULE_SECONDS)
        finally:
            program.end()
        outcomes = outcomes_of(results, program.status)
        result = Result(judge(case, outcomes, self.pinned))
        if not case.raw and not case.condition:
            self.outcomes.update(outcomes)
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
        """Writes down which tests pass. Of modules that did not run, what is listed stays."""
        ran = {name.split(".")[1] for name in self.outcomes}
        names = {name for name in self.edition.listed() if name.split(".")[1] not in ran}
        names |= {name for name, (word, _) in self.outcomes.items() if word == "pass"}
        self.edition.expected.write_text("".join(f"{name}\n" for name in sorted(names)))


class DebianRunner(PyverbsRunner):
    """The edition of Debian."""

    def __init__(self, directory, pin):
        super().__init__(directory, DEBIAN, unpack(directory), pin)


def unpack(directory):
    """Copies Debian's tests to where nobody can read them; returns the directory."""
    place = directory / "pyverbs"
    (place / "tests").mkdir(parents=True)
    for path in Path(PyverbsTests().directory).iterdir():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (place / "tests" / path.name.removesuffix(".gz")).write_bytes(data)
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


def judge(case, outcomes, pinned=False):
    """Problems of a case's outcomes. With `pinned` only what fails is one."""
    if case.raw:
        others = {name: text for name, (word, text) in outcomes.items() if word != "pass"}
        return [f"{name} does not pass: {why}" for name, why in others.items()]
    expected = {name for name in case.edition.listed() if case.has(name)}
    passed = {name for name, (word, _) in outcomes.items() if word == "pass"}
    failed = {name for name, (word, _) in outcomes.items() if word == "fail"}
    problems = [f"{name} fails" for name in sorted(failed)]
    if pinned:
        return problems
    missing = sorted(expected - passed - failed)
    reasons = [outcomes.get(name, ("", "it did not run"))[1] for name in missing]
    new = sorted(passed - expected)
    return [
        *problems,
        *(f"{name} does not pass: {why}" for name, why in zip(missing, reasons, strict=True)),
        *(f"{name} passes and is not in {case.edition.expected.name}: --pin" for name in new),
    ]
