"""Several programs with one address: one process owns it, and the others send through it."""

from lab.dropin.case import Case, Program
from lab.dropin.examples import FORBIDDEN, pingpong
from lab.dropin.perftest import test

PLACE = "shared"  # one host, both programs with the device of its network


def sharing_cases():
    for kind in ["rc", "uc", "ud", "srq"]:
        yield pingpong(kind, PLACE, "plain", 300, 4096, "-c")
        yield pingpong(kind, PLACE, "events", 300, 1024, "-c", "-e")
    yield test("write_bw", PLACE, "one", 65536, 500)
    yield test("send_bw", PLACE, "both-ways", 4096, 500, "-b")
    for tool in ["send_lat", "read_bw"]:
        yield test(tool, PLACE, "cm", 4096, 500, "-R")
    yield connecting(
        "rping",
        ("-s", "-a", "{own}", "-C", 50, "-V"),
        ("-c", "-I", "{own}", "-a", "{server}", "-C", 50, "-V"),
    )
    for tool in ["ucmatose", "udaddy"]:
        yield connecting(
            tool, ("-b", "{own}", "-c", 10), ("-b", "{own}", "-s", "{server}", "-c", 10)
        )
    yield port_in_use()
    yield two_each()
    yield owner_killed()


def connecting(tool, server, client):
    return Case(
        f"{tool}/{PLACE}", PLACE, Program((tool, *client)), Program((tool, *server)), ready="cm"
    )


def port_in_use():
    """A port at an address belongs to one process, as with a kernel."""
    listen = "rping -s -a {own} -C 1"
    script = f"{listen} & first=$!; sleep 0.3; {listen}; status=$?; kill $first; exit $status"
    return Case(
        "sharing/taken",
        PLACE,
        Program(
            ("sh", "-c", script),
            ("rdma_bind_addr: Address already in use|rdma_listen: .*use",),
            status=None,
        ),
    )


def two_each():
    """Two pairs of programs between two hosts."""
    common = "ibv_rc_pingpong -d {device} -g {gid} -n 2000 -s 20000 -c"
    script = (
        f"{common} -p 18516 %s & first=$!; {common} %s & second=$!; wait $first && wait $second"
    )
    lines = (r"2000 iters in [\d.]+ seconds = [\d.]+ usec/iter",)
    client = Program(("sh", "-c", script % ("{server}", "{server}")), lines, FORBIDDEN)
    server = Program(("sh", "-c", script % ("", "")), lines, FORBIDDEN)
    return Case("sharing/hosts/two-each", "hosts", client, server, ready="tcp:18516")


def owner_killed():
    """The owner process of the address is killed, and the other program goes on."""
    common = "ibv_rc_pingpong -d {device} -g {gid} -s 4096"
    script = (
        f"{common} -p 18599 > /dev/null & first=$!; sleep 0.5; "
        f"{common} -n 20000 {{server}} & second=$!; sleep 0.5; kill -9 $first; wait $second"
    )
    lines = (r"20000 iters in [\d.]+ seconds = [\d.]+ usec/iter",)
    return Case(
        "sharing/hosts/first-ends",
        "hosts",
        Program(("sh", "-c", script), lines, FORBIDDEN),
        Program((*common.split(), "-n", 20_000), lines, FORBIDDEN),
    )
