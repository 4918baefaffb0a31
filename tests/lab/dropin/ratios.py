"""Ratios of performance: the same binaries of perftest on the kernel's rxe and on our library, both
inside the guest, where both are emulated, so that only the ratio of the two counts.

It is printed beside the claim. A program that fails is a failure; a ratio below the claim is none,
because the machine may be busy. rxe has port 4791 of its network namespace, so ours runs in another
one.
"""

import re
import shlex
import time
from dataclasses import dataclass
from statistics import median

from lab.report import Result

ROUNDS = 5
# What the tool says before it begins if it could not compare a clock, the base of its bandwidths,
# with the processor's: it has no figure then.
NO_CLOCK = "Correlation coefficient"
# Directory of our library in the guest.
LIBRARY = "/roce"
# perftest's listener on TCP port 18515.
LISTENS = "grep -q ':4853 00000000:0000 0A' /proc/net/tcp*"


@dataclass(frozen=True)
class RatioCase:
    """A measurement with rxe and with ours."""

    quantity: str
    argv: tuple
    column: int  # of the row that the client prints
    rising: bool  # more is better
    claim: float  # factor by which ours is better

    place = "guest"
    in_guest = True

    @property
    def name(self):
        return f"ratio/{self.quantity}"


def ratio_cases():
    # Columns of bandwidth: bytes, iterations, peak, average, millions of messages; of latency:
    # bytes, iterations, min, max, typical, in cycles of the processor. Long runs, in which it
    # hardly counts that the emulator translates a program's code at the first time; the kernel's is
    # translated already.
    bandwidth = ("ib_write_bw", "-s", "65536", "-n", "2000")
    rate = ("ib_send_bw", "-s", "64", "-n", "30000")
    latency = ("ib_send_lat", "-s", "64", "-n", "20000", "-C")
    yield RatioCase("write-bandwidth-64k", bandwidth, 3, True, 2.0)
    yield RatioCase("send-rate-64", rate, 4, True, 1.0)
    yield RatioCase("send-latency-64", latency, 4, False, 1.0)


class RatioRunner:
    """Runs measurements in a guest."""

    def __init__(self, guest):
        self.guest = guest
        self.gid = guest.gids()[guest.ipv4]

    def run(self, case):
        """Runs pairs of measurements, one right after the other: the machine's speed changes. The
        median of their ratios counts, of pairs in which both had a clock.
        """
        started = time.monotonic()
        result, pairs = Result(), []
        for number in range(ROUNDS):
            pair = {}
            for side in sorted(["ours", "rxe"], reverse=number % 2 == 0):
                status, output = self.guest.run(self.command(case, side), timeout=60)
                row = re.findall(r"^ *\d+ +\d+ +[\d.]+ .*$", output, re.MULTILINE)
                if status == 0 and "-C" not in case.argv and NO_CLOCK in output:
                    continue
                if status != 0 or not row:
                    result.problems.append(f"{side}: exit status {status}")
                    result.report.append((side, output))
                else:
                    pair[side] = float(row[-1].split()[case.column])
            if result.problems:
                break
            if len(pair) == 2:
                pairs.append((pair["ours"], pair["rxe"]))
        if not result.problems:
            result.note = note(case, pairs)
        result.seconds = time.monotonic() - started
        return result

    def command(self, case, side):
        rxe = ("-d", "rxe0", "-x", str(self.gid))
        device = rxe if side == "rxe" else ("-d", "roce_lo", "-x", "0")
        program = shlex.join([*case.argv, *device, "-F"])
        script = (
            f"{program} >/tmp/server 2>&1 & "
            f"for n in 1 2 3 4 5 6 7 8 9 10; do {LISTENS} && break; sleep 0.2; done; "
            f"{program} 127.0.0.1; s=$?; wait; [ $s = 0 ] || cat /tmp/server; exit $s"
        )
        if side == "rxe":
            return f"sh -c {shlex.quote(script)}"
        setup = f"ip link set lo up; export LD_LIBRARY_PATH={LIBRARY}"
        return f"unshare -n sh -c {shlex.quote(f'{setup}; {script}')}"


def note(case, pairs):
    """What is said of (ours, rxe) of each round."""
    if not pairs:
        return f"the tool had no clock in {ROUNDS} rounds"
    ratios = sorted(ours / rxe if case.rising else rxe / ours for ours, rxe in pairs)
    ratio, ours, rxe = median(ratios), *map(median, zip(*pairs, strict=True))
    verdict = "reached" if ratio >= case.claim else "missed"
    without = f", {ROUNDS - len(pairs)} rounds without a clock" * (len(pairs) < ROUNDS)
    return (
        f"ours {ours:g}, rxe {rxe:g}: {ratio:.2f} times as good "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}{without}); {case.claim:g} is {verdict}"
    )
