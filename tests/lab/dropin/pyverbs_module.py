"""Runs one module of rdma-core's own tests and writes their outcomes, a line of JSON per test.

usage: pyverbs_module.py TESTS_DIRECTORY MODULE RESULTS_FILE [ARGUMENT OF THE SUITE...]
"""

import json
import sys
import unittest

directory, module, results = sys.argv[1:4]
sys.argv[1:4] = []
# As in run_tests.py: the tests import each other as `tests.base`, and their arguments as
# `args_parser`.
sys.path[0] = directory
sys.path.insert(1, directory + "/tests")
sys.dont_write_bytecode = True


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


from args_parser import parser  # noqa: E402

parser.parse_args()
with open(results, "w") as file:
    # By the package's own list, for a module alone would load all of them.
    import importlib

    suite = unittest.defaultTestLoader.loadTestsFromModule(
        importlib.import_module("tests." + module)
    )
    suite.run(WritingResult(file))
