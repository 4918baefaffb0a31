"""The suite "interop": our adapter against the rxe of stock Debian kernels under QEMU."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lab import binaries
from lab.guest import Guest
from lab.image import GUEST_PACKAGES, prepare
from lab.interop.cm.case import CmCase
from lab.interop.cm.cases import cm_cases
from lab.interop.cm.runner import CmRunner
from lab.interop.links import NETWORKS
from lab.interop.pingpong.cases import PingpongCase, pingpong_cases
from lab.interop.pingpong.runner import PingpongRunner
from lab.interop.rows.compliance import compliance_problems
from lab.interop.rows.error_table import print_table
from lab.interop.rows.runner import RowCase, RowRunner, row_cases
from lab.namespaces import MTU
from lab.report import CaseTable, say
from lab.requirements import KERNELS, Kernel, Packages

# Every link that builds frames, on every network.
ALL = "all"
MTUS = [1500, MTU, 9000]
# What rxe wants of a network beside the path MTU.
HEADERS = 96
# Kernel of the pingpongs.
PINGPONG_KERNEL = "6.1"


def cases():
    return [*pingpong_cases(), *cm_cases(), *row_cases()]


def of_form(options, cases):
    """Those of the cases that run with these options."""
    return [case for case in cases if not (options.quick and getattr(case, "slow", False))]


def add_arguments(parser):
    parser.add_argument(
        "--link",
        choices=[*NETWORKS, ALL],
        default="udp",
        help="link of our side: sockets, packet sockets or AF_XDP with the addresses of an "
        "interface, or these with addresses of its own; by default %(default)s. "
        f"{ALL}: all that build frames, with MTU 1500 and 9000 and with tags, one after the other",
    )
    parser.add_argument(
        "--mtu", choices=MTUS, type=int, default=MTU, help="of the network; by default %(default)s"
    )
    parser.add_argument(
        "--vlan", metavar="ID", type=int, help="tag of our devices, with addresses of their own"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="leave out the cases that wait for more than a minute, as a sample does",
    )
    parser.add_argument(
        "--keep", action="store_true", help="afterwards, leave the lab up and read commands for it"
    )


def requirements(chosen):
    return [Packages(GUEST_PACKAGES), *(Kernel(name) for name in kernels(chosen))]


def refusal(options, chosen):
    """Reason why nothing can be run, if there is one."""
    if options.vlan is not None and not (options.link in NETWORKS and NETWORKS[options.link].tags):
        return "only devices with addresses of their own have a tag: --link raw-own, xdp-own"
    if options.vlan is not None and not 1 <= options.vlan <= 4094:
        return "a VLAN has a number from 1 to 4094"
    return "\n".join(compliance_problems())


@dataclass(frozen=True)
class Wire:
    """What a run has between our devices and the guest."""

    link: str
    mtu: int
    vlan: int | None = None

    def __str__(self):
        tags = "" if self.vlan is None else f", VLAN {self.vlan}"
        return f"{self.link}, MTU {self.mtu}{tags}"


def wires(options):
    if options.link != ALL:
        return [Wire(options.link, options.mtu, options.vlan)]
    return [
        Wire(link, mtu, vlan)
        for link, network in NETWORKS.items()
        if link != "udp"
        for mtu in (1500, 9000)
        for vlan in ((None, 100) if network.tags else (None,))
    ]


def run(options, chosen, logs):
    """Runs the cases; returns the number of failed ones."""
    failed = {}
    for wire in wires(options):
        if options.link == ALL:
            say(f"over {wire}:")
        failed[wire] = run_over(wire, options.keep, chosen, logs)
    if options.link == ALL:
        for wire, count in failed.items():
            say(f"{wire}: {count} failed")
    return sum(failed.values())


def run_over(wire, keep, chosen, logs):
    if wire.link != "udp":
        chosen = [case for case in chosen if not getattr(case, "host_devices", False)]
    # The path MTU is the greatest that the network carries, with headers.
    chosen = [case for case in chosen if getattr(case, "mtu", 0) + HEADERS <= wire.mtu]
    lab = Lab(chosen, logs)
    prepared = {kernel: prepare(kernel) for kernel in kernels(chosen)}
    started = time.monotonic()
    # The first guest works while the second one still boots.
    with NETWORKS[wire.link](wire.mtu, wire.vlan) as bridge, ThreadPoolExecutor() as pool:
        guests = {
            kernel: pool.submit(lab.boot, bridge, kernel, prepared[kernel], number)
            for number, kernel in enumerate(prepared, 2)
        }
        try:
            for future in guests.values():
                running = future.result()
                say(f"guest with {running.version} is up")
                running.run_all(lab.table)
            say(f"{len(chosen)} cases in {time.monotonic() - started:.0f} s")
            lab.table.print_summary()
            if keep:
                take_commands(bridge, running.guest)
            return lab.table.failed
        finally:
            for future in guests.values():
                if not future.exception():
                    future.result().close()


def kernels(chosen):
    """Kernels of these cases, in order."""
    used = {kernel_of(case) for case in chosen}
    return [kernel for kernel in KERNELS if kernel in used]


def kernel_of(case):
    return PINGPONG_KERNEL if isinstance(case, PingpongCase) else case.kernel


class Lab:
    """Chosen cases, the binaries that they need, and the table of their results."""

    def __init__(self, chosen, logs):
        self.chosen, self.logs = chosen, logs
        self.table = CaseTable(chosen)
        types = {type(case) for case in chosen}
        self.roce = binaries.roce() if types - {RowCase} else None
        if CmCase in types:
            binaries.cm_programs(self.roce.parent)
        self.peer = binaries.interop_peer() if RowCase in types else None

    def boot(self, bridge, kernel, prepared, number):
        """Boots a guest, and starts its slow cases."""
        group = [case for case in self.chosen if kernel_of(case) == kernel]
        guest = Guest(bridge, *prepared, self.logs, number)
        version = prepared[0].name.removeprefix("vmlinuz-")
        running = RunningGuest(guest, version, kernel, group)
        try:
            running.create_runners(self, bridge)
            return running
        except BaseException:
            running.close()
            raise


class RunningGuest:
    """A guest, its cases, and a runner for each type of them."""

    def __init__(self, guest, version, kernel, group):
        self.guest, self.version, self.kernel, self.group = guest, version, kernel, group
        self.runners = {}

    def create_runners(self, lab, bridge):
        types = {type(case) for case in self.group}
        if PingpongCase in types:
            runner = PingpongRunner(bridge, self.guest, lab.roce, lab.logs)
            self.runners[PingpongCase] = runner
        if CmCase in types:
            runner = CmRunner(bridge, self.guest, lab.roce, lab.logs)
            self.runners[CmCase] = runner
            runner.start_slow([case for case in self.group if isinstance(case, CmCase)])
        if RowCase in types:
            runner = RowRunner(bridge, self.guest, self.kernel, lab.peer, lab.logs)
            self.runners[RowCase] = runner

    def run_all(self, table):
        # Those that are slow last: they have run from the beginning, beside the others.
        for case in sorted(self.group, key=lambda case: getattr(case, "slow", False)):
            runner = self.runners[type(case)]
            table.add(case, runner.run(case))
        if RowCase in self.runners:
            print_table(self.kernel, self.runners[RowCase].observed)
        # The next guest's cases have the same addresses of ours.
        self.close_runners()

    def close_runners(self):
        for runner in self.runners.values():
            runner.close()
        self.runners = {}

    def close(self):
        self.close_runners()
        self.guest.close()


def take_commands(bridge, guest):
    say(f"""The lab stays up until the end of input (Ctrl-D).
    A line is run in the guest, for at most a minute. Programs: busybox, rdma, ibv_*.
    The guest's end is {guest.ipv4} and {guest.ipv6} on rxe0, GID indexes {guest.gids()}.
    For the host's end, in another terminal: ip netns exec {bridge.name} bash""")
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
