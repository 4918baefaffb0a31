"""What is recorded of each trial: the version of its package, and how many times as fast as the
program's TCP mode it was, where it has one. `--pin` writes it.
"""

from dataclasses import dataclass
from pathlib import Path

RECORD = Path(__file__).resolve().parent / "recorded.txt"
HEADING = """\
# What each trial was when `tests/lab/run programs --all --pin` last ran: its package, the version,
# and how many times as fast as in the program's TCP mode it was, unless that varies too much (-).
"""
# A ratio so many times lower than the recorded one is a failure. Machines differ and are shared,
# and TCP varies more than we do; what waits for a timer with each message is 100 times slower.
TOLERANCE = 20.0


@dataclass(frozen=True)
class Entry:
    """What is known of a trial."""

    package: str
    version: str
    ratio: float | None = None


def read(path=RECORD):
    """Recorded entries by the names of trials."""
    if not path.exists():
        return {}
    rows = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    return {
        name: Entry(package, version, None if ratio == "-" else float(ratio))
        for name, package, version, ratio in rows
    }


def write(entries, path=RECORD):
    """Writes the entries; those of other trials that are recorded stay."""
    entries = {**read(path), **entries}
    width = max(map(len, entries))
    lines = [
        f"{name:{width}} {entry.package} {entry.version} {ratio_word(entry.ratio)}\n"
        for name, entry in sorted(entries.items())
    ]
    path.write_text(HEADING + "".join(lines))


def ratio_word(ratio):
    return "-" if ratio is None else f"{ratio:.2g}"


def difference(recorded, now):
    """(problem, note) of a trial against what is recorded of it; each may be empty."""
    if recorded is None:
        return "nothing is recorded of this trial: --pin does so", ""
    note = "" if recorded.version == now.version else f"recorded with {recorded.version}"
    if now.ratio is None or recorded.ratio is None or now.ratio * TOLERANCE >= recorded.ratio:
        return "", note
    return (
        f"{ratio_word(now.ratio)} times as fast as TCP, recorded {ratio_word(recorded.ratio)}",
        note,
    )
