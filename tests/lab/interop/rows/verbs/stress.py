"""Many messages at once, and faults of the network."""

from dataclasses import replace

from lab.interop.rows.row import (
    FAR_SEED,
    FULL,
    NEAR_SEED,
    REMOTE,
    SINK_SEED,
    WAIT_SECONDS,
    End,
    Expect,
    Place,
    Region,
    Row,
    Wr,
    all_ok,
    differs,
    poll,
)

# Messages of a burst, and their length.
BURST, BURST_LENGTH = 40, 1500
# Rounds of the mixture, and the length of its messages.
ROUNDS, LENGTH = 5, 5000


def bursts():
    sink = Region(BURST * BURST_LENGTH, seed=SINK_SEED)
    for name, srq in [("own-queue", None), ("shared-queue", {"max_wr": 64})]:
        yield Row(
            f"rc/burst/{name}",
            script=burst,
            b=End(regions={"sink": sink}, srq=srq),
            # After an RNR NAK rxe refuses the packets that were under way behind it, too.
            expect=Expect(nak="RNR"),
            rxe={"to-rxe": {"nak": "RNR SEQUENCE"}},
        )


def burst(exchange):
    """Script: more messages than receive requests; B is "not ready", and posts more in fours."""
    a, b = exchange.a, exchange.b
    places = [(Place("sink", n * BURST_LENGTH, BURST_LENGTH),) for n in range(BURST)]
    b.do(b.receiving(places[:4]))
    a.do(a.sending([Wr("send", (Place("near", n, BURST_LENGTH),)) for n in range(BURST)], b))
    received = []
    for first in range(4, BURST, 4):
        more = b.receiving(places[first : first + 4], first + 1)
        received += b.do(poll("recvs", 4, WAIT_SECONDS), more)[0]
    received += b.do(poll("recvs", 4, WAIT_SECONDS))[0]
    sent = a.do(poll("sends", BURST, WAIT_SECONDS))[0]
    problems = all_ok("A", sent, BURST) + all_ok("B", received, BURST)
    for n in range(BURST):
        (answer,) = b.do(differs("sink", n * BURST_LENGTH, BURST_LENGTH, NEAR_SEED + n))
        if answer["differs"] is not None:
            problems.append(f"message {n + 1} is wrong")
    return problems


def faults():
    """All operations, while the network loses, duplicates and reorders packets."""
    timeout = 15  # 0.13 s
    a = End(regions={"near": Region(1 << 18, seed=NEAR_SEED)}, timeout=timeout)
    regions = {
        "sink": Region(1 << 17, seed=SINK_SEED),
        "far": Region(1 << 17, access=FULL, seed=FAR_SEED),
    }
    b = End(regions=regions, timeout=timeout)
    expect = Expect(nak=None)
    # While rxe repeats a part of a READ, responses that overtake each other are written to wrong
    # places, and the status is success. So as a requester it gets them in order.
    for name, to_rxe, from_rxe in [
        ("loss", "drop 3%", "drop 3%"),
        ("duplicates", "duplicate 10%", "duplicate request 10%"),
        ("reordering", "reorder 5%", "reorder request 5%"),
        (
            "all",
            "drop 2%, duplicate 5%, reorder 2%",
            "drop 2%, duplicate request 5%, reorder request 2%",
        ),
    ]:
        row = Row(f"rc/faults/{name}", script=mixed, a=a, b=b, expect=expect)
        yield replace(row, faults=to_rxe, directions=("to-rxe",))
        yield replace(row, faults=from_rxe, directions=("from-rxe",))
    flushable = Region(1 << 17, access=(*FULL, "FLUSH_GLOBAL"), seed=FAR_SEED)
    b = replace(b, regions=regions | {"far": flushable}, access=(*REMOTE, "FLUSH_GLOBAL"))
    yield Row(
        "rc/faults/placement",
        script=mixed_with_placement,
        a=replace(a, max_rd_atomic=2),
        b=b,
        faults="drop 3%",
        expect=expect,
        directions=("to-rxe",),
        kernels=("6.12",),
    )


def mixed(exchange):
    """Script: rounds of all older operations."""
    problems = post_rounds(exchange, older_operations)
    for n in range(ROUNDS):
        problems += round_problems(exchange, n)
    return problems


def mixed_with_placement(exchange):
    """Script: rounds of all operations, with those that are new in 6.2.

    rxe does not answer a FLUSH a second time, so that an answer to a later request must do; it
    remembers FLUSHes with READs and atomics, so that these have to be few; and it repeats both new
    kinds of request with the address 0, so that it can only be the responder.
    """
    problems = post_rounds(exchange, all_operations)
    for n in range(ROUNDS):
        problems += round_problems(
            exchange, n, (exchange.b, "far", 32768 + 8 * n, 8, NEAR_SEED + 40)
        )
    return problems


def older_operations(n, slot):
    word, read = Place("near", 65536 + 8 * n, 8), Place("near", 131072 + n * LENGTH, LENGTH)
    sink = Place("sink", (2 * n + 1) * LENGTH)
    return [
        Wr("send", (Place("near", n, LENGTH),)),
        Wr("write", (Place("near", 10 + n, LENGTH),), Place("far", slot)),
        Wr("fetch_add", (word,), Place("far", 8 * n), values={"add": 1}),
        Wr("read", (read,), Place("far", slot)),
        Wr("write", (Place("near", 20 + n, LENGTH - 1),), sink, imm=n),
    ]


def all_operations(n, slot):
    flush = {"length": LENGTH, "placement": ["GLOBAL"], "whole": False}
    return [
        *older_operations(n, slot),
        Wr("flush", (), Place("far", slot), values={"flush": flush}),
        Wr("atomic_write", (Place("near", 40, 8),), Place("far", 32768 + 8 * n)),
    ]


def post_rounds(exchange, requests):
    """Posts all rounds, and waits; returns the problems of the completions."""
    a, b = exchange.a, exchange.b
    b.do(
        *(
            {"do": "set_word", "mr": "far", "offset": 8 * n, "value": 1000 + n}
            for n in range(ROUNDS)
        )
    )
    b.do(b.receiving([(Place("sink", n * LENGTH, LENGTH),) for n in range(2 * ROUNDS)]))
    wrs = [wr for n in range(ROUNDS) for wr in requests(n, 40000 + n * LENGTH)]
    a.do(a.sending(wrs, b))
    sent = a.do(poll("sends", len(wrs), 25))[0]
    received = b.do(poll("recvs", 2 * ROUNDS, WAIT_SECONDS))[0]
    return all_ok("A", sent, len(wrs)) + all_ok("B", received, 2 * ROUNDS)


def round_problems(exchange, n, *more_places):
    """Problems of the memory that a round has written."""
    a, b = exchange.a, exchange.b
    places = [
        (b, "sink", 2 * n * LENGTH, LENGTH, NEAR_SEED + n),
        (b, "sink", (2 * n + 1) * LENGTH, LENGTH - 1, NEAR_SEED + 20 + n),
        (b, "far", 40000 + n * LENGTH, LENGTH, NEAR_SEED + 10 + n),
        (a, "near", 131072 + n * LENGTH, LENGTH, NEAR_SEED + 10 + n),
        *more_places,
    ]
    problems = []
    for end, region, offset, size, seed in places:
        (answer,) = end.do(differs(region, offset, size, seed))
        if answer["differs"] is not None:
            problems.append(f"round {n + 1}: {region} is wrong at {answer['differs']}")
    (found,) = a.do({"do": "word", "mr": "near", "offset": 65536 + 8 * n})
    (left,) = b.do({"do": "word", "mr": "far", "offset": 8 * n})
    if (found["value"], left["value"]) != (1000 + n, 1001 + n):
        problems.append(f"round {n + 1}: the atomic found {found} and left {left}")
    return problems
