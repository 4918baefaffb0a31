"""What happens to an exchange besides its work."""

from dataclasses import dataclass

# Stops so short that no connection may notice them, and others that it may give up in.
SHORT_STOP, LONG_STOP = (0.02, 0.2), (1.0, 4.0)
# Time from the client's start at which it comes.
LATEST = 1.5

# Faults so few that every message gets through. The messages of connection management are left
# alone: who has said goodbye does not wait to hear that it arrived.
FAULTS = [
    f"pass qp 1, {faults}"
    for faults in ["drop 0.2%", "drop 0.1%, duplicate 0.5%", "reorder 1%", "drop 0.2% rx"]
]


@dataclass(frozen=True)
class Fate:
    """Something that is done to the server or to the client: "none", "kill" or "stop"."""

    what: str
    whom: str = "client"
    at: float = 0.0
    seconds: float = 0.0  # of a stop

    @property
    def excuses(self):
        """True if the exchange may fail of it, in order."""
        return self.what == "kill" or self.seconds >= LONG_STOP[0]

    def __str__(self):
        if self.what == "none":
            return "undisturbed"
        length = f" for {self.seconds:.2f} s" if self.what == "stop" else ""
        return f"{self.what} the {self.whom} after {self.at:.2f} s{length}"


UNDISTURBED = Fate("none")


def choose_fate(rng, exchange):
    whom = "client" if exchange.server is None else rng.choice(["client", "server"])
    at = rng.uniform(0, LATEST)
    what = rng.choices(["none", "kill", "short", "long"], [50, 22, 22, 6])[0]
    # A server that runs all the time is not told that a client was killed, and keeps its
    # connection, as it would in a cluster: its descriptors would grow rightly.
    if exchange.survivor and what in ("kill", "long"):
        what = "short"
    if what == "none":
        return UNDISTURBED
    if what == "kill":
        return Fate("kill", whom, at)
    return Fate("stop", whom, at, rng.uniform(*(SHORT_STOP if what == "short" else LONG_STOP)))


def choose_faults(rng, exchange):
    """Options of `roce run`."""
    if not exchange.reliable or rng.random() < 0.6:
        return ()
    return ("--fault", rng.choice(FAULTS), "--seed", rng.randrange(1 << 32))
