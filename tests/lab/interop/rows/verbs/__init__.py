"""Rows of verbs: every operation that both sides have, in many lengths, and under loss."""

from lab.interop.rows.verbs import bulk, messages, placement, stress, windows
from lab.interop.rows.verbs.common import LENGTHS, MTU, PORT_MTU, UNRELIABLE, families


def rows():
    for service, lengths in [("rc", LENGTHS), ("uc", UNRELIABLE)]:
        for length in lengths:
            for family in families(length):
                yield from messages.messages(service, length, family)
    for length in [0, 1, 7, MTU, PORT_MTU]:
        for family in families(length):
            yield from messages.datagrams(length, family)
    for length in LENGTHS:
        for family in families(length):
            yield messages.read(length, family)
    yield from messages.atomics()
    yield from messages.pieces()
    yield from messages.inline()
    yield from windows.windows()
    yield from placement.placement()
    yield from stress.bursts()
    yield from stress.faults()
    yield from bulk.reads()
    yield from bulk.queue_pairs()
