"""Ceph: a client of a small cluster, all of whose programs speak over RDMA, or all over TCP.

Each program has 4 GiB of receive buffers by default, and a nearly full store in memory lets writers
wait forever. Counters of the object store's `RDMAWorker`s show what RDMA has carried.
"""

from lab.dropin.case import Case, Program
from lab.programs.trial import Figure, trials

PACKAGES = ("ceph-mon", "ceph-common")
# The last one is that of reading.
FIGURE = Figure(r"^Bandwidth \(MB/sec\): +(?P<value>[\d.]+)", unit="MB/s")


def ceph_trials():
    yield from trials("ceph/rados", "ceph-osd", case, FIGURE, large=True, further=PACKAGES)


def case(name, place, tcp):
    messenger = "posix" if tcp else "rdma"
    agent = ("/usr/bin/python3", "{ceph_agent}", messenger, "{device}", "{gid}", "{own}")
    lines = (
        *(r"Total writes made: +3000", r"Total reads made: +3000"),
        *("the object is right", "RDMA has carried all"),
    )
    server = Program(agent, ("the cluster is ready",), endless=True)
    return Case(name, place, Program((*agent, "{server}"), lines), server, "line", 120)
