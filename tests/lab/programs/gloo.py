"""gloo's benchmarks over ibverbs: collectives and exchanges that check their results. Debian does
not build them, and its versions up to 13 end with "Destructing buffer expecting completions" when a
benchmark is done, for they do not wait for their last WRITE. The sources are those in unstable.
"""

import shutil
from functools import partial

from lab.dropin.case import Case, Program
from lab.host import output_of
from lab.programs.trial import trials
from lab.requirements import DebianSource

PACKAGES = ["cmake", "make", "gcc", "g++", "libc6-dev", "libibverbs-dev"]


def build_gloo(tree, target):
    options = ["-DBUILD_BENCHMARK=ON", "-DUSE_IBVERBS=ON", "-DCMAKE_CXX_FLAGS=-O1 -w"]
    built = tree / "built"
    output_of(["cmake", "-S", tree, "-B", built, "-DCMAKE_BUILD_TYPE=None", *options])
    output_of(["make", "-s", "-j2", "-C", built, "benchmark"])
    shutil.copy(built / "gloo" / "benchmark" / "benchmark", target)


GLOO = DebianSource(
    "gloo",
    "0.0~git20250912.d97133a",
    "43d930375720059ac67b1619c7d020d5d2cee79757caf4e75a1bfedb8eeb2b42",
    PACKAGES,
    build_gloo,
)
COLLECTIVES = [
    *("allgather", "allgather_v", "allgather_ring", "allreduce_ring", "allreduce_ring_chunked"),
    *("allreduce_halving_doubling", "allreduce_bcube", "allreduce_local", "alltoall", "alltoall_v"),
    *("barrier_all_to_all", "barrier_all_to_one", "broadcast", "broadcast_one_to_all"),
    *("pairwise_exchange", "reduce", "scatter"),
]
# Of two ranks. Left out are `isendirecv_stress`, which hangs, for it has more requests than gloo's
# queues (8), and of the others `reduce_scatter`: when that is done, a rank may end while another
# still sends it a place in memory.
EXCHANGES = ["sendrecv_roundtrip", "sendrecv_stress"]
# The same happens in this one at times, where packets are lost.
NOT_WITH_LOSSES = "allreduce_ring_chunked"
# Runs benchmarks one after the other, and each with some numbers of elements. Without a number of
# iterations each rank decides by its own clock when it ends, and one that goes on waits for others.
SCRIPT = """
program=$1 device=$2 ranks=$3
shift 3
for what in "$@"; do
    for elements in 100 100000; do
        place=$(mktemp -d) pids=
        rank=0
        while [ $rank -lt $ranks ]; do
            $program --transport ibverbs --ib-device $device --ib-index 0 --size $ranks \\
                --rank $rank --prefix run --shared-path $place --elements $elements \\
                --iteration-count 20 --messages 100 $what &
            pids="$pids $!"
            rank=$((rank + 1))
        done
        for pid in $pids; do
            wait $pid || { echo "$what failed"; exit 1; }
        done
    done
    echo "$what: all right"
done
"""


def gloo_trials():
    for ranks in [2, 4]:
        make = partial(case, ranks=ranks)
        yield from trials(f"gloo/{ranks}-ranks", GLOO.name, make, None, ("loopback",), True, GLOO)


def case(name, place, tcp, ranks):
    names = [*COLLECTIVES, *(EXCHANGES if ranks == 2 else [])]
    if name.endswith("/drop"):
        names.remove(NOT_WITH_LOSSES)
    argv = ("sh", "-c", SCRIPT, "sh", "{gloo}/benchmark", "{device}", ranks, *names)
    done = tuple(f"{one}: all right" for one in names)
    return Case(name, place, Program(argv, done), seconds=200)
