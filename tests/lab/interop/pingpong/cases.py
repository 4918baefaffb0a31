"""Cases of the pingpongs, each between our tool and the stock one."""

from dataclasses import dataclass

FAMILIES = ["ipv4", "ipv6"]
ROLES = ["server", "client"]
MTUS = [256, 1024, 4096]

# One byte, not a multiple of four (so it is padded), a whole page, and an odd length of more
# than 16 bits.
SIZES = {"rc": [1, 1021, 4096, 65539], "uc": [1, 1021, 4096, 16387], "ud": [1, 1021, 4096]}

# At random: a loss at fixed distances can fall on the same packet of every repetition, for ever.
# And the loss of acknowledgements ends: the pingpongs end without a disconnect, so that after the
# loss of the very last acknowledgement its sender has exited, and the other side repeats in vain.
LOSSES = ["drop 10% times 15", "drop request 5%"]


@dataclass(frozen=True)
class PingpongCase:
    """A pingpong of our tool with the stock one."""

    kind: str  # "rc", "uc", "ud"; "srq": reliable connections with a shared receive queue
    role: str  # ours; the stock tool has the other
    family: str
    mtu: int
    size: int
    faults: tuple = ()  # rules of dropped packets on our link
    events: bool = False  # ours sleeps on completion events instead of polling
    capture: bool = False  # ours writes a capture, which is then examined

    @property
    def iterations(self):
        # The guest is emulated: a packet costs it a good part of a millisecond.
        if self.faults:
            return 10  # enough to go on for a while after the last loss
        return 20 if self.size <= 4096 else 5

    @property
    def refused(self):
        """A UD message is one packet; a longer one must be refused before anything is sent."""
        return self.kind == "ud" and self.size > self.mtu

    @property
    def name(self):
        parts = [self.kind, self.role, self.family, f"mtu{self.mtu}", f"size{self.size}"]
        parts += [rule.replace(" ", "-") for rule in self.faults]
        parts += ["events"] if self.events else []
        parts += ["capture"] if self.capture else []
        return "/".join(parts)


def pingpong_cases():
    return [*plain(), *shared(), *lossy(), *events(), *captured()]


def plain():
    for kind in ["rc", "uc", "ud"]:
        for role in ROLES:
            for family in FAMILIES:
                for mtu in MTUS:
                    for size in SIZES[kind]:
                        yield PingpongCase(kind, role, family, mtu, size)


def shared():
    """Sixteen queue pairs that take their receive requests from one queue."""
    for role in ROLES:
        for family in FAMILIES:
            for size in [1, 4096, 16387]:
                yield PingpongCase("srq", role, family, 1024, size)


def lossy():
    for role in ROLES:
        for mtu in [1024, 4096]:
            for rule in LOSSES:
                yield PingpongCase("rc", role, "ipv4", mtu, 65539, faults=(rule,))


def events():
    for role in ROLES:
        for family in FAMILIES:
            yield PingpongCase("rc", role, family, 1024, 4096, events=True)


def captured():
    for role in ROLES:
        for family in FAMILIES:
            for size in [1021, 65539]:
                yield PingpongCase("rc", role, family, 1024, size, capture=True)
