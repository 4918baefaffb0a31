"""Errors at the requester: its buffers, its posting, its flushed requests."""

from dataclasses import replace

from lab.interop.rows.errors.common import (
    GOOD,
    LOST,
    LOST_STATUS,
    OWN,
    SIZE,
    UNTOUCHED,
    bad_request,
    on_far,
)
from lab.interop.rows.row import UNKNOWN_KEY, End, Expect, Place, Region, Row, Wr

# The bad request is refused when it is posted, and the one behind it is not posted.
REFUSED_BY_LIBRARY = {
    "post": "EINVAL",
    "a": "ok",
    "own": "",
    "b": "ok",
    "states": "RTS RTS",
    "nak": "",
    "events_b": "",
}


def local_buffers():
    """A's own memory does not allow the access."""
    failed = Expect(a="ok LOC_PROT_ERR flush", own="flush", b="ok", states="ERR RTS")
    apart = (
        f"rxe 6.1 tells a bad key from bad bounds; {LOST}; after a local error 6.1 drops "
        "acknowledgements, and nothing completes any more, so the bad request is posted alone"
    )
    bounds = {"from-rxe@6.12": LOST_STATUS}
    key = bounds | {"from-rxe@6.1": {"a": "ok LOC_QP_OP_ERR flush"}}
    # The destination of a READ is checked when data arrive; the SEND behind may have left by then.
    late = replace(failed, b="ok|ok ok")
    for op in ["send", "write", "read"]:
        for what, place, region, prepare in [
            ("unknown-key", Place("near", 0, 64, key=UNKNOWN_KEY), Region(), ()),
            ("other-domain", Place("spare", 0, 64), Region(pd="other"), ()),
            ("past-end", Place("near", SIZE - 32, 64), Region(), ()),
            (
                "deregistered",
                Place("spare", 0, 64),
                Region(),
                (("a", {"do": "destroy", "name": "spare"}),),
            ),
        ]:
            rxe = bounds if what == "past-end" else key
            yield bad_request(
                f"local-buffer/{what}/{op}",
                Wr(op, (place,), Place("far")),
                late if op == "read" else failed,
                rxe={} if op == "read" else rxe,
                apart=True,
                why="" if op == "read" else apart,
                a=End(regions={"spare": region}),
                prepare=prepare,
                checks=UNTOUCHED,
            )
    yield bad_request(
        "local-buffer/no-right/read",
        Wr("read", (Place("spare", 0, 64),), Place("far")),
        late,
        a=End(regions={"spare": Region(access=("REMOTE_READ",))}),
    )
    for length, rxe in [
        (4, REFUSED_BY_LIBRARY),
        (16, {"a": "ok ok ok", "own": "", "b": "ok ok", "states": "RTS RTS"}),
    ]:
        wr = Wr("fetch_add", (Place("near", 0, length),), Place("far"), values={"add": 1})
        yield bad_request(
            f"local-buffer/not-a-word/{length}",
            wr,
            replace(failed, a="ok LOC_LEN_ERR flush"),
            rxe={"from-rxe": rxe},
            why="librxe refuses less than a word, and rxe fills the first of more",
        )
    yield bad_request(
        "no-initiator-depth/read",
        on_far("read", Place("far")),
        replace(failed, a="ok LOC_QP_OP_ERR flush"),
        a=End(max_rd_atomic=0),
        checks=UNTOUCHED,
        quiet=0.2,
        rxe={"from-rxe": {"a": "ok", "own": "", "states": "RTS RTS"}},
        why="in rxe the READ waits for ever, and everything behind it",
    )


def posting():
    """Requests that are refused when they are posted."""
    refused = Expect(post="EINVAL", states="RTS RTS")
    for state in ["reset", "init", "rtr"]:
        yield Row(
            f"post/in-{state}",
            sends=(GOOD,),
            a=End(last_state=state),
            expect=replace(refused, states=f"{state.upper()} RTS"),
        )
    yield Row(
        "post/too-many-pieces", sends=(Wr("send", (Place("near", 0, 1),) * 5),), expect=refused
    )
    yield Row(
        "post/inline-too-long",
        sends=(Wr("send", inline={"length": 600, "seed": 1}),),
        expect=refused,
    )
    for service, wr in [
        ("uc", on_far("read", Place("far"))),
        ("uc", on_far("fetch_add", Place("far"))),
        ("ud", on_far("write", Place("far"))),
    ]:
        yield Row(
            f"post/no-such-operation/{service}-{wr.op}",
            service=service,
            sends=(wr,),
            expect=Expect(a="LOC_QP_OP_ERR", states="SQE RTS"),
            rxe={"from-rxe": {"states": "ERR RTS"}, "from-rxe@6.12": {"a": "flush"}},
            why="rxe has no SQE, and rxe 6.12 loses the status of an error on its own side",
        )
    to_error = ("a", {"do": "modify", "qp": "qp", "to": {"err": {}}})
    # 63: rxe's queues hold one less than a power of two.
    yield Row(
        "post/queue-full",
        sends=(GOOD,) * 70,
        a=End(timeout=20, caps={"max_send_wr": 63}),
        late=(to_error,),
        prepare=(("b", {"do": "destroy", "name": "qp"}),),
        expect=Expect(post="ENOMEM", a=" ".join(["flush"] * 63), states="ERR gone"),
    )


def flushing():
    """A's program moves its queue pair to ERR."""
    silent = End(timeout=20)
    to_error = ("a", {"do": "modify", "qp": "qp", "to": {"err": {}}})
    gone = ("b", {"do": "destroy", "name": "qp"})
    wrs = (
        GOOD,
        on_far("write", Place("far")),
        on_far("read", Place("far")),
        on_far("fetch_add", Place("far")),
        replace(GOOD, flags=()),
    )
    yield Row(
        "flush/by-command",
        sends=wrs,
        own=OWN * 3,
        a=silent,
        prepare=(gone,),
        late=(to_error,),
        expect=Expect(
            a="flush flush flush flush flush", own="flush flush flush", states="ERR gone"
        ),
    )
    yield Row(
        "flush/posted-in-error",
        sends=(GOOD, GOOD),
        prepare=(to_error,),
        expect=Expect(a="flush flush", states="ERR RTS"),
    )
