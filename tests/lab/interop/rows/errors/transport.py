"""Errors of the transport: no receive request, no answer, other path MTUs, unreliable services."""

from dataclasses import replace

from lab.interop.rows.errors.common import (
    GOOD,
    IMPATIENT,
    INVALID,
    NEAR,
    OWN,
    RECVS,
    UNTOUCHED,
    bad_request,
    on_far,
)
from lab.interop.rows.row import UNKNOWN_KEY, End, Expect, Place, Row, Wr


def not_ready():
    """B has no receive request until the last retry."""
    a = End(rnr_retry=1)
    expect = Expect(a="RNR_RETRY_EXC_ERR flush", own="flush", states="ERR RTS", nak="RNR")
    for what, wr, b in [
        ("send", GOOD, End()),
        ("write-imm", Wr("write", NEAR, Place("far"), imm=7), End()),
        ("shared-queue", GOOD, End(srq={"max_wr": 16})),
    ]:
        yield Row(
            f"not-ready/{what}",
            sends=(wr, wr),
            own=OWN,
            a=a,
            b=b,
            expect=expect,
            rxe={"to-rxe": {"nak": "RNR SEQUENCE"}},
            why="after an RNR NAK rxe refuses what was under way behind it, too",
        )


def no_response():
    """A gets no answer."""
    expect = Expect(a="RETRY_EXC_ERR flush", own="flush", states="ERR RTS")
    for what, a, b, prepare, state in [
        ("wrong-number", replace(IMPATIENT, dest_qpn=0xABCDE), End(), (), "RTS"),
        ("peer-destroyed", IMPATIENT, End(), (("b", {"do": "destroy", "name": "qp"}),), "gone"),
        ("peer-in-reset", IMPATIENT, End(last_state="reset"), (), "RESET"),
        ("peer-in-init", IMPATIENT, End(last_state="init"), (), "INIT"),
        (
            "peer-in-error",
            IMPATIENT,
            End(),
            (("b", {"do": "modify", "qp": "qp", "to": {"err": {}}}),),
            "ERR",
        ),
    ]:
        yield Row(
            f"no-answer/{what}",
            sends=(GOOD, GOOD),
            own=OWN,
            a=a,
            b=b,
            prepare=prepare,
            expect=replace(expect, states=f"ERR {state}"),
        )


def lengths():
    """The two sides have different path MTUs."""
    for what, a, b in [("requester-larger", 1024, 512), ("requester-smaller", 512, 1024)]:
        for op in ["send", "write"]:
            wr = Wr(op, (Place("near", 0, 2000),), Place("far"))
            sink = ((Place("sink", 0, 64),), (Place("sink", 64, 4000),), (Place("sink", 5000, 64),))
            row = bad_request(
                f"path-mtu/{what}/{op}", wr, INVALID, a=End(path_mtu=a), b=End(path_mtu=b)
            )
            if op == "send":
                taken = {
                    "a": "ok ok ok",
                    "own": "",
                    "b": "ok ok ok",
                    "states": "RTS RTS",
                    "nak": "",
                }
                row = replace(
                    row,
                    rxe={"to-rxe@6.1": taken, "to-rxe@6.12": {"b": "ok REM_INV_REQ_ERR flush"}},
                    why="rxe 6.1 ignores the length of a SEND's packets; 6.12 checks it too late",
                )
            yield replace(row, recvs=sink)


def unreliable():
    """On an unreliable connection a refused message is dropped, and the next one arrives."""
    expect = Expect(a="ok ok", b="ok")
    yield Row(
        "uc/no-receive",
        service="uc",
        sends=(GOOD,),
        expect=Expect(a="ok", drops=("no_receive_request",)),
        quiet=0.1,
    )
    yield Row(
        "uc/unknown-key",
        service="uc",
        sends=(on_far("write", Place("far", key=UNKNOWN_KEY)), GOOD),
        recvs=RECVS[:1],
        expect=replace(expect, drops=("request_refused",)),
        checks=UNTOUCHED,
    )
    yield Row(
        "uc/not-enabled",
        service="uc",
        sends=(on_far("write", Place("far")), GOOD),
        recvs=RECVS[:1],
        b=End(access=()),
        expect=replace(expect, drops=("request_refused",)),
        checks=UNTOUCHED,
    )
    yield Row(
        "uc/buffer-too-small",
        service="uc",
        sends=(Wr("send", (Place("near", 0, 65),)), GOOD),
        recvs=RECVS[:1],
        expect=replace(expect, drops=("request_refused",)),
        rxe={"to-rxe": {"b": "LOC_QP_OP_ERR", "states": "RTS ERR"}},
        why="in rxe the sender can fail the receiver's queue pair",
    )
    yield Row(
        "uc/local-buffer",
        service="uc",
        sends=(GOOD, Wr("send", (Place("near", 0, 64, key=UNKNOWN_KEY),)), GOOD),
        recvs=RECVS[:1],
        own=OWN,
        expect=Expect(a="ok LOC_PROT_ERR flush", b="ok", states="SQE RTS"),
        rxe={
            "from-rxe": {"a": "ok LOC_QP_OP_ERR flush", "own": "flush", "states": "ERR RTS"},
            "from-rxe@6.12": {"a": "ok flush flush"},
        },
        why="rxe has no state SQE",
    )


def datagrams():
    """A datagram that is not for B, or does not fit, is dropped without a report."""
    buffer = ((Place("sink", 0, 200),),)
    lost = Expect(a="ok")
    for what, destination, drop in [
        ("wrong-queue-key", {"qkey": 0x222}, "bad_qkey"),
        # near the right one: processes that share an address each count what is in their own part
        ("unknown-number", {"qpn": lambda qpn: qpn ^ 1}, "unknown_qp"),
    ]:
        wr = replace(GOOD, destination=destination)
        yield Row(
            f"ud/{what}",
            service="ud",
            sends=(wr,),
            recvs=buffer,
            expect=replace(lost, drops=(drop,)),
            quiet=0.1,
        )
    yield Row(
        "ud/no-receive",
        service="ud",
        sends=(GOOD,),
        expect=replace(lost, drops=("no_receive_request",)),
        quiet=0.1,
    )
    yield Row(
        "ud/buffer-too-small",
        service="ud",
        sends=(Wr("send", (Place("near", 0, 161),)), GOOD),
        recvs=buffer,
        expect=Expect(a="ok ok", b="ok", drops=("too_long",)),
        rxe={"to-rxe@6.1": {"b": "LOC_QP_OP_ERR", "states": "RTS ERR"}},
        why="in rxe 6.1 anyone can fail the receiver's queue pair",
    )
    yield Row(
        "ud/longer-than-mtu",
        service="ud",
        sends=(GOOD, Wr("send", (Place("near", 0, 4097),)), GOOD),
        recvs=buffer * 2,
        expect=Expect(a="ok LOC_LEN_ERR flush", b="ok", states="SQE RTS"),
        rxe={"from-rxe": {"a": "ok ok ok", "b": "ok ok", "states": "RTS RTS"}},
        why="rxe reports success, and sends nothing; ours reports the error",
    )
    yield Row(
        "ud/local-buffer",
        service="ud",
        sends=(GOOD, Wr("send", (Place("near", 0, 64, key=UNKNOWN_KEY),)), GOOD),
        recvs=buffer,
        expect=Expect(a="ok LOC_PROT_ERR flush", b="ok", states="SQE RTS"),
        rxe={
            "from-rxe": {"a": "ok LOC_QP_OP_ERR flush", "states": "ERR RTS"},
            "from-rxe@6.12": {"a": "ok flush flush"},
        },
        why="rxe has no state SQE",
    )
    yield Row(
        "ud/receive-buffer",
        service="ud",
        sends=(GOOD,),
        recvs=((Place("sink", 0, 200, key=UNKNOWN_KEY),), buffer[0]),
        expect=Expect(a="ok", b="LOC_PROT_ERR flush", states="RTS ERR"),
        rxe={"to-rxe": {"b": "LOC_QP_OP_ERR flush"}},
        why="rxe has one status for all errors of a receive request",
    )
