"""What must work: every operation that both sides have, in all lengths around a packet's, and under what a network does."""

from dataclasses import replace

from conversation import (
    FAR_SEED,
    FULL,
    NEAR_SEED,
    PATIENCE,
    REMOTE,
    SINK_SEED,
    End,
    Expect,
    Place,
    Region,
    Row,
    Wr,
    poll,
    statuses,
)

MTU = 1024
LONG = (1 << 20) + 3
LENGTHS = [0, 1, 7, MTU - 1, MTU, MTU + 1, LONG]
# Nobody sends an unreliable message again, and the guest's socket holds only so many packets.
UNRELIABLE = [0, 1, 7, MTU - 1, MTU, MTU + 1, 16387]
# The largest datagram that both ports carry.
PORT_MTU = 4096

# Where in its region a message begins, so that what lies around it can be examined.
FROM, TO = 64, 128
IMMEDIATE = 0xC0FFEE01

# What lies before a datagram in the receive buffer.
GRH = 40


def rows():
    for service, lengths in [("rc", LENGTHS), ("uc", UNRELIABLE)]:
        for length in lengths:
            for family in families(length):
                yield from messages(service, length, family)
    for length in [0, 1, 7, MTU, PORT_MTU]:
        for family in families(length):
            yield from datagrams(length, family)
    for length in LENGTHS:
        for family in families(length):
            yield read(length, family)
    yield from atomics()
    yield from pieces()
    yield from inline()
    yield from windows()
    yield from placement()
    yield from bursts()
    yield from faults()


def families(length):
    return ["ipv4", "ipv6"] if length in (7, MTU + 1) else ["ipv4"]


def spacious(length, seed):
    """A region for a message of that length and something around it."""
    return Region(length + 4096, seed=seed)


def written(letter, name, region, length, source_seed):
    """What memory holds when a message that begins with `source_seed` was written at `TO`, and nothing around it."""
    end = TO + length
    return (
        (letter, name, 0, TO, region.seed),
        (letter, name, TO, length, source_seed),
        (letter, name, end, region.length - end, region.seed + end),
    )


def messages(service, length, family):
    """SEND and WRITE, with and without immediate data."""
    near, far, sink = (spacious(length, seed) for seed in (NEAR_SEED, FAR_SEED, SINK_SEED))
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
    # The SEND tells B when the WRITE before it is done.
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
        sink = spacious(length, SINK_SEED)
        end = TO + GRH + length
        yield Row(
            f"ud/send{kind}/{family}/size{length}",
            service="ud",
            family=family,
            a=End(regions={"near": spacious(length, NEAR_SEED)}),
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
    near, far = spacious(length, NEAR_SEED), spacious(length, FAR_SEED)
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
    """Eight words of B's memory, and what each operation finds and leaves."""
    operands = [
        ("fetch_add", {"add": 1}, 5, 6),
        ("fetch_add", {"add": (1 << 64) - 1}, 0, (1 << 64) - 1),
        ("compare_swap", {"compare": 7, "swap": 1 << 40}, 7, 1 << 40),
        ("compare_swap", {"compare": 8, "swap": 9}, 1 << 63, 1 << 63),
    ]

    def script(conversation):
        a, b = conversation.a, conversation.b
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
        completions = a.do(poll("sends", len(wrs), PATIENCE))[0]
        problems = [] if statuses(completions) == "ok ok ok ok" else [f"completions: {completions}"]
        opcodes = [completion.get("opcode") for completion in completions]
        if opcodes != ["FETCH_ADD", "FETCH_ADD", "COMP_SWAP", "COMP_SWAP"]:
            problems.append(f"opcodes: {opcodes}")
        for player, region, column in [(a, "near", 2), (b, "far", 3)]:
            words = player.do(
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
    """Messages gathered from pieces and scattered into others, at odd boundaries."""
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


def windows():
    """Memory windows, and taking their keys back: by a rebind, by their owner, by the peer."""
    start, length = 1000, 3000

    def bind(
        b, number, window_length=length, access=("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
    ):
        """Binds B's window to a part of "far"; returns its key and the bind's statuses."""
        region = {
            "window": "b.window",
            "region": "b.far",
            "offset": start,
            "length": window_length,
            "access": list(access),
        }
        posted, completions = b.do(
            {
                "do": "send",
                "qp": "qp",
                "wrs": [{"id": number, "op": "bind_window", "flags": ["SIGNALED"], "bind": region}],
            },
            poll("sends", 1, PATIENCE),
        )
        return posted["rkeys"][0], statuses(completions).removeprefix(
            f"{number}:"
        ) if number > 1 else statuses(completions)

    def through(key):
        """A WRITE and a READ of a window's bytes."""
        return (
            Wr("write", (Place("near", 0, length),), Place("far", start, key=key)),
            Wr("read", (Place("near", 4096, length),), Place("far", start, key=key)),
        )

    def check_data(a, b):
        answers = [
            a.do(
                {"do": "differs", "mr": "near", "offset": 4096, "length": length, "seed": NEAR_SEED}
            )[0],
            *b.do(
                {
                    "do": "differs",
                    "mr": "far",
                    "offset": start,
                    "length": length,
                    "seed": NEAR_SEED,
                },
                {"do": "differs", "mr": "far", "offset": 0, "length": start, "seed": FAR_SEED},
            ),
        ]
        return [] if all(answer["differs"] is None for answer in answers) else [f"data: {answers}"]

    def script(window_type, take_back):
        def play(conversation):
            a, b = conversation.a, conversation.b
            b.do({"do": "window", "name": "window", "pd": "pd", "window_type": window_type})
            key, bound = bind(b, 1)
            used = a.do(a.sending(through(key), b), poll("sends", 2, PATIENCE))[1]
            problems = check_data(a, b)
            taken = take_back(a, b, key)
            # B's own requests are complete, so a request with the old key is refused.
            refused = a.do(a.sending(through(key)[:1], b, first=4), poll("sends", 1, PATIENCE))[1]
            seen = [bound, statuses(used), taken, statuses(refused)]
            wanted = ["ok", "ok ok", "ok", "4:REM_ACCESS_ERR"]
            return problems + ([] if seen == wanted else [f"seen {seen}, wanted {wanted}"])

        return play

    def rebind(a, b, key):
        new_key, bound = bind(b, 2)
        used = a.do(a.sending(through(new_key)[:1], b, first=3), poll("sends", 1, PATIENCE))[1]
        return bound if statuses(used) == "3:ok" and new_key != key else f"{bound} {statuses(used)}"

    def unbind(a, b, key):
        return bind(b, 2, window_length=0, access=())[1]

    def local_invalidate(a, b, key):
        wr = {"id": 1, "op": "local_invalidate", "flags": ["SIGNALED"], "rkey": key}
        completions = b.do({"do": "send", "qp": "qp", "wrs": [wr]}, poll("sends", 1, PATIENCE))[1]
        return (
            statuses(completions)
            if completions[0].get("opcode") == "LOCAL_INV"
            else str(completions)
        )

    def send_invalidate(length):
        def take_back(a, b, key):
            b.do(b.receiving([(Place("sink", 0, 4000),)]))
            wr = Wr("send_invalidate", (Place("near", 0, length),), values={"rkey": key})
            sent = a.do(a.sending((wr,), b, first=3), poll("sends", 1, PATIENCE))[1]
            got, data = b.do(
                poll("recvs", 1, PATIENCE),
                {"do": "differs", "mr": "sink", "offset": 0, "length": length, "seed": NEAR_SEED},
            )
            told = [
                {name: completion.get(name) for name in ("byte_len", "invalidated")}
                for completion in got
            ]
            wanted = [{"byte_len": length, "invalidated": key}]
            return (
                "ok"
                if (statuses(sent), told, data["differs"]) == ("3:ok", wanted, None)
                else f"{sent} {got} {data}"
            )

        return take_back

    b = End(regions={"far": Region(access=(*FULL, "MW_BIND"), seed=FAR_SEED)})
    refused = Expect(states="ERR ERR", nak="ACCESS", events_b="QP_ACCESS_ERR")
    for name, window_type, take_back in [
        ("type1/rebind", 1, rebind),
        ("type1/unbind", 1, unbind),
        ("type2/local-invalidate", 2, local_invalidate),
        ("type2/send-invalidate/size0", 2, send_invalidate(0)),
        ("type2/send-invalidate/size3000", 2, send_invalidate(3000)),
    ]:
        yield Row(
            f"rc/window/{name}",
            b=b,
            a=End(regions={"near": Region(16384, seed=NEAR_SEED)}),
            script=script(window_type, take_back),
            expect=refused,
        )


def placement():
    """ATOMIC WRITE and FLUSH, which rxe has since 6.2."""
    rights = (*FULL, "FLUSH_GLOBAL")
    b = End(regions={"far": Region(access=rights, seed=FAR_SEED)}, access=(*REMOTE, "FLUSH_GLOBAL"))
    word = (Place("near", 16, 8),)
    checks = (
        ("b", "far", 0, 64, FAR_SEED),
        ("b", "far", 64, 8, NEAR_SEED + 16),
        ("b", "far", 72, 64, FAR_SEED + 72),
    )
    kernels = ("6.12",)
    yield Row(
        "rc/atomic-write",
        sends=(Wr("atomic_write", word, Place("far", 64)),),
        expect=Expect(a="ok"),
        checks=checks,
        details={"a": [{"opcode": "ATOMIC_WRITE"}]},
        kernels=kernels,
    )
    yield Row(
        "rc/atomic-write/repeatedly",
        sends=(Wr("atomic_write", word, Place("far", 64)),) * 20,
        a=End(max_rd_atomic=2),
        expect=Expect(a=" ".join(["ok"] * 20)),
        checks=checks,
        kernels=kernels,
    )
    write = Wr("write", (Place("near", 0, 3000),), Place("far"))
    for what, length, whole in [("range", 3000, False), ("whole", 0, True)]:
        flush = Wr(
            "flush",
            (),
            Place("far"),
            values={"flush": {"length": length, "placement": ["GLOBAL"], "whole": whole}},
        )
        yield Row(
            f"rc/flush/{what}",
            sends=(write, flush),
            b=b,
            expect=Expect(a="ok ok"),
            kernels=kernels,
            details={"a": [{"opcode": "RDMA_WRITE"}, {"opcode": "FLUSH"}]},
            checks=(("b", "far", 0, 3000, NEAR_SEED), ("b", "far", 3000, 1000, FAR_SEED + 3000)),
        )


def bursts():
    """More messages than receive requests are there: B is "not ready", and more requests come bit by bit."""
    count, length = 40, 1500

    def script(conversation, immediate=None):
        a, b = conversation.a, conversation.b
        receive = [(Place("sink", n * length, length),) for n in range(count)]
        send = [Wr("send", (Place("near", n, length),)) for n in range(count)]
        b.do(b.receiving(receive[:4]))
        a.do(a.sending(send, b))
        got = []
        for first in range(4, count, 4):
            got += b.do(
                poll("recvs", 4, PATIENCE), b.receiving(receive[first : first + 4], first + 1)
            )[0]
        got += b.do(poll("recvs", 4, PATIENCE))[0]
        sent = a.do(poll("sends", count, PATIENCE))[0]
        problems = [
            f"{who}: {statuses(them)}"
            for who, them in [("A", sent), ("B", got)]
            if statuses(them) != " ".join(["ok"] * count)
        ]
        for n in range(count):
            (answer,) = b.do(
                {
                    "do": "differs",
                    "mr": "sink",
                    "offset": n * length,
                    "length": length,
                    "seed": NEAR_SEED + n,
                }
            )
            if answer["differs"] is not None:
                problems.append(f"message {n + 1} is wrong")
        return problems

    sink = Region(count * length, seed=SINK_SEED)
    for name, srq in [("own-queue", None), ("shared-queue", {"max_wr": 64})]:
        yield Row(
            f"rc/burst/{name}",
            script=script,
            b=End(regions={"sink": sink}, srq=srq),
            # after an RNR NAK rxe refuses what was under way behind it, too
            expect=Expect(nak="RNR"),
            rxe={"to-rxe": {"nak": "RNR SEQUENCE"}},
        )


def faults():
    """A mixture of everything, of which the network loses, doubles and shuffles packets."""
    rounds, length = 5, 5000

    def mixture(n, slot):
        return [
            Wr("send", (Place("near", n, length),)),
            Wr("write", (Place("near", 10 + n, length),), Place("far", slot)),
            Wr(
                "fetch_add",
                (Place("near", 65536 + 8 * n, 8),),
                Place("far", 8 * n),
                values={"add": 1},
            ),
            Wr("read", (Place("near", 131072 + n * length, length),), Place("far", slot)),
            Wr(
                "write",
                (Place("near", 20 + n, length - 1),),
                Place("sink", (2 * n + 1) * length),
                imm=n,
            ),
        ]

    def flushed(n, slot):
        """The same with what is new in 6.2. rxe does not answer a FLUSH a second time, so that an answer to something behind it
        must do; it remembers FLUSHes with READs and atomics, so that these have to be few; and it repeats both kinds of request
        with the address 0, so that it can only be asked."""
        flush = Wr(
            "flush",
            (),
            Place("far", slot),
            values={"flush": {"length": length, "placement": ["GLOBAL"], "whole": False}},
        )
        return [
            *mixture(n, slot),
            flush,
            Wr("atomic_write", (Place("near", 40, 8),), Place("far", 32768 + 8 * n)),
        ]

    def script(requests):
        def play(conversation):
            a, b = conversation.a, conversation.b
            b.do(
                *(
                    {"do": "set_word", "mr": "far", "offset": 8 * n, "value": 1000 + n}
                    for n in range(rounds)
                )
            )
            b.do(b.receiving([(Place("sink", n * length, length),) for n in range(2 * rounds)]))
            wrs = [wr for n in range(rounds) for wr in requests(n, 40000 + n * length)]
            a.do(a.sending(wrs, b))
            sent = a.do(poll("sends", len(wrs), 25))[0]
            got = b.do(poll("recvs", 2 * rounds, PATIENCE))[0]
            problems = [
                f"{who}: {statuses(them)}"
                for who, them, count in [("A", sent, len(wrs)), ("B", got, 2 * rounds)]
                if statuses(them) != " ".join(["ok"] * count)
            ]
            for n in range(rounds):
                places = [
                    (b, "sink", 2 * n * length, length, NEAR_SEED + n),
                    (b, "sink", (2 * n + 1) * length, length - 1, NEAR_SEED + 20 + n),
                    (b, "far", 40000 + n * length, length, NEAR_SEED + 10 + n),
                    (a, "near", 131072 + n * length, length, NEAR_SEED + 10 + n),
                ]
                if requests is flushed:
                    places.append((b, "far", 32768 + 8 * n, 8, NEAR_SEED + 40))
                for player, region, offset, size, seed in places:
                    (answer,) = player.do(
                        {
                            "do": "differs",
                            "mr": region,
                            "offset": offset,
                            "length": size,
                            "seed": seed,
                        }
                    )
                    if answer["differs"] is not None:
                        problems.append(f"round {n + 1}: {region} is wrong at {answer['differs']}")
                (found,) = a.do({"do": "word", "mr": "near", "offset": 65536 + 8 * n})
                (left,) = b.do({"do": "word", "mr": "far", "offset": 8 * n})
                if (found["value"], left["value"]) != (1000 + n, 1001 + n):
                    problems.append(f"round {n + 1}: the atomic found {found} and left {left}")
            return problems

        return play

    # 0.13 s until something comes again by itself
    a = End(regions={"near": Region(1 << 18, seed=NEAR_SEED)}, timeout=15)
    b = End(
        regions={
            "sink": Region(1 << 17, seed=SINK_SEED),
            "far": Region(1 << 17, access=FULL, seed=FAR_SEED),
        },
        timeout=15,
    )
    # how often something is refused is chance
    expect = Expect(nak=None)
    both = ("to-rxe", "from-rxe")
    # rxe takes READ responses that overtake each other while it asks again for another part: the data is wrong then, and the
    # status is success. So as a requester it gets them in order.
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
        for direction, rule in zip(both, (to_rxe, from_rxe)):
            yield Row(
                f"rc/faults/{name}",
                script=script(mixture),
                a=a,
                b=b,
                faults=rule,
                expect=expect,
                directions=(direction,),
            )
    b = replace(
        b,
        regions=b.regions | {"far": Region(1 << 17, access=(*FULL, "FLUSH_GLOBAL"), seed=FAR_SEED)},
        access=(*REMOTE, "FLUSH_GLOBAL"),
    )
    yield Row(
        "rc/faults/placement",
        script=script(flushed),
        a=replace(a, max_rd_atomic=2),
        b=b,
        faults="drop 3%",
        expect=expect,
        directions=("to-rxe",),
        kernels=("6.12",),
    )
