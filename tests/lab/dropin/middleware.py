"""Software on top of verbs: UCX, libfabric, Open MPI; and C programs of our own, compiled with the
stock headers.
"""

import os
import subprocess
from pathlib import Path

from lab.dropin.case import Case, Program
from lab.host import LabError

SOURCES = Path(__file__).resolve().parent
UCX_PORT = 13337
UCT_TESTS = [("am_lat", "short"), ("am_bw", "bcopy"), ("am_bw", "zcopy")]
UCT_RC_TESTS = [
    *(("put_lat", "short"), ("put_bw", "bcopy"), ("put_bw", "zcopy")),
    *(("get", "zcopy"), ("fadd", "short")),
]
# Open MPI's components: UCX for everything.
MPI_PARAMETERS = {
    "pml": "ucx",
    "osc": "ucx",
    "pml_ucx_tls": "any",
    "pml_ucx_devices": "any",
    "btl": "^openib",
    "orte_tmpdir_base": "/tmp",
}


def middleware_cases():
    yield from tutorial()
    yield from ucx()
    yield from fabric()
    yield from mpi()


def build(directory):
    """Compiles our C programs; returns their paths by the words of command lines."""
    built = {}
    for name, compiler, libraries in [
        ("tutorial", "gcc", ["-libverbs"]),
        ("allreduce", "mpicc", []),
        ("ucx_check", "gcc", ["-lucp", "-lucs"]),
    ]:
        target = directory / name
        done = subprocess.run(
            [compiler, "-Wall", "-Werror", "-O1", "-o", target, SOURCES / f"{name}.c", *libraries],
            capture_output=True,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        if done.returncode != 0:
            raise LabError(f"{compiler} {name}.c:\n{done.stdout}{done.stderr}")
        built[name] = target
    return built


def tutorial():
    for place in ["loopback", "hosts"]:
        common = ("{tutorial}", "{device}", "{gid}")
        yield Case(
            f"tutorial/{place}",
            place,
            Program((*common, "{server}"), (r"the peer wrote 65536 bytes, all as they should be",)),
            Program(common, (r"the peer wrote 65536 bytes, all as they should be",)),
            "tcp:18516",
        )


def ucx():
    transports = (r"#\s+Transport: rc_verbs", r"#\s+Transport: ud_verbs")
    device = r"#\s+Device: roce_lo:1"
    yield Case("ucx/info", "alone", Program(("ucx_info", "-d"), (*transports, device)), sysfs=True)
    # With UCX_TLS=rc_v it uses UD to find the peer.
    for transport, allowed in [("rc_verbs", "rc_v"), ("ud_verbs", "ud_v")]:
        for place in ["loopback", "hosts"]:
            environment = ucx_environment(allowed)
            common = (*environment, "{ucx_check}")
            yield Case(
                f"ucx/{transport}/{place}/checked",
                place,
                Program((*common, "{server}"), (r"\d+ messages and \d+ puts, all right",)),
                Program(common, (r"\d+ messages and \d+ puts, all right",)),
                "tcp:18517",
                60,
                sysfs=True,
            )
        for test, size, count in [
            ("tag_lat", 8, 2000),
            ("tag_lat", 4096, 1000),
            ("tag_bw", 65536, 500),
            ("tag_bw", 1_000_000, 50),
            ("ucp_put_lat", 8, 1000),
            ("ucp_put_bw", 65536, 500),
            ("ucp_get", 65536, 200),
            ("stream_bw", 4096, 500),
            ("ucp_am_bw", 4096, 500),
            ("ucp_fadd", 8, 200),
        ]:
            options = ("-t", test, "-s", size, "-n", count, "-w", 10)
            yield performance(f"ucx/{transport}/loopback/{test}-{size}", allowed, *options)
        for test, layout in UCT_TESTS + UCT_RC_TESTS * (transport == "rc_verbs"):
            size = 8 if layout == "short" else 2048
            options = ("-t", test, "-D", layout, "-s", size, "-n", 500, "-w", 10)
            options += ("-x", transport, "-d", "{device}:1")
            name = f"ucx/{transport}/loopback/uct-{test}-{layout}"
            yield performance(name, allowed, *options)


def ucx_environment(transport):
    return ("env", f"UCX_TLS={transport}", "UCX_NET_DEVICES={device}:1", "UCX_LOG_LEVEL=warn")


def performance(name, transport, *words):
    common = (*ucx_environment(transport), "ucx_perftest", "-f", *words)
    return Case(
        name,
        "loopback",
        Program((*common, "{server}"), (r"(.*Final:)?\s*\d+(\s+[\d.]+)+",), ("ERROR", "WARN")),
        Program(common[: -len(words)], forbidden=("ERROR", "WARN")),
        f"tcp:{UCX_PORT}",
        60,
        sysfs=True,
    )


def fabric():
    yield Case(
        "libfabric/fi_info",
        "alone",
        Program(("fi_info", "-p", "verbs"), (r"domain: roce_eth0.*", "provider: verbs")),
    )
    for endpoint in ["msg", "rdm"]:
        common = ("fi_pingpong", "-p", "verbs", "-e", endpoint, "-c", "-I", 50)
        row = r"(1m|1048576|64k|65536)\s+\d+\s.*"
        for place in ["hosts", "shared"]:
            yield Case(
                f"libfabric/fi_pingpong/{endpoint}/{place}",
                place,
                Program((*common, "{server}"), (row,)),
                Program(common, (row,)),
                "tcp:47592",
                seconds=60,
            )


def mpi():
    for transport, place, ranks in [
        ("rc_v", "loopback", 2),
        ("ud_v", "loopback", 2),
        ("rc_v", "shared", 4),
        ("ud_v", "shared", 4),
    ]:
        launch = open_mpi(ranks, [f"UCX_TLS={transport}", "UCX_NET_DEVICES={device}:1"])
        yield Case(
            f"openmpi/{transport}/{place}/allreduce",
            place,
            Program((*launch, "{allreduce}"), (rf"{ranks} ranks, \d+ sums, all right",)),
            seconds=60,
            sysfs=True,
        )


def open_mpi(ranks, variables):
    """Command line that starts the ranks of a program, with variables of their environment."""
    argv = ["mpirun.openmpi", "-n", ranks, "--oversubscribe", "--allow-run-as-root"]
    for name, value in MPI_PARAMETERS.items():
        argv += ["--mca", name, value]
    for variable in variables:
        argv += ["-x", variable]
    return argv
