"""Several programs with one address."""

from casting import Case, Program
from examples import NEVER, pingpong
from perftest import test

HERE = "shared"  # one host, both programs with the device of its network


def sharing_cases():
    for kind in ["rc", "uc", "ud", "srq"]:
        yield pingpong(kind, HERE, "plain", 300, 4096, "-c")
        yield pingpong(kind, HERE, "events", 300, 1024, "-c", "-e")
    yield test("write_bw", HERE, "one", 65536, 500)
    yield test("send_bw", HERE, "both-ways", 4096, 500, "-b")
    for tool in ["send_lat", "read_bw"]:
        yield test(tool, HERE, "cm", 4096, 500, "-R")
    yield connecting(
        "rping",
        ("-s", "-a", "{own}", "-C", 50, "-V"),
        ("-c", "-I", "{own}", "-a", "{server}", "-C", 50, "-V"),
    )
    for tool in ["ucmatose", "udaddy"]:
        yield connecting(
            tool, ("-b", "{own}", "-c", 10), ("-b", "{own}", "-s", "{server}", "-c", 10)
        )
    yield taken()
    yield two_each()
    yield first_ends()


def connecting(tool, server, client):
    return Case(
        f"{tool}/{HERE}", HERE, Program((tool, *client)), Program((tool, *server)), ready="cm"
    )


def taken():
    """A port is one process's at an address, as with a kernel."""
    listen = "rping -s -a {own} -C 1"
    script = f"{listen} & first=$!; sleep 0.3; {listen}; status=$?; kill $first; exit $status"
    return Case(
        "sharing/taken",
        HERE,
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
    says = (r"2000 iters in [\d.]+ seconds = [\d.]+ usec/iter",)
    client, server = (
        Program(("sh", "-c", script % (words, words)), says, NEVER) for words in ["{server}", ""]
    )
    return Case("sharing/hosts/two-each", "hosts", client, server, ready="tcp:18516")


def first_ends():
    """The program that receives for both is killed, and the other goes on."""
    common = "ibv_rc_pingpong -d {device} -g {gid} -s 4096"
    script = (
        f"{common} -p 18599 > /dev/null & first=$!; sleep 0.5; {common} -n 20000 {{server}} & second=$!; "
        "sleep 0.5; kill -9 $first; wait $second"
    )
    says = (r"20000 iters in [\d.]+ seconds = [\d.]+ usec/iter",)
    return Case(
        "sharing/hosts/first-ends",
        "hosts",
        Program(("sh", "-c", script), says, NEVER),
        Program((*common.split(), "-n", 20_000), says, NEVER),
    )
