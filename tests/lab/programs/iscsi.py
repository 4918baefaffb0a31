"""iSER: tgt as the target, and initiators of libiscsi, which have iSCSI over TCP, too."""

from lab.dropin.case import Case, Program
from lab.programs.trial import Figure, trials

FIGURE = Figure(r"^iops average \d+ \((?P<value>\d+) (?P<unit>MB/s)\)")
INITIATOR = ("-i", "iqn.2026-01.org.example:initiator")
# libiscsi 1.19 takes memory of malloc to be zero where it counts its connection's requests.
ENVIRONMENT = ("env", "GLIBC_TUNABLES=glibc.malloc.perturb=255:glibc.malloc.tcache_count=0")
# Tests of what SCSI commands do, by families with the number of their tests; what is written is
# read again. Others fail in libiscsi itself: "Async" sends more than it has descriptors for, and
# over iSER it does not tell how much of the data was there.
FAMILIES = {"Read16": 5, "Write16": 5, "WriteVerify16": 6, "OrWrite": 6}


def iscsi_trials():
    yield from trials("tgt/iscsi-perf", "tgt", performance, FIGURE)
    for family, count in FAMILIES.items():

        def make(name, place, tcp, family=family, count=count):
            client = ("iscsi-test-cu", *INITIATOR, "--dataloss", f"--test=SCSI.{family}", url(tcp))
            return case(name, place, client, (rf"tests +{count} +{count} +{count} +0 +0",))

        yield from trials(f"tgt/scsi-{family}", "tgt", make, None, ("hosts",), family == "OrWrite")


def performance(name, place, tcp):
    client = ("iscsi-perf", *INITIATOR, "-b", 128, "-m", 8, "-t", 2, url(tcp))
    return case(name, place, client, (r"iops average \d+ .*",))


def case(name, place, client, lines):
    server = Program(("/usr/bin/python3", "{target}"), ("the target is ready",), endless=True)
    return Case(name, place, Program((*ENVIRONMENT, *client), lines), server, "line", 120)


def url(tcp):
    scheme, target = ("iscsi", "tcp") if tcp else ("iser", "iser")
    return f"{scheme}://{{server}}/iqn.2026-01.org.example:{target}/1"
