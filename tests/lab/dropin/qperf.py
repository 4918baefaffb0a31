"""qperf, whose server opens its device for each test anew, at the same time as the client."""

from lab.dropin.case import Case, Program

TESTS = ("rc_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_write_lat")


def qperf_cases():
    for place in ["loopback", "hosts"]:
        for test in TESTS:
            # Without connection management it names its peer by LID, which on Ethernet is none.
            yield Case(
                f"qperf/{place}/{test}",
                place,
                Program(("qperf", "{server}", "-cm1", "-t", 1, test), (r"(bw|latency)\s+=\s+.*",)),
                Program(("qperf",), endless=True),
                "tcp:19765",
            )
