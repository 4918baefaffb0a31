#!/usr/bin/env python3
"""Runs unmodified programs of Debian on our library, put in the place of libibverbs and librdmacm. See README.md."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of ours may lie about in the source tree
# The lab with the kernel's rxe is that of the other tests.
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "interop"))

from casting import GuestHost, play
from connecting import connecting_cases
from examples import example_cases
from guest import Guest
from lab import REPO, LabError, install, prepare, with_files
from middleware import build, middleware_cases
from perftest import perftest_cases
from ratios import Ratios, ratio_cases
from report import explain, put_away, say
from rooms import Pair, Stage, place_library, place_ours
from sharing import sharing_cases
from suite import Suite, SuiteCase, suite_cases

KERNEL = "6.1"

PACKAGES = [
    "ibverbs-utils",
    "rdmacm-utils",
    "perftest",
    "python3-pyverbs",
    "rdma-core",
    "libibverbs-dev",
    "librdmacm-dev",
    "ucx-utils",
    "libucx-dev",
    "libfabric-bin",
    "openmpi-bin",
    "libopenmpi-dev",
    "gcc",
    "libc6-dev",
    "iproute2",
    "util-linux",
]

printing = threading.Lock()


def main():
    options = parse_arguments()
    if os.geteuid() != 0:
        say("this needs root, for packages and network namespaces")
        return 2
    # A root shell does not always look where modprobe, dpkg and ip live.
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    try:
        install(PACKAGES, say)
        chosen = choose(options.only)
    except LabError as error:
        say(f"the lab failed: {error}")
        return 1
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    if not chosen:
        say(f"no case has {options.only!r} in its name; --list shows them all")
        return 2
    if options.pin and not set(suite_cases()) <= set(chosen):
        say("--pin writes down all of pyverbs, so it must be played: --only pyverbs")
        return 2
    # As with Ctrl-C, so that everything is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))

    logs = Path(
        tempfile.mkdtemp(prefix="roce-dropin-", dir="/var/tmp")
    )  # not in /tmp, which each has for itself
    logs.chmod(0o755)  # for nobody, who executes what is there
    failed = True
    try:
        failed = run(options, chosen, logs) > 0
    except LabError as error:
        say(f"the lab failed: {error}")
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        put_away(logs, "failed-dropin", keep=failed)
    return 1 if failed else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--list", action="store_true", help="print the names of the cases and do nothing"
    )
    parser.add_argument(
        "--only",
        metavar="SUBSTRING",
        default="",
        help="play only the case of this name, or all whose names contain it",
    )
    parser.add_argument(
        "--pin",
        action="store_true",
        help="write down which tests of pyverbs pass, and why others are skipped",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2,
        metavar="N",
        help="how many cases are played at once; by default %(default)s",
    )
    return parser.parse_args()


def choose(text):
    every = [
        *example_cases(),
        *connecting_cases(),
        *perftest_cases(),
        *sharing_cases(),
        *middleware_cases(),
        *suite_cases(),
        *ratio_cases(),
    ]
    # One whole name stands for that case alone, though others may begin with it.
    exact = [case for case in every if case.name == text]
    return exact or [case for case in every if text in case.name]


def run(options, chosen, logs):
    """Returns the number of failed cases."""
    roce, library = ours()
    command = place_ours(roce, library, logs)
    built = build(logs)
    suite = Suite(logs)
    started = time.monotonic()
    table = Table(chosen)
    here = [case for case in chosen if not case.in_guest]
    meeting = [case for case in chosen if case.in_guest and case.place != "guest"]
    ratios = [case for case in chosen if case.place == "guest"]
    prepared = prepare(KERNEL, say) if meeting or ratios else None
    waiting = iter(here)
    taking = threading.Lock()

    def work(number):
        with Pair(number, command) as pair:
            while case := take(waiting, taking):
                table.add(case, play_here(case, pair, suite, built, logs))

    with Stage(command) as stage:
        guest = boot(stage, prepared, library, logs) if prepared else None
        try:
            with ThreadPoolExecutor(options.jobs) as pool:
                done = (
                    [pool.submit(meet, meeting, stage, guest, table, built, logs)]
                    if meeting
                    else []
                )
                done += [pool.submit(work, number) for number in range(options.jobs)]
                for future in done:
                    future.result()
            # What is measured is measured alone.
            if ratios:
                measured = Ratios(guest)
                for case in ratios:
                    table.add(case, measured.play(case))
        finally:
            if guest:
                guest.close()
    if options.pin:
        suite.pin()
    say(f"{len(chosen)} cases in {time.monotonic() - started:.0f} s")
    print(f"{len(chosen) - table.failed} passed, {table.failed} failed", flush=True)
    return table.failed


def take(waiting, lock):
    with lock:
        return next(waiting, None)


def play_here(case, pair, suite, built, logs):
    if isinstance(case, SuiteCase):
        return suite.play(case, pair.hosts[0])
    server, client = {"hosts": pair.hosts, "shared": [pair.hosts[0]] * 2}.get(
        case.place, [pair.loopback] * 2
    )
    return play(case, server, client, logs, built)


def meet(cases, stage, guest, table, built, logs):
    """Plays what is between our side and the guest."""
    rxe = GuestHost(guest)
    for case in cases:
        console = len(guest.console_text())
        server, client = (rxe, stage.host) if case.place == "rxe-server" else (stage.host, rxe)
        result = play(case, server, client, logs, built)
        if result.problems:
            result.report.append(("guest kernel", guest.console_text()[console:]))
            result.report.append(("rxe0 counters", guest.counters()))
        table.add(case, result)


def boot(stage, prepared, library, logs):
    kernel, initramfs = prepared
    (logs / "guest").mkdir()
    place_library(library, logs / "guest")
    image = with_files(initramfs, logs / "guest", logs / "initramfs.cpio")
    try:
        guest = Guest(stage, kernel, image, logs, processors=2)
    finally:
        image.unlink()
    say(f"guest with {kernel.name.removeprefix('vmlinuz-')} is there")
    return guest


def ours():
    """The tool and the library."""
    found = []
    for name, variable, package in [
        ("roce", "ROCE_BIN", "roce"),
        ("libroce_abi.so", "ROCE_ABI", "roce-abi"),
    ]:
        path = Path(os.environ.get(variable) or REPO / "target" / "release" / name).resolve()
        if not path.exists() and not os.environ.get(variable):
            say(f"building {name}")
            subprocess.run(["cargo", "build", "--release", "--package", package], cwd=REPO)
        if not path.exists():
            raise LabError(f"{path} is not there")
        found.append(path)
    return found


class Table:
    """Prints each case as it ends, and counts."""

    def __init__(self, cases):
        self.width = max(len(case.name) for case in cases)
        self.failed = 0

    def add(self, case, result):
        with printing:
            word = "FAIL" if result.problems else "ok"
            print(
                f"{case.name:{self.width}}  {word:4}  {result.seconds:6.2f} s  {getattr(result, 'note', '')}".rstrip(),
                flush=True,
            )
            if result.problems:
                self.failed += 1
                explain(result)


if __name__ == "__main__":
    sys.exit(main())
