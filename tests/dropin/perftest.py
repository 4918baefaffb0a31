"""The perftest suite: that every kind of test, of connection and of queue runs to its end and tells of every size."""

from casting import Case, Program

SIZES = [2 ** power for power in range(1, 24)]
NEVER = ("Failed", "Couldn't", "Unable", "Completion with error", "Problems", "error 1", "Conflicting")
TOOLS = [f"{verb}_{what}" for verb in ["write", "read", "send", "atomic"] for what in ["bw", "lat"]]


def perftest_cases():
    for tool in TOOLS:
        yield from of_tool(tool)
    for service, tools in {"UC": ["write_bw", "write_lat", "send_bw", "send_lat"], "UD": ["send_bw", "send_lat"],
                           "XRC": ["write_bw", "send_bw", "read_bw", "atomic_bw", "write_lat", "send_lat"]}.items():
        for tool in tools:
            yield test(tool, "loopback", service.lower(), 1024, 500, "-c", service)
    yield test("send_bw", "loopback", "ud-inline-pairs", 64, 500, "-c", "UD", "-I", 64, "-q", 4)
    yield test("write_bw", "loopback", "mtu256", 65536, 100, "-m", 256)
    yield test("write_bw", "loopback", "post-list", 64, 512, "-l", 32)
    yield test("write_bw", "loopback", "old-post-send", 4096, 500, "--use_old_post_send")
    yield test("write_bw", "loopback", "on-demand", 65536, 100, "--odp")
    yield test("write_bw", "loopback", "cm-regular-pairs", 4096, 500, "-z")
    yield test("write_bw", "hosts", "two-hosts", 65536, 500)
    yield test("write_bw", "hosts", "ipv6", 65536, 500, "--ipv6")
    yield test("send_bw", "hosts", "multicast", 1024, 500, "-c", "UD", "-g")
    yield from against_rxe()


def of_tool(tool):
    bandwidth, atomic = tool.endswith("bw"), tool.startswith("atomic")
    if not atomic:
        yield test(tool, "loopback", "all", SIZES, 20, "-a")
    size = 8 if atomic else 4096
    words = [] if atomic else ["-s", size]
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


def against_rxe():
    for place in ["rxe-client", "rxe-server"]:
        for tool in TOOLS:
            yield test(tool, place, "one", 8 if tool.startswith("atomic") else 4096, 50)
        for tool in ["write_bw", "send_lat", "read_bw", "atomic_lat"]:
            yield test(tool, place, "cm", 8 if tool.startswith("atomic") else 4096, 50, "-R")
        yield test("send_bw", place, "ud", 1024, 50, "-c", "UD")
        yield test("write_bw", place, "uc", 4096, 50, "-c", "UC")
        yield test("send_bw", place, "events", 4096, 50, "-e")
        yield test("send_bw", place, "srq", 4096, 50, "--use-srq")
        yield test("write_bw", place, "16-pairs-both-ways", 4096, 10, "-q", 16, "-b")
        yield test("write_bw", place, "inline", 64, 50, "-I", 64)


def test(tool, place, name, size, count, *words):
    """A row for each size, at both ends where both measure."""
    sizes = size if isinstance(size, list) else [size]
    sized = () if isinstance(size, list) or tool.startswith("atomic") else ("-s", size)
    common = (f"ib_{tool}", "-d", "{device}", "-x", "{gid}", "-F", "-n", count, *sized, *words)
    rows = tuple(rf"{size}\s+\d+(\s+[\d.]+)+" for size in sizes)
    both = tool.startswith("send") or "-b" in words or tool == "write_lat"
    return Case(f"perftest/{tool}/{place}/{name}", place, Program((*common, "{server}"), rows, NEVER),
                Program(common, rows if both else (), NEVER), ready="cm" if "-R" in words or "-z" in words else "tcp:18515", seconds=60)
