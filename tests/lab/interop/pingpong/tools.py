"""The two pingpong tools: their command lines and their output.

The stock tools with -c set only the first byte of every 4096 to zero (the rest is 0x7b). Only the
server checks, once, after the last message; it prints `invalid data in page N` and exits with 0.
Their server listens on 0.0.0.0 alone, so our client reaches it by IPv4 whatever the GIDs are. Each
side writes its address (52 bytes, the last one zero) at once and reads the other's with one `read`;
the client ends with the five bytes `done` and zero.
"""

import re

from lab.namespaces import HOST_IPV4, HOST_IPV6

PORT = 18515  # both tools' default


def our_command(binary, case, network, guest, pcap):
    argv = [binary, "pingpong", case.kind]
    if case.role == "client":
        # The exchange over TCP is independent of the GIDs in it.
        argv.append(network.tcp_addresses(guest, our_address(case))[1])
    argv += ["-d", network.device(our_address(case)), "-m", case.mtu, "-s", case.size]
    argv += ["-n", case.iterations, "-c"]
    if case.events:
        argv.append("-e")
    for rule in case.faults:
        argv += ["--fault", rule]
    if case.capture:
        argv += ["--pcap", pcap]
    return [str(a) for a in argv]


def stock_command(case, network, guest):
    index = guest.gids()[guest_address(case, guest)]
    argv = [f"ibv_{case.kind}_pingpong", "-d", "rxe0", "-g", index]
    if case.kind != "ud":
        argv += ["-m", case.mtu]
    argv += ["-s", case.size, "-n", case.iterations, "-c"]
    if case.role == "server":
        argv.append(network.tcp_addresses(guest, our_address(case))[0])
    return [str(a) for a in argv]


def our_address(case):
    return HOST_IPV4 if case.family == "ipv4" else HOST_IPV6


def guest_address(case, guest):
    return guest.address(case.family)


def output_problems(label, case, output):
    """Problems of the output of a tool that ended with status 0."""
    number = r"\d+\.\d\d"
    total = case.size * case.iterations * 2
    wanted = [
        rf"{total} bytes in {number} seconds = {number} Mbit/sec",
        rf"{case.iterations} iters in {number} seconds = {number} usec/iter",
    ]
    problems = [
        f"{label} did not print a line like: {line}"
        for line in wanted
        if not re.search(f"^{line}$", output, re.MULTILINE)
    ]
    # The stock tool prints this and still exits with 0.
    if "invalid data" in output:
        problems.append(f"{label} received invalid data")
    return problems


def refusal_problems(case, status, stderr):
    """Problems of our tool's answer to a UD message that does not fit into one packet."""
    problems = []
    if status != 1:
        problems.append(f"exit status {status}, wanted 1")
    lines = stderr.splitlines()
    if len(lines) != 1:
        problems.append(f"{len(lines)} lines on standard error, wanted 1")
    elif not {str(case.size), str(case.mtu)} <= set(re.findall(r"\d+", lines[0])):
        problems.append(f"the error does not name the size {case.size} and the MTU {case.mtu}")
    return problems
