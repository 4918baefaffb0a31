"""ATOMIC WRITE and FLUSH, which rxe has since 6.2."""

from lab.interop.rows.row import (
    FAR_SEED,
    FULL,
    NEAR_SEED,
    REMOTE,
    End,
    Expect,
    Place,
    Region,
    Row,
    Wr,
)


def placement():
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
