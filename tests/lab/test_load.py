"""Tests of the suite "load" itself, of what needs neither root nor the network."""

import unittest
from argparse import Namespace
from unittest import mock

from lab.load import suite
from lab.load.case import Bar, Case, Outcome, Sample
from lab.load.crowd import summed
from lab.load.perftest import Pair, Plan, figure, row, shortened
from lab.load.sockets import UdpTotals, parse_snmp
from lab.load.tables import bandwidth_table, bar_table, cell, problems
from lab.load.turns import Turns, by_turns

BANDWIDTH = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 1048576    1000             0.00               2144.55\t\t   0.002145
---------------------------------------------------------------------------------------
"""
LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
 64      1000          5.13           1031.10      7.25               8.01
"""
SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors
Udp: 1000 1 7 2000 6 2 0
UdpLite: InDatagrams RcvbufErrors
UdpLite: 5 5
Udp6InDatagrams                 \t10
Udp6OutDatagrams                \t20
Udp6RcvbufErrors                \t3
Udp6SndbufErrors                \t0
UdpLite6RcvbufErrors            \t9
"""


class FigureTest(unittest.TestCase):
    """What perftest prints."""

    def test_of_bandwidth_and_of_latency(self):
        self.assertEqual(figure(BANDWIDTH, "write_bw"), 2144.55)
        self.assertEqual(figure(LATENCY, "send_lat"), 7.25)

    def test_that_is_none(self):
        for number in ("inf", "nan", "-nan", "0.00"):
            text = BANDWIDTH.replace("2144.55", number)
            self.assertIsNone(figure(text, "write_bw"), number)
            self.assertEqual(row(text)[3], number)
        self.assertIsNone(figure("Unable to open file descriptor\n", "write_bw"))
        self.assertIsNone(figure("", "send_lat"))

    def sample(self, *lines, status=0):
        """What a pair of programs showed whose client has printed this."""
        pair = Pair(Plan("write", "write_bw", 65536, 10), None, 0, "")
        text = "\n".join(lines)
        words = {"status": status, "stdout.return_value": text, "lines.return_value": lines}
        pair.programs = [mock.Mock(status=0), mock.Mock(**words)]
        return pair.sample()

    def test_of_a_tool_without_a_clock(self):
        wrong, clock = BANDWIDTH.replace("2144.55", "inf"), "Correlation coefficient r^2: 0.8 < 0.9"
        self.assertEqual(self.sample(BANDWIDTH).value, 2144.55)
        self.assertTrue(self.sample(clock, wrong).unmeasured)
        for failed in (self.sample(wrong), self.sample(clock, wrong, status=1)):
            self.assertIsNone(failed.value)
            self.assertFalse(failed.unmeasured)

    def test_shortened_output(self):
        lines = [f"line {number}" for number in range(100)]
        text = shortened("\n".join(lines)).splitlines()
        self.assertEqual(text[0], "line 0")
        self.assertEqual(text[-1], "line 99")
        self.assertIn("(65 more lines)", text)
        self.assertEqual(shortened("one\ntwo"), "one\ntwo")

    def test_commands(self):
        host = mock.Mock(**{"facts.return_value": {"device": "roce_eth0", "gid": 1}})
        command = Plan("write", "write_bw", 65536, 10, 4, 8).command(host, 18515)
        self.assertEqual(command[command.index("-n") + 1], "10")
        self.assertEqual(command[command.index("-q") + 1], "4")
        timed = Plan("write", "write_bw", 65536, 0, words=("-D", 8)).command(host, 18515)
        self.assertNotIn("-n", timed)
        latency = Plan("send", "send_lat", 64, 10).command(host, 18515)
        self.assertNotIn("-q", latency)


class SocketsTest(unittest.TestCase):
    """Totals of UDP sockets."""

    def test_both_families_count(self):
        self.assertEqual(parse_snmp(SNMP), UdpTotals(2020, 1010, 9))

    def test_differences(self):
        after = parse_snmp(SNMP.replace("1000 1 7 2000 6", "1100 1 17 2300 16"))
        self.assertEqual(after - parse_snmp(SNMP), UdpTotals(300, 100, 10))


class BarTest(unittest.TestCase):
    """Bars."""

    def test_more_is_better(self):
        bar = Bar(0.8, 1.0, 0.5)
        self.assertTrue(bar.reached(0.8, short=False))
        self.assertFalse(bar.reached(0.79, short=False))
        self.assertTrue(bar.reached(0.79, short=True))
        self.assertEqual(bar.describe(short=True), ">= 0.50")

    def test_less_is_better(self):
        bar = Bar(0.001, 0, 0.02, at_most=True, form=".2%")
        self.assertTrue(bar.reached(0.001, short=False))
        self.assertFalse(bar.reached(0.002, short=False))
        self.assertEqual(bar.describe(short=False), "<= 0.10%")

    def test_what_is_missed(self):
        case, outcome = Case("loss/packets", "1%", Bar(0.3, 0.6, 0.1)), Outcome()
        self.assertEqual(problems(case, outcome, False), ["nothing was measured"])
        outcome.add(Sample(50.0), None)
        self.assertEqual(problems(case, outcome, False), ["there is nothing to compare"])
        outcome.add(Sample(20.0), 100.0)
        self.assertEqual(problems(case, outcome, False), ["0.20, wanted >= 0.30"])
        self.assertEqual(problems(case, outcome, True), [])
        outcome.add(Sample(report=[("client", "error")]), 100.0)
        # Whatever the ratio.
        self.assertEqual(problems(case, outcome, True), ["1 of 3 runs failed"])

    def test_what_had_no_clock_is_shown(self):
        case, outcome = Case("loss/packets", "1%", Bar(0.3, 0.6, 0.1)), Outcome()
        outcome.add(Sample(unmeasured=True), 100.0)
        self.assertEqual(problems(case, outcome, False), ["there is nothing to compare"])
        self.assertEqual(problems(Case("crowd/mixed", "x"), outcome, False), [])
        outcome.add(Sample(50.0), 100.0)
        self.assertEqual(problems(case, outcome, False), [])
        self.assertIn("1 of 2 had no clock", cell(outcome))

    def test_without_a_bar_none_may_fail(self):
        case, outcome = Case("crowd/mixed", "x"), Outcome()
        outcome.add(Sample(1.0), None)
        self.assertEqual(problems(case, outcome, False), [])
        outcome.add(Sample(), None)
        self.assertEqual(problems(case, outcome, False), ["1 of 2 runs failed"])


class TurnsTest(unittest.TestCase):
    """Measuring by turns."""

    def setUp(self):
        self.enterContext(mock.patch("lab.load.turns.say"))

    def turns(self, rounds, **options):
        return Turns("group", rounds, **options)

    def test_the_yardsticks_beside_a_run_count(self):
        yardsticks = iter([100.0, 200.0, 300.0, 400.0, 500.0])
        runs = [iter([150.0, 350.0]), iter([500.0, 90.0])]
        samples = [lambda run=run: Sample(next(run)) for run in runs]
        yardstick, (first, second) = by_turns(
            lambda: Sample(next(yardsticks)), samples, self.turns(2)
        )
        self.assertEqual(yardstick.values, [100.0, 200.0, 300.0, 400.0, 500.0])
        self.assertEqual(first.ratios, [1.0, 1.0])
        self.assertEqual(second.ratios, [2.0, 0.2])
        self.assertEqual(first.yardsticks, [150.0, 350.0])

    def test_without_a_clock_the_other_yardstick_counts(self):
        yardsticks = iter([Sample(unmeasured=True), Sample(50.0)])
        _, [outcome] = by_turns(lambda: next(yardsticks), [lambda: Sample(25.0)], self.turns(1))
        self.assertEqual(outcome.ratios, [0.5])

    def test_what_fails_is_not_run_any_further(self):
        run = mock.Mock(side_effect=lambda: Sample(report=[("client", "error")]))
        other = mock.Mock(side_effect=lambda: Sample(1.0))
        yardstick, outcomes = by_turns(lambda: Sample(1.0), [run, other], self.turns(3))
        self.assertEqual([run.call_count, other.call_count], [1, 3])
        self.assertEqual([outcome.failed for outcome in outcomes], [1, 0])
        self.assertIsNone(outcomes[0].ratio)
        self.assertEqual(yardstick.failed, 0)

    def test_a_yardstick_that_fails_fails_its_cases(self):
        yardsticks = iter([Sample(100.0), Sample(report=[("client", "error")])])
        run = mock.Mock(side_effect=lambda: Sample(50.0))
        _, [outcome] = by_turns(lambda: next(yardsticks), [run], self.turns(3))
        self.assertEqual(run.call_count, 1)
        case = Case("loss/fault", "x")
        self.assertEqual(problems(case, outcome, False), ["its yardstick failed"])
        self.assertEqual(outcome.report, [("client", "error")])

    def test_a_low_figure_changes_no_plan(self):
        run = mock.Mock(side_effect=lambda: Sample(0.01))
        _, [outcome] = by_turns(lambda: Sample(100.0), [run], self.turns(3))
        self.assertEqual(outcome.runs, 3)

    def test_several_at_once(self):
        losses = Namespace(lost=3, datagrams=500)
        good, error = Sample(2.0), Sample(report=[("client", "error")])
        clockless = Sample(unmeasured=True)
        both = Sample(4.0, lost=3, datagrams=500)
        self.assertEqual(summed([good, good], losses), both)
        both.value, both.unmeasured = None, True
        self.assertEqual(summed([good, clockless], losses), both)
        both.unmeasured, both.report = False, error.report
        self.assertEqual(summed([error, clockless, good], losses), both)

    def test_losses_are_a_share_of_all(self):
        outcome = Outcome()
        outcome.add(Sample(1.0, lost=1, datagrams=100), 1.0)
        outcome.add(Sample(1.0, lost=3, datagrams=300), 1.0)
        self.assertEqual(outcome.loss, 0.01)
        self.assertEqual(Outcome().loss, 0.0)

    def test_nothing_begins_after_the_end(self):
        clock = iter(range(10))
        with mock.patch("time.monotonic", lambda: next(clock)):
            runs = [lambda: Sample(1.0)] * 3
            turns = self.turns(1, end=2)
            _, outcomes = by_turns(lambda: Sample(1.0), runs, turns)
        self.assertEqual([outcome.runs for outcome in outcomes], [1, 1, 0])
        self.assertTrue(turns.broken_off)

    def test_the_number_of_rounds_is_settled_before(self):
        self.assertEqual(suite.rounds_of("bandwidth/mtu4096/quiet", short=False), 3)
        self.assertEqual(suite.rounds_of("bandwidth/mtu4096/busy", short=False), 1)
        self.assertEqual(suite.rounds_of("bandwidth/mtu4096/quiet", short=True), 1)
        self.assertEqual(suite.rounds_of("loss/packets", short=True), 3)


class TablesTest(unittest.TestCase):
    """Tables."""

    def outcome(self, value, yardstick):
        outcome = Outcome()
        outcome.add(Sample(value, lost=1, datagrams=1000), yardstick)
        return outcome

    def test_bandwidth(self):
        table = bandwidth_table(
            {
                "bandwidth/mtu4096/quiet/read-1M": self.outcome(900.0, 1000.0),
                "bandwidth/mtu4096/busy/read-1M": self.outcome(80.0, 100.0),
                "steady/mtu4096/write-1M": self.outcome(1.0, 1.0),
            }
        )
        [title, _, row] = table.splitlines()
        self.assertIn("path MTU 4096", title)
        self.assertIn("| read 1 MiB | 900 MiB/s against 1000, ratio 0.9", row)
        self.assertIn("| 80.00 MiB/s against 100, ratio 0.8", row)
        self.assertIn("1 lost (0.10%)", row)

    def test_bars(self):
        case = Case("bandwidth/mtu4096/quiet", "read-1M", Bar(0.8, 1.0, 0.5))
        rows = [(case, self.outcome(70.0, 100.0)), (Case("a", "b"), self.outcome(1.0, None))]
        table = bar_table(rows, short=False)
        self.assertIn("| 0.70 | >= 0.80 | 1.00 | no: 0.70, wanted >= 0.80 |", table)
        self.assertIn("| a/b |  | none fails |  | yes |", table)

    def test_failures_are_shown(self):
        outcome = Outcome()
        outcome.add(Sample(), 100.0)
        self.assertEqual(cell(outcome), "1 of 1 failed")


class FormTest(unittest.TestCase):
    """Which cases a run has."""

    def chosen(self, **options):
        options = Namespace(**{"short": False, "baseline": None, **options})
        return suite.of_form(options, suite.cases())

    def test_an_older_build_must_be_given(self):
        older = [case for case in suite.cases() if case.group.startswith("baseline/")]
        self.assertTrue(older)
        self.assertFalse(set(older) & set(self.chosen()))
        self.assertLessEqual(set(older), set(self.chosen(baseline="/")))

    def test_the_short_form_has_cases_of_every_part(self):
        parts = {case.group.split("/")[0] for case in self.chosen(short=True)}
        self.assertEqual(parts, set(suite.PARTS) - {"baseline"})

    def test_bars_of_the_short_form_are_no_stricter(self):
        for case in suite.cases():
            if case.bar:
                limit, short = case.bar.limit, case.bar.short
                self.assertTrue(short >= limit if case.bar.at_most else short <= limit, case.name)

    def test_the_aim_is_beyond_the_bar(self):
        for case in suite.cases():
            if case.bar:
                self.assertTrue(case.bar.reached(case.bar.aim, short=False), case.name)


if __name__ == "__main__":
    unittest.main()
