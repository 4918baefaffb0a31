"""Runs trials, measures them beside their TCP modes, and compares them with the record."""

from lab import binaries
from lab.dropin.hosts import place_ours
from lab.dropin.pyverbs import PyverbsCase
from lab.dropin.runner import CaseRunner
from lab.programs import record
from lab.programs.build import build
from lab.programs.pyverbs import pyverbs_runners
from lab.programs.trial import sources_of
from lab.report import Result
from lab.requirements import package_versions

# Measurements whose middle one is recorded. One is compared with the record: whatever is far below
# that has failed.
PIN_ROUNDS, ROUNDS = 3, 1


class TrialRunner:
    """Runs trials, and compares them with what is recorded, or keeps what is to be recorded."""

    def __init__(self, chosen, logs, pin):
        self.roce = place_ours(binaries.roce(), binaries.library(), logs)
        built = build(logs / "built", sources_of(chosen))
        self.runner = CaseRunner(logs, {"roce": self.roce, **built})
        self.pyverbs = pyverbs_runners(sources_of(chosen), built, logs, pin)
        self.versions = package_versions({trial.package for trial in chosen})
        for source in sources_of(chosen):
            self.versions.setdefault(source.name, source.version)
        self.recorded = record.read()
        self.pin = pin
        self.entries = {}  # of the trials that have passed

    def run(self, trial, pair):
        if trial.lacking:
            return Result([trial.lacking])
        if isinstance(trial.case, PyverbsCase):
            result = self.pyverbs[trial.case.edition].run(trial.case, pair)
        else:
            result = self.runner.run(trial.case, *pair.sides(trial.case.place))
        version = self.versions[trial.package]
        notes, ratio = [f"{trial.package} {version}", *[result.note] * bool(result.note)], None
        if trial.figure and not result.problems:
            ratio, shown = self.measure(trial, pair, result)
            notes += [shown] * bool(shown)
        recorded = ratio if trial.figure and trial.figure.recorded else None
        entry = record.Entry(trial.package, version, recorded)
        if not result.problems:
            self.entries[trial.name] = entry
        if not self.pin:
            problem, note = record.difference(self.recorded.get(trial.name), entry)
            result.problems += [problem] * bool(problem)
            notes += [note] * bool(note)
        result.note = ", ".join(notes)
        return result

    def write(self):
        """Writes down what is to be recorded."""
        record.write(self.entries)
        for runner in self.pyverbs.values():
            runner.pin()

    def measure(self, trial, pair, result):
        """Runs the program's TCP mode beside it, so many times; returns the middle ratio of the
        two, and what to say.
        """
        seen = []
        for number in range(PIN_ROUNDS if self.pin else ROUNDS):
            if number > 0:
                ours = self.runner.run(trial.case, *pair.sides(trial.case.place))
                result.problems, result.report = ours.problems, ours.report
            ours, other = figure_of(trial, result), self.tcp_figure(trial, pair, result)
            if not result.problems and not (ours and other):
                result.problems.append("the client printed no figure")
            if result.problems:
                return None, ""
            shown = [f"{value:g} {unit}" for value, unit in (ours, other)]
            ratio = trial.figure.ratio(ours, other)
            word = f"{shown[0]} (TCP {shown[1]}), {record.ratio_word(ratio)} times as fast"
            seen.append((ratio, word))
        return sorted(seen)[len(seen) // 2]

    def tcp_figure(self, trial, pair, result):
        other = self.runner.run(trial.tcp, *pair.sides(trial.tcp.place))
        result.problems += [f"in its TCP mode {problem}" for problem in other.problems]
        if other.problems:
            result.report += other.report
        return figure_of(trial, other)


def figure_of(trial, result):
    """The figure that is in the report of a result: it is in the output of a client."""
    found = [trial.figure.of(text) for _, text in result.report]
    return next((figure for figure in found if figure), None)
