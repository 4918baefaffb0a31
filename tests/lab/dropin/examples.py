"""The programs of ibverbs-utils: devices, their attributes and events, pingpongs; and `ibstat`."""

from dataclasses import replace

from lab.dropin.case import SOCKETS, Case, Program

FORBIDDEN = ("invalid data", "Couldn't", "Failed")
# Options that one side has by itself, and rxe has not.
ONE_SIDED = {
    "timestamps": ["-t"],
    "device-memory": ["-j"],
    "new-send": ["-N"],
    "on-demand": ["-o"],
    "implicit-on-demand": ["-O"],
}


def example_cases():
    yield from devices()
    yield watch()
    yield from plain()
    yield from options()
    yield from sockets()
    yield from faults()
    yield from against_rxe()


def devices():
    yield Case(
        "devices",
        "alone",
        Program(("ibv_devices",), (r"roce_lo\s+[0-9a-f]{16}", r"roce_eth0\s+[0-9a-f]{16}")),
    )
    lines = (
        r"hca_id:\s+roce_lo",
        r"transport:\s+InfiniBand \(0\)",
        r"state:\s+PORT_ACTIVE \(4\)",
        r"link_layer:\s+Ethernet",
        r"active_mtu:\s+4096 \(5\)",
        r"GID\[\s*0\]:\s+::ffff:127\.0\.0\.\d+, RoCE v2",
        r"GID\[\s*1\]:\s+::ffff:127\.0\.0\.\d+, RoCE v2",
    )
    yield Case(
        "devices/nonsense",
        "alone",
        Program(
            ("env", "ROCE_DEVICES=nonsense", "ibv_devices"), ("roce: .*nonsense.*",), ("roce_",)
        ),
    )
    yield Case(
        "devinfo",
        "alone",
        Program(("ibv_devinfo", "-v", "-d", "{device}"), lines, ("Failed", "failed")),
    )
    yield Case(
        "devinfo/all",
        "alone",
        Program(("ibv_devinfo",), (lines[0], r"hca_id:\s+roce_eth0"), ("Failed", "failed")),
    )
    yield Case(
        "devinfo/list",
        "alone",
        Program(("ibv_devinfo", "-l"), ("2 HCAs found:", "roce_lo", "roce_eth0")),
    )
    names = ("CA 'roce_lo'", "CA 'roce_eth0'")
    port = ("State: Active", "Physical state: LinkUp", "Link layer: Ethernet")
    yield Case("ibstat", "alone", Program(("ibstat",), (*names, *port)), sysfs=True)


def watch():
    """The link goes down and up again."""
    lines = (
        r"roce_watch0: async event FD \d+",
        r"event_type IBV_EVENT_PORT_ERR \(10\), port 1",
        r"event_type IBV_EVENT_PORT_ACTIVE \(9\), port 1",
    )
    return Case(
        "asyncwatch",
        "alone",
        Program(("stdbuf", "-oL", "ibv_asyncwatch", "-d", "roce_watch0"), lines, endless=True),
        before=(
            "ip link add watch0 type veth peer name watch1",
            "ip addr add 10.79.0.1/24 dev watch0",
            "ip link set watch0 up",
            "ip link set watch1 up",
        ),
        during=("ip link set watch1 down", "ip link set watch1 up"),
        after=("ip link del watch0",),
    )


def plain():
    for kind in ["rc", "uc"]:
        for mtu in [256, 512, 1024, 2048, 4096]:
            for size in [1, 4097, 100_000]:
                yield pingpong(kind, "loopback", f"mtu{mtu}/size{size}", 300, size, "-m", mtu, "-c")
    for size in [1, 2048, 4096]:
        yield pingpong("ud", "loopback", f"size{size}", 300, size, "-c")
    yield pingpong("srq", "loopback", "plain", 300, 4096, "-c")
    yield pingpong("srq", "loopback", "one-pair", 300, 65536, "-c", "-q", 1)
    yield Case(
        "pingpong/ud/size4097-refused",
        "alone",
        Program(
            ("ibv_ud_pingpong", "-d", "{device}", "-g", "{gid}", "-s", 4097),
            (r"Requested size larger than port MTU \(4096\)",),
            status=1,
        ),
    )


def options():
    for kind in ["rc", "uc", "ud", "srq"]:
        yield pingpong(kind, "loopback", "events", 300, 1024, "-c", "-e")
        # None of this is special to loopback.
        yield pingpong(kind, "hosts", "events", 300, 1024, "-c", "-e")
        yield pingpong(kind, "hosts", "plain", 300, 1024, "-c")
    # No events with timestamps: the tool fails at an event of completions that it has already
    # polled.
    variants = {
        **ONE_SIDED,
        "prefetch": ["-o", "-P"],
        "new-send-device-memory": ["-N", "-j"],
        "new-send-events": ["-N", "-e"],
    }
    for name, words in variants.items():
        lines = (r"Max receive completion clock cycles = \d+",) if "-t" in words else ()
        yield pingpong("rc", "loopback", name, 300, 4096, "-c", *words, lines=lines)
    yield pingpong("srq", "loopback", "on-demand", 300, 4096, "-c", "-o")
    yield pingpong("rc", "loopback", "long", 20_000, 64)
    # The address has the index that it has in rxe, too: each side uses another one.
    common = ("ibv_rc_pingpong", "-d", "{device}", "-c", "-g")
    yield Case(
        "pingpong/rc/loopback/gid1",
        "loopback",
        Program((*common, 1, "{server}"), (r"1000 iters .*",), FORBIDDEN),
        Program((*common, 0), (r"1000 iters .*",), FORBIDDEN),
    )
    for name, words in {"plain": [], "events": ["-e"], "on-demand": ["-o"]}.items():
        common = ("ibv_xsrq_pingpong", "-d", "{device}", "-g", "{gid}", "-n", 20, *words)
        yield Case(
            f"pingpong/xsrq/loopback/{name}",
            "loopback",
            Program((*common, "{server}"), forbidden=("Failed",)),
            Program(common, forbidden=("Failed",)),
        )


def sockets():
    """Packets within a host through the network stack instead of shared memory."""
    for kind in ["rc", "uc", "ud", "srq"]:
        yield replace(pingpong(kind, "loopback", "sockets", 300, 4096, "-c"), variables=SOCKETS)
        yield replace(
            pingpong(kind, "loopback", "sockets-events", 300, 1024, "-c", "-e"), variables=SOCKETS
        )


def faults():
    """Faults of `roce run --fault`, on both sides."""
    for name, rules in {
        "loss": "drop send every 40",
        "damage": "corrupt send every 100",
        "not-ready": "rnr 20%",
    }.items():
        yield replace(
            pingpong("rc", "loopback", f"fault-{name}", 300, 4096, "-c"), run=("--fault", rules)
        )
    retries_exceeded = (r"Failed status transport retry counter exceeded \(12\) for wr_id 2",)
    common = ("ibv_rc_pingpong", "-d", "{device}", "-g", "{gid}")
    yield Case(
        "pingpong/rc/loopback/fault-nothing-arrives",
        "loopback",
        Program((*common, "{server}"), retries_exceeded, status=1),
        Program(common, endless=True),
        run=("--fault", "drop send tx"),
    )


def against_rxe():
    for place in ["rxe-client", "rxe-server"]:
        for kind in ["rc", "uc", "ud", "srq"]:
            yield pingpong(kind, place, "plain", 20, 2048, "-c")
            yield pingpong(kind, place, "events", 20, 2048, "-c", "-e")
        # By UC no more at once than a socket holds: a side that is late loses the rest, and waits
        # for it for ever.
        for kind, size in [("rc", 65539), ("uc", 16387)]:
            for mtu in [256, 512, 1024, 2048, 4096]:
                yield pingpong(kind, place, f"mtu{mtu}", 10, size, "-c", "-m", mtu)
        for name, words in ONE_SIDED.items():
            yield pingpong("rc", place, f"ours-{name}", 20, 4096, "-c", ours=words)


def pingpong(kind, place, name, count, size, *words, ours=(), lines=()):
    """`ours`: options of our side only, with rxe as the other one."""
    common = (f"ibv_{kind}_pingpong", "-d", "{device}", "-g", "{gid}")
    common += ("-n", count, "-s", size, *words)
    lines = (rf"{count} iters in [\d.]+ seconds = [\d.]+ usec/iter", *lines)
    client, server = (ours, ()) if place == "rxe-server" else ((), ours)
    return Case(
        f"pingpong/{kind}/{place}/{name}",
        place,
        Program((*common, *client, "{server}"), lines, FORBIDDEN),
        Program((*common, *server), lines, FORBIDDEN),
    )
