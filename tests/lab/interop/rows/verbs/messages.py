"""Every operation, in lengths around a packet's, and gathered from or scattered into parts."""

from lab.interop.rows.row import (
    FAR_SEED,
    NEAR_SEED,
    SINK_SEED,
    WAIT_SECONDS,
    End,
    Expect,
    Place,
    Row,
    Wr,
    poll,
    statuses,
)
from lab.interop.rows.verbs.common import FROM, GRH, IMMEDIATE, TO, region_around, written


def messages(service, length, family):
    """SEND and WRITE, with and without immediate data."""
    near, far, sink = (region_around(length, seed) for seed in (NEAR_SEED, FAR_SEED, SINK_SEED))
    source = (Place("near", FROM, length),)
    common = {
        "service": service,
        "family": family,
        "a": End(regions={"near": near}),
        "b": End(regions={"far": far, "sink": sink}),
    }
    tail = f"{family}/size{length}"
    for kind, immediate in [("", None), ("-imm", IMMEDIATE)]:
        yield Row(
            f"{service}/send{kind}/{tail}",
            **common,
            recvs=((Place("sink", TO, length),),),
            sends=(Wr("send", source, imm=immediate),),
            expect=Expect(a="ok", b="ok"),
            details={
                "a": [{"opcode": "SEND"}],
                "b": [{"opcode": "RECV", "byte_len": length, "imm": immediate}],
            },
            checks=written("b", "sink", sink, length, NEAR_SEED + FROM),
        )
    checks = written("b", "far", far, length, NEAR_SEED + FROM)
    # The SEND shows B that the WRITE before it is complete.
    yield Row(
        f"{service}/write/{tail}",
        **common,
        recvs=((),),
        sends=(Wr("write", source, Place("far", TO)), Wr("send")),
        expect=Expect(a="ok ok", b="ok"),
        details={"a": [{"opcode": "RDMA_WRITE"}, {"opcode": "SEND"}]},
        checks=checks,
    )
    yield Row(
        f"{service}/write-imm/{tail}",
        **common,
        recvs=((),),
        sends=(Wr("write", source, Place("far", TO), imm=IMMEDIATE),),
        expect=Expect(a="ok", b="ok"),
        checks=checks,
        details={
            "a": [{"opcode": "RDMA_WRITE"}],
            "b": [{"opcode": "RECV_RDMA_WITH_IMM", "byte_len": length, "imm": IMMEDIATE}],
        },
    )


def datagrams(length, family):
    for kind, immediate in [("", None), ("-imm", IMMEDIATE)]:
        sink = region_around(length, SINK_SEED)
        end = TO + GRH + length
        yield Row(
            f"ud/send{kind}/{family}/size{length}",
            service="ud",
            family=family,
            a=End(regions={"near": region_around(length, NEAR_SEED)}),
            b=End(regions={"sink": sink}),
            recvs=((Place("sink", TO, GRH + length),),),
            sends=(Wr("send", (Place("near", FROM, length),), imm=immediate),),
            expect=Expect(a="ok", b="ok"),
            details={"b": [{"opcode": "RECV", "byte_len": GRH + length, "imm": immediate}]},
            checks=(
                ("b", "sink", 0, TO, SINK_SEED),
                ("b", "sink", TO + GRH, length, NEAR_SEED + FROM),
                ("b", "sink", end, sink.length - end, SINK_SEED + end),
            ),
        )


def read(length, family):
    near, far = region_around(length, NEAR_SEED), region_around(length, FAR_SEED)
    return Row(
        f"rc/read/{family}/size{length}",
        family=family,
        a=End(regions={"near": near}),
        b=End(regions={"far": far}),
        sends=(Wr("read", (Place("near", TO, length),), Place("far", FROM)),),
        expect=Expect(a="ok"),
        details={"a": [{"opcode": "RDMA_READ"}]},
        checks=(
            *written("a", "near", near, length, FAR_SEED + FROM),
            ("b", "far", 0, far.length, FAR_SEED),
        ),
    )


def atomics():
    """Atomics on words of B's memory: the values before and after each."""
    operands = [
        ("fetch_add", {"add": 1}, 5, 6),
        ("fetch_add", {"add": (1 << 64) - 1}, 0, (1 << 64) - 1),
        ("compare_swap", {"compare": 7, "swap": 1 << 40}, 7, 1 << 40),
        ("compare_swap", {"compare": 8, "swap": 9}, 1 << 63, 1 << 63),
    ]

    def script(exchange):
        a, b = exchange.a, exchange.b
        b.do(
            *(
                {"do": "set_word", "mr": "far", "offset": 8 * n, "value": before}
                for n, (_, _, before, _) in enumerate(operands)
            )
        )
        wrs = [
            Wr(op, (Place("near", 8 * n, 8),), Place("far", 8 * n), values=values)
            for n, (op, values, _, _) in enumerate(operands)
        ]
        a.do(a.sending(wrs, b))
        completions = a.do(poll("sends", len(wrs), WAIT_SECONDS))[0]
        problems = [] if statuses(completions) == "ok ok ok ok" else [f"completions: {completions}"]
        opcodes = [completion.get("opcode") for completion in completions]
        if opcodes != ["FETCH_ADD", "FETCH_ADD", "COMP_SWAP", "COMP_SWAP"]:
            problems.append(f"opcodes: {opcodes}")
        for end, region, column in [(a, "near", 2), (b, "far", 3)]:
            words = end.do(
                *({"do": "word", "mr": region, "offset": 8 * n} for n in range(len(operands)))
            )
            found, wanted = (
                [word["value"] for word in words],
                [operand[column] for operand in operands],
            )
            if found != wanted:
                problems.append(f"{region}: {found}, wanted {wanted}")
        return problems

    for family in ["ipv4", "ipv6"]:
        yield Row(f"rc/atomics/{family}", family=family, script=script)


def pieces():
    """Messages gathered from parts and scattered into others, at odd boundaries."""
    gathered = (
        Place("near", 0, 1001),
        Place("near", 1001, 0),
        Place("near", 1001, 1),
        Place("near", 1002, 998),
    )
    scattered = (Place("sink", 0, 3), Place("sink", 3, 1500), Place("sink", 1503, 1000))
    checks = (("b", "sink", 0, 2000, NEAR_SEED), ("b", "sink", 2000, 1000, SINK_SEED + 2000))
    yield Row(
        "rc/send/pieces",
        sends=(Wr("send", gathered),),
        recvs=(scattered,),
        expect=Expect(a="ok", b="ok"),
        details={"b": [{"byte_len": 2000}]},
        checks=checks,
    )
    into = (Place("near", 0, 3), Place("near", 3, 1500), Place("near", 1503, 497))
    yield Row(
        "rc/read/pieces",
        sends=(Wr("read", into, Place("far")),),
        expect=Expect(a="ok"),
        checks=(("a", "near", 0, 2000, FAR_SEED), ("a", "near", 2000, 1000, NEAR_SEED + 2000)),
    )


def inline():
    wr = Wr("send", inline={"length": 61, "seed": 77}, flags=("SIGNALED",))
    yield Row(
        "rc/send/inline",
        sends=(wr,),
        recvs=((Place("sink", 0, 100),),),
        expect=Expect(a="ok", b="ok"),
        details={"b": [{"byte_len": 61}]},
        checks=(("b", "sink", 0, 61, 77), ("b", "sink", 61, 39, SINK_SEED + 61)),
    )
