"""Cases: a figure, the bar that it must reach, and what was seen of it."""

from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Bar:
    """What a figure must reach: at least `limit`, or at most where less is better. `short` is the
    limit of the short form, which runs on machines that others use as well.
    """

    limit: float
    aim: float
    short: float
    at_most: bool = False
    form: str = ".2f"  # of the figure

    def limit_of(self, short):
        return self.short if short else self.limit

    def reached(self, figure, short):
        limit = self.limit_of(short)
        return figure <= limit if self.at_most else figure >= limit

    def describe(self, short):
        return f"{'<=' if self.at_most else '>='} {self.shown(self.limit_of(short))}"

    def shown(self, figure):
        return f"{figure:{self.form}}"


@dataclass(frozen=True)
class Case:
    """A figure. Those of one `group` are measured together, with the same yardstick.

    Without a bar nothing is wanted but that no program fails.
    """

    group: str
    what: str
    bar: Bar | None = None
    short: bool = False  # part of the short form

    @property
    def name(self):
        return f"{self.group}/{self.what}"


@dataclass
class Sample:
    """What one run showed."""

    value: float | None = None  # None: it failed, or is unmeasured
    lost: int = 0  # datagrams that found no room in a socket of ours
    datagrams: int = 0  # all that came, these included
    report: list = field(default_factory=list)  # (heading, text) of a run that failed
    # Nothing failed, but the tool said before it began that its clock is wrong.
    unmeasured: bool = False

    @classmethod
    def failure(cls, text):
        return cls(report=[("failed", text)])


@dataclass
class Outcome:
    """What all runs of a case showed."""

    ratios: list = field(default_factory=list)
    yardsticks: list = field(default_factory=list)  # by which values were divided
    values: list = field(default_factory=list)
    unit: str = "MiB/s"  # of the values
    failed: int = 0
    unmeasured: int = 0  # runs in which nothing failed, but the tool had no clock
    yardstick_failed: bool = False
    lost: int = 0
    datagrams: int = 0
    report: list = field(default_factory=list)

    def add(self, sample, yardstick):
        """Adds a run, and its ratio to the yardstick's value if there is one."""
        self.lost += sample.lost
        self.datagrams += sample.datagrams
        if sample.unmeasured:
            self.unmeasured += 1
        elif sample.value is None:
            self.failed += 1
            self.report += sample.report
        else:
            self.values.append(sample.value)
            if yardstick:
                self.yardsticks.append(yardstick)
                self.ratios.append(sample.value / yardstick)

    def lacks_yardstick(self, report):
        """Notes that the yardstick has failed, with what is to be said of that."""
        self.yardstick_failed = True
        self.report += report

    @property
    def runs(self):
        return len(self.values) + self.failed + self.unmeasured

    @property
    def ratio(self):
        return median(self.ratios) if self.ratios else None

    @property
    def value(self):
        return median(self.values) if self.values else None

    @property
    def loss(self):
        """Share of the datagrams that were lost."""
        return self.lost / self.datagrams if self.datagrams else 0.0
