"""Conversations between two queue pairs, of which each is ours or rxe's: what is set up, what is asked, what must come of it.

A `Row` is told from the requester, A, to the responder, B, and is played in up to three directions: to rxe (we are A), from rxe
(we are B), and rxe to rxe, for comparison. Everything in it is symbolic; a `Conversation` makes it real.
"""

import time
from dataclasses import dataclass, field, replace

REMOTE = ("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
FULL = ("LOCAL_WRITE", *REMOTE)

DIRECTIONS = ("to-rxe", "from-rxe", "rxe-rxe")

# How long what is expected may take; much more than it ever does, for the guest is emulated.
PATIENCE = 5

# Of a row that fails.
SHOWN_PACKETS = 200

# No region has this key: rxe numbers them from 1, ours are random.
UNKNOWN_KEY = 0x00BADB00

# What the regions hold at first: `fill` with these seeds.
NEAR_SEED, FAR_SEED, SINK_SEED = 1, 2, 3


class RowError(Exception):
    """A row cannot be played: something that must be possible was refused."""


@dataclass(frozen=True)
class Region:
    length: int = 8192
    access: tuple = FULL
    pd: str = "pd"
    seed: int = 0


@dataclass(frozen=True)
class Place:
    """A part of a region, which may be a lie: `length` beyond its end, or with a key that is none."""

    region: str
    offset: int = 0
    length: int = 0
    key: int | None = None  # instead of the region's


@dataclass(frozen=True)
class Wr:
    op: str
    near: tuple = ()  # pieces of A's regions
    far: Place | None = None  # in B's
    imm: int | None = None
    flags: tuple = ("SIGNALED",)
    inline: dict | None = None
    values: dict = field(default_factory=dict)  # the operands of an atomic
    destination: dict | None = None  # changes to where a datagram goes
    raw: bool = False  # rxe's library would refuse it, so its agent gives it to the kernel itself


@dataclass(frozen=True)
class End:
    """A side's objects and attributes. A's regions are "near", B's are "far" and "sink" (for what it receives)."""

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
    last_state: str = "rts"  # how far it is taken


@dataclass(frozen=True)
class Expect:
    """What comes of a row, in words: "ok", "flush" or the status's name in C, in the order of the requests. Where several
    things may come, because it is a matter of time, there is "|" between them, and the first is what is waited for."""

    a: str = ""  # A's send requests
    b: str = ""  # B's receive requests
    own: str = ""  # A's receive requests
    states: str = "RTS RTS"  # A's and B's
    nak: str | None = ""  # what B refused with, on the wire; None: that is chance
    post: str = ""  # how A's posting ended, when it failed
    events_a: str = ""
    events_b: str = ""
    drops: tuple = ()  # of our counters, those that must have moved, when we are B


@dataclass(frozen=True)
class Row:
    name: str
    sends: tuple = ()
    recvs: tuple = ()  # B's
    own: tuple = ()  # A's
    expect: Expect = Expect()
    # Where rxe is not as `expect` says: "to-rxe", "from-rxe", "rxe-rxe", also with "@6.1" or "@6.12" -> changes to `expect`.
    # rxe-rxe has those of both others too.
    rxe: dict = field(default_factory=dict)
    why: str = ""  # why it is not
    a: End = End()
    b: End = End()
    service: str = "rc"
    family: str = "ipv4"
    prepare: tuple = ()  # ("a" or "b", command) before anything is posted by A
    late: tuple = ()  # the same, afterwards
    pause: float = 0.0  # seconds between posting and polling
    staged: bool = False  # rxe posts its second request when the first is complete
    quiet: float = 0.0  # seconds in which nothing more may happen
    checks: tuple = ()  # ("a" or "b", region, offset, length, seed): what memory holds afterwards
    details: dict = field(
        default_factory=dict
    )  # "a", "b" -> what the completions must say, field by field
    faults: str = ""  # on our link
    directions: tuple = DIRECTIONS
    kernels: tuple = ("6.1", "6.12")
    script: object = None  # a function of a `Conversation` that does it all, instead of posting once; returns problems

    def expected(self, direction, kernel):
        layers = {
            "to-rxe": ["to-rxe"],
            "from-rxe": ["from-rxe"],
            "rxe-rxe": ["to-rxe", "from-rxe", "rxe-rxe"],
        }[direction]
        changes = {}
        # rxe raises hardly any events; those that it does are in `rxe`
        if direction != "to-rxe":
            changes["events_a"] = ""
        if direction != "from-rxe":
            changes |= {"events_b": "", "drops": ()}
        for layer in layers:
            changes |= self.rxe.get(layer, {}) | self.rxe.get(f"{layer}@{kernel}", {})
        if direction == "rxe-rxe":
            changes["nak"] = ""  # it does not leave the guest
        return replace(self.expect, **changes)


class Player:
    """One end of a conversation. Its objects' names carry its letter, for both ends may live in one agent."""

    def __init__(self, letter, side, address, end, row, seeds):
        self.letter, self.side, self.address, self.end, self.row = letter, side, address, end, row
        self.keys = {}
        self.regions = {
            name: end.regions.get(name, Region(seed=seed)) for name, seed in seeds.items()
        }
        self.regions |= {name: region for name, region in end.regions.items() if name not in seeds}
        self.ours = side.who.startswith("our")

    def do(self, *commands):
        """The answers to commands of which none may fail."""
        answers = self.try_to(*commands)
        for command, answer in zip(commands, answers):
            if "error" in answer:
                raise RowError(f"{self.side.who}: {command}: {answer['error']} {answer['text']}")
        return answers

    def try_to(self, *commands):
        return self.side.ask([self.named(command) for command in commands])

    def named(self, command):
        """The command with this side's letter before the names of objects."""
        return {
            key: f"{self.letter}.{value}"
            if key in ("name", "pd", "mr", "cq", "send_cq", "recv_cq", "srq", "qp")
            else value
            for key, value in command.items()
        }

    def create(self):
        end = self.end
        commands = [
            {"do": "pd", "name": "pd"},
            {"do": "pd", "name": "other"},
            {"do": "cq", "name": "sends", "size": end.send_cq_size},
            {"do": "cq", "name": "recvs", "size": 256},
        ]
        if end.srq:
            limit = end.srq.get("limit")
            commands.append(
                {"do": "srq", "name": "srq", "pd": "pd", "max_wr": end.srq["max_wr"], "max_sge": 4}
            )
            if limit:
                commands.append({"do": "srq_limit", "srq": "srq", "limit": limit})
        regions = len(commands)
        for name, region in self.regions.items():
            commands.append(
                {
                    "do": "mr",
                    "name": name,
                    "pd": region.pd,
                    "length": region.length,
                    "access": list(region.access),
                }
            )
        commands += [
            {"do": "fill", "mr": name, "offset": 0, "length": region.length, "seed": region.seed}
            for name, region in self.regions.items()
        ]
        qp = {
            "do": "qp",
            "name": "qp",
            "pd": "pd",
            "type": self.row.service,
            "send_cq": "sends",
            "recv_cq": "recvs",
            "caps": end.caps,
        }
        if end.srq:
            qp["srq"] = "srq"
        commands.append(qp)
        answers = self.do(*commands)
        for name, answer in zip(self.regions, answers[regions:]):
            self.keys[name] = answer
        self.qpn = answers[-1]["qpn"]

    def transitions(self, other, psn, other_psn):
        """From RESET to where it should be."""
        end, service = self.end, self.row.service
        init = {"qkey": end.qkey} if service == "ud" else {"access": list(end.access)}
        rtr, rts = {}, {"sq_psn": psn}
        if service != "ud":
            qpn = other.qpn if end.dest_qpn is None else end.dest_qpn
            rtr = {
                "peer": {"address": other.address, "qpn": qpn, "path_mtu": end.path_mtu},
                "rq_psn": other_psn,
            }
        if service == "rc":
            rtr |= {
                "max_dest_rd_atomic": end.max_dest_rd_atomic,
                "min_rnr_timer": end.min_rnr_timer,
            }
            rts |= {
                "timeout": end.timeout,
                "retry_cnt": end.retry_cnt,
                "rnr_retry": end.rnr_retry,
                "max_rd_atomic": end.max_rd_atomic,
            }
        steps = [("init", init), ("rtr", rtr), ("rts", rts)]
        count = ["reset", "init", "rtr", "rts"].index(end.last_state)
        return [
            {"do": "modify", "qp": "qp", "to": {state: attributes}}
            for state, attributes in steps[:count]
        ]

    def piece(self, place):
        """As a scatter/gather element."""
        keys = self.keys[place.region]
        key = keys["lkey"] if place.key is None else place.key
        return {"lkey": key, "address": keys["address"] + place.offset, "length": place.length}

    def target(self, place):
        """As a peer names it."""
        keys = self.keys[place.region]
        return {
            "rkey": keys["rkey"] if place.key is None else place.key,
            "address": keys["address"] + place.offset,
        }

    def request(self, number, wr, other):
        made = {"id": number, "op": wr.op, "flags": list(wr.flags), **wr.values}
        if wr.inline:
            made["inline"] = wr.inline
        else:
            made["sges"] = [self.piece(place) for place in wr.near]
        if wr.far:
            made["remote"] = other.target(wr.far)
        if wr.op == "send_invalidate" and wr.far:
            made["rkey"] = made.pop("remote")["rkey"]
        if wr.imm is not None:
            made["imm"] = wr.imm
        if wr.raw:
            made["raw"] = True
        if self.row.service == "ud":
            made["destination"] = {
                "address": other.address,
                "qpn": other.qpn,
                "qkey": other.end.qkey,
                **(wr.destination or {}),
            }
        return made

    def sending(self, wrs, other, first=1):
        return {
            "do": "send",
            "qp": "qp",
            "wrs": [self.request(first + n, wr, other) for n, wr in enumerate(wrs)],
        }

    def receiving(self, recvs, first=1):
        wrs = [
            {"id": first + n, "sges": [self.piece(place) for place in places]}
            for n, places in enumerate(recvs)
        ]
        return {
            "do": "recv",
            "srq" if self.end.srq else "qp": "srq" if self.end.srq else "qp",
            "wrs": wrs,
        }


@dataclass
class Observed:
    a: str = ""
    b: str = ""
    own: str = ""
    states: str = ""
    nak: str = ""
    post: str = ""
    events_a: str = ""
    events_b: str = ""
    problems: list = field(default_factory=list)
    report: list = field(default_factory=list)


class Conversation:
    PSN_A, PSN_B = 0xFFFFFE, 0x123456  # A's wrap around soon

    def __init__(self, row, expected, a, b, tap):
        """`a` and `b` are (side, address)."""
        self.row, self.expected, self.tap = row, expected, tap
        self.a = Player("a", *a, row.a, row, {"near": NEAR_SEED})
        self.b = Player("b", *b, row.b, row, {"far": FAR_SEED, "sink": SINK_SEED})
        self.observed = Observed()
        self.staged = []  # completions of A's that were polled before `finish`

    def play(self):
        for side in {self.a.side, self.b.side}:
            side.ask([{"do": "clear"}])
        self.tap.take()
        self.a.create()
        self.b.create()
        self.before = {player: player.do({"do": "counters"})[0] for player in (self.a, self.b)}
        for player, other, psns in [
            (self.a, self.b, (self.PSN_A, self.PSN_B)),
            (self.b, self.a, (self.PSN_B, self.PSN_A)),
        ]:
            player.do(*player.transitions(other, *psns))
        if self.row.script:
            self.observed.problems += self.row.script(self) or []
        else:
            self.post()
        self.finish()
        return self.observed

    def player(self, letter):
        return self.a if letter == "a" else self.b

    def post(self):
        row, a, b = self.row, self.a, self.b
        if row.recvs:
            b.do(b.receiving(row.recvs))
        if row.own:
            a.do(a.receiving(row.own))
        for letter, command in row.prepare:
            self.player(letter).do(command)
        if row.sends:
            sends = row.sends
            if row.staged and not a.ours:
                _, self.staged = a.do(a.sending(sends[:1], b), poll("sends", 1, PATIENCE))
                sends = sends[1:]
            (answer,) = a.try_to(a.sending(sends, b, first=len(row.sends) - len(sends) + 1))
            if answer.get("error") == "EPROTO":
                raise RowError(answer["text"])
            self.observed.post = answer.get("error", "")
            if self.observed.post:
                self.observed.report.append(("posting", answer["text"]))
        for letter, command in row.late:
            self.player(letter).do(command)
        time.sleep(row.pause)

    def finish(self):
        """Waits for what is expected, and looks what there is."""
        expected, observed, a, b = self.expected, self.observed, self.a, self.b
        waits = [(a, "sends", expected.a), (a, "recvs", expected.own), (b, "recvs", expected.b)]
        gathered = {(a.letter, "sends"): self.staged}
        for player, cq, words in waits:
            already = gathered.setdefault((player.letter, cq), [])
            count = len(words.split("|")[0].split()) - len(already)
            if count > 0:
                already += player.do(poll(cq, count, PATIENCE))[0]
        if self.row.quiet:
            time.sleep(self.row.quiet)
        for player, events in [(a, expected.events_a), (b, expected.events_b)]:
            count = len(events.split())
            states, more_sends, more_recvs, first_events, more_events = player.try_to(
                {"do": "query", "qp": "qp"},
                poll("sends"),
                poll("recvs"),
                {"do": "events", "count": count, "timeout": PATIENCE if count else 0},
                {"do": "events", "count": 1000, "timeout": 0},
            )
            for cq, more in [("sends", more_sends), ("recvs", more_recvs)]:
                gathered.setdefault((player.letter, cq), []).extend(more)
            observed.states += " " + states.get("state", "gone")
            raised = first_events + more_events
            setattr(
                observed, f"events_{player.letter}", " ".join(event["event"] for event in raised)
            )
            if raised:
                observed.report.append(
                    (f"{player.letter.upper()} events", "\n".join(map(str, raised)))
                )
        observed.states = observed.states.strip()
        observed.a = statuses(gathered["a", "sends"])
        observed.own = statuses(gathered["a", "recvs"])
        observed.b = statuses(gathered["b", "recvs"])
        if gathered["b", "sends"]:
            observed.problems.append(
                f"B, who sent nothing, has completions: {gathered['b', 'sends']}"
            )
        packets = self.tap.take()
        observed.nak = " ".join(
            dict.fromkeys(p.nak for p in packets if p.nak and p.dest_qpn == a.qpn)
        )
        self.judge(gathered)
        self.report(gathered, packets)

    def judge(self, gathered):
        observed, expected = self.observed, self.expected
        for name in ("post", "a", "b", "own", "states", "nak", "events_a", "events_b"):
            seen, wanted = getattr(observed, name), getattr(expected, name)
            if wanted is not None and seen not in wanted.split("|"):
                observed.problems.append(f"{name}: {seen!r}, wanted {wanted!r}")
        for letter, wanted in self.row.details.items():
            completions = gathered[letter, "sends" if letter == "a" else "recvs"]
            for number, fields in enumerate(wanted):
                seen = completions[number] if number < len(completions) else {}
                wrong = {
                    key: seen.get(key) for key, value in fields.items() if seen.get(key) != value
                }
                if wrong:
                    observed.problems.append(
                        f"completion {number + 1} of {letter.upper()} has {wrong}, wanted {fields}"
                    )
        for completion in sum(gathered.values(), []):
            if completion["status"] != "SUCCESS" and not completion["reason"]:
                observed.problems.append(f"a completion without a reason: {completion}")
        self.check_memory()
        if expected.drops:
            still = [name for name in expected.drops if name not in self.moved(self.b)]
            if still:
                observed.problems.append(f"our counters did not move: {still}")

    def moved(self, player):
        """How far a side's counters have moved since the beginning."""
        (after,) = player.do({"do": "counters"})
        return {
            name: value - self.before[player][name]
            for name, value in after.items()
            if value != self.before[player][name]
        }

    def check_memory(self):
        for letter, region, offset, length, seed in self.row.checks:
            command = {
                "do": "differs",
                "mr": region,
                "offset": offset,
                "length": length,
                "seed": seed,
            }
            (answer,) = self.player(letter).do(command)
            if answer["differs"] is not None:
                self.observed.problems.append(
                    f"{letter.upper()}'s {region} is wrong at {answer['differs']}, in {length} bytes from {offset}"
                )

    def report(self, gathered, packets):
        self.observed.report += [
            (f"{letter.upper()} {cq}", "\n".join(map(str, completions)))
            for (letter, cq), completions in gathered.items()
            if completions
        ]
        if not self.observed.problems:
            return
        self.observed.report += [
            (f"{player.letter.upper()} counters", str(self.moved(player)))
            for player in (self.a, self.b)
        ]
        shown = [str(packet) for packet in packets]
        if len(shown) > SHOWN_PACKETS:
            half = SHOWN_PACKETS // 2
            shown[half:-half] = [f"... {len(shown) - 2 * half} packets ..."]
        self.observed.report.append(("wire", "\n".join(shown)))


def poll(cq, count=1000, timeout=0):
    return {"do": "poll", "cq": cq, "count": count, "timeout": timeout}


def statuses(completions):
    """In the words of `Expect`; with the requests' numbers where they are not 1, 2, 3, …"""
    words = [
        {"SUCCESS": "ok", "WR_FLUSH_ERR": "flush"}.get(c["status"], c["status"])
        for c in completions
    ]
    numbers = [c["id"] for c in completions]
    if numbers != list(range(1, len(numbers) + 1)):
        words = [f"{number}:{word}" for number, word in zip(numbers, words)]
    return " ".join(words)
