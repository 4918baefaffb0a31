"""Connections and datagram services of our tools with the stock ones, also with lost messages.

`rping` exits after its DREQ, and the kernel repeats none for an id that is gone: if it is lost,
the peer never learns of the end. `rping` destroys its event channel while a thread waits on it,
and sometimes exits with 255 after a complete exchange. Its server writes back up to the first
zero byte only. The kernel sends a REQ or SIDR_REQ 16 times, for about 100 s. It refuses a
connected queue pair's REQ as stale (10) only if the communication id differs. `ucmatose` rejects
surplus connections (28). The rxe of 6.12 sends the first of several multicast datagrams, and
reports success for all.
"""

import re

from lab.interop.cm.case import FAMILIES, GROUP, ROLES, RPING, CmCase, ping_text


def rping(kernel):
    for role in ROLES:
        for family in FAMILIES:
            for size, count in [(64, 50), (65000, 3), (65000, 50)]:
                if family == "ipv6" and count == 50:
                    continue
                yield rping_case(kernel, role, family, size, count, f"size{size}-count{count}")


def rping_case(kernel, role, family, size, count, variant, **more):
    server = "{host}" if role == "server" else "{guest}"
    show = ["-v"] if size < 1000 else []
    both = ["-a", server, "-C", str(count), "-S", str(size), "-V", *show]
    ours, stock = ("-s", "-c") if role == "server" else ("-c", "-s")
    shown = [re.escape(ping_text(number, size)) for number in range(count)] if show else []
    by_client = tuple(f"ping data: {text}" for text in shown)
    by_server = (*(f"server {line}" for line in by_client), "server DISCONNECT EVENT...")
    ours_lines, stock_lines = (by_server, by_client) if role == "server" else (by_client, by_server)
    return CmCase(
        kernel,
        "rping",
        role,
        family,
        variant,
        ("rping", ours, *both),
        (RPING, stock, *both),
        ours_lines,
        stock_lines,
        **more,
    )


def ucmatose(kernel):
    """Connections at the same time; the server sends, the client answers, the server ends them."""
    done = ("data transfers complete", "test complete", "return status 0")
    for role in ROLES:
        for family in FAMILIES:
            variants = [
                ("one", ["-C", "10", "-S", "100"]),
                ("migrate", ["-c", "5", "-C", "20", "-S", "9001", "-m"]),
            ]
            if family == "ipv4":
                variants.append(("64-at-once", ["-c", "64", "-C", "2"]))
            for variant, options in variants:
                server = ("ucmatose", *options, "-b", "{host}" if role == "server" else "{guest}")
                client = ("ucmatose", *options, "-s", "{guest}" if role == "client" else "{host}")
                ours, stock = (server, client) if role == "server" else (client, server)
                yield CmCase(kernel, "ucmatose", role, family, variant, ours, stock, done, done)


def udaddy(kernel):
    """Datagram services, found by SIDR."""
    done = ("data transfers complete", "test complete", "return status 0")
    for role in ROLES:
        for family in FAMILIES:
            for variant, options in [
                ("one", ["-C", "10"]),
                ("four", ["-c", "4", "-C", "5", "-S", "1000"]),
            ]:
                server = ("udaddy", *options, "-b", "{host}" if role == "server" else "{guest}")
                client = ("udaddy", *options, "-s", "{guest}" if role == "client" else "{host}")
                ours, stock = (server, client) if role == "server" else (client, server)
                yield CmCase(kernel, "udaddy", role, family, variant, ours, stock, done, done)


def mckey(kernel):
    """Multicast; the server receives.

    For IPv6 groups the kernel's rdma_cm returns "not supported" (524) on RoCE v2. The rxe of 6.12
    puts the first of several datagrams on the wire and reports success for all.
    """
    done = ("data transfers complete", "test complete", "return status 0")
    for role in ROLES:
        count = "1" if (kernel, role) == ("6.12", "server") else "10"
        ours, stock = (
            ("mckey", "-m", GROUP, "-b", own, "-C", count) for own in ["{host}", "{guest}"]
        )
        ours, stock = (ours, (*stock, "-s")) if role == "server" else ((*ours, "-s"), stock)
        yield CmCase(kernel, "mckey", role, "ipv4", f"count{count}", ours, stock, done, done)


def samples(kernel):
    """Our examples against librdmacm's own: one connection, one message each way."""
    for role in ROLES:
        address = "{host}" if role == "server" else "{guest}"
        ours = ("sh", "-c", f"{{examples}}/cm_{role}" + ("" if role == "server" else " {guest}"))
        stock = ("rdma_client", "-s", address) if role == "server" else ("rdma_server",)
        lines = ('received ".*"', "done")
        yield CmCase(
            kernel,
            "rdma_" + ("client" if role == "server" else "server"),
            role,
            "ipv4",
            "one",
            ours,
            stock,
            lines,
            ("rdma_client: end 0" if role == "server" else "rdma_server: end 0",),
            host_devices=True,
        )


def losses(kernel):
    """Each message of connection management is lost once; then each comes twice.

    A stock client exits without repeating its DREQ: if that is lost, the server never learns of the
    end.
    """
    by_client, by_server = ["req", "rtu", "dreq"], ["rep", "drep"]
    for role in ROLES:
        client, server = ("{host}", "{guest}") if role == "client" else ("{guest}", "{host}")
        lost = [
            (name, sender, nth)
            for sender, names in [(client, by_client), (server, by_server)]
            for nth, name in enumerate(names, 1)
            if (role, name) != ("server", "dreq")
        ]
        for name, sender, nth in lost:
            rule = f"drop qp 1 from {sender} nth {nth}"
            yield rping_case(kernel, role, "ipv4", 64, 3, f"{name}-lost", faults=(rule,))
        yield rping_case(kernel, role, "ipv4", 64, 3, "each-twice", faults=("duplicate qp 1",))


def in_a_row(kernel):
    """One server, many connections, each by a program of its own."""
    line = f"ping data: {re.escape(ping_text(0, 64))}"
    stock = ("env", "TIMES=100", RPING, "-c", "-C", "1", "-V", "-a", "{host}")
    yield CmCase(
        kernel,
        "rping",
        "server",
        "ipv4",
        "100-in-a-row",
        ("rping", "-s", "-P", "-v"),
        stock,
        (f"server {line}",) * 100,
        endless=True,
    )
    client = "{roce} rping -c -C 1 -V -v -a {guest} --device {device}"
    ours = ("sh", "-c", f"for number in $(seq 200); do {client} || exit; done")
    yield CmCase(
        kernel,
        "rping",
        "client",
        "ipv4",
        "200-in-a-row",
        ours,
        ("rping", "-s", "-P"),
        (line,) * 200,
        endless=True,
        opens=200,
    )
