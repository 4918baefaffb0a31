"""The perftest suite: every kind of test, connection and queue runs to its end.

Servers print rows only where they measure too: for `send`, `-b` and `write_lat`. perftest compares
a clock with the processor's at its start; if they disagree it prints `inf` for every latency, and
such a round does not count. A UC or UD packet lost in a full socket makes the server wait forever,
hence no `send_bw -c UC -a`. The default group of `-g` is of interface-local scope; `-M` names
another.
"""

from dataclasses import replace

from lab.dropin.case import SOCKETS, Case, Program

SIZES = [2**power for power in range(1, 24)]
DATAGRAMS = SIZES[:12]
# A result. Latencies may be no numbers: the tool compares a clock with the processor's, and where
# that is emulated, or busy, it may find that they disagree.
NUMBER = r"([\d.]+|inf|-?nan)"
FORBIDDEN = (
    *("Failed", "Couldn't", "Unable", "Completion with error"),
    *("Problems", "error 1", "Conflicting"),
)
# Groups in the form of the tool: sixteen bytes.
GROUP_IPV4 = "0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3"
GROUP_IPV6 = "255:14:0:0:0:0:0:0:0:0:0:0:0:0:1:35"
LINK_LOCAL = 0  # its GID index
TOOLS = [f"{verb}_{what}" for verb in ["write", "read", "send", "atomic"] for what in ["bw", "lat"]]


def perftest_cases():
    for tool in TOOLS:
        yield from of_tool(tool)
    for service, tools in {
        "UC": ["write_bw", "write_lat", "send_bw", "send_lat"],
        "UD": ["send_bw", "send_lat"],
        "XRC": ["write_bw", "send_bw", "read_bw", "atomic_bw", "write_lat", "send_lat"],
    }.items():
        for tool in tools:
            size = 8 if tool.startswith("atomic") else 1024
            yield test(tool, "loopback", service.lower(), size, 500, "-c", service)
    yield from unreliable()
    yield test("write_bw", "loopback", "mtu256", 65536, 100, "-m", 256)
    yield test("write_bw", "loopback", "post-list", 64, 512, "-l", 32)
    yield test("write_bw", "loopback", "old-post-send", 4096, 500, "--use_old_post_send")
    yield test("write_bw", "loopback", "on-demand", 65536, 100, "--odp")
    yield test("write_bw", "loopback", "cm-regular-pairs", 4096, 500, "-z")
    for tool in ["write_bw", "read_bw", "send_bw", "send_lat"]:
        yield replace(test(tool, "loopback", "sockets", 4096, 500), variables=SOCKETS)
        yield test(tool, "hosts", "two-hosts", 65536, 500)
    yield test("write_bw", "hosts", "ipv6", 65536, 500, "--ipv6")
    # Over the wire, with a group that leaves the host: the tool's own has an interface's scope.
    multicast = ("-c", "UD", "-g", "-M")
    yield test("send_bw", "hosts", "multicast-ipv4", 1024, 500, *multicast, GROUP_IPV4)
    link_local = (GROUP_IPV6, "-x", LINK_LOCAL)
    yield test("send_bw", "hosts", "multicast-ipv6", 1024, 500, *multicast, *link_local)
    yield from raw_packets()
    yield from against_rxe()


def of_tool(tool):
    bandwidth, atomic = tool.endswith("bw"), tool.startswith("atomic")
    if not atomic:
        # In cycles: for times the tool measures the processor's clock for each row, of latency for
        # half a second.
        yield test(tool, "loopback", "all", SIZES, 20, "-a", *([] if bandwidth else ["-C"]))
    size = 8 if atomic else 4096
    yield test(tool, "loopback", "one", size, 1000)
    yield test(tool, "loopback", "cm", size, 500, "-R")
    if not tool.startswith("write"):
        yield test(tool, "loopback", "events", size, 500, "-e")
    if not (tool.startswith("read") or atomic):
        yield test(tool, "loopback", "inline", 64, 500, "-I", 64)
    if tool.startswith("send"):
        yield test(tool, "loopback", "srq", size, 500, "--use-srq")
    if atomic:
        yield test(tool, "loopback", "compare-swap", size, 500, "-A", "CMP_AND_SWAP")
    if bandwidth:
        yield test(tool, "loopback", "both-ways", size, 500, "-b")
        yield test(tool, "loopback", "16-pairs", size, 100, "-q", 16)
        yield test(tool, "loopback", "16-pairs-both-ways", size, 50, "-q", 16, "-b")
        yield test(tool, "hosts", "cm", size, 500, "-R")


def unreliable():
    """UC and UD, with no more at once than a socket holds: a receiver that is late would lose the
    rest, and wait for it for ever.
    """
    yield test("write_bw", "loopback", "uc-all", SIZES, 20, "-c", "UC", "-a")
    for tool in ["write_bw", "send_bw"]:
        yield test(tool, "loopback", "uc-both-ways", 4096, 200, "-c", "UC", "-b")
        yield test(tool, "loopback", "uc-16-pairs-both-ways", 4096, 10, "-c", "UC", "-q", 16, "-b")
        yield test(tool, "loopback", "uc-inline", 64, 500, "-c", "UC", "-I", 64)
    yield test("send_bw", "loopback", "uc-events", 4096, 200, "-c", "UC", "-e")
    yield test("send_bw", "loopback", "uc-srq", 4096, 200, "-c", "UC", "--use-srq")
    yield test("send_bw", "loopback", "ud-all", DATAGRAMS, 20, "-c", "UD", "-a")
    yield test("send_bw", "loopback", "ud-both-ways", 1024, 500, "-c", "UD", "-b")
    yield test("send_bw", "loopback", "ud-16-pairs", 1024, 50, "-c", "UD", "-q", 16)
    yield test("send_bw", "loopback", "ud-inline-pairs", 64, 500, "-c", "UD", "-I", 64, "-q", 4)
    for tool in ["send_bw", "send_lat"]:
        yield test(tool, "loopback", "ud-events", 1024, 500, "-c", "UD", "-e")
        yield test(tool, "loopback", "ud-cm", 1024, 500, "-c", "UD", "-R")
    yield test("send_bw", "loopback", "ud-srq", 1024, 500, "-c", "UD", "--use-srq")


def raw_packets():
    """Whole frames between raw devices. raw_ethernet_burst_lat wants a rate limit of hardware."""
    ipv4 = ("-J", "10.0.0.2", "-j", "10.0.0.1", "-K", 5000, "-k", 6000)
    ipv6 = ("--raw_ipv6", "-J", "fd00::2", "-j", "fd00::1", "-K", 5000, "-k", 6000)
    for name, size, words in [
        ("mac", 1024, ()),
        ("longest", 1500, ()),
        ("inline", 64, ("-I", 64)),
        ("both-ways", 512, ("-b",)),
        ("udp-ipv4", 512, ipv4),
        ("tcp-ipv4", 512, (*ipv4, "--tcp")),
        ("udp-ipv6", 512, ipv6),
        ("vlan", 512, ("--vlan_en", "--vlan_pcp", 3)),
        ("promiscuous", 512, ("--promiscuous",)),
    ]:
        yield raw("bw", name, size, 300, *words)
    yield raw("lat", "mac", 64, 300)
    yield raw("lat", "udp-ipv4", 512, 300, *ipv4)
    argv = ("raw_ethernet_fs_rate", "--server", "-d", "{device}", "-B", "{mac}", "-E", "{peer_mac}")
    rate = Program((*argv, "-n", 200), (rf"200\s+{NUMBER}.*",), FORBIDDEN)
    yield Case("perftest/raw_ethernet_fs_rate/raw/flows", "raw", rate, seconds=90)


def raw(tool, name, size, count, *words):
    common = (f"raw_ethernet_{tool}", "-d", "{device}", "-B", "{mac}", "-E", "{peer_mac}", "-F")
    common += ("-n", count, "-s", size, *words)
    row = (rf"{size}\s+\d+(\s+{NUMBER})+",)
    return Case(
        f"perftest/raw_ethernet_{tool}/raw/{name}",
        "raw",
        Program((*common, "--client"), row, FORBIDDEN),
        Program((*common, "--server"), row, FORBIDDEN),
        ready="flow",
        seconds=90,
    )


def against_rxe():
    # All sizes take long in the emulated guest: one tool in each direction. A lost part of a long
    # READ is requested again, and arrives behind everything that rxe has under way, hence the
    # longer timeout.
    for place, all_sizes in {"rxe-client": "write_bw", "rxe-server": "read_bw"}.items():
        for tool in TOOLS:
            yield test(tool, place, "one", 8 if tool.startswith("atomic") else 4096, 50)
        for tool in ["write_bw", "send_lat", "read_bw", "atomic_lat"]:
            yield test(tool, place, "cm", 8 if tool.startswith("atomic") else 4096, 50, "-R")
        yield test(all_sizes, place, "all", SIZES, 5, "-a", "-u", 18)
        for tool in ["write_bw", "send_bw", "read_bw", "atomic_bw"]:
            size = 8 if tool.startswith("atomic") else 4096
            yield test(tool, place, "16-pairs-both-ways", size, 10, "-q", 16, "-b")
        for tool in ["write_bw", "send_lat"]:
            yield test(tool, place, "inline", 64, 50, "-I", 64)
            yield test(tool, place, "uc", 4096, 50, "-c", "UC")
        for tool in ["send_bw", "send_lat"]:
            yield test(tool, place, "ud", 1024, 50, "-c", "UD")
        for tool in ["send_bw", "read_bw"]:
            yield test(tool, place, "events", 4096, 50, "-e")
        yield test("send_bw", place, "srq", 4096, 50, "--use-srq")
        # with the timeout that the tool has by default, 67 ms
        for name, size, count in [("8-mib", 1 << 23, 10), ("64-mib", 1 << 26, 5)]:
            # on a busy machine the emulated guest takes minutes for 320 MiB
            yield replace(test("read_bw", place, name, size, count), seconds=300)
        for tool in ["write_bw", "read_bw", "send_bw"]:
            yield test(tool, place, "64-pairs", 4096, 10, "-q", 64)
    # we send
    write_only = test("write_bw", "rxe-server", "write-only-packets", 16384, 50)
    yield replace(write_only, variables=("ROCE_WRITE_ONLY_PACKETS=16",))


def test(tool, place, name, size, count, *words):
    """A case that wants a row for each size, of both programs where both measure."""
    sizes = size if isinstance(size, list) else [size]
    sized = () if isinstance(size, list) or tool.startswith("atomic") else ("-s", size)
    common = (f"ib_{tool}", "-d", "{device}", "-x", "{gid}", "-F", "-n", count, *sized, *words)
    rows = tuple(rf"{size}\s+\d+(\s+{NUMBER})+" for size in sizes)
    both = tool.startswith("send") or "-b" in words or tool == "write_lat"
    return Case(
        f"perftest/{tool}/{place}/{name}",
        place,
        Program((*common, "{server}"), rows, FORBIDDEN),
        Program(common, rows if both else (), FORBIDDEN),
        ready="cm" if "-R" in words or "-z" in words else "tcp:18515",
        seconds=90,
    )
