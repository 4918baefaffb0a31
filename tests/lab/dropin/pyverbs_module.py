"""Runs one module of rdma-core's own tests, or all that a pattern with `*` names, and writes their
outcomes, a line of JSON per test. Tests in whose names LEFT_OUT, a regular expression, is found do
not run, if it is not empty.

usage: pyverbs_module.py DIRECTORY MODULE RESULTS_FILE LEFT_OUT [ARGUMENT OF THE SUITE...]

The directory has the tests in `tests`. If pyverbs itself is beside them, that one is used, with the
libraries in `lib` and the programs in `bin`.
"""

import ctypes
import importlib
import json
import os
import re
import sys
import unittest
from pathlib import Path

directory, module, results, left_out = sys.argv[1:5]
sys.argv[1:5] = []
# As in run_tests.py: the tests import each other as `tests.base`, and their arguments as
# `args_parser`.
sys.path[0] = directory
sys.path.insert(1, directory + "/tests")
sys.dont_write_bytecode = True
for library in sorted(Path(directory, "lib").glob("*")):
    ctypes.CDLL(library)
os.environ["PATH"] = f"{directory}/bin:{os.environ['PATH']}"


class WritingResult(unittest.TestResult):
    """Results that are written as they come."""

    def __init__(self, file):
        super().__init__()
        self.file = file

    def write(self, test, word, text=""):
        json.dump([test.id(), word, text], self.file)
        self.file.write("\n")
        self.file.flush()

    def startTest(self, test):
        super().startTest(test)
        self.write(test, "begun")

    def addSuccess(self, test):
        self.write(test, "pass")

    def addSkip(self, test, reason):
        self.write(test, "skip", reason)

    def addFailure(self, test, error):
        self.write(test, "fail", self._exc_info_to_string(error, test))

    def addError(self, test, error):
        self.write(test, "fail", self._exc_info_to_string(error, test))

    def addSubTest(self, test, subtest, error):
        if error:
            self.write(test, "fail", str(subtest) + "\n" + self._exc_info_to_string(error, test))

    def addExpectedFailure(self, test, error):
        self.write(test, "pass")

    def addUnexpectedSuccess(self, test):
        self.write(test, "fail", "it passed, and should not")


def tests_of(suite):
    for test in suite:
        yield from tests_of(test) if isinstance(test, unittest.TestSuite) else [test]


from args_parser import parser  # noqa: E402

parser.parse_args()
load = unittest.defaultTestLoader.loadTestsFromModule
with open(results, "w") as file:
    for path in sorted(Path(directory, "tests").glob(f"{module}.py")):
        tests = tests_of(load(importlib.import_module(f"tests.{path.stem}")))
        chosen = [test for test in tests if not (left_out and re.search(left_out, test.id()))]
        unittest.TestSuite(chosen).run(WritingResult(file))
