"""Exchanges: sets up the two queue pairs of a row, posts, polls, and judges the outcome."""

import time
from dataclasses import dataclass, field

from lab.interop.rows.endpoint import Endpoint
from lab.interop.rows.row import (
    FAR_SEED,
    NEAR_SEED,
    SINK_SEED,
    WAIT_SECONDS,
    RowError,
    poll,
    statuses,
)
from lab.running import wait_until

# Most packets that are shown of a row that fails.
SHOWN_PACKETS = 200


@dataclass
class Observed:
    """Outcome of a row, in the form of `Expect`."""

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


class Exchange:
    """A row under way between two endpoints."""

    PSN_A, PSN_B = 0xFFFFFE, 0x123456  # A's wraps around soon

    def __init__(self, row, expected, a, b, tap):
        """`a` and `b` are (backend, address)."""
        self.row, self.expected, self.tap = row, expected, tap
        self.a = Endpoint("a", *a, row.a, row, {"near": NEAR_SEED})
        self.b = Endpoint("b", *b, row.b, row, {"far": FAR_SEED, "sink": SINK_SEED})
        self.observed = Observed()
        self.early = []  # completions of A's that were polled before `finish`

    def run(self):
        a, b = self.a, self.b
        for backend in {a.backend, b.backend}:
            backend.ask([{"do": "clear"}])
        self.tap.take()
        a.create()
        b.create()
        self.before = {end: end.do({"do": "counters"})[0] for end in (a, b)}
        a.do(*a.transitions(b, self.PSN_A, self.PSN_B))
        b.do(*b.transitions(a, self.PSN_B, self.PSN_A))
        if self.row.script:
            self.observed.problems += self.row.script(self) or []
        else:
            self.post()
        self.finish()
        return self.observed

    def endpoint(self, letter):
        return self.a if letter == "a" else self.b

    def post(self):
        row, a, b = self.row, self.a, self.b
        if row.recvs:
            b.do(b.receiving(row.recvs))
        if row.own:
            a.do(a.receiving(row.own))
        for letter, command in row.prepare:
            self.endpoint(letter).do(command)
        if row.sends:
            sends = row.sends
            if row.apart and not a.backend.ours:
                _, self.early = a.do(a.sending(sends[:1], b), poll("sends", 1, WAIT_SECONDS))
                sends = sends[1:]
            first = len(row.sends) - len(sends) + 1
            (answer,) = a.try_to(a.sending(sends, b, first=first))
            if answer.get("error") == "EPROTO":
                raise RowError(answer["text"])
            self.observed.post = answer.get("error", "")
            if self.observed.post:
                self.observed.report.append(("posting", answer["text"]))
        for letter, command in row.late:
            self.endpoint(letter).do(command)
        time.sleep(row.pause)

    def finish(self):
        """Waits for what is expected, and collects what has happened."""
        observed, a, b = self.observed, self.a, self.b
        gathered = self.await_completions()
        if self.row.quiet:
            time.sleep(self.row.quiet)
        states = [self.collect(a, self.expected.events_a, gathered)]
        states.append(self.collect(b, self.expected.events_b, gathered))
        observed.states = " ".join(states)
        observed.a = statuses(gathered["a", "sends"])
        observed.own = statuses(gathered["a", "recvs"])
        observed.b = statuses(gathered["b", "recvs"])
        if gathered["b", "sends"]:
            text = f"B, which sent nothing, has completions: {gathered['b', 'sends']}"
            observed.problems.append(text)
        packets = self.tap.take()
        naks = [packet.nak for packet in packets if packet.nak and packet.dest_qpn == a.qpn]
        observed.nak = " ".join(dict.fromkeys(naks))
        self.judge(gathered)
        self.report(gathered, packets)

    def await_completions(self):
        """(letter, completion queue) -> completions, as many as are expected."""
        expected, a, b = self.expected, self.a, self.b
        gathered = {("a", "sends"): self.early}
        for end, cq, words in [
            (a, "sends", expected.a),
            (a, "recvs", expected.own),
            (b, "recvs", expected.b),
        ]:
            already = gathered.setdefault((end.letter, cq), [])
            count = len(words.split("|")[0].split()) - len(already)
            if count > 0:
                already += end.do(poll(cq, count, WAIT_SECONDS))[0]
        return gathered

    def collect(self, end, events, gathered):
        """Collects further completions and the events of a side; returns its queue pair's state."""
        count = len(events.split())
        state, more_sends, more_recvs, first_events, more_events = end.try_to(
            {"do": "query", "qp": "qp"},
            poll("sends"),
            poll("recvs"),
            {"do": "events", "count": count, "timeout": WAIT_SECONDS if count else 0},
            {"do": "events", "count": 1000, "timeout": 0},
        )
        for cq, more in [("sends", more_sends), ("recvs", more_recvs)]:
            gathered.setdefault((end.letter, cq), []).extend(more)
        raised = first_events + more_events
        names = " ".join(event["event"] for event in raised)
        setattr(self.observed, f"events_{end.letter}", names)
        if raised:
            heading = f"{end.letter.upper()} events"
            self.observed.report.append((heading, "\n".join(map(str, raised))))
        return state.get("state", "gone")

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
                    text = f"completion {number + 1} of {letter.upper()} has {wrong}"
                    observed.problems.append(f"{text}, wanted {fields}")
        for completion in [one for completions in gathered.values() for one in completions]:
            if completion["status"] != "SUCCESS" and not completion["reason"]:
                observed.problems.append(f"a completion without a reason: {completion}")
        self.check_memory()
        # A busy machine may receive the packets after the requests are complete.
        if not wait_until(lambda: not self.missing_drops(), WAIT_SECONDS):
            observed.problems.append(f"our counters did not change: {self.missing_drops()}")

    def missing_drops(self):
        """Expected counters of drops that have not changed yet."""
        if not self.expected.drops:
            return []
        changed = self.changed_counters(self.b)
        return [name for name in self.expected.drops if name not in changed]

    def changed_counters(self, end):
        """Counters of a side that have changed since the beginning."""
        before = self.before[end]
        (after,) = end.do({"do": "counters"})
        return {
            name: value - before[name] for name, value in after.items() if value != before[name]
        }

    def check_memory(self):
        for letter, region, offset, length, seed in self.row.checks:
            command = {"do": "differs", "mr": region, "offset": offset, "length": length}
            (answer,) = self.endpoint(letter).do(command | {"seed": seed})
            if answer["differs"] is not None:
                text = f"{letter.upper()}'s {region} is wrong at {answer['differs']}"
                self.observed.problems.append(f"{text}, in {length} bytes from {offset}")

    def report(self, gathered, packets):
        report = self.observed.report
        report += [
            (f"{letter.upper()} {cq}", "\n".join(map(str, completions)))
            for (letter, cq), completions in gathered.items()
            if completions
        ]
        if not self.observed.problems:
            return
        for end in (self.a, self.b):
            report.append((f"{end.letter.upper()} counters", str(self.changed_counters(end))))
        shown = [str(packet) for packet in packets]
        if len(shown) > SHOWN_PACKETS:
            half = SHOWN_PACKETS // 2
            shown[half:-half] = [f"... {len(shown) - 2 * half} packets ..."]
        report.append(("wire", "\n".join(shown)))
