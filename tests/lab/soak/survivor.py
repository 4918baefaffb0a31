"""Servers that run all the time, and what they use: memory, descriptors, threads."""

import re
from dataclasses import dataclass
from pathlib import Path

from lab.running import HostProgram
from lab.soak.exchange import SURVIVORS

# What a server may have more at the end than when it was warm: memory that the allocator keeps, two
# descriptors for each of four addresses that others have shared since, and those of a killed peer.
GROWTH_KIB = 4096
GROWTH_DESCRIPTORS = 12


@dataclass(frozen=True)
class Usage:
    """What a process uses."""

    kib: int
    descriptors: int
    threads: int

    def __str__(self):
        return f"{self.kib / 1024:.1f} MiB, {self.descriptors} descriptors, {self.threads} threads"


def usage(pid):
    process = Path(f"/proc/{pid}")
    status = (process / "status").read_text()
    # Without the pages of files: more and more of the program's code is used, and then none.
    memory = re.findall(r"Rss(?:Anon|Shmem):\s+(\d+) kB", status)
    return Usage(
        sum(map(int, memory)),
        len(list((process / "fd").iterdir())),
        int(re.search(r"Threads:\s+(\d+)", status)[1]),
    )


class Survivor:
    """A server that runs all the time."""

    def __init__(self, place, host, logs):
        self.place = place
        words = {"{roce}": host.sandbox.roce, "{own}": host.address}
        argv = [str(words.get(word, word)) for word in SURVIVORS[place]]
        self.program = HostProgram(host.sandbox, argv, logs / f"survivor-{place}")
        self.program.label = f"survivor/{place}"
        self.samples = []

    @property
    def name(self):
        return self.program.label

    def sample(self):
        """Looks at it while it has no client."""
        if self.program.poll() is None:
            self.samples.append(usage(self.program.process.pid))

    def judge(self):
        """(problems, note)"""
        problems = []
        if self.program.poll() is not None:
            problems.append(f"it ended with {self.program.status}")
        if len(self.samples) < 2:
            return [*problems, "it was looked at too rarely"], ""
        warm, last = self.samples[0], self.samples[-1]
        if last.kib > warm.kib + GROWTH_KIB:
            problems.append(f"its memory grew from {warm.kib} KiB to {last.kib} KiB")
        if last.descriptors > warm.descriptors + GROWTH_DESCRIPTORS:
            problems.append(f"its descriptors grew from {warm.descriptors} to {last.descriptors}")
        if last.threads > warm.threads:
            problems.append(f"its threads grew from {warm.threads} to {last.threads}")
        return problems, f"warm: {warm}; at the end: {last}"
