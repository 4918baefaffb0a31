"""The same binaries of perftest on the kernel's rxe and on our library, both inside the guest, where both are emulated: only the
ratio of the two counts. It is printed beside what is claimed; a program that fails is a failure, a machine that is busy is none.

rxe has port 4791 of its network namespace, so ours runs in another one.
"""

import re
import shlex
import time
from dataclasses import dataclass
from statistics import median

from matrix import Result

ROUNDS = 5
PATIENCE = 4
LIBRARY = "/roce"


@dataclass(frozen=True)
class RatioCase:
    what: str
    words: tuple
    column: int  # of the row that the client prints
    rising: bool  # more is better
    claim: float  # ours is to be so many times as good

    place = "guest"
    in_guest = True

    @property
    def name(self):
        return f"ratio/{self.what}"


def ratio_cases():
    # Columns of bandwidth: bytes, iterations, peak, average, millions of messages; of latency: bytes, iterations, min, max, typical,
    # in cycles of the processor. Long enough that it hardly counts how long the emulator takes to translate a program's code the first
    # time, which the kernel's has behind it.
    yield RatioCase(
        "write-bandwidth-64k", ("ib_write_bw", "-s", "65536", "-n", "2000"), 3, True, 2.0
    )
    yield RatioCase("send-rate-64", ("ib_send_bw", "-s", "64", "-n", "30000"), 4, True, 1.0)
    yield RatioCase(
        "send-latency-64", ("ib_send_lat", "-s", "64", "-n", "20000", "-C"), 4, False, 1.0
    )


class Ratios:
    def __init__(self, guest):
        self.guest = guest
        self.gid = guest.gids()[guest.ipv4]

    def play(self, case):
        """Pairs of runs, one right after the other, each with a ratio of its own, for the machine's speed changes; their median counts."""
        started = time.monotonic()
        result, seen = Result(), {"rxe": [], "ours": []}
        for number in range(ROUNDS):
            for who, values in sorted(seen.items(), reverse=number % 2 == 0):
                status, output = self.measure(case, who)
                row = re.findall(r"^ *\d+ +\d+ +[\d.]+ .*$", output, re.MULTILINE)
                if status != 0 or not row:
                    result.problems.append(f"{who}: exit status {status}")
                    result.report.append((who, output))
                else:
                    values.append(float(row[-1].split()[case.column]))
            if result.problems:
                break
        if not result.problems:
            pairs = zip(seen["ours"], seen["rxe"])
            ratios = sorted(ours / rxe if case.rising else rxe / ours for ours, rxe in pairs)
            ratio = median(ratios)
            verdict = "reached" if ratio >= case.claim else "missed"
            result.note = (
                f"ours {median(seen['ours']):g}, rxe {median(seen['rxe']):g}: {ratio:.2f} times as good "
                f"({ratios[0]:.2f} to {ratios[-1]:.2f}); {case.claim:g} is {verdict}"
            )
        result.seconds = time.monotonic() - started
        return result

    def measure(self, case, who):
        """Once more, if the tool has found that the clock and the processor's disagree, by which it counts bandwidth."""
        for _ in range(PATIENCE):
            status, output = self.guest.run(self.command(case, who), timeout=60)
            if "-C" in case.words or "Correlation coefficient" not in output:
                break
        return status, output

    def command(self, case, who):
        device = (
            ("-d", "rxe0", "-x", str(self.gid)) if who == "rxe" else ("-d", "roce_lo", "-x", "0")
        )
        program = shlex.join([*case.words, *device, "-F"])
        script = (
            f"{program} >/tmp/server 2>&1 & for n in 1 2 3 4 5 6 7 8 9 10; do grep -q ':4853 00000000:0000 0A' /proc/net/tcp* && break; "
            f"sleep 0.2; done; {program} 127.0.0.1; s=$?; wait; [ $s = 0 ] || cat /tmp/server; exit $s"
        )
        if who == "rxe":
            return f"sh -c {shlex.quote(script)}"
        return f"unshare -n sh -c {shlex.quote(f'ip link set lo up; export LD_LIBRARY_PATH={LIBRARY}; {script}')}"
