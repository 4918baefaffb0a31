"""rdma-core's own tests of the verbs, as Debian ships them: which pass is pinned in `pyverbs-expected.txt`; one that fails is a
failure, and so is one of that list that does not pass.

Of the 273 tests 171 are for devices of any kind; the others are for hardware of two makers.
"""

import gzip
import json
import os
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from lab import PYTHON, LabError, cache_dir, output_of
from matrix import OurSide, Result, wait

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "pyverbs-expected.txt"
TABLE = HERE.parent.parent / "docs" / "guide" / "pyverbs.md"
SHIPPED = "usr/share/doc/rdma-core/tests"
FOR_ONE_MAKER = ("test_mlx5", "test_efa")
MODULE_SECONDS = 120

HEAD = """\
# rdma-core's own tests

What rdma-core's test suite for the verbs (pyverbs, version {version}, as Debian ships it) finds on this adapter. `tests/dropin/run`
plays it and compares; `tests/dropin/run --pin` writes this page and the list of those that pass.

Of the {total} tests that are for devices of any kind {passed} pass, {skipped} are skipped, and none fails.
How to play them by hand is said in the chapter on [existing programs](programs.md).

"""


@dataclass(frozen=True)
class SuiteCase:
    module: str

    place = "loopback"
    in_guest = False

    @property
    def name(self):
        return f"pyverbs/{self.module.removeprefix('test_')}"


def suite_cases():
    return [
        SuiteCase(path.name.split(".")[0])
        for path in sorted(shipped().glob("test_*"))
        if not path.name.startswith(FOR_ONE_MAKER)
    ]


def shipped():
    """Where the tests lie; where documentation is left out of packages, it is fetched from the package."""
    place = Path("/") / SHIPPED
    if place.exists():
        return place
    unpacked = cache_dir() / "rdma-core"
    if not unpacked.exists():
        scratch = cache_dir() / f"rdma-core-{os.getpid()}"
        scratch.mkdir()
        output_of(["apt-get", "download", "rdma-core"], cwd=scratch)
        [deb] = scratch.glob("*.deb")
        output_of(["dpkg", "-x", deb, scratch / "tree"])
        (scratch / "tree").rename(unpacked)
        shutil.rmtree(scratch)
    return unpacked / SHIPPED


def unpack(directory):
    """Copies the tests to where nobody can read them; returns where."""
    place = directory / "pyverbs"
    (place / "tests").mkdir(parents=True)
    for path in shipped().iterdir():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (place / "tests" / path.name.removesuffix(".gz")).write_bytes(data)
    shutil.copy(HERE / "suite_runner.py", place)
    (place / "results").mkdir()
    (place / "results").chmod(0o777)
    return place


class Suite:
    def __init__(self, directory):
        self.place = unpack(directory)
        self.directory = directory
        self.outcomes = {}  # test's name -> (word, text)

    def play(self, case, host):
        started = time.monotonic()
        results = self.place / "results" / f"{case.module}.json"
        words = [
            PYTHON,
            self.place / "suite_runner.py",
            self.place,
            case.module,
            results,
            "--dev",
            host.device,
            "--gid",
            host.facts()["gid"],
        ]
        side = OurSide(
            host.home,
            [str(word) for word in words],
            self.directory / f"pyverbs_{case.module}",
            sysfs=True,
        )
        side.who = "the suite"
        try:
            wait([side], MODULE_SECONDS)
        finally:
            side.end()
        outcomes = outcomes_of(results, side.status)
        self.outcomes.update(outcomes)
        result = Result()
        result.problems = judge(case.module, outcomes)
        if side.status != 0:
            result.problems.append(f"the suite ended with exit status {side.status}")
        result.report = [(name, text) for name, (word, text) in outcomes.items() if word == "fail"]
        side.describe(result)
        words = Counter(word for word, _ in outcomes.values())
        result.note = ", ".join(
            f"{words[word]} {word}" for word in ["pass", "skip", "fail"] if words[word]
        )
        result.seconds = time.monotonic() - started
        return result

    def pin(self):
        """Writes down what passes and what is skipped."""
        EXPECTED.write_text(
            "".join(
                f"{name}\n" for name, (word, _) in sorted(self.outcomes.items()) if word == "pass"
            )
        )
        TABLE.write_text(table(self.outcomes))


def outcomes_of(results, status):
    outcomes = {}
    for line in results.read_text().splitlines() if results.exists() else []:
        name, word, text = json.loads(line)
        # A test that fails while it is taken down has passed before.
        if outcomes.get(name, ("begun", ""))[0] != "fail":
            outcomes[name] = word, text
    return {
        name: ("fail", f"the process ended in it ({status})") if word == "begun" else (word, text)
        for name, (word, text) in outcomes.items()
    }


def judge(module, outcomes):
    expected = (
        {name for name in EXPECTED.read_text().split() if name.split(".")[1] == module}
        if EXPECTED.exists()
        else set()
    )
    passed = {name for name, (word, _) in outcomes.items() if word == "pass"}
    failed = {name for name, (word, _) in outcomes.items() if word == "fail"}
    told = {
        name: outcomes.get(name, ("", "it did not run"))[1] for name in expected - passed - failed
    }
    return [
        *(f"{name} fails" for name in sorted(failed)),
        *(f"{name} does not pass: {why}" for name, why in sorted(told.items())),
        *(
            f"{name} passes and is not in {EXPECTED.name}: --pin"
            for name in sorted(passed - expected)
        ),
    ]


def table(outcomes):
    words = Counter(word for word, _ in outcomes.values())
    version = output_of(["dpkg-query", "-W", "-f", "${Version}", "python3-pyverbs"])
    lines = [
        HEAD.format(
            version=version, passed=words["pass"], total=len(outcomes), skipped=words["skip"]
        )
    ]
    lines += ["| module | pass | skip |\n", "|---|---|---|\n"]
    modules = dict.fromkeys(name.split(".")[1] for name in sorted(outcomes))
    for module in modules:
        own = Counter(word for name, (word, _) in outcomes.items() if name.split(".")[1] == module)
        lines.append(f"| `{module}` | {own['pass']} | {own['skip'] or ''} |\n")
    lines += [
        "\n## Skipped, and why\n\n",
        "In the suite's own words.\n\n",
        "| why | tests |\n",
        "|---|---|\n",
    ]
    reasons = {}
    for name, (word, text) in sorted(outcomes.items()):
        if word == "skip":
            reasons.setdefault(" ".join(text.split()).replace("|", "\\|"), []).append(name)
    for reason, names in sorted(reasons.items()):
        shown = ", ".join(f"`{name.removeprefix('tests.')}`" for name in names)
        lines.append(f"| {reason} | {shown} |\n")
    return "".join(lines)
