"""SPDK's NVMe over Fabrics: a target with a disk in memory, and initiators that say what it has,
measure it, and write what they read again and compare. All of them are programs in user space that
never wait. They keep their memory in huge pages, which the machine gets meanwhile.

SPDK is changed: it refuses minor versions of DPDK newer than itself, wants a library for
instructions that it can do without, asks for physical addresses, which an ordinary user does not
get without an IOMMU, and two programs lack an option for the place of their memory. `--no-huge`
fails: its registry of memory works in units of 2 MiB. The machine gets 600 huge pages meanwhile.
"""

import json
import shutil

from lab.dropin.case import Case, Program
from lab.host import output_of
from lab.programs.trial import Figure, trials
from lab.requirements import GitSource

PORT = 4420
NAME = "nqn.2016-06.io.spdk:cnode1"
PACKAGES = [
    *("make", "gcc", "g++", "libc6-dev", "pkg-config", "python3", "libdpdk-dev", "libnuma-dev"),
    *("uuid-dev", "libaio-dev", "libssl-dev", "libibverbs-dev", "librdmacm-dev"),
]
# What is built, and nothing else that the machine may have the libraries for.
OPTIONS = [
    *("--with-rdma=verbs", "--with-dpdk", "--disable-tests", "--disable-unit-tests"),
    *("--without-vhost", "--without-virtio", "--without-crypto", "--without-idxd"),
    *("--without-uring", "--without-xnvme", "--without-nvme-cuse", "--without-fuse"),
]
PROGRAMS = ["bin/nvmf_tgt", "examples/perf", "examples/identify", "examples/bdevperf"]
# Option of DPDK: huge pages that no file system has to show.
MEMORY = "--in-memory"
# What it refuses or misses here: later versions of DPDK 22.11 than it was tried with; a library
# among its submodules that it can do without; the memory of an ordinary user, where the machine has
# no IOMMU.
CHANGES = {
    "configure": [("CONFIG[ISAL]=y", "CONFIG[ISAL]=n"), ("/isa-l/autogen.sh", "/configure")],
    "lib/env_dpdk/pci_dpdk.c": [("if (minor > 1) {", "if (minor > 99) {")],
    "lib/env_dpdk/init.c": [
        ("VA_REQUIRED_WIDTH 48", "VA_REQUIRED_WIDTH 0"),
        ("opts, 0, sizeof(*opts));", f'opts, 0, sizeof(*opts)), opts->env_context = "{MEMORY}";'),
    ],
}


def build_spdk(tree, target):
    for name, changes in CHANGES.items():
        text = (tree / name).read_text()
        for old, new in changes:
            text = text.replace(old, new)
        (tree / name).write_text(text)
    output_of(["./configure", *OPTIONS], cwd=tree)
    output_of(["make", "-s", "-j2"], cwd=tree)
    for name in ["bin", "lib"]:
        (target / name).mkdir()
    for name in PROGRAMS:
        shutil.copy(tree / "build" / name, target / "bin")
    for library in (tree / "build" / "lib").glob("*.so.*"):
        shutil.copy(library, target / "lib")


SPDK = GitSource(
    "spdk",
    "23.09",
    "https://github.com/spdk/spdk",
    "fb13eebf53d7f132baa2e39992a6ad79affdcdaa",
    PACKAGES,
    build_spdk,
)
# 64 MiB in blocks of 512 bytes.
DISK = {"name": "disk", "num_blocks": 131072, "block_size": 512}
# Huge pages of the two sides, of which this machine has so many more meanwhile.
PAGES = 600
CHANGE_PAGES = "sh -c 'p=/proc/sys/vm/nr_hugepages; n=$(cat $p); echo $((n {} {})) >$p'"
# Of 4 KiB, 16 at once, in each direction as often.
MEASURED = "-q 16 -o 4096 -w randrw -M 50 -t 3"
FIGURE = Figure(r"^Total +: +[\d.]+ +(?P<value>[\d.]+) ", unit="MiB/s")
# Arguments: where the programs are, the kind of transport, the server's address.
COMMON = f"""
cd "$(mktemp -d)"
export LD_LIBRARY_PATH="$1/../lib:$LD_LIBRARY_PATH"
place=$1 kind=$2 address=$3
where="trtype:$kind adrfam:IPv4 traddr:$address trsvcid:{PORT}"
start() {{
    program=$1
    shift
    exec "$place/$program" "--env-context={MEMORY}" --no-pci -s 512 --disable-cpumask-locks \\
        -r "$PWD/socket" -c settings "$@"
}}
"""


def settings(parts):
    """A file of settings, in which $kind and $address are for the shell."""
    subsystems = [
        {"subsystem": name, "config": [{"method": key, "params": value} for key, value in calls]}
        for name, calls in parts.items()
    ]
    return f"cat >settings <<END\n{json.dumps({'subsystems': subsystems}, indent=1)}\nEND\n"


PLACE = {"trtype": "$kind", "adrfam": "IPv4", "traddr": "$address", "trsvcid": str(PORT)}
REMOTE = {"name": "remote", "subnqn": NAME, **PLACE}
TARGET = (
    COMMON
    + settings(
        {
            "bdev": [("bdev_malloc_create", DISK)],
            "nvmf": [
                ("nvmf_create_transport", {"trtype": "$kind"}),
                ("nvmf_create_subsystem", {"nqn": NAME, "allow_any_host": True}),
                ("nvmf_subsystem_add_ns", {"nqn": NAME, "namespace": {"bdev_name": "disk"}}),
                ("nvmf_subsystem_add_listener", {"nqn": NAME, "listen_address": PLACE}),
            ],
        }
    )
    + "start nvmf_tgt -m 1\n"
)
INITIATORS = (
    COMMON
    + settings({"bdev": [("bdev_nvme_attach_controller", REMOTE)]})
    + f"""
"$place/identify" -d 256 -p 1 -r "$where subnqn:{NAME}" | grep -E "^(Subsystem NQN|  Size)"
"$place/perf" -s 256 -c 2 -r "$where subnqn:{NAME}" {MEASURED}
(start bdevperf -m 2 -q 16 -o 65536 -w verify -t 3) && echo compared
"""
)


def spdk_trials():
    yield from trials("spdk/nvmf", SPDK.name, case, FIGURE, ("hosts",), True, SPDK)


def case(name, place, tcp):
    def program(script, address, *what, **how):
        argv = ("sh", "-c", script, "sh", "{spdk}/bin", "TCP" if tcp else "RDMA", address)
        return Program(argv, *what, **how)

    lines = (rf"Subsystem NQN: +{NAME}", "Total +:.*", "compared")
    return Case(
        name,
        place,
        program(INITIATORS, "{server}", lines, ("mismatch", "error response")),
        program(TARGET, "{own}", endless=True),
        f"tcp:{PORT}" if tcp else "cm",
        60,
        before=(CHANGE_PAGES.format("+", PAGES),),
        after=(CHANGE_PAGES.format("-", PAGES),),
    )
