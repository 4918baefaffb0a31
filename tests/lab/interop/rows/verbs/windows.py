"""Memory windows, and the end of their keys: by a rebind, by their owner, by the peer."""

from lab.interop.rows.row import (
    FAR_SEED,
    FULL,
    NEAR_SEED,
    REMOTE,
    WAIT_SECONDS,
    End,
    Expect,
    Place,
    Region,
    Row,
    Wr,
    differs,
    poll,
    statuses,
)

# The window in "far".
START, LENGTH = 1000, 3000


def windows():
    b = End(regions={"far": Region(access=(*FULL, "MW_BIND"), seed=FAR_SEED)})
    refused = Expect(states="ERR ERR", nak="ACCESS", events_b="QP_ACCESS_ERR")
    for name, window_type, end_key in [
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
            script=through_window(window_type, end_key),
            expect=refused,
        )


def through_window(window_type, end_key):
    """Script: B binds a window, A writes and reads through it, and `end_key` makes its key invalid.

    `end_key` is a function of A, B and the key, and returns statuses.
    """

    def script(exchange):
        a, b = exchange.a, exchange.b
        b.do({"do": "window", "name": "window", "pd": "pd", "window_type": window_type})
        key, bound = bind(b, 1)
        used = a.do(a.sending(through(key), b), poll("sends", 2, WAIT_SECONDS))[1]
        problems = data_problems(a, b)
        ended = end_key(a, b, key)
        # B's own requests are complete, so a request with the old key is refused.
        refused = send_one(a, b, through(key)[0], 4)
        seen = [bound, statuses(used), ended, statuses(refused)]
        wanted = ["ok", "ok ok", "ok", "4:REM_ACCESS_ERR"]
        return problems + ([] if seen == wanted else [f"seen {seen}, wanted {wanted}"])

    return script


def bind(b, number, length=LENGTH, access=REMOTE):
    """Binds B's window to a part of "far"; returns its key and the bind's statuses."""
    part = {"region": "b.far", "offset": START, "length": length, "access": list(access)}
    wr = {"id": number, "op": "bind_window", "flags": ["SIGNALED"]}
    wr["bind"] = {"window": "b.window", **part}
    send = {"do": "send", "qp": "qp", "wrs": [wr]}
    posted, completions = b.do(send, poll("sends", 1, WAIT_SECONDS))
    return posted["rkeys"][0], statuses(completions).removeprefix(f"{number}:")


def through(key):
    """A WRITE and a READ of a window's bytes."""
    return (
        Wr("write", (Place("near", 0, LENGTH),), Place("far", START, key=key)),
        Wr("read", (Place("near", 4096, LENGTH),), Place("far", START, key=key)),
    )


def send_one(a, b, wr, number):
    """The completion of a request of A's, in a list."""
    return a.do(a.sending((wr,), b, first=number), poll("sends", 1, WAIT_SECONDS))[1]


def data_problems(a, b):
    answers = [
        *a.do(differs("near", 4096, LENGTH, NEAR_SEED)),
        *b.do(differs("far", START, LENGTH, NEAR_SEED), differs("far", 0, START, FAR_SEED)),
    ]
    return [] if all(answer["differs"] is None for answer in answers) else [f"data: {answers}"]


def rebind(a, b, key):
    new_key, bound = bind(b, 2)
    used = statuses(send_one(a, b, through(new_key)[0], 3))
    return bound if used == "3:ok" and new_key != key else f"{bound} {used}"


def unbind(a, b, key):
    return bind(b, 2, length=0, access=())[1]


def local_invalidate(a, b, key):
    wr = {"id": 1, "op": "local_invalidate", "flags": ["SIGNALED"], "rkey": key}
    send = {"do": "send", "qp": "qp", "wrs": [wr]}
    completions = b.do(send, poll("sends", 1, WAIT_SECONDS))[1]
    good = completions[0].get("opcode") == "LOCAL_INV"
    return statuses(completions) if good else str(completions)


def send_invalidate(length):
    """A function that sends so many bytes and invalidates the key."""

    def end_key(a, b, key):
        b.do(b.receiving([(Place("sink", 0, 4000),)]))
        wr = Wr("send_invalidate", (Place("near", 0, length),), values={"rkey": key})
        sent = send_one(a, b, wr, 3)
        received, data = b.do(poll("recvs", 1, WAIT_SECONDS), differs("sink", 0, length, NEAR_SEED))
        fields = [(wc.get("byte_len"), wc.get("invalidated")) for wc in received]
        seen = (statuses(sent), fields, data["differs"])
        good = seen == ("3:ok", [(length, key)], None)
        return "ok" if good else f"{sent} {received} {data}"

    return end_key
