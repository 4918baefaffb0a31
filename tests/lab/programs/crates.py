"""Crates that call libibverbs and librdmacm, from crates.io: tests of sideway and async-rdma, the
example and the tests of ibverbs. Each is built with cargo, and what cargo has made runs.
"""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from lab.dropin.case import Case, Program
from lab.host import output_of
from lab.programs.trial import CONDITIONS, Trial
from lab.requirements import Crate

# Names of the tests that pass, behind their crates and targets.
EXPECTED = Path(__file__).resolve().parent / "crates-expected.txt"
# Nobody debugs them, and they are smaller and sooner there.
FAST = {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_PROFILE_TEST_DEBUG": "0"}
# A crate that denies warnings meets those of newer compilers.
LENIENT = {"RUSTFLAGS": "--cap-lints=warn"}


def cargo(tree, target, *command):
    """Runs cargo; tests and examples that it makes get the names of their targets."""
    options = ["--locked", "--quiet", "--message-format=json"]
    environment = {**os.environ, **FAST, **LENIENT, "CARGO_TARGET_DIR": str(tree / "target")}
    shown = output_of(["cargo", *command, *options], cwd=tree, env=environment)
    messages = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    for message in messages:
        if message.get("executable"):
            kind, name = message["target"]["kind"][0], message["target"]["name"]
            shutil.copy(message["executable"], target / ("lib" if kind == "lib" else name))


# All make bindings with libclang. Two build what those are for with cmake: sideway stubs that load
# the library when they are called, ibverbs the rdma-core that it brings. async-rdma links Debian's.
PACKAGES = ["cmake", "make", "gcc", "libc6-dev", "pkg-config", "libclang-dev"]
# Targets of sideway beside its library. `compiletest` is left out: it compiles what must not
# compile, and opens no device.
TARGETS = ["test_atomic", "test_cq", "test_mr_and_cq", "test_post_send", "test_qp"]
# Targets of async-rdma. Others have limits of 100 ms, need a feature, or expect panics alone.
ASYNC_TARGETS = ["atomic", "imm", "loop", "mr_slice"]
# By default it expects both `IBV_WC_WITH_IMM` and `IBV_WC_GRH` of immediate data.
ASYNC_OPTIONS = ("-d", "roce_lo", "--as", "rxe")


def build_sideway(tree, target):
    tests = [word for name in TARGETS for word in ("--test", name)]
    cargo(tree, target, "test", "--no-run", "--lib", *tests)


def build_async_rdma(tree, target):
    tests = [word for name in ASYNC_TARGETS for word in ("--test", name)]
    cargo(tree, target, "test", "--no-run", *tests)


def build_ibverbs(tree, target):
    cargo(tree, target, "test", "--no-run", "--lib")
    # Not by `cargo test`, which makes a test of it.
    cargo(tree, target, "build", "--example", "loopback")


SIDEWAY = Crate(
    "sideway",
    "0.4.3",
    "7669500361477013bc37bcf21f6c9cd6ffcf4839b6fbffb3cb9df11e30a78c3e",
    PACKAGES,
    build_sideway,
)
ASYNC_RDMA = Crate(
    "async-rdma",
    "0.5.0",
    "98d0ceeadfe6c2f1e07c7f44750e6a3c1f00bec489ad8aa25dd6da242dedbffa",
    [*PACKAGES, "libibverbs-dev", "librdmacm-dev"],
    build_async_rdma,
)
IBVERBS = Crate(
    "ibverbs",
    "0.9.2",
    "87a6309619d88664f83018d23582e62539f97fb74241d6cf38a91f7723ea9f77",
    [*PACKAGES, "libnl-3-dev", "libnl-route-3-dev"],
    build_ibverbs,
)


def crate_trials():
    for target in ["lib", *TARGETS]:
        yield from under_conditions(SIDEWAY, tests(SIDEWAY, target))
    for target in ASYNC_TARGETS:
        yield from under_conditions(ASYNC_RDMA, tests(ASYNC_RDMA, target, ASYNC_OPTIONS))
    yield Trial(tests(IBVERBS, "lib"), IBVERBS.name, large=True, source=IBVERBS)
    for place, device in [("loopback", "roce_lo"), ("hosts", "roce_eth0")]:
        yield from under_conditions(IBVERBS, example(place, device))


def under_conditions(crate, case):
    yield Trial(case, crate.name, large=True, source=crate)
    for condition, options in CONDITIONS.items():
        options = {**options, "run": (*case.run, *options.get("run", ()))}
        case_of = replace(case, name=f"{case.name}/{condition}", **options)
        yield Trial(case_of, crate.name, large=True, source=crate)


def tests(crate, target, run=()):
    """All tests of a target: those that are listed pass, and there are no others."""
    names = expected(crate, target)
    result = rf"test result: ok\. {len(names)} passed; 0 failed; 0 ignored; .*"
    lines = [*(rf"test {re.escape(name)}( - should panic)? \.\.\. ok" for name in names), result]
    # With one thread the name of a test and its outcome are not written at once.
    argv = (f"{{{crate.word}}}/{target}", "--test-threads=2")
    # One test compares the GID table with the files.
    return Case(
        f"{crate.name}/{crate.version}/{target}",
        "loopback",
        Program(argv, tuple(lines)),
        seconds=120,
        sysfs=True,
        run=run,
    )


def expected(crate, target):
    rows = [line.split() for line in EXPECTED.read_text().splitlines()]
    return [name for *place, name in rows if place == [crate.name, target]]


def example(place, device):
    """The example sends itself a message over the first device."""
    program = Program(("{ibverbs}/loopback",), ("sent", "received"))
    name = f"{IBVERBS.name}/{IBVERBS.version}/example/{place}"
    return Case(name, place, program, run=("-d", device))
