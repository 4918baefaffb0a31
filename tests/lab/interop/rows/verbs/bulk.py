"""Much at once: READs of megabytes, and many queue pairs, with the timeout that programs have by
default.
"""

import time

from lab.interop.rows.row import (
    FAR_SEED,
    NEAR_SEED,
    SINK_SEED,
    End,
    Place,
    Region,
    Row,
    Wr,
    all_ok,
    differs,
    poll,
)

MIB = 1 << 20
# Time limit in seconds: the guest is emulated, and moves some 20 MB/s.
PATIENCE = 25
# The timeout of perftest and of the pingpongs: 67 ms.
TIMEOUT = 14
# Longest message of rxe 6.1.
LONGEST = 8 * MIB
# Queue pairs, and the length of what each of them writes, and reads.
PAIRS, LENGTH = 64, 40_000


def reads():
    for length, parts, directions, kernels in [
        (8 * MIB, 1, ("to-rxe", "from-rxe"), ("6.1", "6.12")),
        (64 * MIB, 1, ("to-rxe",), ("6.1", "6.12")),
        (64 * MIB, 1, ("from-rxe",), ("6.12",)),
        (64 * MIB, 64 * MIB // LONGEST, ("from-rxe",), ("6.1",)),
    ]:
        for mtu in [1024, 4096]:
            yield Row(
                f"rc/bulk/read-{length // MIB}mib/mtu{mtu}",
                script=read,
                a=End(
                    regions={"near": Region(length, seed=NEAR_SEED)},
                    path_mtu=mtu,
                    timeout=TIMEOUT,
                    # `script` makes so many requests of it
                    max_rd_atomic=parts,
                ),
                b=End(
                    regions={"far": Region(length, seed=FAR_SEED)},
                    path_mtu=mtu,
                    max_dest_rd_atomic=16,
                ),
                directions=directions,
                kernels=kernels,
            )


def read(exchange):
    """Script: reads all of B's region, in equal parts."""
    a, b, row = exchange.a, exchange.b, exchange.row
    length, parts = a.regions["near"].length, row.a.max_rd_atomic
    part = length // parts
    wrs = [
        Wr("read", (Place("near", n * part, part),), Place("far", n * part)) for n in range(parts)
    ]
    started = time.monotonic()
    a.do(a.sending(wrs, b))
    problems = all_ok("A", a.do(poll("sends", parts, PATIENCE))[0], parts)
    note_time(exchange, started)
    (answer,) = a.do(differs("near", 0, length, FAR_SEED))
    if answer["differs"] is not None:
        problems.append(f"what was read is wrong at {answer['differs']}")
    return problems + requester_problems(exchange, length // row.a.path_mtu)


def note_time(exchange, started):
    exchange.observed.report.append(("seconds", f"{time.monotonic() - started:.2f}"))


def requester_problems(exchange, needed):
    """Problems of figures, if ours is the requester: it asks for what a socket holds, so hardly
    anything is lost, and what is lost is found without the timer. Probes ask again while the guest
    stands still, each for a megabyte or two.
    """
    if not exchange.a.backend.ours:
        return []
    counters = exchange.changed_counters(exchange.a)
    received = counters["received_packets"]
    problems = [] if received < 4 * needed else [f"{received} packets came, not {needed}"]
    return problems + [f"{name} of ours" for name in ["timeouts"] if name in counters]


def queue_pairs():
    yield Row(
        f"rc/bulk/{PAIRS}-queue-pairs",
        script=write_and_read,
        a=End(
            regions={"near": Region(2 * PAIRS * LENGTH, seed=NEAR_SEED)},
            timeout=TIMEOUT,
            send_cq_size=2 * PAIRS,
        ),
        b=End(
            regions={
                "sink": Region(PAIRS * LENGTH, seed=SINK_SEED),
                "far": Region(PAIRS * LENGTH, seed=FAR_SEED),
            }
        ),
        directions=("to-rxe", "from-rxe"),
    )


def write_and_read(exchange):
    """Script: many queue pairs write, and read, all at once."""
    a, b = exchange.a, exchange.b
    pairs = [(a, b)]
    for n in range(1, PAIRS):
        one, other = a.another(f"qp{n}"), b.another(f"qp{n}")
        one.do(*one.transitions(other, exchange.PSN_A, exchange.PSN_B))
        other.do(*other.transitions(one, exchange.PSN_B, exchange.PSN_A))
        pairs.append((one, other))
    half = PAIRS * LENGTH
    for n, (one, other) in enumerate(pairs):
        wrs = [
            Wr("write", (Place("near", n * LENGTH, LENGTH),), Place("sink", n * LENGTH)),
            Wr("read", (Place("near", half + n * LENGTH, LENGTH),), Place("far", n * LENGTH)),
        ]
        one.do(one.sending(wrs, other))
    started = time.monotonic()
    seen = [c["status"] for c in a.do(poll("sends", 2 * PAIRS, PATIENCE))[0]]
    note_time(exchange, started)
    problems = [] if seen == ["SUCCESS"] * 2 * PAIRS else [f"A: {len(seen)}: {set(seen)}"]
    for end, region, offset, seed in [(b, "sink", 0, NEAR_SEED), (a, "near", half, FAR_SEED)]:
        (answer,) = end.do(differs(region, offset, half, seed))
        if answer["differs"] is not None:
            problems.append(f"{end.letter.upper()}'s {region} is wrong at {answer['differs']}")
    return problems
