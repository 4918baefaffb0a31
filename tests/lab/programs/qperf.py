"""qperf: the same tests over RC and over TCP."""

from lab.dropin.case import Case, Program
from lab.programs.trial import Figure, trials

# Tests over RC, their TCP counterparts, and their figures.
BANDWIDTH = Figure(r"^ *bw *= *(?P<value>[\d.]+) (?P<unit>[KMG]?B/sec)")
LATENCY = Figure(r"^ *latency *= *(?P<value>[\d.]+) (?P<unit>us|ms)", rising=False, recorded=False)
TESTS = [("rc_bw", "tcp_bw", BANDWIDTH), ("rc_lat", "tcp_lat", LATENCY)]


def qperf_trials():
    for over_rc, over_tcp, figure in TESTS:

        def make(name, place, tcp, words=(over_rc, over_tcp)):
            # Without connection management it names its peer by LID, which on Ethernet is none.
            mode = (words[1],) if tcp else ("-cm1", words[0])
            client = Program(("qperf", "{server}", "-t", 2, *mode), (r"(bw|latency)\s+=\s+.*",))
            return Case(name, place, client, Program(("qperf",), endless=True), "tcp:19765")

        yield from trials(f"qperf/{over_rc}", "qperf", make, figure)
