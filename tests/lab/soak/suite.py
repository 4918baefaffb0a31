"""The suite "soak": random programs for a long time, beside kills, stops, faults and changes.

The stock `rping -s -P` mixes up two clients that come at once, so each survivor has one at a
time. A program does not wait until its farewell has arrived, so faults leave connection
management alone. A process that is stopped alone at an address blocks it. Both ends of a wire are
down when one is.
"""

import collections
import itertools
import os
import random
import time

from lab import binaries
from lab.dropin.hosts import Host, HostPair, place_ours
from lab.report import CaseTable, Result, explain, say
from lab.requirements import Packages
from lab.soak.exchange import SURVIVORS, exchanges
from lab.soak.fate import UNDISTURBED, choose_fate, choose_faults
from lab.soak.running import Running
from lab.soak.survivor import Survivor
from lab.soak.weather import Weather, add_moving, left_in

PACKAGES = ["ibverbs-utils", "rdmacm-utils", "perftest", "iproute2", "util-linux"]

# Time from one look at the survivors to the next.
LOOK_SECONDS = 300
# Time for what the last clients have left to be forgotten, at most.
FORGET_SECONDS = 15
# Time that survivors have to listen.
SURVIVOR_SECONDS = 2
# Events that are shown of what went on before a failure.
SHOWN_EVENTS = 40


def cases():
    return list(exchanges())


def of_form(options, cases):
    """Those of the cases that run with these options."""
    return cases


def add_arguments(parser):
    parser.add_argument(
        "--minutes", type=float, default=60, metavar="N", help="duration; by default %(default)s"
    )
    parser.add_argument("--seed", type=int, metavar="S", help="the same choices as another run's")
    parser.add_argument(
        "--jobs",
        type=int,
        default=4,
        metavar="N",
        help="number of exchanges that run at once; by default %(default)s",
    )


def requirements(chosen):
    return [Packages(PACKAGES)]


def refusal(options, chosen):
    """Reason why nothing can be run, if there is one."""
    return "" if options.minutes > 0 and options.jobs > 0 else "--minutes and --jobs are positive"


def run(options, chosen, logs):
    """Runs random exchanges; returns the number of failed ones, and of other things that failed."""
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little")
    say(f"seed {seed}: --seed {seed} makes the same choices")
    roce = place_ours(binaries.roce(), binaries.library(), logs)
    with HostPair(0, roce) as pair:
        soak = Soak(options, chosen, logs, pair, random.Random(seed))
        try:
            soak.work()
        finally:
            soak.end()
        failed = soak.report()
    if failed:
        say(f"failed with seed {seed}")
    return failed


class MovingHost(Host):
    """A host by the address that comes and goes."""

    def facts(self):
        return {"device": self.device, "own": self.address}


class Soak:
    """A run: what is under way, and what was seen."""

    def __init__(self, options, chosen, logs, pair, rng):
        self.options, self.chosen, self.logs, self.pair, self.rng = options, chosen, logs, pair, rng
        self.began = time.monotonic()
        self.events = collections.deque(maxlen=SHOWN_EVENTS)
        self.numbers = itertools.count(1)
        moving = [
            MovingHost(host.sandbox, host.device, add_moving(pair, side))
            for side, host in enumerate(pair.hosts)
        ]
        self.places = {
            **{place: pair.sides(place) for place in ("hosts", "shared", "loopback")},
            "moving": moving,
        }
        for host in pair.hosts:
            host.facts()  # while nothing moves
        self.survivors = [Survivor(place, self.places[place][0], logs) for place in SURVIVORS]
        self.weather = Weather(rng, pair, moving, self.survivors, self.log)
        self.running, self.problems = [], collections.defaultdict(list)
        self.outcomes = collections.defaultdict(collections.Counter)
        self.seconds = collections.Counter()
        self.early = 0  # clients that came before their server listened, and were started again

    def log(self, text):
        line = f"{time.monotonic() - self.began:8.2f} s  {text}"
        self.events.append(line)
        with open(self.logs / "events", "a") as file:
            print(line, file=file)

    def work(self):
        # A survivor is warm when it has had a client of each kind.
        time.sleep(SURVIVOR_SECONDS)
        for exchange in [exchange for exchange in exchanges() if exchange.survivor]:
            self.drain()
            self.begin(exchange, UNDISTURBED)
        self.look()
        seconds = int(self.options.minutes * 60)
        for look in [*range(LOOK_SECONDS, seconds, LOOK_SECONDS), seconds]:
            while time.monotonic() < self.began + look:
                while len(self.running) < self.options.jobs:
                    self.begin_any()
                self.weather.step(time.monotonic())
                self.step()
            self.look()

    def drain(self):
        while self.running:
            self.step()

    def look(self):
        """Looks at the survivors, when nothing is under way and what has ended is forgotten."""
        self.weather.settle(time.monotonic())
        self.drain()
        time.sleep(min(FORGET_SECONDS, self.options.minutes * 6))
        for survivor in self.survivors:
            survivor.sample()
            self.log(f"{survivor.name}: {survivor.samples[-1] if survivor.samples else 'gone'}")

    def begin_any(self):
        # The stock rping mixes up clients that come at the same moment.
        busy = {run.exchange.survivor for run in self.running} - {""}
        free = [exchange for exchange in self.chosen if exchange.survivor not in busy]
        exchange = self.rng.choice(free or self.chosen)
        fate = choose_fate(self.rng, exchange)
        self.begin(exchange, fate, choose_faults(self.rng, exchange))

    def begin(self, exchange, fate, faults=()):
        number = next(self.numbers)
        stem = self.logs / f"{number:06}-{exchange.name.replace('/', '-')}"
        hosts = self.places[exchange.place]
        run = Running(exchange, fate, faults, hosts, stem, 20000 + number % 20000)
        run.number = number
        self.log(f"{number} begins: {exchange.name} {' '.join(run.run)}; {fate}")
        run.begin(time.monotonic())
        self.running.append(run)

    def step(self):
        now = time.monotonic()
        if any(run.is_stopped_for_long for run in self.running):
            self.weather.note_stop(now)
        for run in list(self.running):
            run.excuse = run.excuse or self.weather.excuse(now, run)
            run.cut = run.cut or self.weather.cuts(now, run)
            if run.step(now):
                self.running.remove(run)
                self.finish(run)
        time.sleep(0.02)

    def finish(self, run):
        run.judge()
        name, outcome = run.exchange.name, run.outcome
        self.seconds[name] += time.monotonic() - run.begun
        self.outcomes[name][outcome] += 1
        self.early += run.early
        excuse = f" ({run.excuse})" if run.excuse else ""
        self.log(f"{run.number} {outcome}{excuse}")
        if not run.problems:
            for file in self.logs.glob(f"{run.stem.name}-*"):
                file.unlink()
            return
        fate = f"number {run.number}; {run.fate}{excuse}"
        found = [f"{name}: {problem} ({fate})" for problem in run.problems]
        self.problems[name] += found
        explain(Result(found, [*run.report, ("what went on", "\n".join(self.events))]))

    def end(self):
        """Ends everything."""
        self.weather.settle(time.monotonic())
        for run in self.running:
            for program in run.programs.values():
                program.end()
        for survivor in self.survivors:
            survivor.found = survivor.judge()
            survivor.program.end()

    def report(self):
        # A short run does not come to all of them.
        ran = [case for case in self.chosen if self.outcomes[case.name]]
        rows = [(case, self.result_of(case)) for case in ran]
        for survivor in self.survivors:
            problems, note = survivor.found
            result = Result(problems, note=note)
            survivor.program.describe(result)
            rows.append((survivor, result))
        rows += [(host, Result(left)) for host, left in self.left_over()]
        table = CaseTable([case for case, _ in rows])
        for case, result in rows:
            table.add(case, result)
        total = sum(self.outcomes.values(), collections.Counter())
        weather = ", ".join(f"{what} {count} times" for what, count in self.weather.counts.items())
        say(f"{total.total()} exchanges: {counted(total)}; {weather}")
        say(f"{self.early} clients came before their server listened")
        table.print_summary()
        return table.failed

    def result_of(self, case):
        note = counted(self.outcomes[case.name])
        return Result(self.problems.get(case.name, []), [], self.seconds[case.name], note)

    def left_over(self):
        """What is left where programs ran: files, sockets, processes."""
        for side, host in enumerate(self.pair.hosts):
            yield (
                Place(f"left-over/host{side}"),
                [*left_in(self.pair.namespaces[side]), *files_left(host.sandbox)],
            )


class Place:
    """What a row of the table is about."""

    def __init__(self, name):
        self.name = name


def counted(outcomes):
    words = {
        "whole": "whole",
        "ended": "ended in order after what was done to them",
        "waited": "left waiting for a peer that had gone",
        "failed": "failed",
    }
    return ", ".join(f"{outcomes[key]} {words[key]}" for key in words if outcomes[key])


def files_left(sandbox):
    """Files in a sandbox's /tmp, after the tool has looked: that removes the counters of processes
    that were killed, and what they were writing, if it is a minute old.
    """
    hour_ago = time.time() - 3600
    for file in sandbox.scratch.rglob("*.new"):
        os.utime(file, (hour_ago, hour_ago))
    sandbox.output([sandbox.roce, "devinfo", "--counters"])
    return [f"file {file}" for file in sandbox.scratch.rglob("*") if not file.is_dir()]
