"""QEMU: live migration of a machine over RDMA and over TCP."""

from lab.dropin.case import Case, Program
from lab.programs.trial import Figure, trials

FIGURE = Figure(r"^(?P<value>[\d.]+) (?P<unit>MB/s), \d+ MB$")


def qemu_trials():
    yield from trials("qemu/migration", "qemu-system-x86", migration, FIGURE)


def migration(name, place, tcp):
    uri = ("tcp" if tcp else "rdma") + ":{server}:4444"
    common = ("/usr/bin/python3", "{migrate}")
    return Case(
        name,
        place,
        Program((*common, "outgoing", uri, "{memory}"), (r"[\d.]+ MB/s, \d+ MB",)),
        Program(
            (*common, "incoming", uri, "{memory}"), (r"the machine has arrived with its memory",)
        ),
        "tcp:4444" if tcp else "cm",
        60,
    )
