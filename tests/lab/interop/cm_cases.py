"""Connection management: our tools against the stock ones, which use the kernel's rdma_cm. What is tried, and what must be printed."""

import ipaddress
import re
import shlex
import struct
import time
from collections import Counter
from dataclasses import dataclass

from lab import PYTHON_PATH
from matrix import OurSide, Result, StockSide, wait
from net import HOST_IPV4, HOST_IPV6

FAMILIES = ["ipv4", "ipv6"]
ROLES = ["server", "client"]
# Ten times what a hundred programs in a row need in the guest.
CASE_SECONDS = 180
# The kernel asks 16 times, each time for 4.6 s or so, and has no knob for that.
PATIENT_SECONDS = 300
LISTEN_SECONDS = 10
# Between the port's being open and the program's listening on it.
BREATH_SECONDS = 0.2
ROCE_PORT = 4791
NOBODY = "10.77.0.99"
GROUP = "239.1.2.3"
GROUP_IN_IGMP = "030201EF"
# The stock one, with an exit status that its own end does not disturb.
RPING = "guest-rping"
# As much as a rejection has room for, 148 bytes.
WORDS = "no room for you, " * 8 + "not even one"


@dataclass(frozen=True)
class CmCase:
    kernel: str
    tool: str
    role: str  # ours; the stock tool has the other
    family: str
    variant: str
    ours: tuple  # arguments of our tool, or a whole command line; {host} and {guest} stand for the addresses
    stock: tuple
    ours_says: tuple = ()  # regular expressions of whole lines, each as often as it is here, in any order
    stock_says: tuple = ()
    ours_status: int | None = 0  # None: whatever it likes
    stock_status: int | None = 0
    faults: tuple = ()
    alone: bool = False  # there is no server
    endless: bool = False  # the server does not end by itself
    patient: bool = (
        False  # it takes long, and does nothing most of the time: others are played meanwhile
    )

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
        yield from with_words(kernel)
        yield from lost_queue_pairs(kernel)
        yield stale(kernel)
    # Slow, for the kernel waits for seconds before it repeats, and what is repeated is in our hands as much as in its.
    yield from losses("6.1")
    yield from in_a_row("6.1")
    # Last, since the others are played while they wait.
    for kernel in ["6.1", "6.12"]:
        yield from unheard(kernel)
    yield nobody("6.1")


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
    return CmCase(
        kernel,
        "rping",
        role,
        family,
        variant,
        ("rping", ours, *both),
        (RPING, stock, *both),
        ours_says,
        stock_says,
        **more,
    )


def ucmatose(kernel):
    """Connections that stand at the same time; the server sends, the client answers, the server ends them."""
    done = ("data transfers complete", "test complete", "return status 0")
    for role in ROLES:
        for family in FAMILIES:
            variants = [
                ("one", ["-C", "10", "-S", "100"]),
                ("migrate", ["-c", "5", "-C", "20", "-S", "9001", "-m"]),
            ]
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
            for variant, options in [
                ("one", ["-C", "10"]),
                ("four", ["-c", "4", "-C", "5", "-S", "1000"]),
            ]:
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
        ours, stock = (
            ("mckey", "-m", GROUP, "-b", own, "-C", count) for own in ["{host}", "{guest}"]
        )
        ours, stock = (ours, (*stock, "-s")) if role == "server" else ((*ours, "-s"), stock)
        yield CmCase(kernel, "mckey", role, "ipv4", f"count{count}", ours, stock, done, done)


def samples(kernel):
    """Our examples against librdmacm's own: one connection, one message each way."""
    for role in ROLES:
        address = "{host}" if role == "server" else "{guest}"
        ours = ("sh", "-c", f"{{examples}}/cm_{role}" + ("" if role == "server" else " {guest}"))
        stock = ("rdma_client", "-s", address) if role == "server" else ("rdma_server",)
        says = ('received ".*"', "done")
        yield CmCase(
            kernel,
            "rdma_" + ("client" if role == "server" else "server"),
            role,
            "ipv4",
            "one",
            ours,
            stock,
            says,
            ("rdma_client: end 0" if role == "server" else "rdma_server: end 0",),
        )


def nobody(kernel):
    """An address that no host has: asked again and again, then given up. The guest only stands by."""
    return CmCase(
        kernel,
        "rping",
        "client",
        "ipv4",
        "unreachable",
        ("rping", "-c", "-C", "1", "-a", NOBODY),
        (),
        (".*RDMA_CM_EVENT_UNREACHABLE, error -110: .*",),
        ours_status=1,
        alone=True,
        patient=True,
    )


def unheard(kernel):
    """We do not answer, for no request reaches us or no answer gets out. Who is asked and cannot answer gives up, too."""
    gives_up = "RDMA_CM_EVENT_UNREACHABLE, error"
    ping = (RPING, "-c", "-C", "1", "-a", "{host}")
    yield CmCase(
        kernel,
        "rping",
        "server",
        "ipv4",
        "unheard-request",
        ("rping", "-s"),
        ping,
        (),
        (f"cma event {gives_up} -110",),
        stock_status=None,
        faults=("drop qp 1 from {guest}",),
        endless=True,
        patient=True,
    )
    # It goes on to listen, or else whoever opens every device meanwhile would answer for this address.
    yield CmCase(
        kernel,
        "rping",
        "server",
        "ipv4",
        "unheard-reply",
        ("rping", "-s", "-P"),
        ping,
        (f".*{gives_up} -110: .*",),
        (f"cma event {gives_up} -110",),
        stock_status=None,
        faults=("drop qp 1 from {host}",),
        endless=True,
        patient=True,
    )
    yield CmCase(
        kernel,
        "udaddy",
        "server",
        "ipv4",
        "unheard-request",
        ("udaddy",),
        ("udaddy", "-s", "{host}"),
        (),
        (f"udaddy: event: {gives_up}: -110",),
        stock_status=None,
        faults=("drop qp 1 from {guest}",),
        endless=True,
        patient=True,
    )


def refusals(kernel):
    rejected = "RDMA_CM_EVENT_REJECTED, error"
    ping = ("rping", "-c", "-C", "1", "-a")
    yield CmCase(
        kernel,
        "rping",
        "client",
        "ipv4",
        "no-listener",
        (*ping, "{guest}"),
        (),
        (f".*{rejected} 8: .*",),
        ours_status=1,
        alone=True,
    )
    # Our device is open, but the listener is another.
    yield CmCase(
        kernel,
        "rping",
        "server",
        "ipv4",
        "no-listener",
        ("ucmatose",),
        (*ping, "{host}"),
        stock_says=(f"cma event {rejected} 8",),
        stock_status=None,
        endless=True,
    )
    unknown = ("udaddy", "-s")
    yield CmCase(
        kernel,
        "udaddy",
        "client",
        "ipv4",
        "no-listener",
        (*unknown, "{guest}"),
        (),
        (".*RDMA_CM_EVENT_UNREACHABLE, error 1: .*",),
        ours_status=1,
        alone=True,
    )
    yield CmCase(
        kernel,
        "udaddy",
        "server",
        "ipv4",
        "no-listener",
        ("ucmatose",),
        (*unknown, "{host}"),
        stock_says=("udaddy: event: RDMA_CM_EVENT_UNREACHABLE, error: 1",),
        stock_status=None,
        endless=True,
    )
    # The server wants one connection less.
    few, many = ("ucmatose", "-C", "0", "-c", "2"), ("ucmatose", "-C", "0", "-c", "3", "-s")
    yield CmCase(
        kernel,
        "ucmatose",
        "client",
        "ipv4",
        "consumer-reject",
        (*many, "{guest}"),
        few,
        (f".*{rejected} 28: .*",),
        ours_status=1,
        endless=True,
    )
    yield CmCase(
        kernel,
        "ucmatose",
        "server",
        "ipv4",
        "consumer-reject",
        few,
        (*many, "{host}"),
        stock_says=("cmatose: event: RDMA_CM_EVENT_REJECTED, error: 28",),
        stock_status=None,
        endless=True,
    )


def ends(kernel):
    """The client is killed while it is busy. The kernel says so for a program that it loses; but its memory goes first, so that
    a READ under way may hear of that before."""
    server, client = (
        ("rping", "-s", "-a", "{host}"),
        ("timeout", "-s", "KILL", "5", "rping", "-c", "-a", "{host}"),
    )
    yield CmCase(
        kernel,
        "rping",
        "server",
        "ipv4",
        "client-killed",
        server,
        client,
        (r"server DISCONNECT EVENT\.\.\.|.*: remote access error: .*",),
        ours_status=None,
        stock_status=137,
    )

    # Ours is killed, and what starts anew in its place connects. Nobody tells the kernel, which goes on waiting for the old one.
    ping = "{roce} rping -c -a {guest} --device udp:{host}"
    again = ("sh", "-c", f"timeout -s KILL 1 {ping} -C 1000000; {ping} -C 3 -V -v")
    yield CmCase(
        kernel,
        "rping",
        "client",
        "ipv4",
        "killed-and-started-anew",
        again,
        ("rping", "-s", "-P", "-a", "{guest}"),
        tuple(f"ping data: {re.escape(ping_text(number, 64))}" for number in range(3)),
        endless=True,
    )


def with_words(kernel):
    """Private data of a rejection, which no stock tool gives or shows."""
    request, rejected = "RDMA_CM_EVENT_CONNECT_REQUEST, error 0", "RDMA_CM_EVENT_REJECTED, error 28"
    yield steps(
        kernel,
        "server",
        "reject-with-words",
        ["listen", "request", f"reject:{WORDS}"],
        ["to:{host}", "connect:may I?", "event"],
        (f'{request}, "may I\\?"', "done"),
        (f'{rejected}, "{WORDS}"', "done"),
    )
    yield steps(
        kernel,
        "client",
        "reject-with-words",
        ["to:{guest}", "connect:may I?", "event"],
        ["listen", "request", f"reject:{WORDS}"],
        (f'{rejected}, "{WORDS}"', "done"),
        (f'{request}, "may I\\?"', "done"),
    )
    yield CmCase(
        kernel,
        "rping",
        "client",
        "ipv4",
        "reject-with-words",
        ("rping", "-c", "-C", "1", "-a", "{guest}"),
        (*GUEST_STEPS, "listen", "request", f"reject:{WORDS}"),
        (f'.*{rejected}: .*"{WORDS}".*',),
        (request, "done"),
        ours_status=1,
    )


def lost_queue_pairs(kernel):
    """One side destroys its queue pair in the midst of a connection, and the other side sends to it."""
    established, disconnected = (
        "RDMA_CM_EVENT_ESTABLISHED, error 0",
        "RDMA_CM_EVENT_DISCONNECTED, error 0",
    )
    # Without a receive request the second message would wait, so that it does not matter which is faster.
    loses, sends = (
        ["received", "destroy-qp", "event", "disconnect"],
        ["send", "pause", "send", "disconnect", "event"],
    )
    lost_says = ("received: success", disconnected, "done")
    our_error, stock_error = "RetryExcErr", "transport retry counter exceeded"
    for role in ROLES:
        for loser in ["ours", "peers"]:
            ours, stock = (loses, sends) if loser == "ours" else (sends, loses)
            ours_says = (
                lost_says
                if loser == "ours"
                else ("sent: success", f"sent: {our_error}", disconnected, "done")
            )
            stock_says = (
                lost_says
                if loser == "peers"
                else ("sent: success", f"sent: {stock_error}", disconnected, "done")
            )
            accepting = ["listen", "request", "accept:you may", "event"]
            connecting = [
                "to:" + ("{host}" if role == "server" else "{guest}"),
                "connect:may I?",
                "event",
            ]
            accepts_says = ('RDMA_CM_EVENT_CONNECT_REQUEST, error 0, "may I\\?"', established)
            connects_says = (f'{established}, "you may"',)
            if role == "server":
                ours, stock = accepting + ours, connecting + stock
                ours_says, stock_says = accepts_says + ours_says, connects_says + stock_says
            else:
                ours, stock = connecting + ours, accepting + stock
                ours_says, stock_says = connects_says + ours_says, accepts_says + stock_says
            yield steps(
                kernel, role, f"{loser}-queue-pair-gone", ours, stock, ours_says, stock_says
            )


def stale(kernel):
    """Ours ends without a goodbye, and what starts in its place has the same GUID and the same queue pair: the kernel refuses and
    ends the old connection, and then accepts."""
    established, disconnected = (
        "RDMA_CM_EVENT_ESTABLISHED, error 0",
        "RDMA_CM_EVENT_DISCONNECTED, error 0",
    )
    ours = "{steps} udp:{host} --seed 1 to:{guest}"
    # Numbers drawn in vain, or it would be the same request, not another one.
    runs = f"{ours} connect event die; {ours} draw connect event pause; {ours} draw draw connect event disconnect event"
    # How many queue pairs there have been, by number, is the last line.
    ours = (
        "sh",
        "-c",
        f'said=$({runs}); echo "$said"; echo "$said" | grep \'^queue pair\' | sort -u | wc -l',
    )
    server = (*GUEST_STEPS, "listen", *["request", "accept", "event", "event"] * 2)
    return CmCase(
        kernel,
        "steps",
        "client",
        "ipv4",
        "stale-connection",
        ours,
        server,
        (
            established,
            "RDMA_CM_EVENT_REJECTED, error 10",
            "done",
            established,
            disconnected,
            "done",
            "1",
        ),
        (*("RDMA_CM_EVENT_CONNECT_REQUEST, error 0", established, disconnected) * 2, "done"),
    )


GUEST_STEPS = ("env", f"PYTHONPATH={PYTHON_PATH}", "python3", "-S", "/steps.py")


def steps(kernel, role, variant, ours, stock, ours_says, stock_says):
    """Both sides step by step; `steps.py` and `roce-interop-steps`."""
    return CmCase(
        kernel,
        "steps",
        role,
        "ipv4",
        variant,
        ("{steps}", "udp:{host}", *ours),
        (*GUEST_STEPS, *stock),
        ours_says,
        stock_says,
    )


def losses(kernel):
    """Each message of connection management is lost once; then each comes twice.

    A stock client does not stay to repeat its DREQ: who loses that one does not hear of the end.
    """
    by_client, by_server = ["req", "rtu", "dreq"], ["rep", "drep"]
    for role in ROLES:
        client, server = ("{host}", "{guest}") if role == "client" else ("{guest}", "{host}")
        lost = [
            (name, sender, nth)
            for sender, names in [(client, by_client), (server, by_server)]
            for nth, name in enumerate(names, 1)
            if (role, name) != ("server", "dreq")
        ]
        for name, sender, nth in lost:
            rule = f"drop qp 1 from {sender} nth {nth}"
            yield rping_case(kernel, role, "ipv4", 64, 3, f"{name}-lost", faults=(rule,))
        yield rping_case(kernel, role, "ipv4", 64, 3, "each-twice", faults=("duplicate qp 1",))


def in_a_row(kernel):
    """One server, many connections, each by a program of its own; the guest's processor is slow to start one."""
    line = f"ping data: {re.escape(ping_text(0, 64))}"
    stock = ("env", "TIMES=100", RPING, "-c", "-C", "1", "-V", "-a", "{host}")
    yield CmCase(
        kernel,
        "rping",
        "server",
        "ipv4",
        "100-in-a-row",
        ("rping", "-s", "-P", "-v"),
        stock,
        (f"server {line}",) * 100,
        endless=True,
    )
    client = "{roce} rping -c -C 1 -V -v -a {guest} --device udp:{host}"
    ours = ("sh", "-c", f"for number in $(seq 200); do {client} || exit; done")
    yield CmCase(
        kernel,
        "rping",
        "client",
        "ipv4",
        "200-in-a-row",
        ours,
        ("rping", "-s", "-P"),
        (line,) * 200,
        endless=True,
    )


def ping_text(number, size):
    head = f"rdma-ping-{number}: "
    letters = [chr(ord("A") + (number + at) % 58) for at in range(size - len(head) - 1)]
    return head + "".join(letters)


@dataclass
class Playing:
    """A case under way."""

    case: CmCase
    host: str  # our address in it
    started: float
    console: int  # how much the guest's kernel had said
    sides: list
    problems: list


class CmStage:
    """Plays the cases with one guest."""

    def __init__(self, net, guest, binary, directory):
        self.net = net
        self.guest = guest
        self.binary = binary
        self.directory = directory
        self.started = 0
        self.playing = {}  # patient cases that were begun, by name
        # Without a route to them, no group is found.
        net.ip("route", "replace", "224.0.0.0/4", "dev", "br0")
        guest.run("ip route add 224.0.0.0/4 dev eth0")

    def begin_patient(self, cases):
        """Begins those that wait for long, to be finished when their turn has come."""
        for case in cases:
            if case.patient:
                self.playing[case.name] = self.begin(case)

    def close(self):
        for playing in self.playing.values():
            for side in playing.sides:
                side.end()

    def play(self, case):
        return self.finish(self.playing.pop(case.name, None) or self.begin(case))

    def begin(self, case):
        host = HOST_IPV4 if case.family == "ipv4" else HOST_IPV6
        # Beside others it needs a device of its own.
        host = self.net.add_own_address() if case.patient else host
        playing = Playing(case, host, time.monotonic(), len(self.guest.console_text()), [], [])
        order = (
            [self.start_ours, self.start_stock]
            if case.role == "server"
            else [self.start_stock, self.start_ours]
        )
        listens = self.ours_listens if case.role == "server" else self.guest_listens
        try:
            if not case.alone:
                playing.sides.append(order[0](playing))
                if not wait_until(lambda: listens(playing), LISTEN_SECONDS):
                    playing.problems.append(f"{playing.sides[0].who} does not listen")
            if not playing.problems:
                playing.sides.append(order[1](playing))
        except BaseException:
            for side in playing.sides:
                side.end()
            raise
        return playing

    def finish(self, playing):
        case, sides, result = playing.case, playing.sides, Result(playing.problems)
        try:
            ending = sides[1:] if case.endless else sides
            if case.patient and not result.problems:
                wait_until(lambda: all(side.poll() is not None for side in ending), PATIENT_SECONDS)
            elif not result.problems:
                wait(ending, CASE_SECONDS)
        finally:
            for side in sides:
                side.end()
        for number, side in enumerate(sides):
            result.problems += side_problems(case, side, case.endless and number == 0)
            side.describe(result)
        if result.problems:
            result.report.append(("guest kernel", self.guest.console_text()[playing.console :]))
            result.report.append(("rxe0 counters", self.guest.counters()))
        result.seconds = time.monotonic() - playing.started
        return result

    def start_ours(self, playing):
        case = playing.case
        self.started += 1
        argv = self.filled(playing, case.ours)
        if case.ours[0] not in ["sh", "{steps}"]:
            faults = [
                word for rule in self.filled(playing, case.faults) for word in ("--fault", rule)
            ]
            argv = [str(self.binary), *argv, "--device", f"udp:{playing.host}", *faults]
        return OurSide(
            self.net, argv, self.directory / f"cm{self.guest.number}-{self.started}-ours"
        )

    def start_stock(self, playing):
        # One file has both, and the program writes to each in its own time: errors come behind.
        command = f"{shlex.join(self.filled(playing, playing.case.stock))} 2>errors; status=$?; cat errors; exit $status"
        return StockSide(self.guest, ["sh", "-c", command])

    def filled(self, playing, words):
        guest = self.guest.ipv4 if playing.case.family == "ipv4" else self.guest.ipv6
        beside = self.binary.parent
        values = {
            "host": playing.host,
            "guest": guest,
            "roce": self.binary,
            "examples": beside / "examples",
            "steps": beside / "roce-interop-steps",
        }
        for name, value in values.items():
            words = [word.replace("{" + name + "}", str(value)) for word in words]
        return words

    def ours_listens(self, playing):
        [side] = playing.sides
        # The end of a port's life is seen here, too.
        if side.poll() is not None:
            return True
        if side.argv[1] == "mckey":
            return "receiving data transfers" in side.stdout()
        table = self.net.output(["cat", "/proc/net/udp", "/proc/net/udp6"])
        if f" {kernel_text(playing.host)}:{ROCE_PORT:04X} " not in table:
            return False
        time.sleep(BREATH_SECONDS)
        return True

    def guest_listens(self, playing):
        [side] = playing.sides
        sign, command = "LISTEN", "rdma resource show cm_id"
        if "mckey" in side.argv[2]:
            sign, command = GROUP_IN_IGMP, "cat /proc/net/igmp"
        return side.poll() is not None or sign in self.guest.run(command)[1]


def kernel_text(address):
    """An address as /proc/net/udp and udp6 show it: 32-bit words in this host's byte order."""
    packed = ipaddress.ip_address(address).packed
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def side_problems(case, side, endless):
    """What is wrong with a side, of which a server that was ended has no exit status."""
    wanted_status, says = (
        (case.ours_status, case.ours_says)
        if side.who == "ours"
        else (case.stock_status, case.stock_says)
    )
    if side.status is None and not endless:
        return [f"{side.who} did not end by itself"]
    problems = []
    if wanted_status is not None and side.status != wanted_status and not endless:
        problems.append(f"{side.who} ended with exit status {side.status}, wanted {wanted_status}")
    lines = (side.stdout() + side.stderr()).splitlines()
    for line, wanted in Counter(says).items():
        found = sum(bool(re.fullmatch(line, other)) for other in lines)
        if found < wanted and len(problems) < 3:
            problems.append(f"{side.who} printed {found} instead of {wanted} lines like: {line}")
    return problems
