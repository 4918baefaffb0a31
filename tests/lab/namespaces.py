"""A network of the lab's own: a namespace that holds a bridge and a tap for every guest.

The host's end, where our program runs, is the bridge itself. Nothing outside the namespace is touched.
"""

import itertools
import os
import re
import signal
import subprocess

from lab import output_of

# The largest path MTU is 4096; rxe wants 80 bytes more than that from its network device, and with rdma_cm 96.
MTU = 4200

HOST_IPV4 = "10.77.0.1"
HOST_IPV6 = "fd77::1"

# Behind it come a word, the number of the process whose it is, and what that likes.
PREFIX = "roce-"


class Namespace:
    """A network namespace, which goes away with all that runs in it."""

    def __init__(self, name=f"{PREFIX}lab-{os.getpid()}"):
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
        # An address must be usable at once (no duplicate address detection) and nobody answers router solicitations.
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
        """A command line that runs `argv` inside, and ends it should this process be killed."""
        return ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.name, *map(str, argv)]

    def output(self, argv):
        return output_of(self.command(argv))

    def start(self, argv, **options):
        # A session of its own: Ctrl-C is for this process, which then ends the others in order.
        return subprocess.Popen(self.command(argv), start_new_session=True, **options)

    def socket_table(self):
        return self.output(["cat", "/proc/net/tcp", "/proc/net/tcp6"])


class Net(Namespace):
    """The namespace with the bridge."""

    def __init__(self):
        super().__init__()
        self.own_numbers = itertools.count(101)

    def set_up(self):
        super().set_up()
        # Snooping would hold back neighbour discovery, for there is no multicast querier.
        self.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        self.ip("link", "set", "br0", "mtu", str(MTU), "up")
        self.ip("addr", "add", f"{HOST_IPV4}/24", "dev", "br0")
        self.ip("addr", "add", f"{HOST_IPV6}/64", "dev", "br0", "nodad")

    def add_own_address(self):
        """One more IPv4 address of the host, for a device beside others: on an interface of its own, since who opens the bridge's
        device wants all of the bridge's addresses."""
        number = next(self.own_numbers)
        address, name = f"10.77.0.{number}", f"own{number}"
        self.ip("link", "add", name, "type", "veth", "peer", "name", f"{name}-end")
        for end in [name, f"{name}-end"]:
            self.ip("link", "set", end, "mtu", str(MTU), "up")
        self.ip("addr", "add", f"{address}/32", "dev", name)
        return address

    def add_tap(self, name):
        self.ip("tuntap", "add", "dev", name, "mode", "tap")
        self.ip("link", "set", name, "mtu", str(MTU), "master", "br0", "up")


def listens(socket_table, port):
    """Whether /proc/net/tcp or tcp6 shows a listener on `port`."""
    for line in socket_table.splitlines():
        columns = line.split()
        if len(columns) > 3 and columns[3] == "0A" and columns[1].endswith(f":{port:04X}"):
            return True
    return False


def remove(name):
    """Removes a namespace, and what still runs there, which would keep it alive."""
    listed = subprocess.run(
        ["ip", "netns", "pids", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    for pid in listed.stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def remove_abandoned():
    """Removes namespaces whose run was killed before it could."""
    for line in output_of(["ip", "netns", "list"]).splitlines():
        name = line.split()[0]
        owner = re.match(rf"{PREFIX}(?:lab|pair)-(\d+)", name)
        if owner and not os.path.exists(f"/proc/{owner[1]}"):
            remove(name)
