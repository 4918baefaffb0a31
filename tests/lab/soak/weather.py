"""Links and addresses that come and go, and survivors that are stopped."""

import signal

from lab.host import output_of
from lab.soak.fate import LONG_STOP, SHORT_STOP

# Time between two changes, and how long each lasts.
PAUSE = (2.0, 8.0)
LINK_DOWN, ADDRESS_GONE = (0.02, 0.15), (0.1, 3.0)
# Time after which what it did is over for the programs, too.
AFTERMATH = 3.0

CHANGES = ["link", "address", "survivor"]


class Weather:
    """Has the link of the two hosts go down and up, and an address of each go and come, and stops
    survivors, which own the addresses of all others on their host.
    """

    def __init__(self, rng, pair, moving, survivors, log):
        self.rng, self.pair, self.moving, self.log = rng, pair, moving, log
        self.survivors = survivors
        self.undo = None
        self.due = 0.0
        # Until when each counts. A survivor counts if it is stopped for long.
        self.until = dict.fromkeys((*CHANGES, "stop"), 0.0)
        self.counts = dict.fromkeys(CHANGES, 0)

    def step(self, now):
        if now < self.due:
            return
        if self.undo:
            self.settle(now)
        else:
            self.change(now)

    def change(self, now):
        what = self.rng.choice(CHANGES)
        side = self.rng.randrange(2)
        lengths = {
            "link": LINK_DOWN,
            "address": ADDRESS_GONE,
            "survivor": self.rng.choice([SHORT_STOP, LONG_STOP]),
        }
        seconds = self.rng.uniform(*lengths[what])
        self.log(f"{what} {side} goes for {seconds:.2f} s")
        namespace = self.pair.namespaces[side]
        if what == "link":
            namespace.ip("link", "set", "eth0", "down")
            self.undo = lambda: self.link_up(namespace, side)
        elif what == "address":
            address = f"{self.moving[side].address}/24"
            namespace.ip("addr", "del", address, "dev", "eth0")
            self.undo = lambda: namespace.ip("addr", "add", address, "dev", "eth0")
        else:
            process = self.survivors[side].program.process
            process.send_signal(signal.SIGSTOP)
            self.undo = lambda: process.send_signal(signal.SIGCONT)
        self.counts[what] += 1
        if what != "survivor" or seconds >= LONG_STOP[0]:
            self.until[what] = now + seconds + AFTERMATH
        self.due = now + seconds

    def link_up(self, namespace, side):
        # With the link, its addresses of IPv6 have gone, and its routes to no address.
        namespace.ip("link", "set", "eth0", "up")
        ipv6 = f"fd78:{self.pair.number}::{side + 1}/64"
        namespace.ip("addr", "replace", ipv6, "dev", "eth0", "nodad")

    def settle(self, now):
        """Ends the change under way."""
        if self.undo:
            self.undo()
            self.undo = None
            self.due = now + self.rng.uniform(*PAUSE)

    def note_stop(self, now):
        """A program is stopped for long."""
        self.until["stop"] = now + AFTERMATH

    def cuts(self, now, run):
        """True if the link that an exchange goes over is down, or was a moment ago."""
        return run.exchange.place != "loopback" and now < self.until["link"]

    def excuse(self, now, run):
        """What an exchange may fail of now."""
        exchange = run.exchange
        # Connections bear that the link is down for a moment, and that their address's owner is
        # stopped, but nothing can be begun then.
        connected = run.connected(now)
        suffers = {
            # Both ends of the link are down then.
            "link": self.cuts(now, run) and not connected,
            "address": exchange.place == "moving",
            "survivor": exchange.survivor or not connected,
            # A process that is stopped where it is alone lets nobody in.
            "stop": not connected,
        }
        return next((what for what in suffers if suffers[what] and now < self.until[what]), "")


def add_moving(pair, side):
    """An address that may come and go; returns it."""
    address = f"10.79.{pair.number}.{side + 1}"
    pair.namespaces[side].ip("addr", "add", f"{address}/24", "dev", "eth0")
    return address


def left_in(namespace):
    """Sockets of RoCE that are still open in a namespace, and processes."""
    pids = output_of(["ip", "netns", "pids", namespace.name]).split()
    found = [f"process {pid}" for pid in pids]
    sockets = namespace.table("udp", "udp6", "unix").splitlines()
    found += [line for line in sockets if ":12B7 " in line or "@roce 4791" in line]
    return found
