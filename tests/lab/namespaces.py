"""Network namespaces of the lab, and the bridge that guests are on.

Nothing outside the namespaces is touched, and they go away at the end of the run.
"""

import os
import re
import signal
import subprocess
from contextlib import suppress

from lab.host import output_of

# The largest path MTU is 4096; rxe wants 80 bytes more than that from its network device, and with
# rdma_cm 96.
MTU = 4200

HOST_IPV4 = "10.77.0.1"
HOST_IPV6 = "fd77::1"

# Names of namespaces begin with it; behind it come a word, the id of the run's process, and any
# suffix.
PREFIX = "roce-"


class Namespace:
    """A network namespace, which goes away with all that runs in it."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        remove_abandoned()
        output_of(["ip", "netns", "add", self.name])
        try:
            self.set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        remove(self.name)

    def set_up(self):
        # An address must be usable at once (no duplicate address detection), and router
        # solicitations have no answer.
        settings = [
            f"/proc/sys/net/ipv6/conf/{name}/accept_{what}"
            for name in ("all", "default")
            for what in ("dad", "ra")
        ]
        self.output(["sh", "-c", "for file; do echo 0 >$file || exit; done", "sh", *settings])
        self.ip("link", "set", "lo", "up")

    def ip(self, *arguments):
        output_of(["ip", "-n", self.name, *arguments])

    def command(self, argv):
        """Command line that runs `argv` inside, and ends it should this process be killed."""
        enter = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.name]
        return [*enter, *map(str, argv)]

    def output(self, argv):
        return output_of(self.command(argv))

    def set(self, name, value):
        """Sets a value of /proc/sys/net."""
        self.output(["sh", "-c", f"echo {value} >/proc/sys/net/{name}"])

    def start(self, argv, **options):
        # A session of its own: Ctrl-C is for this process, which then ends the others in order.
        return subprocess.Popen(self.command(argv), start_new_session=True, **options)

    def table(self, *names):
        """Tables of /proc/net: `tcp`, `udp`, `igmp`, …"""
        return self.output(["cat", *(f"/proc/net/{name}" for name in names)])


class Bridge(Namespace):
    """A namespace with a bridge and a tap for each guest; the host's end is the bridge itself."""

    def __init__(self, mtu=MTU):
        super().__init__(f"{PREFIX}lab-{os.getpid()}")
        self.mtu = mtu

    def set_up(self):
        super().set_up()
        # Snooping would hold back IPv6 neighbour discovery: there is no multicast querier.
        self.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        self.ip("link", "set", "br0", "mtu", str(self.mtu), "up")
        self.add_host()

    def add_host(self):
        """Adds the host's end: the bridge's own addresses."""
        self.ip("addr", "add", f"{HOST_IPV4}/24", "dev", "br0")
        self.ip("addr", "add", f"{HOST_IPV6}/64", "dev", "br0", "nodad")
        # Without a route to them, no group is found.
        self.ip("route", "replace", "224.0.0.0/4", "dev", "br0")

    def add_veth(self, name, master=None):
        """Adds an interface whose other end is a port of a bridge, or nowhere."""
        self.ip("link", "add", name, "type", "veth", "peer", "name", f"{name}-end")
        self.set_up_port(name)
        self.set_up_port(f"{name}-end", master)

    def add_tap(self, name, master="br0"):
        self.ip("tuntap", "add", "dev", name, "mode", "tap")
        self.set_up_port(name, master)

    def set_up_port(self, name, master=None):
        to_bridge = ["master", master] if master else []
        self.ip("link", "set", name, "mtu", str(self.mtu), *to_bridge, "up")

    def add_second_tap(self, name, number):
        """Adds a tap to a network beside the bridge, if it needs one; returns (host's, guest's)
        addresses there.
        """
        return None


def remove(name):
    """Removes a namespace, and what still runs there, which would keep it alive."""
    listed = subprocess.run(
        ["ip", "netns", "pids", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    for pid in listed.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def remove_abandoned():
    """Removes namespaces whose run was killed before it could."""
    for line in output_of(["ip", "netns", "list"]).splitlines():
        name = line.split()[0]
        owner = re.match(rf"{PREFIX}(?:lab|pair)-(\d+)", name)
        if owner and not os.path.exists(f"/proc/{owner[1]}"):
            remove(name)
