"""The suite "conform": `roce conform` against the rxe of stock Debian kernels under QEMU."""

import itertools
import json
import os
import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab import binaries
from lab.conform import known
from lab.guest import Guest
from lab.host import REPO, LabError, output_of
from lab.image import GUEST_PACKAGES, PYTHON_PATH, load_command, prepare
from lab.interop.links import UdpNetwork
from lab.report import CaseTable, Result, say
from lab.requirements import KERNELS, Kernel, Packages
from lab.running import wait_until

# Port of the agent, and what it and the tool have in their environment.
PORT = 4792
TOKEN = {"ROCE_AGENT_TOKEN": secrets.token_hex(16)}
# Chapters that need no agent, but a program that listens.
WITHOUT_AGENT = ["cm", "connected"]
# Chapters with packets that only a raw device sends, and whether they are played by one; that
# device, and what is said without one.
RAW_CHAPTERS = {"wire": [False, True], "pause": [True]}
RAW_INTERFACE = "own0"
RAW_DEVICE = f"raw:{RAW_INTERFACE},ip=10.77.0.250/24"
WANTS_RAW = "use --from raw:INTERFACE"
# What is said of a case that this host could not play; it is compared with nothing.
TOO_BUSY = "this host is too busy"
START_SECONDS = 60
CHAPTER_SECONDS = 240
LOAD_SECONDS = 60
# What is said of a case that stops the host, and by the tool of those from then on.
CRASH = "the kernel crashes"
GONE = "the agent closed the connection"


@dataclass(frozen=True)
class Listener:
    """A program in the guest that listens for connections."""

    port: int
    start: str  # a line of shell
    module: str = ""
    private_data: str = ""  # what it wants in a request, in hexadecimal digits
    lacks: tuple = ()  # cases for which its connections have not what they need


# What the device does, it does for each of them.
LISTENERS = {
    # which ends with what it does not expect
    "rping": Listener(7174, "while :; do rping -s -P -a {address} -p 7174; done >/dev/null 2>&1 &"),
    "nvmet": Listener(
        4420,
        "mount -t configfs none /sys/kernel/config && cd /sys/kernel/config/nvmet && "
        "mkdir subsystems/one ports/1 && echo 1 >subsystems/one/attr_allow_any_host && "
        "cd ports/1 && echo rdma >addr_trtype && echo ipv4 >addr_adrfam && "
        "echo {address} >addr_traddr && echo 4420 >addr_trsvcid && "
        "ln -s ../../subsystems/one subsystems/one",
        "nvmet-rdma",
        # the first queue, with 32 entries of each direction
        "0000000020001f00" + 24 * "00",
        # it gives nobody READ
        ("connected/read-nothing", "connected/order"),
    ),
}


@dataclass(frozen=True)
class Chapter:
    """The cases of a file of `conformance/cases`, against one kernel."""

    kernel: str
    chapter: str
    # the program that listens, where there is no agent
    listener: str = ""
    # the instrument is a raw device
    raw: bool = False

    @property
    def name(self):
        parts = [self.kernel, self.chapter, self.listener, "raw" if self.raw else ""]
        return "/".join(filter(None, parts))


def cases():
    chapters = sorted(path.stem for path in (REPO / "conformance" / "cases").glob("*.case"))
    return [
        Chapter(kernel, chapter, listener, raw)
        for kernel in KERNELS
        for chapter in chapters
        for listener in (LISTENERS if chapter in WITHOUT_AGENT else [""])
        for raw in RAW_CHAPTERS.get(chapter, [False])
    ]


def of_form(options, cases):
    """Those of the cases that run with these options."""
    return cases


def add_arguments(parser):
    parser.add_argument(
        "--pin", action="store_true", help="write down what each kernel does, in conformance/known"
    )


def requirements(chosen):
    return [Packages(GUEST_PACKAGES), *(Kernel(name) for name in kernels(chosen))]


def refusal(options, chosen):
    """Reason why nothing can be run, if there is one."""
    return "--pin wants all cases" if options.pin and chosen != cases() else ""


def kernels(chosen):
    return [kernel for kernel in KERNELS if any(case.kernel == kernel for case in chosen)]


def run(options, chosen, logs):
    """Runs the cases; returns the number of failed ones."""
    roce, table = binaries.roce(), CaseTable(chosen)
    with UdpNetwork() as bridge:
        bridge.add_veth(RAW_INTERFACE, "br0")
        numbers = itertools.count(2)
        instruments = {}

        def boot(kernel):
            machine = Machine(bridge, *prepare(kernel), logs, numbers)
            recorded = None if options.pin else known.read(kernel)
            instruments[kernel] = Instrument(roce, bridge, machine, recorded)

        # A guest ends with the thread that has booted it.
        with ThreadPoolExecutor() as pool:
            try:
                # At once, before anything is timed.
                list(pool.map(boot, kernels(chosen)))
                for kernel in kernels(chosen):
                    play(instruments[kernel], kernel, chosen, table, options.pin)
                    instruments.pop(kernel).close()
            finally:
                for instrument in instruments.values():
                    instrument.close()
    table.print_summary()
    return table.failed


def play(instrument, kernel, chosen, table, pin):
    """Plays the cases for a kernel."""
    failed = table.failed
    for case in chosen:
        if case.kernel == kernel:
            table.add(case, instrument.run(case))
    if pin and table.failed == failed:
        version = instrument.machine.image.name.removeprefix("vmlinuz-")
        known.write(kernel, version, instrument.results)


@dataclass
class Machine:
    """What a guest is booted from."""

    bridge: UdpNetwork
    image: Path
    initramfs: Path
    logs: Path
    numbers: Iterator

    def boot(self):
        return Guest(self.bridge, self.image, self.initramfs, self.logs, next(self.numbers))


class Instrument:
    """`roce conform`, and an agent in a guest, which is booted again when a case has stopped it."""

    def __init__(self, roce, bridge, machine, recorded):
        self.roce, self.bridge, self.machine = roce, bridge, machine
        self.recorded = recorded  # None: everything is new
        self.results = {}
        self.start()

    def start(self):
        self.guest = self.machine.boot()
        variables = {**TOKEN, "PYTHONPATH": PYTHON_PATH}
        setting = " ".join(f"{name}={value}" for name, value in variables.items())
        agent = f"python3 -S /agent.py --listen {self.guest.ipv4}:{PORT}"
        command = f"{setting} {agent} >/tmp/agent.log 2>&1 &"
        status, output = self.guest.run(command)
        listening = status == 0 and wait_until(
            lambda: f"agent {self.guest.ipv4}:{PORT}" in self.log(), START_SECONDS, 0.2
        )
        if not listening:
            raise LabError(f"guest: the agent does not start: {output}{self.log()}")
        say(self.log().strip())
        self.listening = set()

    def listen(self, name):
        """Has a program listen."""
        if name in self.listening:
            return
        self.listening.add(name)
        listener = LISTENERS[name]
        if listener.module:
            self.guest.run(load_command(listener.module), LOAD_SECONDS)
        status, output = self.guest.run(listener.start.format(address=self.guest.ipv4))
        if status != 0:
            raise LabError(f"guest: {name} does not start: {output}")

    def close(self):
        self.guest.close()

    def log(self):
        return self.guest.run("cat /tmp/agent.log")[1]

    def run(self, case):
        started = time.monotonic()
        # what is known to stop a kernel need not do so each time
        recorded = self.recorded or {}
        known_to = [name for name, (_, found) in recorded.items() if CRASH in found]
        wanted = [name for name in self.names(case) if name not in known_to]
        results, problems = {}, []
        while wanted and not problems:
            found, problems = self.play(case, [*known_to, *results])
            lost = next((name for name, (_, text) in found.items() if GONE in text), None)
            played = list(found)[: list(found).index(lost)] if lost else found
            results.update({name: found[name] for name in played})
            if self.guest.qemu.poll() is not None:
                if lost:
                    results[lost] = ("harmful", crash_in(self.guest.console_text()))
                else:
                    problems.append(f"the guest has ended: {crash_in(self.guest.console_text())}")
                self.close()
                self.start()
            elif lost:
                problems.append(f"{lost}: {found[lost][1]}")
            wanted = [name for name in wanted if name not in results]
        expected = self.recorded
        results = {name: found for name, found in results.items() if WANTS_RAW not in found[1]}
        unplayed = [name for name, (_, text) in results.items() if TOO_BUSY in text]
        if expected is not None:
            results = {name: found for name, found in results.items() if name not in unplayed}
        if case.listener:
            # what has harmed connection management shows in what comes next
            if any(verdict == "harmful" for verdict, _ in results.values()):
                self.close()
                self.start()
            first = {name: self.results[name] for name in results if name in self.results}
            for name in LISTENERS[case.listener].lacks:
                results.pop(name, None)
            if first and expected is None:
                expected = first
        self.results.update(results)
        counts = {}
        for verdict, _ in results.values():
            counts[verdict] = counts.get(verdict, 0) + 1
        note = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        note += f", {len(unplayed)} not played: {TOO_BUSY}" * bool(unplayed)
        if expected is not None:
            problems += known.differences(expected, results)
        report = [("agent", self.log())] if problems else []
        return Result(problems, report, time.monotonic() - started, note)

    def names(self, case):
        """The cases of a chapter."""
        prefix = f"{case.chapter}/"
        listed = output_of([self.roce, "conform", "--list", "--only", prefix]).split()
        return [name for name in listed if name.startswith(prefix)]

    def play(self, case, skipped):
        """Results of a chapter: {case: (verdict, finding)}, and problems."""
        command = [self.roce, "conform", self.guest.ipv4, "--json", "--only", f"{case.chapter}/"]
        for name in skipped:
            command += ["--skip", name]
        if case.raw:
            command += ["--from", RAW_DEVICE]
        if case.listener:
            self.listen(case.listener)
            listener = LISTENERS[case.listener]
            command += ["--cm", str(listener.port)]
            if listener.private_data:
                command += ["--cm-data", listener.private_data]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = self.bridge.start(command, env={**os.environ, **TOKEN}, **pipes)
        try:
            output, errors = process.communicate(timeout=CHAPTER_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return {}, [f"it had not ended after {CHAPTER_SECONDS} s"]
        try:
            found = json.loads(output)["cases"]
        except ValueError:
            return {}, [f"no result: {errors.strip()}"]
        return {one["name"]: (one["verdict"], one["finding"] or "") for one in found}, []


def crash_in(console):
    """Where the kernel has stopped, by its messages."""
    cause = next((line for line in console.splitlines() if "BUG:" in line), "it panics")
    place = re.search(r"RIP: 0010:(\w+)", console)
    cause = cause.split("] ", 1)[-1].removeprefix("BUG: ").split(", address")[0]
    return f"{CRASH}: {cause}" + (f" in {place[1]}" if place else "")
