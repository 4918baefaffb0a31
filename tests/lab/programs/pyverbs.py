"""rdma-core's own tests of the verbs in versions that Debian 12 has not, with the pyverbs of each
version: built with its headers and libraries, and run on ours.

The tests import modules for two vendors' hardware, and load the `libmlx5` and `libefa` of the same
build. They ask `rdma link show -j` for the interface of a device, and look into /sys/class if the
list is empty. Tests over UD wait for each datagram, so `drop` leaves them out; multicast has the
address open in three processes, so `sockets` leaves it out.
"""

import shutil
from pathlib import Path

from lab.dropin.pyverbs import MODULES, RAW_MODULES, VENDORS, Edition, PyverbsCase, PyverbsRunner
from lab.host import output_of
from lab.programs.trial import CONDITIONS, Trial
from lab.requirements import DebianSource

PACKAGES = [
    *("cmake", "make", "gcc", "libc6-dev", "pkg-config", "cython3", "python3-dev"),
    *("libnl-3-dev", "libnl-route-3-dev", "libdrm-dev"),
]
# The tests import the modules for makers' devices, and so need the libraries of those.
LIBRARIES = ["libefa.so.1", "libmlx5.so.1"]
# The tests ask `rdma link show -j` which interface a device has, and if it names none look into
# /sys/class. That program asks the kernel, which knows none of our devices, and where the kernel
# has no RDMA at all it fails.
RDMA = "#!/bin/sh\necho '[]'\n"


def build_pyverbs(tree, target):
    options = ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_FLAGS=-O0 -w", "-DNO_MAN_PAGES=1"]
    places = ["-DPYTHON_EXECUTABLE=/usr/bin/python3", "-DCMAKE_SKIP_RPATH=1"]
    built = tree / "built"
    output_of(["cmake", "-S", tree, "-B", built, *options, *places])
    output_of(["make", "-s", "-j2", "-C", built / "pyverbs"])
    shutil.copytree(built / "python" / "pyverbs", target / "pyverbs")
    shutil.copytree(tree / "tests", target / "tests")
    for name in ["lib", "bin"]:
        (target / name).mkdir()
    for name in LIBRARIES:
        shutil.copy(built / "lib" / name, target / "lib")
    (target / "bin" / "rdma").write_text(RDMA)
    (target / "bin" / "rdma").chmod(0o755)


def pyverbs(name, version, sha256):
    archive = ("rdma-core", "tar.gz")
    return DebianSource(name, version, sha256, PACKAGES, build_pyverbs, archive=archive)


def edition_of(source, *new):
    """With the modules that Debian 12's version has not."""
    expected = Path(__file__).resolve().parent / f"{source.name}-expected.txt"
    return Edition(f"pyverbs/{source.version}", (*MODULES, *new), expected)


# That in Debian 13, and that in the unstable one.
TRIXIE = pyverbs(
    "pyverbs", "56.1", "63ce7f2baa7242c2dbc76375dac957c420187dd27f8c5e148efc07971ee522a8"
)
UNSTABLE = pyverbs(
    "pyverbs65", "65.0", "f6ba3d8b2c4aa334c5c883c1ad0772de339011123cff4fb1db32ae7a443fb7ca"
)
EDITIONS = {
    TRIXIE: edition_of(TRIXIE, "srq"),
    UNSTABLE: edition_of(UNSTABLE, "srq", "buf", "dmah", "phc_timestamp"),
}
# Modules with packets between queue pairs.
EXCHANGES = [
    *("atomic", "cq", "cq_events", "cqex", "mr", "odp", "parent_domain", "qpex", "rdmacm"),
    *("relaxed_ordering", "shared_pd", "srq"),
]
# Tests that are left out under a condition.
LEFT_OUT = {
    # no device of ours limits the rate of raw packets, and there what is skipped is a failure
    "raw": "_rate_limit_",
    # the address is open in more than one process, which those with ROCE_SOCKETS_ONLY cannot share
    "sockets": "_multicast_",
    # they wait for each of their datagrams
    "drop": "_ud(_|$)|_multicast_",
}


def pyverbs_trials():
    for source, edition in EDITIONS.items():
        for case in cases(edition):
            yield Trial(case, source.name, large=True, source=source)


def cases(edition):
    for module in [*edition.modules, *VENDORS]:
        yield PyverbsCase(module, edition=edition)
    for module in RAW_MODULES:
        yield PyverbsCase(module, raw=True, edition=edition, left_out=LEFT_OUT["raw"])
    for condition, options in CONDITIONS.items():
        how = {"condition": condition, "left_out": LEFT_OUT[condition], **options}
        for module in EXCHANGES:
            yield PyverbsCase(module, edition=edition, **how)


def pyverbs_runners(chosen, built, logs, pin):
    """What runs the cases of each edition whose source is among the chosen ones, and built."""
    return {
        edition: PyverbsRunner(logs, edition, built[source.word], pin)
        for source, edition in EDITIONS.items()
        if source in chosen and source.directory.exists()
    }
