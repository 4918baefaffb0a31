"""tensorpipe, the transport of PyTorch's RPC: Debian's library, and a program that sends tensors
back and forth.
"""

from lab.dropin.case import Case, Program
from lab.programs.trial import Figure, trials

FIGURE = Figure(r"^65536 B: round trip (?P<value>[\d.]+) (?P<unit>us)$", rising=False)
PORT = 18601


def tensorpipe_trials():
    yield from trials("tensorpipe/pingpong", "libtensorpipe-dev", case, FIGURE)


def case(name, place, tcp):
    # ibv exchanges its queue pairs over TCP, and takes the first device and GID.
    transport = "uv" if tcp else "ibv"

    def side(role, address, *lines):
        return Program(("{tensorpipe_pingpong}", transport, role, address), (*lines, "all right"))

    run = ("-d", "roce_eth0") if place == "hosts" else ()
    client = side("connect", f"{{server}}:{PORT}", r"65536 B: round trip [\d.]+ us")
    server = side("listen", f"{{own}}:{PORT}")
    return Case(name, place, client, server, f"tcp:{PORT}", run=run)
