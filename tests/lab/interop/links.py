"""Links that our side may use, each with the host's end of the network that it needs."""

import itertools
import subprocess
import sys

from lab import proc_net, tagging
from lab.host import ROCE_PORT, LabError
from lab.namespaces import HOST_IPV4, HOST_IPV6, MTU, Bridge


class UdpNetwork(Bridge):
    """Ours uses sockets on the addresses of the bridge."""

    # Time that a device takes to open.
    open_seconds = 0
    # True if our devices can be on a VLAN.
    tags = False

    def __init__(self, mtu=MTU, vlan=None):
        super().__init__(mtu)
        self.vlan = vlan
        self.numbers = itertools.count(101)

    def device(self, address):
        """Our device with this address."""
        return f"udp:{address}"

    def is_open(self, guest, address):
        """True if a device with this address is open."""
        return proc_net.udp_socket(ROCE_PORT, address) in self.table("udp", "udp6")

    def tcp_addresses(self, guest, address):
        """(host's, guest's) addresses of TCP connections about our device with this address. The
        guest's is of IPv4: the stock servers listen on the first address that the C library offers,
        0.0.0.0.
        """
        return address, guest.ipv4

    def add_address(self):
        """Adds one more IPv4 address of the host, for a device beside others. It is on an interface
        of its own: a process that opens the bridge's device takes all of the bridge's addresses.
        """
        number = next(self.numbers)
        address, name = f"10.77.0.{number}", f"own{number}"
        self.add_veth(name)
        self.ip("addr", "add", f"{address}/32", "dev", name)
        return address


class RawNetwork(UdpNetwork):
    """Ours uses packet sockets on ports of the bridge, which has no address itself."""

    def add_host(self):
        # Not even of its link.
        self.set("ipv6/conf/default/addr_gen_mode", 1)
        self.ip("-6", "addr", "flush", "dev", "br0")


class BorrowedNetwork(RawNetwork):
    """Our devices have the addresses of their interfaces, one each."""

    def add_host(self):
        super().add_host()
        # An interface answers for its own address only.
        self.set("ipv4/conf/all/arp_ignore", 1)
        self.interfaces = {}
        self.lend("lent4", f"{HOST_IPV4}/24")
        self.lend("lent6", f"{HOST_IPV6}/64", "nodad")

    def lend(self, name, prefix, *options):
        self.interfaces[prefix.split("/")[0]] = name
        self.add_veth(name, "br0")
        self.ip("addr", "add", prefix, "dev", name, *options)

    def device(self, address):
        return f"raw:{self.interfaces[address]}"

    def add_address(self):
        number = next(self.numbers)
        self.lend(f"lent{number}", f"10.77.0.{number}/24", "noprefixroute")
        return f"10.77.0.{number}"


class OwnNetwork(RawNetwork):
    """Our devices have addresses of their own. The host's stack has none; TCP has a network beside
    it.
    """

    INTERFACE = "own0"
    # A device asks whether somebody has its address.
    open_seconds = 1
    tags = True

    def add_host(self):
        super().add_host()
        self.add_wire(self.INTERFACE)

    def add_wire(self, name):
        """Adds an interface whose other end is a port of the bridge; on a VLAN, behind a wire that
        takes the tags away.
        """
        if self.vlan is None:
            self.add_veth(name, "br0")
            return
        self.add_veth(name)
        self.add_veth(f"{name}-br", "br0")
        ends = f"{name}-end", f"{name}-br"
        wire = self.start(
            [sys.executable, tagging.__file__, self.vlan, *ends], stdout=subprocess.PIPE
        )
        if wire.stdout.readline() != b"ready\n":
            raise LabError("the wire with tags does not start")

    def command(self, argv):
        # A packet socket gets runs in one piece, as no wire carries them.
        single = [] if self.vlan is None else ["env", "ROCE_SEGMENTS=1"]
        return super().command([*single, *argv])

    def device(self, address):
        return f"raw:{self.INTERFACE},{self.own(address)}"

    def own(self, address):
        """Words of a device with this address of its own."""
        length = 64 if ":" in address else 24
        tag = "" if self.vlan is None else f",vlan={self.vlan},prio=3"
        return f"ip={address}/{length}{tag}"

    def is_open(self, guest, address):
        return guest.run(f"ping -c 1 -W 1 {address}")[0] == 0

    def tcp_addresses(self, guest, address):
        return guest.second_network

    def add_second_tap(self, name, number):
        self.add_tap(name, master=None)
        self.ip("addr", "add", f"192.168.{number}.1/24", "dev", name)
        return f"192.168.{number}.1", f"192.168.{number}.2"

    def add_address(self):
        return f"10.77.0.{next(self.numbers)}"


class XdpNetwork(OwnNetwork):
    """The same past the host's stack (AF_XDP). An interface has one program, so each of our devices
    has an interface.
    """

    def add_host(self):
        RawNetwork.add_host(self)
        self.interfaces = {}
        for address in (HOST_IPV4, HOST_IPV6):
            self.add_interface(address)

    def add_interface(self, address):
        name = f"own{len(self.interfaces)}"
        self.add_wire(name)
        self.interfaces[address] = name

    def device(self, address):
        return f"xdp:{self.interfaces[address]},{self.own(address)}"

    def add_address(self):
        address = super().add_address()
        self.add_interface(address)
        return address


class XdpBorrowedNetwork(BorrowedNetwork):
    """Our devices have the addresses of their interfaces, one each, and take their packets before
    the host's stack.
    """

    def device(self, address):
        return f"xdp:{self.interfaces[address]}"


NETWORKS = {
    "udp": UdpNetwork,
    "raw-borrowed": BorrowedNetwork,
    "raw-own": OwnNetwork,
    "xdp-borrowed": XdpBorrowedNetwork,
    "xdp-own": XdpNetwork,
}
