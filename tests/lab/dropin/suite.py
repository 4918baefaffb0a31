"""The suite "dropin": stock programs on our library in the place of libibverbs and librdmacm."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from lab import binaries
from lab.dropin import middleware
from lab.dropin.adapters import adapter_cases
from lab.dropin.checked import checked, place_findings
from lab.dropin.examples import example_cases
from lab.dropin.hosts import (
    GuestBridge,
    GuestHost,
    HostPair,
    place_library,
    place_ours,
    place_sockets,
)
from lab.dropin.memcheck import memcheck_cases
from lab.dropin.middleware import middleware_cases
from lab.dropin.perftest import perftest_cases
from lab.dropin.pyverbs import DebianRunner, PyverbsCase, pyverbs_cases
from lab.dropin.qperf import qperf_cases
from lab.dropin.ratios import RatioCase, RatioRunner, ratio_cases
from lab.dropin.rdmacm import rdmacm_cases
from lab.dropin.rsockets import rsocket_cases
from lab.dropin.runner import CaseRunner
from lab.dropin.sharing import sharing_cases
from lab.dropin.wheel import build_wheel, wheel_cases
from lab.guest import Guest
from lab.image import GUEST_PACKAGES, prepare, with_files
from lab.report import CaseTable, say
from lab.requirements import Kernel, Packages, PyverbsTests
from lab.running import describe_guest

KERNEL = "6.1"

PACKAGES = [
    *("ibverbs-utils", "rdmacm-utils", "perftest", "python3-pyverbs", "rdma-core"),
    "infiniband-diags",
    *("libibverbs-dev", "librdmacm-dev", "ucx-utils", "libucx-dev", "libfabric-bin"),
    *("openmpi-bin", "libopenmpi-dev", "gcc", "libc6-dev", "iproute2", "util-linux"),
    *("qperf", "valgrind", "iperf3", "netcat-openbsd", "socat"),
]


def cases():
    return [
        *example_cases(),
        *adapter_cases(),
        *rdmacm_cases(),
        *rsocket_cases(),
        *perftest_cases(),
        *qperf_cases(),
        *sharing_cases(),
        *middleware_cases(),
        *memcheck_cases(),
        *wheel_cases(),
        *pyverbs_cases(),
        *ratio_cases(),
    ]


def of_form(options, cases):
    """Those of the cases that run with these options."""
    return [case for case in cases if not (options.quick and isinstance(case, RatioCase))]


def add_arguments(parser):
    parser.add_argument(
        "--pin",
        action="store_true",
        help="write down which tests of pyverbs pass, and why others are skipped",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="leave out the ratios, which take half a minute each and have no bar",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2,
        metavar="N",
        help="number of cases that run at once; by default %(default)s",
    )
    parser.add_argument(
        "--check",
        nargs="?",
        const="text",
        metavar="WORDS",
        help="check the programs, as `roce run --check=WORDS` does: what is found, and is not in "
        "findings.txt, fails the case",
    )


def requirements(chosen):
    needed = [Packages(PACKAGES), PyverbsTests()]
    if any(case.in_guest for case in chosen):
        needed += [Packages(GUEST_PACKAGES), Kernel(KERNEL)]
    return needed


def refusal(options, chosen):
    """Reason why nothing can be run, if there is one."""
    if options.pin and not set(pyverbs_cases()) <= set(chosen):
        return "--pin writes down all of pyverbs, so all of it must run: --only pyverbs"
    return ""


def run(options, chosen, logs):
    """Runs the cases; returns the number of failed ones."""
    if options.check:
        chosen = checked(chosen, options.check)
    lab = Lab(chosen, logs, options.pin)
    started = time.monotonic()
    # The guest ends with the thread that has booted it.
    with GuestBridge(lab.roce) as bridge, ThreadPoolExecutor(options.jobs) as pool:
        try:
            # First, because a guest takes some time to boot.
            done = [pool.submit(lab.run_with_guest, bridge)] if lab.needs_guest else []
            done += [pool.submit(lab.work, number) for number in range(options.jobs)]
            for future in done:
                future.result()
            # Alone, because it measures.
            lab.measure_ratios()
        finally:
            if lab.guest:
                lab.guest.close()
    if options.pin:
        lab.pyverbs.pin()
    say(f"{len(chosen)} cases in {time.monotonic() - started:.0f} s")
    lab.table.print_summary()
    return lab.table.failed


class Lab:
    """Chosen cases, the programs that they need, and the table of their results."""

    def __init__(self, chosen, logs, pin):
        self.logs = logs
        self.table = CaseTable(chosen)
        self.library = binaries.library()
        self.roce = place_ours(binaries.roce(), self.library, logs)
        place_sockets(self.roce)
        place_findings(self.roce)
        self.runner = CaseRunner(logs, {**middleware.build(logs), **build_wheel(logs)})
        self.pyverbs = DebianRunner(logs, pin)
        self.ratios = [case for case in chosen if isinstance(case, RatioCase)]
        self.with_guest = [case for case in chosen if case.in_guest and case not in self.ratios]
        self.needs_guest = bool(self.with_guest or self.ratios)
        self.guest = None
        # Modules of pyverbs first: among them are the cases that take longest.
        waiting = [case for case in chosen if not case.in_guest]
        self.waiting = iter(sorted(waiting, key=lambda case: not isinstance(case, PyverbsCase)))
        self.lock = threading.Lock()

    def boot(self, bridge):
        kernel, initramfs = prepare(KERNEL)
        files = self.logs / "guest"
        files.mkdir()
        place_library(self.library, files)
        image = with_files(initramfs, files, self.logs / "initramfs.cpio")
        try:
            self.guest = Guest(bridge, kernel, image, self.logs, processors=2)
        finally:
            image.unlink()
        say(f"guest with {kernel.name.removeprefix('vmlinuz-')} is up")

    def work(self, number):
        """Runs waiting cases until there are none; several workers do so at once."""
        with HostPair(number, self.roce) as pair:
            while case := self.next_case():
                if isinstance(case, PyverbsCase):
                    result = self.pyverbs.run(case, pair)
                else:
                    result = self.runner.run(case, *pair.sides(case.place))
                self.table.add(case, result)

    def next_case(self):
        with self.lock:
            return next(self.waiting, None)

    def run_with_guest(self, bridge):
        """Boots the guest, and runs the cases between our host and it."""
        self.boot(bridge)
        rxe = GuestHost(self.guest)
        for case in self.with_guest:
            console = len(self.guest.console_text())
            result = self.runner.run(case, *bridge.sides(case.place, rxe))
            describe_guest(result, self.guest, console)
            self.table.add(case, result)

    def measure_ratios(self):
        if self.ratios:
            runner = RatioRunner(self.guest)
            for case in self.ratios:
                self.table.add(case, runner.run(case))
