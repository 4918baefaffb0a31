"""The programs of librdmacm on rsockets."""

import shlex

from lab.dropin.case import Case, Program
from lab.dropin.rdmacm import CM

# A line of figures, behind that of their names.
FIGURES = (r"(custom|\d+[km]?_(lat|bw)) .*",)
# The libraries under test, not those that the tool may carry.
PRELOADED = ("--sockets", "--library", "{ours}/libroce_abi.so")


def rsocket_cases():
    for place in ["loopback", "hosts", "rxe-client", "rxe-server"]:
        guest = place.startswith("rxe-")
        yield from rstream(place, guest)
        yield from riostream(place, guest)
        yield rcopy(place)
        yield from forking(place)
    for place in ["loopback", "hosts"]:
        yield from udpong(place)
        yield from preloaded(place)


def rstream(place, guest):
    """Streams both ways, with every byte checked where the variant says so."""
    some = ("-I", 20 if guest else 500, "-C", 10)
    variants = {
        "small": ("-S", 64, *some, "-T", "v"),
        "many-small": ("-S", 32, "-I", 1, "-C", 1500 if guest else 30_000, "-T", "v"),
        "large": ("-S", 100_000, "-I", 4 if guest else 100, "-C", 10, "-T", "v"),
        "blocking": ("-S", 5000, *some, "-T", "b"),
        "nonblocking": ("-S", 50_000, *some, "-T", "n"),
        "inline": ("-S", 200, *some, "-i", 256, "-T", "v"),
        "small-buffers": ("-S", 20_000, "-I", 3 if guest else 20, "-C", 5, "-B", 4096, "-T", "v"),
        "keepalive": ("-S", 100, *some, "-k", 1),
    }
    # A stock client that polls takes the end of a server that is faster than it for an error.
    if place != "rxe-client":
        variants["polling"] = ("-S", 50_000, *some, "-T", "a")
    for name, words in variants.items():
        yield pair("rstream", place, name, words)
    if not guest:
        yield pair("rstream", place, "all", ("-S", "all", "-I", 50, "-C", 10, "-T", "v"))
    if place == "loopback":
        words = ("rstream", "-f", "ipv6", "-S", 1000, *some, "-T", "v")
        client, server = (Program((*words, side, "::1"), FIGURES) for side in ["-s", "-b"])
        yield Case(f"rstream/{place}/ipv6", place, client, server, CM)


def riostream(place, guest):
    """Writes to memory that the other side has mapped."""
    count = 10 if guest else 200
    for size in [64, 1000, 100_000]:
        words = ("-S", size, "-I", count, "-C", 5, "-T", "v")
        yield pair("riostream", place, f"size{size}", words)


def pair(tool, place, name, words):
    client = Program((tool, *words, "-s", "{server}"), FIGURES)
    server = Program((tool, *words, "-b", "{own}"), FIGURES)
    return Case(f"{tool}/{place}/{name}", place, client, server, CM)


def udpong(place):
    """Datagrams to and fro. Not against rxe: there the stock library fails to make a queue pair."""
    variants = {
        "small": ("-S", 64, "-C", 500),
        "large": ("-S", 4000, "-C", 500),
        "echo": ("-S", 1000, "-C", 300, "-T", "e"),
        "blocking": ("-S", 1000, "-C", 300, "-T", "b"),
        "nonblocking": ("-S", 1000, "-C", 300, "-T", "n"),
        "polling": ("-S", 1000, "-C", 300, "-T", "a"),
    }
    for name, words in variants.items():
        client = Program(("udpong", *words, "-s", "{server}"), FIGURES)
        server = Program(("udpong", *words, "-b", "{own}"), endless=True)
        yield Case(f"udpong/{place}/{name}", place, client, server, "udp:7174")


def rcopy(place):
    """A file over the wire; the server says how many bytes it has got."""
    return Case(
        f"rcopy/{place}",
        place,
        Program(
            ("rcopy", "/bin/rcopy", "{server}:/tmp/copied"),
            (r"opening\.\.\.transferring\.\.\.closing\.\.\.done",),
        ),
        Program(
            ("rcopy",), (r".*transferring\.\.\.\d{5,} bytes\.\.\.closing\.\.\.done",), endless=True
        ),
        CM,
    )


def forking(place):
    """TCP programs with rsockets, whose server forks a process for each connection. With stock
    rsockets it must not wait before it has sent or received something: it speaks first.
    """
    variables = ("RDMAV_FORK_SAFE=1",)
    stock = ("env", "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so", *variables)
    listen, connect = "TCP-LISTEN:7000,fork,reuseaddr", "TCP:{server}:7000"
    talks = {"greeting": (("-U", listen, "EXEC:echo greeting"), ("-u", connect, "-"))}
    if not place.startswith("rxe-"):
        talks["echo"] = ((listen, "PIPE"), ("-t5", "-", connect))
    for text, (server, client) in talks.items():
        # Ours draws the packets that carry the text: there are none of TCP.
        lines = (text,) if place == "rxe-client" else (text, r".*RDMA WRITE.*")
        client = shlex.join([*(stock if place == "rxe-client" else ()), "socat", *client])
        server = (*(stock if place == "rxe-server" else ()), "socat", *server)
        yield Case(
            f"socat/{place}/fork-{text}",
            place,
            Program(("sh", "-c", f"echo {text} | {client}"), lines),
            Program(server, endless=True),
            "tcp:7000",
            run=(*PRELOADED, "--ladder"),
            variables=variables,
        )


def preloaded(place):
    """Programs that use TCP."""
    received = r".*[MG]Bytes .*receiver"
    # That of the rsocket: TCP would say what fits a packet of 4200 or 65536 bytes.
    path_mtu = r"TCP MSS: 4096 .*"
    yield Case(
        f"iperf3/{place}",
        place,
        Program(("iperf3", "-V", "-c", "{server}", "-t", 2), (received, path_mtu)),
        Program(("iperf3", "-s", "-1"), (received,)),
        "tcp:5201",
        run=PRELOADED,
    )
    yield Case(
        f"nc/{place}",
        place,
        Program(("sh", "-c", "echo question | nc.openbsd -N {server} 7000"), ("answer",)),
        Program(("sh", "-c", "echo answer | nc.openbsd -N -l 7000"), ("question",)),
        "tcp:7000",
        run=PRELOADED,
    )
    # No rsocket listens: TCP serves.
    yield Case(
        f"nc/{place}/tcp",
        place,
        Program(("sh", "-c", "echo question | nc.openbsd -N {server} 7000"), ("answer",)),
        Program(
            ("sh", "-c", "unset LD_PRELOAD; echo answer | nc.openbsd -N -l 7000"), ("question",)
        ),
        "tcp:7000",
        run=PRELOADED,
    )
