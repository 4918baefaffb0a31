"""Tests of the lab itself, on a clean checkout: without root, without the network, and without any
program that is not part of Python.
"""

import contextlib
import io
import os
import signal
import subprocess
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

from lab import binaries, command_line, hang, report, requirements
from lab.conform import known
from lab.dropin.pyverbs import Edition, PyverbsCase, judge
from lab.dropin.ratios import NO_CLOCK, ROUNDS, RatioRunner, ratio_cases
from lab.host import LabError
from lab.interop.rows.compliance import compliance_problems
from lab.running import has_raced

# Suites with fewer than a hundred cases.
SHORT_LISTS = ("conform", "load", "programs", "soak")


class Requirement:
    """A requirement that is missing until it is installed."""

    def __init__(self):
        self.installed = False

    def missing(self):
        return [] if self.installed else ["tool"]

    def install(self):
        self.installed = True


class BinariesTest(unittest.TestCase):
    """Binaries under test, and what they are made of."""

    def test_an_old_one_is_refused(self):
        with TemporaryDirectory() as directory:
            source, binary = Path(directory) / "lib.rs", Path(directory) / "tool"
            generated = binaries.REPO / "target" / "out.rs"
            for path in (source, binary):
                path.touch()
            binary.with_suffix(".d").write_text(f"{binary}: {source} {generated}\n")
            os.utime(binary, (2000, 2000))
            os.utime(source, (1000, 1000))
            self.assertEqual(binaries.find("", binary), binary.resolve())
            os.utime(source, (3000, 3000))
            with self.assertRaisesRegex(LabError, "older than .*lib.rs: `cargo build --release"):
                binaries.find("", binary)
            binary.with_suffix(".d").unlink()
            self.assertEqual(binaries.find("", binary), binary.resolve(), "nothing is known")


class KnownTest(unittest.TestCase):
    """Records of what a kernel does."""

    def test_what_is_written_is_read(self):
        results = {
            "order/a": ("conforms", ""),
            "order/b": ("not supported", ""),
            "read/c": ("deviates", "line 7: its PSN is 1: wrong"),
            "read/d": ("inconclusive", "two\nlines"),
        }
        with (
            TemporaryDirectory() as directory,
            mock.patch.object(known, "DIRECTORY", Path(directory) / "known"),
        ):
            known.write("6.1", "6.1.0-1", results)
            recorded = known.read("6.1")
            known.write("6.1", "6.1.0-1", {**results, "read/d": ("conforms", "")})
            self.assertEqual(known.read("6.1"), recorded, "one run does not settle it")
        self.assertEqual(
            recorded,
            {
                "order/b": results["order/b"],
                "read/c": ("deviates", "its PSN is 1: wrong"),
                "read/d": ("inconclusive", "two lines"),
            },
        )
        self.assertEqual(known.differences(recorded, results), [])
        now = {
            **results,
            "order/a": ("harmful", "line 1"),
            "read/c": ("conforms", ""),
            "read/d": ("harmful", "line 2"),
        }
        self.assertEqual(
            [line.split(",")[0] for line in known.differences(recorded, now)],
            ["order/a: harmful", "read/c: conforms"],
        )


class ListsTest(unittest.TestCase):
    """Lists of cases."""

    def names(self, suite):
        with TemporaryDirectory() as directory:
            cache = Path(directory) / "cache"
            with as_user(cache):
                status, output, _ = run(suite, "--list")
            self.assertFalse(cache.exists())
        self.assertEqual(status, 0)
        return output.splitlines()

    def test_names_are_different(self):
        for suite in command_line.SUITES:
            names = self.names(suite)
            self.assertGreater(len(names), 20 if suite in SHORT_LISTS else 100)
            self.assertEqual(len(names), len(set(names)))

    def test_a_whole_name_stands_for_one_case(self):
        _, output, _ = run("interop", "--list", "--only", "ud/server/ipv4/mtu256/size1")
        self.assertEqual(output.splitlines(), ["ud/server/ipv4/mtu256/size1"])

    def test_several_names(self):
        names = self.names("interop")
        _, output, _ = run("interop", "--list", "--only", "errors/", "--only", "mckey")
        wanted = [name for name in names if "errors/" in name or "mckey" in name]
        self.assertEqual(output.splitlines(), wanted)

    def test_a_sample(self):
        names = self.names("interop")
        _, output, _ = run("interop", "--list", "--every", "37")
        self.assertEqual(output.splitlines(), names[::37])
        with self.assertRaises(SystemExit):
            run("interop", "--list", "--every", "0")

    def test_another_sample(self):
        names = self.names("interop")
        parts = []
        for first in range(3):
            _, output, _ = run("interop", "--list", "--every", "3", "--from", str(first))
            parts.append(output.splitlines())
            self.assertEqual(parts[-1], names[first::3])
        self.assertEqual(sorted(name for part in parts for name in part), sorted(names))

    def test_a_sample_that_is_none(self):
        for options in (("--every", "3", "--from", "3"), ("--from", "1")):
            status, output, errors = run("interop", "--list", *options)
            self.assertEqual((status, output, errors.count("\n")), (2, "", 1))
            self.assertIn("--from", errors)
        with self.assertRaises(SystemExit):
            run("interop", "--list", "--every", "3", "--from", "-1")
        names = ("--only", "ud/server/ipv4/mtu256/size1", "--every", "2", "--from", "1")
        with mock.patch("os.geteuid", return_value=0):
            status, _, errors = run("interop", *names)
        self.assertEqual((status, errors), (2, "--from 1: there are no more cases\n"))

    def test_a_sample_of_a_form(self):
        whole = run("load", "--list", "--short")[1].splitlines()
        sample = run("load", "--list", "--short", "--every", "4", "--from", "3")[1].splitlines()
        self.assertEqual(sample, whole[3::4])


class RefusalTest(unittest.TestCase):
    """Runs that cannot begin."""

    def test_without_root(self):
        for suite in command_line.SUITES:
            with TemporaryDirectory() as directory, as_user(Path(directory) / "cache"):
                status, _, errors = run(suite)
            self.assertEqual(status, 2)
            self.assertEqual(errors, "this needs root, for network namespaces\n")

    def test_of_an_unknown_name(self):
        status, _, errors = run("dropin", "--only", "rping", "--only", "no such case")
        self.assertEqual(status, 2)
        self.assertIn("'no such case' in its name; --list", errors)


class RequirementsTest(unittest.TestCase):
    """Requirements that are missing."""

    def setUp(self):
        directory = self.enterContext(TemporaryDirectory())
        self.enterContext(mock.patch.dict("os.environ", ROCE_INTEROP_DIR=directory))
        self.enterContext(mock.patch("shutil.which", return_value="/usr/bin/dpkg-query"))
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))

    def test_only_the_option_installs(self):
        requirement = Requirement()
        with self.assertRaises(requirements.MissingError) as caught:
            requirements.require([requirement], install=False, suite="interop")
        self.assertEqual(
            str(caught.exception), "missing: tool; `tests/lab/run interop --install` installs them"
        )
        self.assertFalse(requirement.installed)
        requirements.require([requirement], install=True, suite="interop")
        self.assertTrue(requirement.installed)


class CaseTableTest(unittest.TestCase):
    """The results of cases."""

    def test_what_fails_has_failed(self):
        cases = [SimpleNamespace(name=f"case{number}") for number in range(3)]
        table = report.CaseTable(cases)
        with contextlib.redirect_stdout(io.StringIO()):
            for case, problems in zip(cases, [["lost", "late"], [], []], strict=True):
                table.add(case, report.Result(problems))
        self.assertEqual(table.failed, 1)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            table.print_summary()
        lines = ["case0: failed: lost; late", "2 passed, 1 failed"]
        self.assertEqual(output.getvalue().splitlines(), lines)


class RacedTest(unittest.TestCase):
    """The stock rping that stumbles at its end."""

    LINES = ("server DISCONNECT EVENT...", "rdma_get_cm_event: Bad file descriptor")

    def has_raced(self, *lines, status=255):
        return has_raced(SimpleNamespace(status=status, lines=lambda: [*self.LINES, *lines]))

    def test_only_its_end_is_excused(self):
        self.assertTrue(self.has_raced())
        self.assertTrue(self.has_raced("server ping data: rdma-ping-0: ABC"))
        self.assertFalse(self.has_raced(status=1))
        self.assertFalse(self.has_raced("cq completion failed status 5"))


class HangTest(unittest.TestCase):
    """A program that does not end is described with all that it has started."""

    def test_a_program_and_its_child(self):
        with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as program:
            try:
                while len(hang.family(program.pid)) < 2:
                    pass
                text = hang.describe_host(program.pid)
            finally:
                for pid in reversed(hang.family(program.pid)):
                    os.kill(pid, signal.SIGKILL)
        self.assertRegex(text, r"process \d+: sh -c")
        sleeping = r"process \d+: sleep 60 \nState:\s+S \(sleeping\)\nthread \d+: sleep;"
        self.assertRegex(text, sleeping)


class PyverbsTest(unittest.TestCase):
    """Outcomes of rdma-core's own tests, and what is listed of them."""

    LISTED = "tests.test_qp.Q.test_rc\ntests.test_qp.Q.test_ud\ntests.test_qpex.Q.test_rc\n"

    def setUp(self):
        expected = Path(self.enterContext(TemporaryDirectory())) / "expected.txt"
        expected.write_text(self.LISTED)
        self.edition = Edition("pyverbs", ("qp", "qpex"), expected)

    def problems(self, *pinned, case=None, **words):
        """Problems of a case whose tests have these outcomes: name=(word, text)."""
        case = case or PyverbsCase("qp", edition=self.edition)
        outcomes = {f"tests.test_qp.Q.test_{name}": outcome for name, outcome in words.items()}
        return judge(case, outcomes, *pinned)

    def test_as_listed(self):
        skipped = ("skip", "no huge pages")
        passed = ("pass", "")
        self.assertEqual(self.problems(rc=passed, ud=passed, huge=skipped), [])

    def test_each_difference_is_named(self):
        words = {"rc": ("fail", "wrong"), "ud": ("skip", "no packets"), "uc": ("pass", "")}
        problems = [
            "tests.test_qp.Q.test_rc fails",
            "tests.test_qp.Q.test_ud does not pass: no packets",
            "tests.test_qp.Q.test_uc passes and is not in expected.txt: --pin",
        ]
        self.assertEqual(self.problems(**words), problems)
        self.assertEqual(self.problems(True, **words), problems[:1])
        missing = "tests.test_qp.Q.test_ud does not pass: it did not run"
        self.assertEqual(self.problems(rc=("pass", "")), [missing])

    def test_what_is_left_out_is_not_missed(self):
        case = PyverbsCase("qp", edition=self.edition, condition="drop", left_out="_ud(_|$)")
        self.assertEqual(case.name, "pyverbs/qp/drop")
        self.assertEqual(self.problems(case=case, rc=("pass", "")), [])

    def test_on_a_raw_device_every_test_passes(self):
        case = PyverbsCase("qp", raw=True, edition=self.edition)
        problems = self.problems(case=case, raw=("skip", "no"))
        self.assertEqual(problems, ["tests.test_qp.Q.test_raw does not pass: no"])

    def test_makers_modules_are_one_case(self):
        case = PyverbsCase("mlx5", edition=self.edition)
        self.assertTrue(case.has("tests.test_mlx5_dr.D.test_rule"))
        self.assertFalse(case.has("tests.test_qp.Q.test_rc"))


class RatioTest(unittest.TestCase):
    """Ratios, of a tool that prints what it is told to."""

    def measured(self, *figures):
        """The result of a measurement, and how often the tool ran; its figures come in turn."""
        outputs = [f" 65536 2000 0.00 {figure} 0.1\n" if figure else NO_CLOCK for figure in figures]
        outputs += ["" for _ in range(2 * ROUNDS - len(figures))]
        guest = mock.Mock(ipv4="1", **{"gids.return_value": {"1": 1}})
        guest.run.side_effect = [(0 if output else 1, output) for output in outputs]
        [case, *_] = ratio_cases()
        return RatioRunner(guest).run(case), guest.run.call_count

    def test_the_median_of_all_rounds_counts(self):
        # rxe first, then ours first, …
        result, runs = self.measured(100, 10, 300, 100, 100, 500, 200, 100, 100, 100)
        self.assertEqual((result.problems, runs), ([], 2 * ROUNDS))
        self.assertIn(": 2.00 times as good (0.10 to 5.00);", result.note)

    def test_a_round_without_a_clock_does_not_count(self):
        result, runs = self.measured(100, 200, 100, None, 100, 200, 200, 100, 100, 200)
        self.assertEqual((result.problems, runs), ([], 2 * ROUNDS))
        self.assertIn("(2.00 to 2.00, 1 rounds without a clock)", result.note)

    def test_what_fails_has_failed(self):
        result, runs = self.measured(100)
        self.assertEqual((result.problems, runs), (["ours: exit status 1"], 2))


class ComplianceTest(unittest.TestCase):
    """docs/compliance.md and the rows of errors."""

    def test_names(self):
        self.assertEqual(compliance_problems(), [])


def run(*arguments):
    """(exit status, output, errors) of a command line."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch("sys.argv", ["tests/lab/run", *arguments]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        status = command_line.main()
    return status, output.getvalue(), errors.getvalue()


@contextlib.contextmanager
def as_user(cache):
    """Context of an ordinary user who starts no program, with a cache that does not exist."""
    forbidden = AssertionError("a program was started")
    with (
        mock.patch("os.geteuid", return_value=1000),
        mock.patch.object(subprocess, "Popen", side_effect=forbidden),
        mock.patch.dict("os.environ", ROCE_INTEROP_DIR=str(cache)),
    ):
        yield


if __name__ == "__main__":
    unittest.main()
