"""Connections that fail: refused, not answered, or with a side that is killed."""

import re

from lab.interop.cm.case import RPING, CmCase, ping_text

# No host has it.
UNUSED_ADDRESS = "10.77.0.99"


def refusals(kernel):
    rejected = "RDMA_CM_EVENT_REJECTED, error"
    ping = ("rping", "-c", "-C", "1", "-a")
    yield CmCase(
        kernel,
        "rping",
        "client",
        "ipv4",
        "no-listener",
        (*ping, "{guest}"),
        (),
        (f".*{rejected} 8: .*",),
        ours_status=1,
        alone=True,
    )
    # Our device is open, but the listener is on another port.
    yield CmCase(
        kernel,
        "rping",
        "server",
        "ipv4",
        "no-listener",
        ("ucmatose",),
        (*ping, "{host}"),
        stock_lines=(f"cma event {rejected} 8",),
        stock_status=None,
        endless=True,
    )
    unknown = ("udaddy", "-s")
    yield CmCase(
        kernel,
        "udaddy",
        "client",
        "ipv4",
        "no-listener",
        (*unknown, "{guest}"),
        (),
        (".*RDMA_CM_EVENT_UNREACHABLE, error 1: .*",),
        ours_status=1,
        alone=True,
    )
    yield CmCase(
        kernel,
        "udaddy",
        "server",
        "ipv4",
        "no-listener",
        ("ucmatose",),
        (*unknown, "{host}"),
        stock_lines=("udaddy: event: RDMA_CM_EVENT_UNREACHABLE, error: 1",),
        stock_status=None,
        endless=True,
    )
    # The server accepts one connection less.
    few, many = ("ucmatose", "-C", "0", "-c", "2"), ("ucmatose", "-C", "0", "-c", "3", "-s")
    yield CmCase(
        kernel,
        "ucmatose",
        "client",
        "ipv4",
        "consumer-reject",
        (*many, "{guest}"),
        few,
        (f".*{rejected} 28: .*",),
        ours_status=1,
        endless=True,
    )
    yield CmCase(
        kernel,
        "ucmatose",
        "server",
        "ipv4",
        "consumer-reject",
        few,
        (*many, "{host}"),
        stock_lines=("cmatose: event: RDMA_CM_EVENT_REJECTED, error: 28",),
        stock_status=None,
        endless=True,
    )


def killed(kernel):
    """Programs that are killed while they are busy."""
    # The kernel disconnects for a program that has ended; but the program's memory goes first, so
    # that a READ under way may fail before.
    server, client = (
        ("rping", "-s", "-a", "{host}"),
        ("timeout", "-s", "KILL", "5", "rping", "-c", "-a", "{host}"),
    )
    yield CmCase(
        kernel,
        "rping",
        "server",
        "ipv4",
        "client-killed",
        server,
        client,
        (r"server DISCONNECT EVENT\.\.\.|.*: remote (access|operation) error: .*",),
        ours_status=None,
        stock_status=137,
    )

    # Ours is killed, and a new process with its address connects. The kernel is not told, and still
    # waits for the old one.
    ping = "{roce} rping -c -a {guest} --device {device}"
    again = ("sh", "-c", f"timeout -s KILL 1 {ping} -C 1000000; {ping} -C 3 -V -v")
    yield CmCase(
        kernel,
        "rping",
        "client",
        "ipv4",
        "killed-and-started-anew",
        again,
        ("rping", "-s", "-P", "-a", "{guest}"),
        tuple(f"ping data: {re.escape(ping_text(number, 64))}" for number in range(3)),
        endless=True,
    )


def no_response(kernel):
    """No answer of ours: no request arrives, or no reply leaves, and ours gives up, too."""
    gives_up = "RDMA_CM_EVENT_UNREACHABLE, error"
    ping = (RPING, "-c", "-C", "1", "-a", "{host}")
    yield CmCase(
        kernel,
        "rping",
        "server",
        "ipv4",
        "unheard-request",
        ("rping", "-s"),
        ping,
        (),
        (f"cma event {gives_up} -110",),
        stock_status=None,
        faults=("drop qp 1 from {guest}",),
        endless=True,
        slow=True,
    )
    # It listens on: else a program that opens every device meanwhile would answer for this address.
    yield CmCase(
        kernel,
        "rping",
        "server",
        "ipv4",
        "unheard-reply",
        ("rping", "-s", "-P"),
        ping,
        (f".*{gives_up} -110: .*",),
        (f"cma event {gives_up} -110",),
        stock_status=None,
        faults=("drop qp 1 from {host}",),
        endless=True,
        slow=True,
    )
    yield CmCase(
        kernel,
        "udaddy",
        "server",
        "ipv4",
        "unheard-request",
        ("udaddy",),
        ("udaddy", "-s", "{host}"),
        (),
        (f"udaddy: event: {gives_up}: -110",),
        stock_status=None,
        faults=("drop qp 1 from {guest}",),
        endless=True,
        slow=True,
    )


def unreachable(kernel):
    """An address that no host has: the request is repeated to the end. The guest is idle."""
    return CmCase(
        kernel,
        "rping",
        "client",
        "ipv4",
        "unreachable",
        ("rping", "-c", "-C", "1", "-a", UNUSED_ADDRESS),
        (),
        (".*RDMA_CM_EVENT_UNREACHABLE, error -110: .*",),
        ours_status=1,
        alone=True,
        slow=True,
    )
