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
NOBODY = "10.77.0.99"
GROUP = "239.1.2.3"
GROUP_IN_IGMP = "030201EF"


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
    ours_status: int | None = 0  # None: whatever it likes
    stock_status: int | None = 0
    faults: tuple = ()
    alone: bool = False  # there is no server
    endless: bool = False  # the server does not end by itself

    @property
    def name(self):
        return "/".join(["cm", self.kernel, self.tool, self.role, self.family, self.variant])


def cm_cases():
    for kernel in ["6.1", "6.12"]:
        yield from rping(kernel)
        yield from ucmatose(kernel)
        yield from udaddy(kernel)
        yield from mckey(kernel)
        yield from samples(kernel)
        yield from refusals(kernel)
        yield from ends(kernel)
    # Slow, for the kernel waits for seconds before it repeats, and what is repeated is in our hands as much as in its.
    yield from losses("6.1")
    yield nobody("6.1")
    yield from in_a_row("6.1")


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


def ucmatose(kernel):
    """Connections that stand at the same time; the server sends, the client answers, the server ends them."""
    done = ("data transfers complete", "test complete", "return status 0")
    for role in ROLES:
        for family in FAMILIES:
            variants = [("one", ["-C", "10", "-S", "100"]), ("migrate", ["-c", "5", "-C", "20", "-S", "9001", "-m"])]
            if family == "ipv4":
                variants.append(("64-at-once", ["-c", "64", "-C", "2"]))
            for variant, options in variants:
                server = ("ucmatose", *options, "-b", "{host}" if role == "server" else "{guest}")
                client = ("ucmatose", *options, "-s", "{guest}" if role == "client" else "{host}")
                ours, stock = (server, client) if role == "server" else (client, server)
                yield CmCase(kernel, "ucmatose", role, family, variant, ours, stock, done, done)


def udaddy(kernel):
    """Datagram services, found by SIDR."""
    done = ("data transfers complete", "test complete", "return status 0")
    for role in ROLES:
        for family in FAMILIES:
            for variant, options in [("one", ["-C", "10"]), ("four", ["-c", "4", "-C", "5", "-S", "1000"])]:
                server = ("udaddy", *options, "-b", "{host}" if role == "server" else "{guest}")
                client = ("udaddy", *options, "-s", "{guest}" if role == "client" else "{host}")
                ours, stock = (server, client) if role == "server" else (client, server)
                yield CmCase(kernel, "udaddy", role, family, variant, ours, stock, done, done)


def mckey(kernel):
    """Multicast; the server receives.

    Of IPv6 groups the kernel's rdma_cm says "not supported" (524) on RoCE v2. The rxe of 6.12 puts the first of several
    datagrams on the wire and reports success for all.
    """
    done = ("data transfers complete", "test complete", "return status 0")
    for role in ROLES:
        count = "1" if (kernel, role) == ("6.12", "server") else "10"
        ours, stock = (("mckey", "-m", GROUP, "-b", own, "-C", count) for own in ["{host}", "{guest}"])
        ours, stock = (ours, (*stock, "-s")) if role == "server" else ((*ours, "-s"), stock)
        yield CmCase(kernel, "mckey", role, "ipv4", f"count{count}", ours, stock, done, done)


def samples(kernel):
    """Our examples against librdmacm's own: one connection, one message each way."""
    for role in ROLES:
        address = "{host}" if role == "server" else "{guest}"
        ours = ("sh", "-c", f"{{examples}}/cm_{role}" + ("" if role == "server" else " {guest}"))
        stock = ("rdma_client", "-s", address) if role == "server" else ("rdma_server",)
        says = ('received ".*"', "done")
        yield CmCase(kernel, "rdma_" + ("client" if role == "server" else "server"), role, "ipv4", "one", ours, stock, says,
                     ("rdma_client: end 0" if role == "server" else "rdma_server: end 0",))


def nobody(kernel):
    """An address that no host has: asked again and again, then given up. The guest only stands by."""
    return CmCase(kernel, "rping", "client", "ipv4", "unreachable", ("rping", "-c", "-C", "1", "-a", NOBODY), (),
                  (".*RDMA_CM_EVENT_UNREACHABLE, error -110: .*",), ours_status=1, alone=True)


def refusals(kernel):
    rejected = "RDMA_CM_EVENT_REJECTED, error"
    ping = ("rping", "-c", "-C", "1", "-a")
    yield CmCase(kernel, "rping", "client", "ipv4", "no-listener", (*ping, "{guest}"), (), (f".*{rejected} 8: .*",),
                 ours_status=1, alone=True)
    # Our device is open, but the listener is another.
    yield CmCase(kernel, "rping", "server", "ipv4", "no-listener", ("ucmatose",), (*ping, "{host}"),
                 stock_says=(f"cma event {rejected} 8",), stock_status=None, endless=True)
    unknown = ("udaddy", "-s")
    yield CmCase(kernel, "udaddy", "client", "ipv4", "no-listener", (*unknown, "{guest}"), (),
                 (".*RDMA_CM_EVENT_UNREACHABLE, error 1: .*",), ours_status=1, alone=True)
    yield CmCase(kernel, "udaddy", "server", "ipv4", "no-listener", ("ucmatose",), (*unknown, "{host}"),
                 stock_says=("udaddy: event: RDMA_CM_EVENT_UNREACHABLE, error: 1",), stock_status=None, endless=True)
    # The server wants one connection less.
    few, many = ("ucmatose", "-C", "0", "-c", "2"), ("ucmatose", "-C", "0", "-c", "3", "-s")
    yield CmCase(kernel, "ucmatose", "client", "ipv4", "consumer-reject", (*many, "{guest}"), few,
                 (f".*{rejected} 28: .*",), ours_status=1, endless=True)
    yield CmCase(kernel, "ucmatose", "server", "ipv4", "consumer-reject", few, (*many, "{host}"),
                 stock_says=("cmatose: event: RDMA_CM_EVENT_REJECTED, error: 28",), stock_status=None, endless=True)


def ends(kernel):
    """The client is killed while it is busy. The kernel says so for a program that it loses; but its memory goes first, so that
    a READ under way may hear of that before."""
    server, client = ("rping", "-s", "-a", "{host}"), ("timeout", "-s", "KILL", "5", "rping", "-c", "-a", "{host}")
    yield CmCase(kernel, "rping", "server", "ipv4", "client-killed", server, client,
                 (r"server DISCONNECT EVENT\.\.\.|.*: remote access error: .*",), ours_status=None, stock_status=137)


    # Ours is killed, and what starts anew in its place connects. Nobody tells the kernel, which goes on waiting for the old one.
    ping = "{roce} rping -c -a {guest} --device udp:{host}"
    again = ("sh", "-c", f"timeout -s KILL 1 {ping} -C 1000000; {ping} -C 3 -V -v")
    yield CmCase(kernel, "rping", "client", "ipv4", "killed-and-started-anew", again, ("rping", "-s", "-P", "-a", "{guest}"),
                 tuple(f"ping data: {re.escape(ping_text(number, 64))}" for number in range(3)), endless=True)


def losses(kernel):
    """Each message of connection management is lost once; then each comes twice.

    A stock client does not stay to repeat its DREQ: who loses that one does not hear of the end.
    """
    by_client, by_server = ["req", "rtu", "dreq"], ["rep", "drep"]
    for role in ROLES:
        client, server = ("{host}", "{guest}") if role == "client" else ("{guest}", "{host}")
        lost = [(name, sender, nth) for sender, names in [(client, by_client), (server, by_server)]
                for nth, name in enumerate(names, 1) if (role, name) != ("server", "dreq")]
        for name, sender, nth in lost:
            rule = f"drop qp 1 from {sender} nth {nth}"
            yield rping_case(kernel, role, "ipv4", 64, 3, f"{name}-lost", faults=(rule,))
        yield rping_case(kernel, role, "ipv4", 64, 3, "each-twice", faults=("duplicate qp 1",))


def in_a_row(kernel):
    """One server, many connections, each by a program of its own; the guest's processor is slow to start one."""
    for role, count, client in [("server", 100, "rping -c -a {host}"),
                                ("client", 200, "{roce} rping -c -a {guest} --device udp:{host}")]:
        loop = ("sh", "-c", f"for number in $(seq {count}); do {client} -C 1 -V || exit 1; done")
        server = ("rping", "-s", "-P")
        ours, stock = (server, loop) if role == "server" else (loop, server)
        yield CmCase(kernel, "rping", role, "ipv4", f"{count}-in-a-row", ours, stock, endless=True)


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
        # Without a route to them, no group is found.
        net.ip("route", "replace", "224.0.0.0/4", "dev", "br0")
        guest.run("ip route add 224.0.0.0/4 dev eth0")

    def play(self, case):
        started = time.monotonic()
        result = Result()
        console_before = len(self.guest.console_text())
        self.play_sides(case, result)
        if result.problems:
            result.report.append(("guest kernel", self.guest.console_text()[console_before:]))
            result.report.append(("rxe0 counters", self.guest.counters()))
        result.seconds = time.monotonic() - started
        return result

    def play_sides(self, case, result):
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
                wait(sides[1:] if case.endless else sides, CASE_SECONDS)
        finally:
            for side in sides:
                side.end()
        for number, side in enumerate(sides):
            if not (case.endless and number == 0):
                result.problems += side_problems(case, side)
            side.describe(result)

    def start_ours(self, case):
        self.started += 1
        faults = [word for rule in self.filled(case, case.faults) for word in ("--fault", rule)]
        host = HOST_IPV4 if case.family == "ipv4" else HOST_IPV6
        argv = self.filled(case, case.ours)
        if case.ours[0] != "sh":
            argv = [str(self.binary), *argv, "--device", f"udp:{host}", *faults]
        return OurSide(self.net, argv, self.directory / f"cm{self.started}-ours")

    def start_stock(self, case):
        # One file has both, and the program writes to each in its own time: errors come behind.
        command = f"{shlex.join(self.filled(case, case.stock))} 2>errors; status=$?; cat errors; exit $status"
        return StockSide(self.guest, ["sh", "-c", command])

    def filled(self, case, words):
        host, guest = (HOST_IPV4, self.guest.ipv4) if case.family == "ipv4" else (HOST_IPV6, self.guest.ipv6)
        return [word.replace("{host}", host).replace("{guest}", guest).replace("{roce}", str(self.binary))
                .replace("{examples}", str(self.binary.parent / "examples")) for word in words]

    def ours_listens(self, side):
        # The end of a port's life is seen here, too.
        if side.poll() is not None:
            return True
        if side.argv[1] == "mckey":
            return "receiving data transfers" in side.stdout()
        table = self.net.output(["cat", "/proc/net/udp", "/proc/net/udp6"])
        if f":{ROCE_PORT:04X} " not in table:
            return False
        time.sleep(BREATH_SECONDS)
        return True

    def guest_listens(self, side):
        sign, command = "LISTEN", "rdma resource show cm_id"
        if "mckey" in side.argv[2]:
            sign, command = GROUP_IN_IGMP, "cat /proc/net/igmp"
        return side.poll() is not None or sign in self.guest.run(command)[1]


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
