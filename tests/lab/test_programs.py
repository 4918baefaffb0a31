"""Tests of the suite "programs", without root and without any of the programs."""

import unittest
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from lab.dropin.case import SOCKETS, Case
from lab.programs import record, suite
from lab.programs.middleware import UCX_BANDWIDTH
from lab.programs.qperf import BANDWIDTH, LATENCY
from lab.programs.runner import TrialRunner
from lab.programs.trial import UNITS
from lab.report import Result

ROW = "Final:   4000   20.6   61.2   61.2   1021.10   1020.50   16337   16337"


class FigureTest(unittest.TestCase):
    """Figures that programs print."""

    def test_the_last_number_with_its_unit_counts(self):
        text = "rc_bw:\n    bw  =  1.5 GB/sec\nrc_bw:\n    bw  =  900 MB/sec\n"
        self.assertEqual(BANDWIDTH.of(text), (900.0, "MB/sec"))
        self.assertEqual(UCX_BANDWIDTH.of(ROW), (1020.5, "MB/s"))
        self.assertIsNone(BANDWIDTH.of("failed to connect"))

    def test_a_ratio_is_above_one_where_ours_is_better(self):
        self.assertAlmostEqual(BANDWIDTH.ratio((1.5, "GB/sec"), (500, "MB/sec")), 3)
        self.assertAlmostEqual(LATENCY.ratio((50, "us"), (0.1, "ms")), 2)

    def test_all_units_are_known(self):
        for trial in suite.cases():
            if trial.figure and trial.figure.unit:
                self.assertIn(trial.figure.unit, UNITS)


class TrialsTest(unittest.TestCase):
    """What is tried."""

    def test_each_program_runs_through_sockets_and_with_losses(self):
        programs = {}
        for trial in suite.cases():
            program = "/".join(trial.name.split("/")[:2])
            programs.setdefault(program, []).append(trial.case)
        for program, cases in programs.items():
            self.assertTrue(any(case.variables == SOCKETS for case in cases), program)
            losses = [option for case in cases for option in case.run if "drop 0.2%" in option]
            self.assertTrue(losses, program)

    def test_what_comes_from_pypi_is_what_runs(self):
        for trial in suite.cases():
            if trial.source and isinstance(trial.case, Case):
                words = " ".join(map(str, trial.case.client.argv))
                self.assertIn(f"{{{trial.source.word}}}/", words, trial.name)

    def test_all_are_recorded(self):
        recorded = record.read()
        self.assertEqual(set(recorded), {trial.name for trial in suite.cases()})
        for trial in suite.cases():
            compared = trial.figure is not None and trial.figure.recorded
            self.assertEqual(recorded[trial.name].ratio is not None, compared, trial.name)


class RecordTest(unittest.TestCase):
    """The record, and differences from it."""

    def test_what_is_written_is_read(self):
        entries = {"one/loopback": record.Entry("one", "1:2-3", 0.5)}
        with TemporaryDirectory() as directory:
            path = Path(directory) / "recorded.txt"
            record.write(entries, path)
            record.write({"two/hosts": record.Entry("two", "4")}, path)
            self.assertEqual(record.read(path)["one/loopback"], entries["one/loopback"])
            self.assertIsNone(record.read(path)["two/hosts"].ratio)

    def test_differences(self):
        recorded = record.Entry("one", "1", 2.0)
        self.assertEqual(record.difference(recorded, record.Entry("one", "1", 0.11)), ("", ""))
        problem, _ = record.difference(recorded, record.Entry("one", "1", 0.09))
        self.assertEqual(problem, "0.09 times as fast as TCP, recorded 2")
        _, note = record.difference(recorded, record.Entry("one", "1.1", 2.0))
        self.assertEqual(note, "recorded with 1")
        self.assertTrue(record.difference(None, recorded)[0])


class MeasurementTest(unittest.TestCase):
    """Measurements, of programs that print what they are told to."""

    def measured(self, recorded, *ours):
        """The result of a trial with these figures, where TCP always has 100."""
        runner = TrialRunner.__new__(TrialRunner)
        figures = iter(ours)

        def run(case, *sides):
            value = 100 if case.name == "tcp" else next(figures)
            return Result(report=[("client: output", f"bw = {value} MB/sec")])

        runner.runner = SimpleNamespace(run=run)
        runner.versions, runner.pin, runner.entries = {"one": "1"}, recorded is None, {}
        runner.recorded = {"ours": record.Entry("one", "1", recorded)}
        case, tcp = SimpleNamespace(name="ours", place=""), SimpleNamespace(name="tcp", place="")
        trial = SimpleNamespace(
            name="ours", package="one", case=case, tcp=tcp, figure=BANDWIDTH, lacking=""
        )
        result = runner.run(trial, SimpleNamespace(sides=lambda place: ()))
        return result, runner.entries.get("ours")

    def test_the_middle_one_is_recorded(self):
        result, entry = self.measured(None, 300, 10, 200)
        self.assertEqual(result.problems, [])
        self.assertEqual(entry.ratio, 2.0)

    def test_one_is_compared_with_the_record(self):
        result, entry = self.measured(2.0, 150, 1)
        self.assertEqual(result.problems, [])
        self.assertEqual(entry.ratio, 1.5)
        self.assertIn("1.5 times as fast", result.note)

    def test_a_low_one_is_a_failure(self):
        result, _ = self.measured(2.0, 1, 150, 150)
        self.assertEqual(result.problems, ["0.01 times as fast as TCP, recorded 2"])
