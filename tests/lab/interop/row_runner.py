"""Plays rows of `verbs` and `errors` in a guest's kernel and in all directions, as cases beside those of the pingpongs."""

import time
from dataclasses import dataclass

import errors
import verbs
from conversation import Conversation, Row, RowError
from matrix import Result
from net import HOST_IPV4, HOST_IPV6
from sides import Agent, Peer
from wire import Tap


@dataclass(frozen=True)
class RowCase:
    group: str
    kernel: str
    row: Row
    direction: str

    @property
    def name(self):
        return f"{self.group}/{self.kernel}/{self.row.name}/{self.direction}"


def row_cases():
    for kernel in ["6.1", "6.12"]:
        for group, rows in [("verbs", verbs.rows), ("errors", errors.rows)]:
            for row in rows():
                if kernel in row.kernels:
                    for direction in row.directions:
                        yield RowCase(group, kernel, row, direction)


class Stage:
    """One guest, its agent, and our peers that talk to it."""

    def __init__(self, net, guest, kernel, binary, directory):
        self.net, self.guest, self.kernel, self.binary, self.directory = (
            net,
            guest,
            kernel,
            binary,
            directory,
        )
        self.agent = Agent(guest)
        self.tap = Tap(net, guest.tap)
        self.peers = {}
        self.observed = {}  # (group, row's name, direction) -> what was observed

    def close(self):
        for peer in self.peers.values():
            peer.close()
        self.tap.close()
        self.agent.close()

    def peer(self, address, faults):
        """Our adapter at this address, with these faults on its link."""
        peer = self.peers.get(address)
        if peer and peer.faults != faults:
            peer.close()
            peer = None
        if not peer:
            peer = self.peers[address] = Peer(
                self.net, self.binary, address, faults, self.directory
            )
        return peer

    def play(self, case):
        started = time.monotonic()
        row, direction = case.row, case.direction
        host, guest = (
            (HOST_IPV4, self.guest.ipv4) if row.family == "ipv4" else (HOST_IPV6, self.guest.ipv6)
        )
        rxe = self.agent, guest
        ours = rxe if direction == "rxe-rxe" else (self.peer(host, row.faults), host)
        a, b = (rxe, ours) if direction == "from-rxe" else (ours, rxe)
        conversation = Conversation(row, row.expected(direction, self.kernel), a, b, self.tap)
        console = len(self.guest.console_text())
        result = Result()
        try:
            observed = conversation.play()
        except RowError as error:
            observed = conversation.observed
            observed.problems.append(str(error))
        self.observed[case.group, row.name, direction] = observed
        result.problems = observed.problems
        if result.problems:
            result.report = [
                *observed.report,
                ("guest kernel", self.guest.console_text()[console:]),
            ]
        result.seconds = time.monotonic() - started
        return result
