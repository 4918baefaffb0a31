"""A case: one program, or a server and a client, where each runs, and what they must print."""

import re
import time
from dataclasses import dataclass

from matrix import Result, StockSide, wait
from net import listens

READY_SECONDS = 15
# Between the port's being open and the program's listening on it, where nothing tells that it does.
BREATH_SECONDS = 0.3
ROCE_PORT = 4791
# For Case.variables: no packet takes the short way within a host.
SOCKETS = ("ROCE_SOCKETS_ONLY=1",)


@dataclass(frozen=True)
class Program:
    """In its words, {device}, {gid} and {own} stand for this side's, {server} for the server's address."""

    words: tuple
    says: tuple = ()  # regular expressions of whole lines
    never: tuple = ()  # what no line may contain
    status: int | None = 0  # None: whatever it likes
    endless: bool = False  # it does not end by itself


@dataclass(frozen=True)
class Case:
    """`place`: "alone" and "loopback" are one host with `roce_lo`, "shared" is one where both have the same address,
    "hosts" are two, with a wire; in "rxe-client" and "rxe-server"
    the stock tool has that role, in the guest, on the kernel's rxe and with the stock libraries."""

    name: str
    place: str
    client: Program
    server: Program | None = None
    ready: str = (
        "tcp:18515"  # how the server is seen to be ready: tcp:PORT, "cm", or "group:ADDRESS"
    )
    seconds: float = 30
    sysfs: bool = False  # our side looks into /sys and /dev, too
    run: tuple = ()  # further options of `roce run`
    variables: tuple = ()  # of the environment of our side, as NAME=VALUE
    # Commands of root in the first side's namespace; those of `during` come when an endless program has begun to speak.
    before: tuple = ()
    during: tuple = ()
    after: tuple = ()

    @property
    def in_guest(self):
        return self.place.startswith("rxe-")


class GuestHost:
    """The guest as a side: rxe0."""

    def __init__(self, guest):
        self.guest = guest
        gid = guest.gids()[guest.ipv4]
        self.known = {"device": "rxe0", "gid": gid, "own": guest.ipv4}
        self.address = guest.ipv4
        guest.run("ip route add 224.0.0.0/4 dev eth0")

    def facts(self):
        return self.known

    def start(self, argv, *_):
        return StockSide(self.guest, argv)

    def look(self, _):
        """What is there of connections; for when a program does not end."""
        return self.guest.run("rdma resource show qp; rdma resource show cm_id; cat /proc/net/tcp")[
            1
        ]

    def ready(self, sign):
        if sign.startswith("tcp:"):
            return listens(self.guest.socket_table(), int(sign.removeprefix("tcp:")))
        if sign == "cm":
            return "LISTEN" in self.guest.run("rdma resource show cm_id")[1]
        return in_igmp(sign.removeprefix("group:")) in self.guest.run("cat /proc/net/igmp")[1]


def ready_here(home, sign):
    """The same for a side on the host, by what the namespace shows."""
    if sign.startswith("tcp:"):
        return listens(home.table("tcp", "tcp6"), int(sign.removeprefix("tcp:")))
    if sign == "cm":
        if f":{ROCE_PORT:04X} " not in home.table("udp", "udp6"):
            return False
        time.sleep(BREATH_SECONDS)
        return True
    return in_igmp(sign.removeprefix("group:")) in home.table("igmp")


def in_igmp(group):
    return "".join(f"{int(part):02X}" for part in reversed(group.split(".")))


def play(case, server_host, client_host, directory, built):
    """Plays a case; its outputs stay in `directory`. `built`: what further words stand for."""
    started = time.monotonic()
    result = Result()
    stem = str(directory / re.sub(r"[^\w-]", "_", case.name))
    address = {"server": server_host.address, **built}
    sides = []
    for command in case.before:
        server_host.as_root(command)
    try:
        if case.server:
            sides.append(start(case, case.server, server_host, "server", address, stem))
            if not await_ready(case, sides[0], server_host):
                result.problems.append(f"the server is not ready ({case.ready})")
        if not result.problems:
            sides.append(
                start(
                    case,
                    case.client,
                    client_host,
                    "client" if case.server else "program",
                    address,
                    stem,
                )
            )
            for command in case.during:
                await_words(sides[-1], sides[-1].program.says[:1])
                server_host.as_root(command)
                time.sleep(BREATH_SECONDS)
            if case.during:
                await_words(sides[-1], sides[-1].program.says)
            if case.ready == "cm":
                knock_again(
                    case,
                    sides,
                    lambda: start(case, case.client, client_host, "client", address, stem),
                )
            wait([side for side in sides if not side.program.endless], case.seconds)
        for side, host in zip(sides, [server_host, client_host]):
            if side.poll() is None and not side.program.endless:
                result.report.append((f"{side.who}, which goes on", host.look(side)))
    finally:
        for side in sides:
            side.end()
        for command in case.after:
            server_host.as_root(command)
    for side in sides:
        result.problems += problems(side)
        side.describe(result)
    result.seconds = time.monotonic() - started
    return result


def start(case, program, host, who, address, stem):
    facts = {**host.facts(), **address}
    argv = [
        re.sub(r"\{(\w+)\}", lambda match: str(facts[match[1]]), str(word))
        for word in program.words
    ]
    side = host.start(argv, f"{stem}-{who}", case.sysfs, case.run, case.variables)
    side.who, side.program = who, program
    return side


def await_ready(case, side, host):
    deadline = time.monotonic() + READY_SECONDS
    while not host.ready(case.ready):
        if side.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def knock_again(case, sides, start_client):
    """Starts a client anew that was refused while the server was still on its way from its device to its listener."""
    deadline = time.monotonic() + READY_SECONDS
    while len(sides) == 2 and time.monotonic() < deadline:
        wait([sides[1]], 1)
        server_runs = sides[0].poll() is None
        if not (
            server_runs and sides[1].status is not None and problems(sides[1]) and refused(sides[1])
        ):
            return
        time.sleep(0.5)
        sides[1] = start_client()


def refused(side):
    text = side.stdout() + side.stderr()
    return any(word in text for word in ["REJECTED", "Connection refused", "UNREACHABLE"])


def await_words(side, says):
    deadline = time.monotonic() + READY_SECONDS
    while missing(side, says) and side.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def missing(side, says):
    """Those of the expressions that no line of the side's output is like."""
    lines = [line.strip() for line in (side.stdout() + "\n" + side.stderr()).splitlines()]
    return [line for line in says if not any(re.fullmatch(line, one) for one in lines)]


def problems(side):
    program, found = side.program, []
    if side.status is None and not program.endless:
        found.append(f"the {side.who} did not end by itself")
    elif side.status is not None and program.status is not None and side.status != program.status:
        found.append(
            f"the {side.who} ended with exit status {side.status}, wanted {program.status}"
        )
    lines = (side.stdout() + "\n" + side.stderr()).splitlines()
    found += [
        f"the {side.who} did not print a line like: {line}"
        for line in missing(side, program.says)[:3]
    ]
    found += [
        f"the {side.who} said: {one}" for one in lines for word in program.never if word in one
    ]
    return found
