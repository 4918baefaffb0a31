"""Trials: a program under a condition, the figure that it prints, and its TCP mode."""

import re
from dataclasses import dataclass, replace

from lab.dropin.case import SOCKETS, Case
from lab.requirements import PinnedSource

# Factors to bytes per second, and seconds, by the words of the programs.
UNITS = {
    **{f"{prefix}B/s": 1000**power for power, prefix in enumerate(["", "k", "M", "G"])},
    **{f"{prefix}iB/s": 1024**power for power, prefix in enumerate(["", "K", "M", "G"])},
    **{f"{prefix}B/sec": 1000**power for power, prefix in enumerate(["", "K", "M", "G"])},
    **{f"{prefix}ibit/s": 1024**power / 8 for power, prefix in enumerate(["", "K", "M", "G"])},
    "us": 1e-6,
    "ms": 1e-3,
}
# Further options of `roce run`, and variables, of the conditions that each program is tried under.
# All of them are tried as an ordinary user.
CONDITIONS = {"sockets": {"variables": SOCKETS}, "drop": {"run": ("--fault", "drop 0.2%")}}


@dataclass(frozen=True)
class Figure:
    """The number that a program prints about its speed: `pattern` has it in the group "value", and
    its unit in the group "unit", if the program prints one; else it is `unit`.
    """

    pattern: str
    rising: bool = True  # more is better
    unit: str = ""
    recorded: bool = True  # steady enough to be compared with the last run

    def of(self, text):
        """The last such number in a text, with its unit, as printed; `None` if there is none."""
        found = [match.groupdict() for match in re.finditer(self.pattern, text, re.MULTILINE)]
        return (float(found[-1]["value"]), found[-1].get("unit", self.unit)) if found else None

    def ratio(self, ours, other):
        """How many times better ours is."""
        ours, other = (value * UNITS[unit] for value, unit in (ours, other))
        return ours / other if self.rising else other / ours


@dataclass(frozen=True)
class Trial:
    """A case, with the package of its program. With a figure, `tcp` is the same in the program's
    TCP mode, and both are measured one right after the other.
    """

    case: Case
    package: str
    figure: Figure | None = None
    tcp: Case | None = None
    large: bool = False  # runs with --all only
    source: PinnedSource | None = None  # which has what runs; {word} is where it is
    further: tuple = ()  # packages that it needs, too

    in_guest = False

    @property
    def name(self):
        return self.case.name

    @property
    def lacking(self):
        """Why it cannot run, if its sources cannot be had."""
        return getattr(self.source, "lacking", "")


def trials(
    name,
    package,
    make,
    figure=None,
    places=("loopback", "hosts"),
    large=False,
    source=None,
    further=(),
    conditions=CONDITIONS,
):
    """Trials of a program in the places, with figures if it has a TCP mode, and under each
    condition in the first of them. `make(name, place, tcp)` is the case.
    """
    for place in places:
        tcp = make(f"{name}/{place}/tcp", place, True) if figure else None
        case = make(f"{name}/{place}", place, False)
        yield Trial(case, package, figure, tcp, large, source, further)
    for condition, options in conditions.items():
        case = make(f"{name}/{places[0]}/{condition}", places[0], False)
        case = replace(case, **options)
        yield Trial(case, package, large=large, source=source, further=further)


def sources_of(trials):
    """The source packages that these trials need."""
    return list({trial.source.name: trial.source for trial in trials if trial.source}.values())
