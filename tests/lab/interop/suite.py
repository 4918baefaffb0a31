#!/usr/bin/env python3
"""Tries our adapter against a real kernel rxe: `roce pingpong` against the stock tools, and verbs against verbs. See README.md."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of ours may lie about in the source tree

from cm import CmCase, CmStage, cm_cases
from compliance import compliance_problems
from guest import Guest
from lab import KERNELS, REPO, LabError, cache_dir, prepare
from matrix import Matrix
from net import Net
from play import RowCase, Stage, row_cases
from report import explain, put_away, say
from scenarios import cases
from table import print_table

# The pingpongs' kernel.
PINGPONG_KERNEL = "6.1"


def main():
    options = parse_arguments()
    chosen = choose(options.only)
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    if not chosen:
        say(f"no case has {options.only!r} in its name; --list shows them all")
        return 2
    if os.geteuid() != 0:
        say("this needs root, for packages, a network namespace and a tap device")
        return 2
    problems = compliance_problems()
    if problems:
        say("\n".join(problems))
        return 1
    # As with Ctrl-C, so that everything is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))

    # A root shell does not always look where modprobe, dpkg and ip live.
    os.environ["PATH"] += ":/usr/sbin:/sbin"

    logs = Path(tempfile.mkdtemp(prefix="roce-lab-"))
    failed = True
    try:
        failed = run_lab(options, chosen, logs) > 0
    except LabError as error:
        say(f"the lab failed: {error}")
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        put_away(logs, "failed", keep=failed)
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
        "--keep", action="store_true", help="afterwards, leave the lab up and take commands for it"
    )
    return parser.parse_args()


def choose(text):
    every = [*cases(), *cm_cases(), *row_cases()]
    # One whole name stands for that case alone, though others may begin with it.
    exact = [case for case in every if case.name == text]
    return exact or [case for case in every if text in case.name]


def run_lab(options, chosen, logs):
    """Returns the number of failed cases."""
    groups = [
        (kernel, group)
        for kernel in KERNELS
        if (group := [case for case in chosen if kernel_of(case) == kernel])
    ]
    pingpong = (
        our_binary("roce", "ROCE_BIN")
        if any(not isinstance(case, RowCase) for case in chosen)
        else None
    )
    if any(isinstance(case, CmCase) for case in chosen):
        build_beside(pingpong)
    peer = (
        our_binary("roce-interop-peer", "ROCE_PEER")
        if any(isinstance(case, RowCase) for case in chosen)
        else None
    )
    prepared = {kernel: prepare(kernel, say) for kernel, _ in groups}
    started = time.monotonic()
    failed = 0
    # The first guest works while the second one still boots.
    with Net() as net, ThreadPoolExecutor() as pool:
        guests = {
            kernel: pool.submit(boot, net, prepared[kernel], logs, number, pingpong, group)
            for number, (kernel, group) in enumerate(groups, 2)
        }
        try:
            for kernel, group in groups:
                guest, connecting = guests[kernel].result()
                say(f"guest with {prepared[kernel][0].name.removeprefix('vmlinuz-')} is there")
                failed += play_group(net, guest, connecting, kernel, pingpong, peer, logs, group)
            say(f"{len(chosen)} cases in {time.monotonic() - started:.0f} s")
            print(f"{len(chosen) - failed} passed, {failed} failed", flush=True)
            if options.keep:
                take_commands(net, guest)
            return failed
        finally:
            for future in guests.values():
                if not future.exception():
                    guest, connecting = future.result()
                    if connecting:
                        connecting.close()
                    guest.close()


def kernel_of(case):
    return getattr(case, "kernel", PINGPONG_KERNEL)


def boot(net, prepared, logs, number, pingpong, group):
    """A guest, and the stage for its cases of connection management, if any, on which what waits for long has begun."""
    cases = [case for case in group if isinstance(case, CmCase)]
    guest = Guest(net, *prepared, logs, number)
    try:
        connecting = CmStage(net, guest, pingpong, logs) if cases else None
        if connecting:
            connecting.begin_patient(cases)
        return guest, connecting
    except BaseException:
        guest.close()
        raise


def our_binary(name, variable):
    path = os.environ.get(variable)
    if path:
        path = Path(path).resolve()
    else:
        path = REPO / "target" / "release" / name
        if not path.exists():
            say(f"building {name}")
            subprocess.run(["cargo", "build", "--release", "--bin", name, "--workspace"], cwd=REPO)
    if not os.access(path, os.X_OK):
        raise LabError(f"{path} is not there")
    return path


def build_beside(binary):
    """What else connection management is tried with lies beside the tool's binary."""
    wanted = {
        "examples/cm_client": ["--example", "cm_client"],
        "examples/cm_server": ["--example", "cm_server"],
        "roce-interop-steps": ["--package", "roce-interop-peer", "--bin", "roce-interop-steps"],
    }
    for name, arguments in wanted.items():
        if not (binary.parent / name).exists():
            say(f"building {name}")
            subprocess.run(["cargo", "build", "--release", *arguments], cwd=REPO)
        if not os.access(binary.parent / name, os.X_OK):
            raise LabError(f"{binary.parent / name} is not there")


def play_group(net, guest, connecting, kernel, pingpong, peer, logs, group):
    """Plays what is for one guest; returns the number of failed cases."""
    width = max(len(case.name) for case in group)
    matrix = Matrix(net, guest, pingpong, logs)
    stage = (
        Stage(net, guest, kernel, peer, logs)
        if any(isinstance(case, RowCase) for case in group)
        else None
    )
    failed = 0
    try:
        for case in group:
            player = (
                stage
                if isinstance(case, RowCase)
                else connecting
                if isinstance(case, CmCase)
                else matrix
            )
            result = player.play(case)
            word = (
                "FAIL"
                if result.problems
                else "refused"
                if getattr(case, "refused", False)
                else "ok"
            )
            print(f"{case.name:{width}}  {word:7}  {result.seconds:6.2f} s", flush=True)
            if result.problems:
                failed += 1
                explain(result)
        if stage:
            print_table(kernel, stage.observed)
    finally:
        if stage:
            stage.close()
    return failed


def take_commands(net, guest):
    say(f"""The lab stays up until the end of input (Ctrl-D).
    A line is run in the guest, at most for a minute. Programs: busybox, rdma, ibv_*.
    The guest's end is {guest.ipv4} and {guest.ipv6} on rxe0, GID indexes {guest.gids()}.
    For the host's end, in another terminal: ip netns exec {net.name} bash""")
    while True:
        try:
            line = input("guest# ")
        except EOFError:
            print()
            return
        if line.strip():
            status, output = guest.run(line, timeout=60)
            print(output, end="")
            if status != 0:
                print(f"[exit status {status}]")


if __name__ == "__main__":
    sys.exit(main())
