"""Tests of how the soak judges, with programs that do not run."""

import random
import signal
import unittest
from pathlib import Path
from unittest import mock

from lab.dropin.case import Program
from lab.soak.exchange import exchanges
from lab.soak.fate import LONG_STOP, SHORT_STOP, UNDISTURBED, Fate, choose_fate
from lab.soak.running import NOTICE_SECONDS, SECONDS, Running
from lab.soak.survivor import GROWTH_DESCRIPTORS, GROWTH_KIB, Survivor, Usage

KILLED = -signal.SIGKILL


class FakeProgram:
    """A program that has the status it is given at a time, unless it runs on."""

    label, program = "fake", Program(())

    def __init__(self, status=None, said=""):
        self.status, self.said, self.process = status, said, mock.Mock()

    def poll(self):
        return self.status

    def end(self):
        self.process.ended = True

    def lines(self):
        return self.said.splitlines()

    def describe(self, result):
        pass


def played(
    fate=UNDISTURBED,
    server=None,
    client=None,
    reliable=True,
    stream=False,
    leaves=False,
    faults=(),
    until=10 * SECONDS,
):
    """An exchange whose programs are these, when it is over or `until` has come."""
    exchange = next(
        each
        for each in exchanges()
        if each.server
        and each.reliable == reliable
        and (each.stream or not stream)
        and (each.leaves or not leaves)
    )
    host = mock.Mock(look=lambda program: "")
    run = Running(exchange, fate, faults, [host, host], Path("/nowhere"), 1)
    run.begun = run.client_begun = 0
    run.programs = {"server": server or FakeProgram(), "client": client or FakeProgram()}
    now = 0
    while now < until and not run.step(now):
        now += 1
    run.judge()
    return run, now


class JudgingTest(unittest.TestCase):
    """Exchanges."""

    def test_both_end_by_themselves(self):
        run, _ = played(server=FakeProgram(0), client=FakeProgram(0))
        self.assertEqual(run.outcome, "whole")

    def test_an_undisturbed_program_must_not_fail(self):
        run, _ = played(server=FakeProgram(0), client=FakeProgram(1))
        self.assertEqual(run.problems, ["the client ended with 1"])

    def test_an_undisturbed_program_must_not_wait(self):
        run, _ = played(client=FakeProgram(0))
        self.assertIn("the server hangs", run.problems[0])

    def test_two_that_have_lost_each_other(self):
        run, now = played(Fate("stop", "server", 1, LONG_STOP[0]))
        self.assertEqual((len(run.problems), now), (2, SECONDS + 1))

    def test_the_peer_of_a_killed_program_may_fail_and_may_wait(self):
        kill = Fate("kill", "client", 1)
        run, _ = played(kill, FakeProgram(12), FakeProgram(KILLED))
        # It was over before it was killed: then it has died of something else.
        self.assertIn("the client died of signal 9", run.problems)
        client = FakeProgram()
        client.process.kill = lambda: setattr(client, "status", KILLED)
        run, now = played(kill, FakeProgram(), client)
        self.assertEqual((run.problems, run.outcome), ([], "waited"))
        self.assertGreater(now, NOTICE_SECONDS)

    def test_a_stream_that_is_closed(self):
        kill = Fate("kill", "client", 1)
        died = ["the server died of signal 13"]
        for fate, stream, problems in [
            (kill, True, []),
            (kill, False, died),
            (UNDISTURBED, True, died),
        ]:
            client = FakeProgram(0 if fate is UNDISTURBED else None)
            client.process.kill = lambda client=client: setattr(client, "status", KILLED)
            run, _ = played(fate, FakeProgram(-signal.SIGPIPE), client, stream=stream)
            self.assertEqual(run.problems, problems)

    def test_who_has_left_repeats_no_answer(self):
        dropped, lost = ("--fault", "drop 0.2%"), "transport retry counter exceeded (12)"
        for leaves, faults, client, said, problems in [
            (True, dropped, 0, lost, []),
            (True, dropped, 0, "", ["the server ended with 1"]),
            (True, dropped, 1, lost, ["the server ended with 1", "the client ended with 1"]),
            (True, ("--fault", "reorder 1%"), 0, lost, ["the server ended with 1"]),
            (False, dropped, 0, lost, ["the server ended with 1"]),
        ]:
            programs = FakeProgram(1, said), FakeProgram(client)
            run, _ = played(UNDISTURBED, *programs, leaves=leaves, faults=faults)
            self.assertEqual(run.problems, problems)

    def test_a_message_that_came_in_pieces(self):
        torn = "ethernet_read_keys: Couldn't read remote address"
        ended = ["the server ended with 1", "the client ended with 1"]
        for cut, said, problems in [(True, torn, []), (False, torn, ended), (True, "", ended)]:
            run, _ = played(server=FakeProgram(1, said), client=FakeProgram(1, said))
            run.problems, run.cut = [], cut
            run.judge()
            self.assertEqual(run.problems, problems)

    def test_a_program_that_stumbles_at_its_end(self):
        raced = "client DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n"
        ended = ["the client ended with 255"]
        for status, said, problems in [
            (255, raced, []),
            (255, "", ended),
            (255, f"{raced}cq completion failed status 5\n", ended),
            (1, raced, ["the client ended with 1"]),
        ]:
            run, _ = played(server=FakeProgram(0), client=FakeProgram(status, said))
            self.assertEqual(run.problems, problems, said)

    def test_a_server_that_was_never_ready(self):
        programs = FakeProgram(1, "transport retry counter exceeded (12)"), FakeProgram(0)
        run, _ = played(UNDISTURBED, *programs, leaves=True, faults=("--fault", "drop 0.2%"))
        del run.programs["client"]
        run.judge()
        self.assertEqual(run.problems, ["the server ended with 1", "the server was not ready"])

    def test_a_short_stop_excuses_nothing(self):
        stop = Fate("stop", "server", 0, SHORT_STOP[1])
        run, _ = played(stop, FakeProgram(), FakeProgram(1))
        self.assertTrue(run.problems)

    def test_nothing_excuses_damage_and_crashes(self):
        damaged = FakeProgram(1, "invalid data in page 3")
        run, _ = played(server=damaged, client=FakeProgram(1), reliable=False)
        self.assertEqual(run.problems, ["the server printed: invalid data in page 3"])
        run, _ = played(server=FakeProgram(-11), client=FakeProgram(1), reliable=False)
        self.assertEqual(run.problems, ["the server died of signal 11"])


class FateTest(unittest.TestCase):
    """Choices."""

    def test_the_same_seed_makes_the_same_choices(self):
        every = list(exchanges())

        def choices():
            rng = random.Random(5)
            return [choose_fate(rng, rng.choice(every)) for _ in range(200)]

        self.assertEqual(choices(), choices())

    def test_clients_of_survivors_are_never_killed(self):
        rng = random.Random(1)
        for exchange in [each for each in exchanges() if each.survivor] * 100:
            self.assertFalse(choose_fate(rng, exchange).excuses)


class SurvivorTest(unittest.TestCase):
    """What a server may use at the end."""

    def problems(self, *samples):
        survivor = Survivor.__new__(Survivor)
        survivor.program, survivor.samples = FakeProgram(), list(samples)
        return survivor.judge()[0]

    def test_growth(self):
        warm = Usage(8000, 30, 2)
        most = Usage(8000 + GROWTH_KIB, 30 + GROWTH_DESCRIPTORS, 2)
        self.assertEqual(self.problems(warm, most), [])
        more = Usage(most.kib + 1, most.descriptors + 1, 3)
        self.assertEqual(len(self.problems(warm, more)), 3)
