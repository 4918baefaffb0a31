"""Parts of rows of verbs: lengths, places, and the memory around a message."""

from lab.interop.rows.row import Region

MTU = 1024
LONG = (1 << 20) + 3
LENGTHS = [0, 1, 7, MTU - 1, MTU, MTU + 1, LONG]
# Not longer: a lost packet is not repeated, and the guest's socket holds only so many.
UNRELIABLE = [0, 1, 7, MTU - 1, MTU, MTU + 1, 16387]
# The largest datagram that both ports carry.
PORT_MTU = 4096
# Offsets of a message in its regions, so that the bytes around it can be examined.
FROM, TO = 64, 128
IMMEDIATE = 0xC0FFEE01
# Bytes before a datagram in the receive buffer.
GRH = 40


def families(length):
    return ["ipv4", "ipv6"] if length in (7, MTU + 1) else ["ipv4"]


def region_around(length, seed):
    """A region for a message of that length and bytes around it."""
    return Region(length + 4096, seed=seed)


def written(letter, name, region, length, source_seed):
    """Checks of a region: at `TO` is a message that begins with `source_seed`, and the bytes around
    it are as before.
    """
    end = TO + length
    return (
        (letter, name, 0, TO, region.seed),
        (letter, name, TO, length, source_seed),
        (letter, name, end, region.length - end, region.seed + end),
    )
