"""Connection management: our tools against the stock ones, which use the kernel's rdma_cm. What is tried, and what must be printed."""

import re
import shlex
import time
from dataclasses import dataclass

from matrix import OurSide, Result, StockSide, wait
from net import HOST_IPV4, HOST_IPV6

FAMILIES = ["ipv4", "ipv6"]
ROLES = ["server", "client"]
CASE_SECONDS = 60
LISTEN_SECONDS = 10
# Between the port's being open and the program's listening on it.
BREATH_SECONDS = 0.2
ROCE_PORT = 4791


@dataclass(frozen=True)
class CmCase:
    kernel: str
    tool: str
    role: str  # ours; the stock tool has the other
    family: str
    variant: str
    ours: tuple  # arguments; {host} and {guest} stand for the addresses
    stock: tuple
    ours_says: tuple = ()  # regular expressions of whole lines
    stock_says: tuple = ()
    ours_status: int = 0
    stock_status: int | None = 0  # None: whatever it likes
    faults: tuple = ()
    alone: bool = False  # there is no server
    kill: str = ""  # the side that is killed once the connection stands
    times: int = 1  # so often, one after the other

    @property
    def name(self):
        return "/".join(["cm", self.kernel, self.tool, self.role, self.family, self.variant])


def cm_cases():
    for kernel in ["6.1", "6.12"]:
        yield from rping(kernel)


def rping(kernel):
    for role in ROLES:
        for family in FAMILIES:
            for size, count in [(64, 50), (65000, 3), (65000, 50)]:
                if family == "ipv6" and count == 50:
                    continue
                yield rping_case(kernel, role, family, size, count, f"size{size}-count{count}")


def rping_case(kernel, role, family, size, count, variant, **more):
    server = "{host}" if role == "server" else "{guest}"
    show = ["-v"] if size < 1000 else []
    both = ["-a", server, "-C", str(count), "-S", str(size), "-V", *show]
    ours, stock = ("-s", "-c") if role == "server" else ("-c", "-s")
    shown = [re.escape(ping_text(number, size)) for number in range(count)] if show else []
    by_client = tuple(f"ping data: {text}" for text in shown)
    by_server = tuple(f"server {line}" for line in by_client) + ("server DISCONNECT EVENT...",)
    ours_says, stock_says = (by_server, by_client) if role == "server" else (by_client, by_server)
    return CmCase(kernel, "rping", role, family, variant, ("rping", ours, *both), ("rping", stock, *both),
                  ours_says, stock_says, **more)


def ping_text(number, size):
    head = f"rdma-ping-{number}: "
    letters = [chr(ord("A") + (number + at) % 58) for at in range(size - len(head) - 1)]
    return head + "".join(letters)


class CmStage:
    """Plays the cases with one guest."""

    def __init__(self, net, guest, binary, directory):
        self.net = net
        self.guest = guest
        self.binary = binary
        self.directory = directory
        self.started = 0

    def play(self, case):
        started = time.monotonic()
        result = Result()
        console_before = len(self.guest.console_text())
        for _ in range(case.times):
            self.play_once(case, result)
            if result.problems:
                result.report.append(("guest kernel", self.guest.console_text()[console_before:]))
                result.report.append(("rxe0 counters", self.guest.counters()))
                break
        result.seconds = time.monotonic() - started
        return result

    def play_once(self, case, result):
        order = [self.start_ours, self.start_stock] if case.role == "server" else [self.start_stock, self.start_ours]
        listens = self.ours_listens if case.role == "server" else self.guest_listens
        sides = []
        try:
            if not case.alone:
                sides.append(order[0](case))
                if not wait_until(lambda: listens(sides[0]), LISTEN_SECONDS):
                    result.problems.append(f"{sides[0].who} does not listen")
            if not result.problems:
                sides.append(order[1](case))
                wait(sides, CASE_SECONDS)
        finally:
            for side in sides:
                side.end()
        for side in sides:
            result.problems += side_problems(case, side)
            side.describe(result)

    def start_ours(self, case):
        self.started += 1
        faults = [word for rule in case.faults for word in ("--fault", rule)]
        host = HOST_IPV4 if case.family == "ipv4" else HOST_IPV6
        argv = [str(self.binary), *self.filled(case, case.ours), "--device", f"udp:{host}", *faults]
        return OurSide(self.net, argv, self.directory / f"cm{self.started}-ours")

    def start_stock(self, case):
        # One file has both, and the program writes to each in its own time: errors come behind.
        command = f"{shlex.join(self.filled(case, case.stock))} 2>errors; status=$?; cat errors; exit $status"
        return StockSide(self.guest, ["sh", "-c", command])

    def filled(self, case, words):
        host, guest = (HOST_IPV4, self.guest.ipv4) if case.family == "ipv4" else (HOST_IPV6, self.guest.ipv6)
        return [word.replace("{host}", host).replace("{guest}", guest) for word in words]

    def ours_listens(self, side):
        # The end of a port's life is seen here, too.
        if side.poll() is not None:
            return True
        table = self.net.output(["cat", "/proc/net/udp", "/proc/net/udp6"])
        if f":{ROCE_PORT:04X} " not in table:
            return False
        time.sleep(BREATH_SECONDS)
        return True

    def guest_listens(self, side):
        return side.poll() is not None or "LISTEN" in self.guest.run("rdma resource show cm_id")[1]


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def side_problems(case, side):
    wanted_status, says = (case.ours_status, case.ours_says) if side.who == "ours" else (case.stock_status, case.stock_says)
    if side.status is None:
        return [f"{side.who} did not end by itself"]
    problems = []
    if wanted_status is not None and side.status != wanted_status:
        problems.append(f"{side.who} ended with exit status {side.status}, wanted {wanted_status}")
    lines = (side.stdout() + side.stderr()).splitlines()
    missing = [line for line in says if not any(re.fullmatch(line, found) for found in lines)]
    problems += [f"{side.who} did not print a line like: {line}" for line in missing[:3]]
    return problems
