"""One queue pair on the quiet machine with large socket buffers, against an older build of ours."""

from dataclasses import replace

from lab.dropin.hosts import place_ours
from lab.load.bandwidth import YARDSTICK
from lab.load.case import Bar, Case
from lab.load.network import wire
from lab.load.perftest import LARGE_BUFFER
from lab.load.turns import by_turns

PLANS = {
    "write-1M": replace(YARDSTICK, variables=LARGE_BUFFER),
    "write-64K": replace(YARDSTICK, size=65536, count=16000, variables=LARGE_BUFFER),
}


def cases():
    for what in PLANS:
        yield Case(f"baseline/{what}", "new-build", Bar(0.98, 1.0, 0.8))


def measure(lab, group, cases):
    plan = PLANS[group.split("/")[1]]
    older = lab.logs / group.replace("/", "-")
    older.mkdir()
    older.chmod(0o755)
    tool = place_ours(lab.baseline / "roce", lab.baseline / "libroce_abi.so", older)
    with wire(lab) as hosts:

        def run(roce):
            def measured():
                for host in hosts:
                    host.sandbox.roce = roce
                return lab.runner.run(plan, *hosts)

            return measured

        yardstick, outcomes = by_turns(run(tool), [run(lab.roce)], lab.turns(group))
    return [(Case(group, "yardstick"), yardstick), *zip(cases, outcomes, strict=True)]
