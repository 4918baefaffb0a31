"""The programs of librdmacm.

No port of these programs shows in /proc/net: a client that comes too early is refused and started
again, for at most 15 s. `rdma_xclient` prints `rdma_client: end 0` in some versions.
"""

import re

from lab.dropin.case import Case, Program
from lab.interop.cm.case import GROUP, ping_text

CM = "cm"
DONE = ("data transfers complete", "test complete", "return status 0")


def rdmacm_cases():
    for place in ["loopback", "hosts", "rxe-client", "rxe-server"]:
        guest = place.startswith("rxe-")
        yield from rping(place, guest)
        yield from transfers(place, guest)
        yield mckey(place)
        yield from samples(place, guest)
        if not guest:
            yield Case(
                f"cmtime/{place}",
                place,
                Program(("cmtime", "-s", "{server}", "-c", 20), (r"connect\s+:.*",)),
                Program(("cmtime", "-c", 20), endless=True),
                ready=CM,
            )
    yield refused()


def rping(place, guest):
    sizes = [(64, 10), (60_000, 5)] if guest else [(64, 1000), (60_000, 100)]
    for size, count in sizes:
        show = size == 64 and count <= 10
        both = ("-C", count, "-S", size, "-V", *(["-v"] if show else []))
        shown = [re.escape(ping_text(number, size)) for number in range(count)] if show else []
        pings = tuple(f"ping data: {text}" for text in shown)
        server = Program(
            ("rping", "-s", "-a", "{own}", *both), tuple(f"server {line}" for line in pings)
        )
        yield Case(
            f"rping/{place}/size{size}",
            place,
            Program(("rping", "-c", "-a", "{server}", *both), pings),
            server,
            CM,
        )
    if not guest:
        yield Case(
            f"rping/{place}/own-queue-pair",
            place,
            Program(("rping", "-c", "-q", "-a", "{server}", "-C", 100, "-V")),
            Program(("rping", "-s", "-q", "-a", "{own}", "-C", 100, "-V")),
            CM,
        )
        yield Case(
            f"rping/{place}/persistent",
            place,
            Program(("rping", "-c", "-a", "{server}", "-C", 100, "-V")),
            Program(("rping", "-s", "-P", "-a", "{own}"), endless=True),
            CM,
        )


def transfers(place, guest):
    """Connections of ucmatose and datagram services of udaddy."""
    variants = {
        "ucmatose": {
            "one": ["-C", 10, "-S", 100],
            "migrate": ["-c", 5, "-C", 20, "-S", 9001, "-m"],
            "64-at-once": ["-c", 64, "-C", 2],
        },
        "udaddy": {"one": ["-C", 10], "four": ["-c", 4, "-C", 5, "-S", 1000]},
    }
    if guest:
        del variants["ucmatose"]["64-at-once"]
    for tool, named in variants.items():
        for name, words in named.items():
            client = Program((tool, *words, "-s", "{server}"), DONE)
            server = Program((tool, *words, "-b", "{own}"), DONE)
            yield Case(f"{tool}/{place}/{name}", place, client, server, CM)


def mckey(place):
    common = ("mckey", "-m", GROUP, "-C", 10, "-b")
    # On loopback each process has an address of its own.
    sender = "127.0.0.2" if place == "loopback" else "{own}"
    return Case(
        f"mckey/{place}",
        place,
        Program((*common, sender, "-s"), DONE),
        Program((*common, "{own}"), DONE),
        f"group:{GROUP}",
    )


def samples(place, guest):
    yield Case(
        f"rdma_client/{place}",
        place,
        Program(("rdma_client", "-s", "{server}"), (r"rdma_x?client: end 0",)),
        Program(("rdma_server",), (r"rdma_x?server: end 0",)),
        CM,
    )
    yield Case(
        f"rdma_xclient/{place}/rc",
        place,
        Program(("rdma_xclient", "-s", "{server}", "-c", "r"), (r"rdma_x?client: end 0",)),
        Program(("rdma_xserver", "-c", "r"), (r"rdma_x?server: end 0",)),
        CM,
    )
    if not guest:  # rxe has no XRC
        yield Case(
            f"rdma_xclient/{place}/xrc",
            place,
            Program(("rdma_xclient", "-s", "{server}", "-c", "x"), (r"rdma_x?client: end 0",)),
            Program(("rdma_xserver", "-c", "x"), (r"rdma_x?server: end 0",)),
            CM,
        )


def refused():
    return Case(
        "rping/loopback/no-listener",
        "loopback",
        Program(
            ("rping", "-c", "-a", "{server}", "-p", 4000),
            (
                "cma event RDMA_CM_EVENT_REJECTED, error 8",
                r"roce: nothing listens on port 4000 of 127.0.0.1, used by rping \(.*\);.*",
            ),
            status=None,
        ),
        Program(("rping", "-s", "-a", "{own}"), endless=True),
        CM,
    )
