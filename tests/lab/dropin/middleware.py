"""Libraries that are built on verbs: UCX, libfabric, Open MPI; and programs of our own that are compiled with stock headers."""

import os
import subprocess
from pathlib import Path

from casting import Case, Program
from lab import LabError

HERE = Path(__file__).resolve().parent
UCX_PORT = 13337


def middleware_cases():
    yield from tutorial()
    yield from ucx()
    yield from fabric()
    yield from mpi()


def build(directory):
    """Compiles our C programs with the stock headers and libraries; returns what the words of cases stand for."""
    built = {}
    for name, compiler, libraries in [
        ("tutorial", "gcc", ["-libverbs"]),
        ("allreduce", "mpicc", []),
        ("ucx_check", "gcc", ["-lucp", "-lucs"]),
    ]:
        target = directory / name
        done = subprocess.run(
            [compiler, "-Wall", "-Werror", "-O1", "-o", target, HERE / f"{name}.c", *libraries],
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
    # With UCX_TLS=rc_v it may use UD to find the peer, and so it must.
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
            yield performance(
                f"ucx/{transport}/loopback/{test}-{size}",
                allowed,
                "-t",
                test,
                "-s",
                size,
                "-n",
                count,
                "-w",
                10,
            )
        for test, layout in [("am_lat", "short"), ("am_bw", "bcopy"), ("am_bw", "zcopy")] + [
            ("put_lat", "short"),
            ("put_bw", "bcopy"),
            ("put_bw", "zcopy"),
            ("get", "zcopy"),
            ("fadd", "short"),
        ] * (transport == "rc_verbs"):
            size = 8 if layout == "short" else 2048
            yield performance(
                f"ucx/{transport}/loopback/uct-{test}-{layout}",
                allowed,
                "-t",
                test,
                "-D",
                layout,
                "-s",
                size,
                "-n",
                500,
                "-w",
                10,
                "-x",
                transport,
                "-d",
                "{device}:1",
            )


def ucx_environment(transport):
    return ("env", f"UCX_TLS={transport}", "UCX_NET_DEVICES={device}:1", "UCX_LOG_LEVEL=warn")


def performance(name, transport, *words):
    common = (*ucx_environment(transport), "ucx_perftest", "-f", *words)
    return Case(
        name,
        "loopback",
        Program((*common, "{server}"), (r"(.*Final:)?\s*\d+(\s+[\d.]+)+",), ("ERROR", "WARN")),
        Program(common[: -len(words)], never=("ERROR", "WARN")),
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
        yield Case(
            f"openmpi/{transport}/{place}/allreduce",
            place,
            Program(
                (
                    "mpirun",
                    "-n",
                    ranks,
                    "--oversubscribe",
                    "--allow-run-as-root",
                    "--mca",
                    "pml",
                    "ucx",
                    "--mca",
                    "osc",
                    "ucx",
                    "--mca",
                    "pml_ucx_tls",
                    "any",
                    "--mca",
                    "pml_ucx_devices",
                    "any",
                    "--mca",
                    "btl",
                    "^openib",
                    "--mca",
                    "orte_tmpdir_base",
                    "/tmp",
                    "-x",
                    f"UCX_TLS={transport}",
                    "-x",
                    "UCX_NET_DEVICES={device}:1",
                    "{allreduce}",
                ),
                (rf"{ranks} ranks, \d+ sums, all right",),
            ),
            seconds=60,
            sysfs=True,
        )
