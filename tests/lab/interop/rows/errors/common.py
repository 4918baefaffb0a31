"""Parts of rows of errors: requests, receive requests, access rights."""

from lab.interop.rows.row import FAR_SEED, FULL, End, Expect, Place, Row, Wr

SIZE = 8192
GOOD = Wr("send", (Place("near", 0, 16),))
NEAR = (Place("near", 0, 64),)
WORD = (Place("near", 0, 8),)
# Three receive requests of B: for the good SEND, for a bad one, and one that is left.
RECVS = ((Place("sink", 0, 64),), (Place("sink", 64, 64),), (Place("sink", 128, 64),))
OWN = ((Place("near", 4096, 64),),)
UNTOUCHED = (("b", "far", 0, SIZE, FAR_SEED),)
# The retries end soon: 16 ms, twice.
IMPATIENT = End(timeout=12, retry_cnt=1)
# The same, with time for a kernel that writes on its console before it answers.
LESS_IMPATIENT = End(timeout=15, retry_cnt=1)
# Access right that each operation needs, of B's memory and of its queue pair.
RIGHTS = {
    "write": "REMOTE_WRITE",
    "read": "REMOTE_READ",
    "fetch_add": "REMOTE_ATOMIC",
    "atomic_write": "REMOTE_WRITE",
    "flush": "FLUSH_GLOBAL",
}
INVALID = Expect(
    a="ok REM_INV_REQ_ERR flush",
    own="flush",
    b="ok flush flush",
    states="ERR ERR",
    nak="INVALID",
    events_b="QP_REQ_ERR",
)
LOST = "rxe 6.12 loses the status of an error on its own side"
LOST_STATUS = {"a": "ok flush flush"}


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


def kernels(op):
    """Kernels whose rxe has the operation."""
    return ("6.12",) if op in ("atomic_write", "flush") else ("6.1", "6.12")


def rights(op, without=None):
    """The right of `op`, and all others that are possible beside it."""
    return tuple(name for name in dict.fromkeys((*FULL, RIGHTS[op])) if name != without)


def enabled(op, **more):
    """B with a queue pair that allows `op`."""
    return End(access=rights(op, without="LOCAL_WRITE"), **more)
