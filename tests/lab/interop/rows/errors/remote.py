"""Errors at the responder: its memory, its queue pair, its windows, its receive requests."""

from dataclasses import replace

from lab.interop.rows.errors.common import (
    GOOD,
    INVALID,
    LESS_IMPATIENT,
    LOST,
    LOST_STATUS,
    NEAR,
    RECVS,
    RIGHTS,
    SIZE,
    UNTOUCHED,
    bad_request,
    enabled,
    kernels,
    on_far,
    rights,
)
from lab.interop.rows.row import (
    FAR_SEED,
    FULL,
    UNKNOWN_KEY,
    End,
    Expect,
    Place,
    Region,
    Row,
    Wr,
    poll,
    statuses,
)


def access():
    """B's memory does not allow the access."""
    refused = Expect(
        a="ok REM_ACCESS_ERR flush",
        own="flush",
        b="ok flush flush",
        states="ERR ERR",
        nak="ACCESS",
        events_b="QP_ACCESS_ERR",
    )
    for op, right in RIGHTS.items():
        length = 8 if op in ("fetch_add", "atomic_write") else 64
        granted = rights(op)
        for what, far, region in [
            ("unknown-key", Place("far", key=UNKNOWN_KEY), Region(access=granted, seed=FAR_SEED)),
            ("other-domain", Place("far"), Region(access=granted, pd="other", seed=FAR_SEED)),
            ("no-right", Place("far"), Region(access=rights(op, without=right), seed=FAR_SEED)),
            ("past-end", Place("far", SIZE - length + 8), Region(access=granted, seed=FAR_SEED)),
            ("before-start", Place("far", -8), Region(access=granted, seed=FAR_SEED)),
        ]:
            yield bad_request(
                f"access/{what}/{op}",
                on_far(op, far),
                refused,
                b=enabled(op, regions={"far": region}),
                checks=UNTOUCHED,
                kernels=kernels(op),
            )
        yield bad_request(
            f"access/deregistered/{op}",
            on_far(op, Place("far")),
            refused,
            b=enabled(op, regions={"far": Region(access=granted)}),
            kernels=kernels(op),
            prepare=(("b", {"do": "destroy", "name": "far"}),),
        )
    yield bad_request(
        "access/unknown-key/write-imm",
        Wr("write", NEAR, Place("far", key=UNKNOWN_KEY), imm=7),
        refused,
        rxe={"to-rxe": {"b": "ok REM_ACCESS_ERR flush"}},
        checks=UNTOUCHED,
        why="rxe gives the receive request the status of the sender",
    )


def not_enabled():
    """B's queue pair does not allow the operation, though its memory does."""
    for op, right in RIGHTS.items():
        b = End(
            regions={"far": Region(access=rights(op), seed=FAR_SEED)},
            access=tuple(name for name in rights(op, without=right) if name != "LOCAL_WRITE"),
        )
        yield bad_request(
            f"not-enabled/{op}",
            on_far(op, Place("far")),
            INVALID,
            b=b,
            checks=UNTOUCHED,
            kernels=kernels(op),
        )
    for op in ["read", "fetch_add", "atomic_write"]:
        yield bad_request(
            f"no-responder-resources/{op}",
            on_far(op, Place("far")),
            INVALID,
            b=End(max_dest_rd_atomic=0),
            checks=UNTOUCHED,
            kernels=kernels(op),
        )
    for op in ["fetch_add", "atomic_write"]:
        # librxe refuses the former and does not know the latter.
        wr = replace(on_far(op, Place("far", 4)), raw=True)
        yield bad_request(f"misaligned/{op}", wr, INVALID, checks=UNTOUCHED, kernels=kernels(op))


def windows():
    """Memory windows: refused accesses, binds and invalidations."""
    yield from window_accesses()
    yield from binds()
    yield from invalidations()


def window_accesses():
    """Accesses that a window does not allow."""
    refused = Expect(
        a="ok REM_ACCESS_ERR flush",
        b="ok flush flush",
        states="ERR ERR",
        nak="ACCESS",
        events_b="QP_ACCESS_ERR",
    )
    b = End(regions={"far": Region(access=(*FULL, "MW_BIND"), seed=FAR_SEED)})
    for what, offset, granted in [
        ("outside", 900, ["REMOTE_WRITE"]),
        ("no-right", 1000, ["REMOTE_READ"]),
    ]:
        for window_type in [1, 2]:
            row = Row(
                f"window/{what}/type{window_type}",
                b=b,
                script=through_window(window_type, offset, granted),
                expect=refused,
            )
            if what == "outside":
                passed = {"a": "ok ok ok", "b": "ok ok", "states": "RTS RTS", "nak": ""}
                row = replace(
                    row,
                    rxe={"to-rxe": passed},
                    why="rxe checks the bounds of the region, not of the window",
                )
            else:
                row = replace(row, checks=UNTOUCHED)
            yield row


def binds():
    """Binds that A's region does not allow."""
    failed = Expect(a="ok MW_BIND_ERR flush", own="flush", b="ok", states="ERR RTS")
    lost = {"from-rxe@6.12": LOST_STATUS}
    make = ("a", {"do": "window", "name": "window", "pd": "pd", "window_type": 2})
    bindable = (*FULL, "MW_BIND")
    for what, region, length in [
        ("no-right", Region(), 64),
        ("other-domain", Region(access=bindable, pd="other"), 64),
        ("past-end", Region(access=bindable), SIZE + 1),
        ("needs-local-write", Region(access=("REMOTE_READ", "MW_BIND")), 64),
    ]:
        bind = {
            "window": "a.window",
            "region": "a.spare",
            "offset": 0,
            "length": length,
            "access": ["REMOTE_WRITE"],
        }
        rxe, why = lost, LOST
        if what == "other-domain":
            rxe = lost | {
                "from-rxe@6.1": {"a": "ok ok ok", "own": "", "b": "ok ok", "states": "RTS RTS"}
            }
            why = f"rxe 6.1 does not check the region's protection domain; {LOST}"
        yield bad_request(
            f"bind/{what}",
            Wr("bind_window", values={"bind": bind}),
            failed,
            prepare=(make,),
            apart=True,
            a=End(regions={"spare": region}),
            rxe=rxe,
            why=why,
        )


def invalidations():
    """Keys that cannot be invalidated."""
    for what, key in [
        ("unknown-key", {"values": {"rkey": UNKNOWN_KEY}}),
        ("region", {"far": Place("far")}),
    ]:
        yield bad_request(
            f"send-invalidate/{what}",
            Wr("send_invalidate", NEAR, **key),
            Expect(
                a="ok ok RETRY_EXC_ERR", own="flush", b="ok REM_INV_REQ_ERR flush", states="ERR ERR"
            ),
            a=LESS_IMPATIENT,
        )
    yield bad_request(
        "local-invalidate/unknown-key",
        Wr("local_invalidate", values={"rkey": UNKNOWN_KEY}),
        Expect(a="ok MW_BIND_ERR flush", own="flush", b="ok", states="ERR RTS"),
        apart=True,
        rxe={"from-rxe@6.12": LOST_STATUS, "from-rxe@6.1": {"a": "ok LOC_QP_OP_ERR flush"}},
        why=f"the status of network cards; {LOST}",
    )


def through_window(window_type, offset, granted):
    """Script: B binds a window to 1000..2000 of "far", and A writes 64 bytes at `offset` of it."""

    def script(exchange):
        a, b = exchange.a, exchange.b
        bind = {
            "window": "b.window",
            "region": "b.far",
            "offset": 1000,
            "length": 1000,
            "access": granted,
        }
        wr = {"id": 1, "op": "bind_window", "flags": ["SIGNALED"], "bind": bind}
        *_, posted, bound = b.do(
            b.receiving(RECVS),
            {"do": "window", "name": "window", "pd": "pd", "window_type": window_type},
            {"do": "send", "qp": "qp", "wrs": [wr]},
            poll("sends", 1, 10),
        )
        a.do(
            a.sending(
                (GOOD, Wr("write", NEAR, Place("far", offset, key=posted["rkeys"][0])), GOOD), b
            )
        )
        return [] if statuses(bound) == "ok" else [f"bind: {bound}"]

    return script


def receive_buffers():
    """B's receive request is bad, or too small."""
    bad = Wr("send", NEAR)
    broken = Expect(
        a="ok REM_OP_ERR flush",
        own="flush",
        b="ok LOC_PROT_ERR flush",
        states="ERR ERR",
        nak="OPERATION",
    )

    def spare(**attributes):
        return End(regions={"spare": Region(seed=9, **attributes)})

    for what, place, b, prepare in [
        ("unknown-key", Place("sink", 64, 64, key=UNKNOWN_KEY), End(), ()),
        ("other-domain", Place("spare", 0, 64), spare(pd="other"), ()),
        ("no-right", Place("spare", 0, 64), spare(access=("REMOTE_READ",)), ()),
        ("past-end", Place("sink", SIZE - 32, 64), End(), ()),
        (
            "deregistered",
            Place("spare", 0, 64),
            spare(),
            (("b", {"do": "destroy", "name": "spare"}),),
        ),
    ]:
        row = bad_request(
            f"receive-buffer/{what}",
            bad,
            broken,
            b=b,
            prepare=prepare,
            rxe={"to-rxe": {"b": "ok LOC_QP_OP_ERR flush"}},
            why="rxe has one status for all errors of a receive request",
        )
        yield replace(row, recvs=(RECVS[0], (place,), RECVS[2]))
    too_small = replace(INVALID, b="ok LOC_LEN_ERR flush", events_b="")
    for what, length in [("one-packet", 65), ("many-packets", 3000)]:
        wr = Wr("send", (Place("near", 0, length),))
        yield bad_request(
            f"receive-buffer/too-small/{what}",
            wr,
            too_small,
            rxe={
                "to-rxe": {
                    "a": "ok REM_OP_ERR flush",
                    "b": "ok LOC_QP_OP_ERR flush",
                    "nak": "OPERATION",
                }
            },
            why="rxe blames the receiver; by the specification the request is invalid",
        )
