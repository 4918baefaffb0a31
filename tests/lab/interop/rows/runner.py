"""Runs rows in a guest's kernel and in all directions, as cases."""

import time
from dataclasses import dataclass

from lab.interop.rows import errors, verbs
from lab.interop.rows.backends import Agent, Peer
from lab.interop.rows.exchange import Exchange
from lab.interop.rows.row import Row, RowError
from lab.interop.rows.wire import Tap
from lab.namespaces import HOST_IPV4, HOST_IPV6
from lab.report import Result


@dataclass(frozen=True)
class RowCase:
    """A row with one kernel and in one direction."""

    group: str
    kernel: str
    row: Row
    direction: str

    @property
    def name(self):
        return f"{self.group}/{self.kernel}/{self.row.name}/{self.direction}"

    @property
    def mtu(self):
        """The path MTU that it needs."""
        return self.row.mtu


def row_cases():
    for kernel in ["6.1", "6.12"]:
        for group, rows in [("verbs", verbs.rows), ("errors", errors.rows)]:
            for row in rows():
                if kernel in row.kernels:
                    for direction in row.directions:
                        yield RowCase(group, kernel, row, direction)


class RowRunner:
    """Runs rows with one guest: its agent, and our peers."""

    def __init__(self, bridge, guest, kernel, binary, directory):
        self.bridge, self.guest, self.kernel = bridge, guest, kernel
        self.binary, self.directory = binary, directory
        self.agent = Agent(guest)
        self.tap = Tap(bridge, guest.tap)
        self.peers = {}
        self.observed = {}  # (group, row's name, direction) -> `Observed`

    def close(self):
        for peer in self.peers.values():
            peer.close()
        self.tap.close()
        self.agent.close()

    def peer(self, address, faults):
        """Our peer at this address, with these faults on its link."""
        peer = self.peers.get(address)
        if peer and peer.faults != faults:
            peer.close()
            peer = None
        if not peer:
            peer = Peer(self.bridge, self.binary, address, faults, self.directory)
            self.peers[address] = peer
        return peer

    def run(self, case):
        started = time.monotonic()
        row, direction = case.row, case.direction
        host = HOST_IPV4 if row.family == "ipv4" else HOST_IPV6
        rxe = self.agent, self.guest.address(row.family)
        ours = rxe if direction == "rxe-rxe" else (self.peer(host, row.faults), host)
        a, b = (rxe, ours) if direction == "from-rxe" else (ours, rxe)
        exchange = Exchange(row, row.expected(direction, self.kernel), a, b, self.tap)
        console = len(self.guest.console_text())
        try:
            observed = exchange.run()
        except RowError as error:
            observed = exchange.observed
            observed.problems.append(str(error))
        self.observed[case.group, row.name, direction] = observed
        result = Result(problems=observed.problems, seconds=time.monotonic() - started)
        if result.problems:
            console_text = self.guest.console_text()[console:]
            result.report = [*observed.report, ("guest kernel", console_text)]
        return result
