"""Totals of a network namespace's UDP sockets, from /proc/net."""

from dataclasses import dataclass


@dataclass
class UdpTotals:
    """Datagrams. A run that the system carries as one (GSO, GRO) counts as one. The system's count
    of sending sockets without room is none of losses: what such a socket refuses is offered again.
    """

    sent: int = 0
    received: int = 0
    lost: int = 0  # no room in the receiving socket

    def __add__(self, other):
        return UdpTotals(*(a + b for a, b in zip(self.values(), other.values(), strict=True)))

    def __sub__(self, other):
        return UdpTotals(*(a - b for a, b in zip(self.values(), other.values(), strict=True)))

    def values(self):
        return [self.sent, self.received, self.lost]


def udp_totals(host):
    return parse_snmp(host.sandbox.namespace.table("snmp", "snmp6"))


def parse_snmp(text):
    """/proc/net/snmp has a line of names and one of numbers, snmp6 a line for each."""
    totals, names = {}, None
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["Udp:"] and names is None:
            names = words[1:]
        elif words[:1] == ["Udp:"]:
            add(totals, zip(names, words[1:], strict=True))
        elif len(words) == 2 and words[0].startswith("Udp6"):
            add(totals, [(words[0].removeprefix("Udp6"), words[1])])
    names = ["OutDatagrams", "InDatagrams", "RcvbufErrors"]
    return UdpTotals(*(totals.get(name, 0) for name in names))


def add(totals, pairs):
    for name, number in pairs:
        totals[name] = totals.get(name, 0) + int(number)
