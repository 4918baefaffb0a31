"""The suite "programs": other people's programs, each beside its TCP mode."""

import time

from lab.dropin.hosts import HostPair
from lab.programs.ceph import ceph_trials
from lab.programs.crates import crate_trials
from lab.programs.fabtests import fabtests_trials
from lab.programs.fio import fio_trials
from lab.programs.gloo import gloo_trials
from lab.programs.iscsi import iscsi_trials
from lab.programs.middleware import middleware_trials
from lab.programs.mpi4py import mpi4py_trials
from lab.programs.mpi_wheels import mpi_wheel_trials
from lab.programs.pyverbs import pyverbs_trials
from lab.programs.qemu import qemu_trials
from lab.programs.qperf import qperf_trials
from lab.programs.rdma_example import rdma_example_trials
from lab.programs.rpma import rpma_trials
from lab.programs.runner import TrialRunner
from lab.programs.spdk import spdk_trials
from lab.programs.tensorpipe import tensorpipe_trials
from lab.programs.trial import sources_of
from lab.programs.ucx_gtest import ucx_gtest_trials
from lab.programs.valkey import valkey_trials
from lab.programs.wheels import wheel_trials
from lab.report import CaseTable, say
from lab.requirements import Packages

# Beside those of the programs themselves.
PACKAGES = [
    *("iproute2", "socat", "util-linux", "gcc", "g++", "libc6-dev", "libopenmpi-dev"),
    *("libmpich-dev", "libiscsi-bin", "libtensorpipe-dev"),
]


def cases():
    return [
        *fio_trials(),
        *qperf_trials(),
        *middleware_trials(),
        *mpi4py_trials(),
        *mpi_wheel_trials(),
        *tensorpipe_trials(),
        *fabtests_trials(),
        *pyverbs_trials(),
        *crate_trials(),
        *valkey_trials(),
        *ucx_gtest_trials(),
        *rpma_trials(),
        *gloo_trials(),
        *wheel_trials(),
        *qemu_trials(),
        *iscsi_trials(),
        *ceph_trials(),
        *rdma_example_trials(),
        *spdk_trials(),
    ]


def of_form(options, cases):
    """Those of the trials that run with these options."""
    return [trial for trial in cases if options.all or not trial.large]


def add_arguments(parser):
    parser.add_argument("--all", action="store_true", help="the large ones, too")
    parser.add_argument(
        "--pin",
        action="store_true",
        help="write down the versions, how fast the programs are, and which tests of pyverbs pass",
    )


def requirements(chosen):
    sources = sources_of(chosen)
    packages = {trial.package for trial in chosen} - {source.name for source in sources}
    building = [package for source in sources for package in source.packages]
    further = [package for trial in chosen for package in trial.further]
    return [Packages([*PACKAGES, *building, *packages, *further]), *sources]


def refusal(options, chosen):
    """Reason why nothing can be run, if there is one."""
    return "" if chosen else "these are large, and run with --all"


def run(options, chosen, logs):
    """Runs the trials, one at a time because they measure; returns the number of failed ones."""
    runner = TrialRunner(chosen, logs, options.pin)
    started = time.monotonic()
    table = CaseTable(chosen)
    with HostPair(0, runner.roce) as pair:
        for trial in chosen:
            table.add(trial, runner.run(trial, pair))
    if options.pin:
        runner.write()
    say(f"{len(chosen)} trials in {time.monotonic() - started:.0f} s")
    table.print_summary()
    return table.failed
