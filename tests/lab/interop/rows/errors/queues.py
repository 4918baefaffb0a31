"""Queues that are too small or run empty, and queues that drain."""

from lab.interop.rows.errors.common import GOOD, RECVS, on_far
from lab.interop.rows.row import UNKNOWN_KEY, End, Expect, Place, Row, poll, statuses


def queues():
    """Queues that are too small or run empty, and queues that drain."""
    twelve = tuple((Place("sink", 64 * n, 64),) for n in range(12))
    ok = " ".join(["ok"] * 12)
    # 7: rxe's queues hold one less than a power of two.
    yield Row(
        "cq-overrun",
        sends=(GOOD,) * 12,
        recvs=twelve,
        a=End(send_cq_size=7),
        pause=0.2,
        expect=Expect(a=" ".join(["ok"] * 7), b=ok, states="ERR RTS", events_a="CQ_ERR QP_FATAL"),
        rxe={"from-rxe": {"states": "RTS RTS", "events_a": " ".join(["CQ_ERR"] * 5)}},
        why="rxe raises an event for each lost completion, and the queue pair goes on without them",
    )
    yield Row(
        "srq/limit",
        sends=(GOOD, GOOD),
        recvs=RECVS,
        b=End(srq={"max_wr": 16, "limit": 2}),
        expect=Expect(a="ok ok", b="ok ok", events_b="SRQ_LIMIT_REACHED"),
        rxe={
            "to-rxe": {"events_b": "SRQ_LIMIT_REACHED"},
            "rxe-rxe": {"events_a": "SRQ_LIMIT_REACHED", "events_b": ""},
        },
    )
    yield Row(
        "srq/last-request",
        sends=(GOOD, on_far("write", Place("far", key=UNKNOWN_KEY))),
        recvs=RECVS,
        b=End(srq={"max_wr": 16}),
        expect=Expect(
            a="ok REM_ACCESS_ERR",
            b="ok",
            states="ERR ERR",
            nak="ACCESS",
            events_b="QP_ACCESS_ERR QP_LAST_WQE_REACHED",
        ),
        rxe={
            "to-rxe@6.12": {"events_b": "QP_LAST_WQE_REACHED"},
            "rxe-rxe@6.12": {"events_a": "QP_LAST_WQE_REACHED", "events_b": ""},
        },
        why="rxe 6.1 has no such event, and neither has one for a refused access",
    )
    yield Row(
        "draining",
        script=drain,
        expect=Expect(b="ok ok ok"),
        why="rxe goes on only if another request is posted after SQD, so one is",
    )


def drain(exchange):
    """Script: in SQD nothing new is sent, and A gets an event when the rest is complete."""
    a, b = exchange.a, exchange.b
    b.do(b.receiving(RECVS))
    sqd, resume = (
        {"do": "modify", "qp": "qp", "to": to} for to in ({"sqd": {"notify": True}}, {"resume": {}})
    )
    events = {"do": "events", "count": 1, "timeout": 2}
    _, first, _, told, state, _, early = a.do(
        a.sending((GOOD,), b),
        poll("sends", 1, 10),
        sqd,
        events,
        {"do": "query", "qp": "qp"},
        a.sending((GOOD,), b, first=2),
        poll("sends", 1, 0.3),
    )
    _, _, second = a.do(resume, a.sending((GOOD,), b, first=3), poll("sends", 2, 10))
    seen = [
        statuses(first),
        " ".join(event["event"] for event in told),
        state["state"],
        statuses(early),
        statuses(second),
    ]
    wanted = ["ok", "SQ_DRAINED", "SQD", "", "2:ok 3:ok"]
    return [] if seen == wanted else [f"seen {seen}, wanted {wanted}"]
