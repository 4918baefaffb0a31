"""Totals of a network namespace's UDP sockets, from /proc/net."""

from dataclasses import dataclass


@dataclass
class UdpTotals:
    """Datagrams. A run that the kernel carries as one (GSO, GRO) counts as one."""

    sent: int = 0
    lost: int = 0  # no room in the receiving socket
    unsent: int = 0  # no room in the sending one

    def __sub__(self, before):
        return UdpTotals(
            self.sent - before.sent, self.lost - before.lost, self.unsent - before.unsent
        )


def udp_totals(host):
    namespace = host.sandbox.namespace
    return parse_snmp(namespace.table("snmp", "snmp6"))


def parse_snmp(text):
    """/proc/net/snmp has a line of names and one of numbers, snmp6 a line for each."""
    totals, names = {}, None
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["Udp:"] and names is None:
            names = words[1:]
        elif words[:1] == ["Udp:"]:
            for name, number in zip(names, words[1:], strict=True):
                totals[name] = totals.get(name, 0) + int(number)
        elif len(words) == 2 and words[0].startswith("Udp6"):
            name = words[0].removeprefix("Udp6")
            totals[name] = totals.get(name, 0) + int(words[1])
    return UdpTotals(
        totals.get("OutDatagrams", 0), totals.get("RcvbufErrors", 0), totals.get("SndbufErrors", 0)
    )
