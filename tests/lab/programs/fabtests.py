"""fabtests, the tests of libfabric, over its provider verbs and over ofi_rxm on top of that. Debian
12 has neither the tests nor a version of libfabric that their sources in a newer Debian are for:
both are built.
"""

import shutil
from functools import partial

from lab.dropin.case import Case, Program
from lab.host import output_of
from lab.programs.trial import Figure, trials
from lab.requirements import DebianSource

PACKAGES = [
    *("autoconf", "automake", "libtool", "make", "gcc", "libc6-dev"),
    *("libibverbs-dev", "librdmacm-dev", "libnl-3-dev", "libnl-route-3-dev"),
]
# What the configuration of fabtests finds on every Linux.
CONFIGURATION = "#define HAVE_CLOCK_GETTIME 1\n#define HAVE_EPOLL 1\n"
# Kinds of tests, and directories of their sources, with what those have in common.
COMMON = {"functional": [], "benchmarks": ["benchmark_shared"], "unit": ["common"]}


def build_fabtests(tree, target):
    options = ["--enable-only", "--enable-verbs", "--enable-tcp", "--enable-rxm"]
    fast = ["--disable-static", "--disable-dependency-tracking", "CFLAGS=-O0 -w"]
    output_of(["./autogen.sh"], cwd=tree)
    output_of(["./configure", "--quiet", *options, *fast], cwd=tree)
    output_of(["make", "-s", "-j2", "src/libfabric.la"], cwd=tree)
    for name in ["libfabric.so.1", "libfabric.so"]:
        shutil.copy(tree / "src" / ".libs" / name, target)
    fabtests = tree / "fabtests"
    for name in ["scripts", "test_configs"]:
        shutil.copytree(fabtests / name, target / name)
    (fabtests / "config.h").write_text(CONFIGURATION)
    include = [f"-I{place}" for place in [".", "include", "include/unix", "../include"]]
    compiler = ["gcc", "-O0", "-w", "-D_GNU_SOURCE", "-DHAVE_CONFIG_H", *include]
    common = [f"{kind}/{name}.c" for kind, names in COMMON.items() for name in names]
    # One of them is a program of its own.
    names = {path.name for path in fabtests.glob("common/*.c")} - {"check_hmem.c"}
    common += [f"common/{name}" for name in sorted(names)]
    output_of([*compiler, "-c", *common], cwd=fabtests)
    output_of(["sh", "-c", "ar rc common.a *.o"], cwd=fabtests)
    libraries = [f"-L{target}", "-lfabric", "-Wl,-rpath,$ORIGIN", "-lpthread", "-ldl", "-lm"]
    for kind, names in COMMON.items():
        for source in sorted(fabtests.glob(f"{kind}/*.c")):
            if source.stem not in names:
                program = target / f"fi_{source.stem}"
                output_of([*compiler, "-o", program, source, "common.a", *libraries], cwd=fabtests)
    for path in target.iterdir():
        path.chmod(0o755)


FABTESTS = DebianSource(
    "libfabric",
    "2.1.0",
    "1a66369772d5bb151737214af1c478993e969cf298e8f9ed369e7a2ab8d8c6df",
    PACKAGES,
    build_fabtests,
)
# Providers, with the numbers of tests that run without `--all`, and in all.
PROVIDERS = {"verbs": (6, 30), "verbs;ofi_rxm": (5, 51)}
SAMPLE = "^fi_(" + "|".join(
    [
        *("cq_data -e msg -o writedata", "msg_epoll", "multi_ep -e msg -v -A -Q$", "shared_ctx"),
        *("inject_test -A inject", r"rma_bw -e \w+ -o read -I 5$", "rdm_tagged_bw -I 5 -v$"),
        *("unexpected_msg", "rdm_multi_client.*5$"),
    ]
)
# The verbs provider of this version resolves an address twice with one id in "fi_msg_sockets",
# which is an error (EINVAL).
QUICK = "^fi_(?!msg_sockets"
FIGURE = Figure(r"^1m +(?:\S+ +){3}(?P<value>[\d.]+)", unit="MB/s")


def fabtests_trials():
    for provider, numbers in PROVIDERS.items():
        for size, choice, number in zip(["sample", "quick"], [SAMPLE, QUICK], numbers, strict=True):
            make = partial(agents, provider=provider, choice=choice, number=number)
            name = f"fabtests-{provider.split(';')[-1]}/{size}"
            yield from trials(
                name, FABTESTS.name, make, None, ("hosts",), size == "quick", FABTESTS
            )
    name = "fabtests-verbs/fi_rma_bw"
    yield from trials(name, FABTESTS.name, bandwidth, FIGURE, ("hosts",), True, FABTESTS)


def agents(name, place, tcp, provider, choice, number):
    what = ("{libfabric}/", provider, "{own}", f"{choice})")
    agent = ("/usr/bin/python3", "-B", "{fabtests_agent}", *what)
    client = Program((*agent, "{server}"), ("all were run",))
    server = Program(agent, (f"{number} passed, 0 not run, 0 failed",))
    return Case(name, place, client, server, "tcp:4445", 400)


def bandwidth(name, place, tcp):
    program = ("{libfabric}/fi_rma_bw", "-p", "tcp" if tcp else "verbs", "-e", "msg", "-o", "write")
    server = (*program, "-S", 1 << 20, "-I", 500, "-s", "{own}")
    row = (r"1m +500 .*",)
    client = Program((*server, "{server}"), row)
    return Case(name, place, client, Program(server, row), "tcp:9228" if tcp else "cm", 60)
