"""Exchanges: a server and a client, which mostly check every byte that they get."""

from dataclasses import dataclass

from lab.dropin.case import Program

# Places, and how their packets go: between two hosts through sockets, within one through memory.
# The address of "moving" comes and goes.
PLACES = ["hosts", "moving", "shared", "loopback"]

ITERATIONS = (r"\d+ iters in [\d.]+ seconds = [\d.]+ usec/iter",)
DONE = ("test complete",)


@dataclass(frozen=True)
class Exchange:
    """A server and a client. In the words of their command lines stand what `Host.facts` has,
    {server} for the server's address, {port} for a port that no other exchange has, and {roce} for
    the tool.
    """

    kind: str
    place: str
    client: Program
    server: Program | None  # None: it runs all the time, see `survivor`
    stream: bool = False  # they speak over TCP beside, at the exchange's port
    reliable: bool = True  # what is lost on the way is sent again
    survivor: str = ""
    leaves: bool = False  # who has got everything ends without a word, and repeats no answer

    @property
    def name(self):
        return f"{self.kind}/{self.place}"


def exchanges():
    for place in PLACES:
        for tool, command in [("stock", ("rping",)), ("tool", ("{roce}", "rping"))]:
            for size, count in [(64, 1000), (60_000, 200)]:
                yield rping(f"rping-{tool}-{size}", place, command, size, count)
        for tool, command in [("stock", ("ucmatose",)), ("tool", ("{roce}", "ucmatose"))]:
            yield ucmatose(f"ucmatose-{tool}", place, command)
        if place == "moving":
            continue
        for service in ["rc", "srq", "uc", "ud"]:
            yield pingpong(service, "stock", place, f"ibv_{service}_pingpong")
            yield pingpong(service, "tool", place, "{roce}", "pingpong", service)
        yield pingpong("xrc", "tool", place, "{roce}", "pingpong", "xrc")
        for tool in ["write_bw", "read_bw", "send_bw", "send_lat", "atomic_bw"]:
            yield perftest(tool, place)
    for place in SURVIVORS:
        for tool, command in [("stock", ("rping",)), ("tool", ("{roce}", "rping"))]:
            yield of_survivor(f"survivor-{tool}", place, command)


def program(*words, lines=()):
    return Program(words, lines)


def rping(kind, place, command, size, count):
    both = ("-p", "{port}", "-C", count, "-S", size, "-V")
    return Exchange(
        kind,
        place,
        program(*command, "-c", "-a", "{server}", *both),
        program(*command, "-s", "-a", "{own}", *both),
    )


def ucmatose(kind, place, command):
    both = ("-p", "{port}", "-c", 8, "-C", 40, "-S", 9001)
    return Exchange(
        kind,
        place,
        program(*command, "-s", "{server}", *both, lines=DONE),
        program(*command, "-b", "{own}", *both, lines=DONE),
    )


def pingpong(service, tool, place, *command):
    size = {"ud": 2000, "uc": 3000, "srq": 4096}.get(service, 9000)
    count = 2000 if service == "srq" else 1000
    both = (*command, "-d", "{device}", "-g", "{gid}", "-p", "{port}", "-n", count, "-s", size)
    return Exchange(
        f"{service}-pingpong-{tool}",
        place,
        program(*both, "-c", "{server}", lines=ITERATIONS),
        program(*both, "-c", lines=ITERATIONS),
        True,
        service not in ("uc", "ud"),
        leaves=True,
    )


def perftest(tool, place):
    size = () if tool.startswith("atomic") else ("-s", 2 if tool.endswith("lat") else 65536)
    both = ("-F", "-d", "{device}", "-x", "{gid}", "-p", "{port}", "-n", 1000, *size)
    return Exchange(
        f"perftest-{tool}",
        place,
        program(f"ib_{tool}", *both, "{server}"),
        program(f"ib_{tool}", *both),
        True,
    )


# Servers that run all the time, and serve one client after the other.
SURVIVORS = {
    "hosts": ("{roce}", "rping", "-s", "-P", "-a", "{own}", "-p", 7001),
    "loopback": ("rping", "-s", "-P", "-a", "{own}", "-p", 7002),
}


def of_survivor(kind, place, command):
    port = SURVIVORS[place][-1]
    words = ("-c", "-a", "{server}", "-p", port, "-C", 500, "-V")
    return Exchange(kind, place, program(*command, *words), None, survivor=place)
