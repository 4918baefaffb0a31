"""Rows: what A posts, what B offers, and what both must see.

A `Row` describes an exchange between the requester, A, and the responder, B. It runs in up to three
directions: to rxe (ours is A), from rxe (ours is B), and rxe to rxe, for comparison. Everything in
it is symbolic; an `Exchange` makes the objects.
"""

from dataclasses import dataclass, field, replace

REMOTE = ("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
FULL = ("LOCAL_WRITE", *REMOTE)

DIRECTIONS = ("to-rxe", "from-rxe", "rxe-rxe")

# Time limit of what is expected; much more than it ever takes, since the guest is emulated.
WAIT_SECONDS = 5

# No region has this key: rxe numbers them from 1, ours are random.
UNKNOWN_KEY = 0x00BADB00

# First contents of the regions: `fill` with these seeds.
NEAR_SEED, FAR_SEED, SINK_SEED = 1, 2, 3


class RowError(Exception):
    """A row that cannot run: something that must be possible was refused."""


@dataclass(frozen=True)
class Region:
    """A memory region."""

    length: int = 8192
    access: tuple = FULL
    pd: str = "pd"
    seed: int = 0


@dataclass(frozen=True)
class Place:
    """A part of a region, which may be wrong: longer than the region, or with an unknown key."""

    region: str
    offset: int = 0
    length: int = 0
    key: int | None = None  # instead of the region's


@dataclass(frozen=True)
class Wr:
    """A send work request."""

    op: str
    near: tuple = ()  # parts of A's regions
    far: Place | None = None  # in B's
    imm: int | None = None
    flags: tuple = ("SIGNALED",)
    inline: dict | None = None
    values: dict = field(default_factory=dict)  # the operands of an atomic
    # changes to the destination of a datagram: values, or functions of what is right
    destination: dict | None = None
    raw: bool = False  # written into the kernel's ring, since rxe's library would refuse it


@dataclass(frozen=True)
class End:
    """Objects and attributes of a side. A's region is "near", B's are "far" and "sink" (for what it
    receives).
    """

    regions: dict = field(default_factory=dict)
    access: tuple = REMOTE
    path_mtu: int = 1024
    max_rd_atomic: int = 4
    max_dest_rd_atomic: int = 4
    timeout: int = 17  # 0.5 s
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = 12
    qkey: int = 0x11111111
    send_cq_size: int = 64
    caps: dict = field(default_factory=dict)
    srq: dict | None = None
    dest_qpn: int | None = None  # instead of the other side's
    last_state: str = "rts"


@dataclass(frozen=True)
class Expect:
    """Expected outcome of a row.

    Statuses are "ok", "flush" or the name in C, in the order of the requests. Alternatives, where
    timing decides, have "|" between them; the first one is waited for.
    """

    a: str = ""  # A's send requests
    b: str = ""  # B's receive requests
    own: str = ""  # A's receive requests
    states: str = "RTS RTS"  # A's and B's
    nak: str | None = ""  # B's NAKs on the wire; None: any
    post: str = ""  # error of A's posting
    events_a: str = ""
    events_b: str = ""
    drops: tuple = ()  # names of our counters that must have changed, if ours is B


@dataclass(frozen=True)
class Row:
    """An exchange between A and B, and its expected outcome."""

    name: str
    sends: tuple = ()
    recvs: tuple = ()  # B's
    own: tuple = ()  # A's
    expect: Expect = Expect()
    # Differences of rxe: "to-rxe", "from-rxe", "rxe-rxe", also with "@6.1" or "@6.12" -> changes to
    # `expect`. rxe-rxe has those of both others, too.
    rxe: dict = field(default_factory=dict)
    why: str = ""  # reason of the differences
    a: End = field(default_factory=End)
    b: End = field(default_factory=End)
    service: str = "rc"
    family: str = "ipv4"
    prepare: tuple = ()  # ("a" or "b", command) before A posts
    late: tuple = ()  # the same, afterwards
    pause: float = 0.0  # seconds between posting and polling
    apart: bool = False  # rxe posts its second request when the first is complete
    quiet: float = 0.0  # seconds in which nothing more may happen
    checks: tuple = ()  # ("a" or "b", region, offset, length, seed): memory afterwards
    details: dict = field(default_factory=dict)  # "a", "b" -> fields of the completions
    faults: str = ""  # on our link
    directions: tuple = DIRECTIONS
    kernels: tuple = ("6.1", "6.12")
    script: object = None  # function of an `Exchange`, instead of posting once; returns problems

    @property
    def mtu(self):
        """The path MTU that it needs. A datagram is one packet, or one that is too long for any."""
        longest = 0
        if self.service == "ud":
            longest = max((sum(place.length for place in wr.near) for wr in self.sends), default=0)
        least = min(longest, 4096)
        return max(self.a.path_mtu, self.b.path_mtu, least)

    def expected(self, direction, kernel):
        layers = {
            "to-rxe": ["to-rxe"],
            "from-rxe": ["from-rxe"],
            "rxe-rxe": ["to-rxe", "from-rxe", "rxe-rxe"],
        }[direction]
        changes = {}
        # rxe raises hardly any events; those that it does are in `rxe`.
        if direction != "to-rxe":
            changes["events_a"] = ""
        if direction != "from-rxe":
            changes |= {"events_b": "", "drops": ()}
        for layer in layers:
            changes |= self.rxe.get(layer, {}) | self.rxe.get(f"{layer}@{kernel}", {})
        if direction == "rxe-rxe":
            changes["nak"] = ""  # it does not leave the guest
        return replace(self.expect, **changes)


def poll(cq, count=1000, timeout=0):
    """Command that polls a completion queue."""
    return {"do": "poll", "cq": cq, "count": count, "timeout": timeout}


def statuses(completions):
    """Statuses as in `Expect`; with the requests' numbers where they are not 1, 2, 3, …"""
    short = {"SUCCESS": "ok", "WR_FLUSH_ERR": "flush"}
    words = [short.get(c["status"], c["status"]) for c in completions]
    numbers = [c["id"] for c in completions]
    if numbers != list(range(1, len(numbers) + 1)):
        words = [f"{number}:{word}" for number, word in zip(numbers, words, strict=True)]
    return " ".join(words)


def differs(region, offset, length, seed):
    """Command that compares a part of a region with what `fill` writes."""
    return {"do": "differs", "mr": region, "offset": offset, "length": length, "seed": seed}


def all_ok(label, completions, count):
    """Problems of completions that should be successes of so many requests."""
    seen = statuses(completions)
    return [] if seen == " ".join(["ok"] * count) else [f"{label}: {seen}"]
