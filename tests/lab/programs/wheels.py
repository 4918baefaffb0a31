"""Wheels of PyPI that transfer memory between agents: NIXL, over UCX, and Mooncake."""

from lab.dropin.case import Case, Program
from lab.programs.trial import Figure, trials
from lab.requirements import Wheel

NIXL = Wheel(
    "nixl-cu12", "1.5.1", "341d0dfa499f941c054614252f1d8047d1380e33f29c87707372ff5ec7d3779a"
)
MOONCAKE = Wheel(
    "mooncake-transfer-engine-non-cuda",
    "0.3.13.post1",
    "ca9f668a04ffe648b250fda28b97d0a7da149cb110dec5cf3d166a9e68afc940",
)
FIGURE = Figure(r"^(?P<value>[\d.]+) (?P<unit>MB/s)$")


def wheel_trials():
    for name, wheel, make in [("nixl/ucx", NIXL, nixl), ("mooncake/rdma", MOONCAKE, mooncake)]:
        yield from trials(name, wheel.name, make, FIGURE, ("hosts",), True, wheel)


def nixl(name, place, tcp):
    # It brings UCX and its libibverbs.
    transports = "tcp" if tcp else "rc_v,ud_v"
    device = "eth0" if tcp else "{device}:1"
    variables = [f"UCX_TLS={transports}", f"UCX_NET_DEVICES={device}", "UCX_LOG_LEVEL=fatal"]
    return case(name, place, tcp, variables, "{nixl_cu12}", ["{nixl_agent}"])


def mooncake(name, place, tcp):
    protocol = ["tcp", "{own}", ""] if tcp else ["rdma", "{own}", "{device}"]
    wheel = "{mooncake_transfer_engine_non_cuda}"
    return case(name, place, tcp, ["MC_GID_INDEX={gid}"], wheel, ["{mooncake_agent}", *protocol])


def case(name, place, tcp, variables, wheel, agent):
    """The target's agent listens for the initiator's one with TCP, and each tells about itself."""
    # Not by `env`: `roce run` looks for copies of libibverbs around the program that it starts.
    common = (f"{wheel}/bin/python", "-B", agent[0], *variables, *agent[1:])
    client = Program((*common, "{server}"), ("written and read again", r"[\d.]+ MB/s"))
    server = Program(common, ("the memory is right",))
    return Case(name, place, client, server, "tcp:4445", 120, sysfs=not tcp)
