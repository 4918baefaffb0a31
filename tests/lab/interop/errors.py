"""What must fail: each class of error, with what both sides must say of it, and where rxe says something else.

In most rows A posts three requests: a SEND that is well, the bad one, and one behind it. So each shows, too, that what came before
is done, and that what comes after is flushed, as are the receive requests of a queue pair in error.
docs/compliance.md lists the same rows.
"""

from dataclasses import replace

from conversation import (
    FAR_SEED,
    FULL,
    NEAR_SEED,
    REMOTE,
    SINK_SEED,
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

SIZE = 8192
GOOD = Wr("send", (Place("near", 0, 16),))
NEAR = (Place("near", 0, 64),)
WORD = (Place("near", 0, 8),)

# Three receive requests of B: for the good SEND, for a bad one, and one that is left.
RECVS = ((Place("sink", 0, 64),), (Place("sink", 64, 64),), (Place("sink", 128, 64),))
OWN = ((Place("near", 4096, 64),),)
UNTOUCHED = (("b", "far", 0, SIZE, FAR_SEED),)

# Quick to give up: 16 ms, twice.
IMPATIENT = End(timeout=12, retry_cnt=1)
# The same, but with time for a kernel that says on its console what is wrong before it answers.
LESS_IMPATIENT = End(timeout=15, retry_cnt=1)


def rows():
    yield from access()
    yield from not_enabled()
    yield from windows()
    yield from receive_buffers()
    yield from local_buffers()
    yield from not_ready()
    yield from no_answer()
    yield from lengths()
    yield from flushing()
    yield from posting()
    yield from queues()
    yield from unreliable()
    yield from datagrams()


def bad_request(name, wr, expect, **more):
    return Row(name, sends=(GOOD, wr, GOOD), recvs=RECVS, own=OWN, expect=expect, **more)


def on_far(op, far):
    """A request of 64 bytes, or for one word, to a place of B's."""
    if op == "fetch_add":
        return Wr(op, WORD, far, values={"add": 1})
    if op == "flush":
        return Wr(
            op, (), far, values={"flush": {"length": 64, "placement": ["GLOBAL"], "whole": False}}
        )
    return Wr(op, WORD if op == "atomic_write" else NEAR, far)


# What B must allow for each operation, of its memory and of its queue pair.
RIGHTS = {
    "write": "REMOTE_WRITE",
    "read": "REMOTE_READ",
    "fetch_add": "REMOTE_ATOMIC",
    "atomic_write": "REMOTE_WRITE",
    "flush": "FLUSH_GLOBAL",
}


def kernels(op):
    """Those whose rxe has the operation."""
    return ("6.12",) if op in ("atomic_write", "flush") else ("6.1", "6.12")


def rights(op, without=None):
    """All rights that may be given beside `op`'s, and its own."""
    return tuple(name for name in dict.fromkeys((*FULL, RIGHTS[op])) if name != without)


def enabled(op, **more):
    """B with a queue pair that allows `op`."""
    return End(access=rights(op, without="LOCAL_WRITE"), **more)


def access():
    """B's memory is not what A takes it for."""
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


INVALID = Expect(
    a="ok REM_INV_REQ_ERR flush",
    own="flush",
    b="ok flush flush",
    states="ERR ERR",
    nak="INVALID",
    events_b="QP_REQ_ERR",
)


def not_enabled():
    """B's queue pair does not allow it, whatever its memory does."""
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
        # librxe refuses the former and does not know the latter
        wr = replace(on_far(op, Place("far", 4)), raw=True)
        yield bad_request(f"misaligned/{op}", wr, INVALID, checks=UNTOUCHED, kernels=kernels(op))


LOST = "rxe 6.12 loses the status of what fails on its own side"


def windows():
    """Memory windows: what they do not allow, what cannot be bound, and what cannot be invalidated."""
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
                open_door = {"a": "ok ok ok", "b": "ok ok", "states": "RTS RTS", "nak": ""}
                row = replace(
                    row,
                    rxe={"to-rxe": open_door},
                    why="rxe checks the bounds of the region, not of the window",
                )
            else:
                row = replace(row, checks=UNTOUCHED)
            yield row

    failed = Expect(a="ok MW_BIND_ERR flush", own="flush", b="ok", states="ERR RTS")
    lost = {"from-rxe@6.12": {"a": "ok flush flush"}}
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
            why = f"rxe 6.1 does not ask for the region's protection domain; {LOST}"
        yield bad_request(
            f"bind/{what}",
            Wr("bind_window", values={"bind": bind}),
            failed,
            prepare=(make,),
            staged=True,
            a=End(regions={"spare": region}),
            rxe=rxe,
            why=why,
        )
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
        replace(failed, a="ok LOC_QP_OP_ERR flush"),
        staged=True,
        rxe=lost,
        why=LOST,
    )


def through_window(window_type, offset, granted):
    """A writes 64 bytes to `offset` of "far", of which B has bound a window to 1000..2000."""

    def script(conversation):
        a, b = conversation.a, conversation.b
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
    """B's own receive request is bad, or too small."""
    bad = Wr("send", NEAR)
    broken = Expect(
        a="ok REM_OP_ERR flush",
        own="flush",
        b="ok LOC_PROT_ERR flush",
        states="ERR ERR",
        nak="OPERATION",
    )
    spare = lambda **attributes: End(regions={"spare": Region(seed=9, **attributes)})
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
            why="rxe knows one status for whatever is wrong with a receive request",
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
            why="rxe takes it for a fault of the receiver; the specification calls the request invalid",
        )


# The bad request is refused when it is posted, and the one behind it is not posted at all.
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
    """A's own memory is not what the request says."""
    failed = Expect(a="ok LOC_PROT_ERR flush", own="flush", b="ok", states="ERR RTS")
    staged = (
        f"rxe 6.1 tells a bad key from bad bounds; {LOST}; and since an acknowledgement that arrives after "
        "a local error is dropped by 6.1, and nothing completes any more, it posts the bad request alone"
    )
    bounds = {"from-rxe@6.12": {"a": "ok flush flush"}}
    key = bounds | {"from-rxe@6.1": {"a": "ok LOC_QP_OP_ERR flush"}}
    # rxe looks at where the data goes when they arrive; the SEND behind may have left by then.
    late = {"from-rxe": {"b": "ok|ok ok"}}
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
            rxe = late if op == "read" else bounds if what == "past-end" else key
            yield bad_request(
                f"local-buffer/{what}/{op}",
                Wr(op, (place,), Place("far")),
                failed,
                rxe=rxe,
                staged=True,
                why=staged
                if op != "read"
                else "rxe looks at the buffer of a READ when the data arrive",
                a=End(regions={"spare": region}),
                prepare=prepare,
                checks=UNTOUCHED,
            )
    yield bad_request(
        "local-buffer/no-right/read",
        Wr("read", (Place("spare", 0, 64),), Place("far")),
        failed,
        rxe=late,
        a=End(regions={"spare": Region(access=("REMOTE_READ",))}),
        why="rxe looks at the buffer of a READ when the data arrive",
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


def not_ready():
    """B has no receive request, for too long."""
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


def no_answer():
    """Nobody answers A."""
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
    """The two sides do not agree on the path MTU."""
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
                    why="rxe 6.1 does not look at the length of a SEND's packets; 6.12 does when it has taken a request",
                )
            yield replace(row, recvs=sink)


def flushing():
    """A's program puts its queue pair into the error state."""
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


def posting():
    """What is refused at once."""
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
            expect=refused,
            rxe={
                "from-rxe": {"post": "", "a": "LOC_QP_OP_ERR", "states": "ERR RTS"},
                "from-rxe@6.12": {"a": "flush"},
            },
            why="librxe posts it, and rxe finds out later",
        )
    to_error = ("a", {"do": "modify", "qp": "qp", "to": {"err": {}}})
    # 63, for rxe's queues hold one less than a power of two
    yield Row(
        "post/queue-full",
        sends=(GOOD,) * 70,
        a=End(timeout=20, caps={"max_send_wr": 63}),
        late=(to_error,),
        prepare=(("b", {"do": "destroy", "name": "qp"}),),
        expect=Expect(post="ENOMEM", a=" ".join(["flush"] * 63), states="ERR gone"),
    )


def queues():
    """Queues that are too small or run empty, and queues that drain."""
    twelve = tuple((Place("sink", 64 * n, 64),) for n in range(12))
    ok = " ".join(["ok"] * 12)
    # 7, for rxe's queues hold one less than a power of two
    yield Row(
        "cq-overrun",
        sends=(GOOD,) * 12,
        recvs=twelve,
        a=End(send_cq_size=7),
        pause=0.2,
        expect=Expect(a=" ".join(["ok"] * 7), b=ok, states="ERR RTS", events_a="CQ_ERR QP_FATAL"),
        rxe={"from-rxe": {"states": "RTS RTS", "events_a": " ".join(["CQ_ERR"] * 5)}},
        why="rxe tells of each completion that it loses, and the queue pair goes on without them",
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
        why="rxe goes on only when it is given something more after SQD, so that is done",
    )


def drain(conversation):
    """In SQD nothing new is sent, and A is told when the rest is done."""
    a, b = conversation.a, conversation.b
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


def unreliable():
    """On an unreliable connection what is refused is gone, and the next message arrives."""
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
    """What is not for B, or does not fit, is gone, and nobody hears of it."""
    buffer = ((Place("sink", 0, 200),),)
    lost = Expect(a="ok")
    for what, destination, drop in [
        ("wrong-queue-key", {"qkey": 0x222}, "bad_qkey"),
        ("unknown-number", {"qpn": 0xABCDE}, "unknown_qp"),
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
        why="rxe says that it was sent, and sends nothing; we tell the program",
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
        why="rxe knows one status for whatever is wrong with a receive request",
    )
