"""UCX's own tests: those of its transports over RC and over UD, and some of the protocols on top of
them. Debian does not build them. Both sides of a test are in one process.

`ucx-expected.txt` has the tests of `rc_verbs` and `ud_verbs` that neither skip themselves nor
measure; of UCP the first variant of each test, and each of `test_ucp_tag_match_rndv` and
`test_ucp_am_nbx_rndv`, without those that take seconds, connect by `test_ucp_sockaddr`, or skip
themselves by chance (`test_ucp_am_nbx_closed_ep`). Losses over UD: some trials take 20 s.
"""

import re
import shutil
from dataclasses import replace
from pathlib import Path

from lab.dropin.case import Case, Program
from lab.host import output_of
from lab.programs.trial import CONDITIONS, Trial
from lab.requirements import DebianSource

# Names of the tests that pass, and do not skip themselves.
EXPECTED = Path(__file__).resolve().parent / "ucx-expected.txt"
PACKAGES = [
    *("autoconf", "automake", "libtool", "make", "gcc", "g++", "libc6-dev", "pkg-config"),
    *("libibverbs-dev", "librdmacm-dev"),
]
LIBRARIES = ["ucm", "ucs", "uct", "ucp", "uct/ib"]
# What the tests do not need.
WITHOUT = [
    *("--disable-static", "--disable-numa", "--disable-doxygen-doc", "--without-java"),
    *("--without-go", "--without-cuda", "--without-rocm", "--without-fuse3", "--without-valgrind"),
    *("--without-mlx5-dv", "--without-dc"),
]


def build_ucx(tree, target):
    # Its configuration has files of Debian's in it, which Debian has elsewhere.
    (tree / "debian").symlink_to("debian.upstream")
    output_of(["./autogen.sh"], cwd=tree)
    fast = ["--enable-compiler-opt=0", "--disable-dependency-tracking"]
    flags = ["CFLAGS=-w -g0", "CXXFLAGS=-w -g0"]
    output_of(["./configure", "--quiet", "--enable-gtest", *WITHOUT, *fast, *flags], cwd=tree)
    # A library finds the others beside itself.
    own_place = "LDFLAGS=-Wl,-rpath,'$$ORIGIN'"
    for part in ["src/ucm", "src/ucs", "src/uct", "src/ucp", "src/tools/perf", "test/gtest"]:
        output_of(["make", "-s", "-j2", "-C", tree / part, own_place])
    shutil.copy(tree / "test" / "gtest" / "gtest", target)
    for part in LIBRARIES:
        name = f"lib{part.replace('/', '_')}.so.0"
        shutil.copy(tree / "src" / part / ".libs" / name, target)
    # UCX looks for the transport in this directory beside its libraries.
    (target / "ucx").symlink_to(".")


UCX = DebianSource(
    "ucx",
    "1.13.1",
    "1a88e09ca1b406c046a469c2ae271d2c330050b5664c0bcd9890e26c6ef09f3c",
    PACKAGES,
    build_ucx,
)
# The sets of tests: what their names begin with.
SETS = ["rc_verbs", "ud_verbs", "rc", "ud"]
# Tests that are left out under a condition.
LEFT_OUT = {
    # In the first, one side ends its queue pair a hundred times, and the other has to find that out
    # for what was lost: half a minute each time. The others wait for each of 300 000 datagrams, or
    # for up to hundreds of megabytes of them.
    "drop": r"/uct_cancel_test\.|^ud_verbs/test_uct_event\."
    r"|^ud/test_ucp_rma\.|^ud/test_ucp_stream\.send_zero_ending_iov_"
}


def ucx_gtest_trials():
    for transport in SETS:
        yield trial(case(transport))
        for condition, options in CONDITIONS.items():
            yield trial(replace(case(transport, condition), **options))


def trial(case):
    run = ("-d", "roce_lo", *case.run)
    return Trial(replace(case, run=run), UCX.name, large=True, source=UCX)


def case(transport, condition=""):
    """The tests of a set that are listed: each runs, and does not skip itself."""
    names = expected(transport, LEFT_OUT.get(condition))
    passed = [rf"\[ +OK \] {re.escape(name)} .*" for name in names]
    total = rf"\[ +PASSED +\] {len(names)} tests\."
    # By itself a test that fails waits for a debugger.
    environment = ("env", "UCX_HANDLE_ERRORS=none", "UCX_LOG_LEVEL=warn")
    argv = (*environment, "{ucx}/gtest", "--gtest_color=no", f"--gtest_filter={':'.join(names)}")
    program = Program(argv, (*passed, total), ("SKIP",))
    name = "/".join(["ucx-gtest", transport, "loopback", *[condition] * bool(condition)])
    return Case(name, "loopback", program, seconds=400, sysfs=True)


def expected(transport, left_out):
    names = [name for name in EXPECTED.read_text().split() if name.startswith(f"{transport}/")]
    return [name for name in names if not (left_out and re.search(left_out, name))]
