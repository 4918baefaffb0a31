"""valkey's module for RDMA, which Debian does not build, and its test: clients that set values,
have the server fork to save them, and compare what they get.
"""

import shutil
from functools import partial

from lab.dropin.case import Case, Program
from lab.host import output_of
from lab.programs.trial import trials
from lab.requirements import DebianSource

PACKAGES = ["make", "gcc", "libc6-dev", "pkg-config", "libibverbs-dev", "librdmacm-dev"]


def build_valkey(tree, target):
    fast = ["OPTIMIZATION=-O1", "MALLOC=libc", "CFLAGS=-w"]
    programs = ["valkey-server", "valkey-rdma.so"]
    output_of(["make", "-C", tree / "src", "-j2", "BUILD_RDMA=module", *fast, *programs])
    output_of(["make", "-C", tree / "tests" / "rdma"])
    for program in [*(tree / "src" / name for name in programs), tree / "tests/rdma/rdma-test"]:
        shutil.copy(program, target)


VALKEY = DebianSource(
    "valkey",
    "8.1.1+dfsg1",
    "d9bbd82eecb82f359e649a0007ad3dc1b47cc15afa626348ca86b73c4ae2c7ee",
    PACKAGES,
    build_valkey,
)


def valkey_trials():
    for threads in [1, 4]:
        make = partial(case, threads=threads)
        name = f"valkey/rdma-test-{threads}"
        yield from trials(name, VALKEY.name, make, None, large=True, source=VALKEY)


def case(name, place, tcp, threads):
    client = ("{valkey}/rdma-test", "-h", "{server}", "-t", threads, "-m", 1000, "-M", 3000)
    server = ("{valkey}/valkey-server", "--port", 0, "--protected-mode", "no", "--dir", "/tmp")
    module = ("--loadmodule", "{valkey}/valkey-rdma.so", "--rdma-bind", "{own}")
    lines = (r".*Ready to accept connections.*",)
    server = Program((*server, *module, "--rdma-port", 6379), lines, endless=True)
    client = Program(client, (r"Valkey Over RDMA test \[OK\]",))
    return Case(name, place, client, server, "line", 90)
