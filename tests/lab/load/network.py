"""Networks between hosts: a wire, a host's own loopback, and a switch; and how to spoil them."""

import contextlib
import json
import os
import re
import subprocess

from lab.dropin.hosts import Host, HostPair, Sandbox
from lab.host import output_of
from lab.namespaces import MTU, PREFIX, Namespace

# Options of a slow link's queue: a burst smaller than two packets, so that runs are cut into
# packets, and room for all that the sockets of two hosts' programs may have under way.
SLOW_QUEUE = ["burst", "5000", "limit", str(16 << 20)]


class SlowLinks:
    """Queues with a rate (tbf), which some systems have in a package of further modules."""

    def missing(self):
        queue = ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1mbit", *SLOW_QUEUE]
        tried = subprocess.run(["unshare", "-n", *queue], capture_output=True)
        return [] if tried.returncode == 0 else ["sch_tbf"]

    def install(self):
        output_of(["apt-get", "install", "-y", f"linux-modules-extra-{os.uname().release}"])


@contextlib.contextmanager
def wire(lab, mtu=MTU):
    """(server's host, client's host) on one wire."""
    with HostPair(lab.next_network(), lab.roce, mtu) as pair:
        yield pair.hosts


@contextlib.contextmanager
def loopback(lab):
    """One host for both, whose packets go through shared memory."""
    with HostPair(lab.next_network(), lab.roce) as pair:
        yield [pair.loopback, pair.loopback]


@contextlib.contextmanager
def switch(lab, count):
    """Hosts 10.79.0.1, .2, … on a bridge."""
    network = lab.next_network()
    with contextlib.ExitStack() as stack:

        def namespace(suffix):
            return stack.enter_context(Namespace(f"{PREFIX}pair-{os.getpid()}-{network}{suffix}"))

        middle = namespace("switch")
        middle.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        middle.ip("link", "set", "br0", "mtu", str(MTU), "up")
        hosts = []
        for number in range(1, count + 1):
            end, port = namespace(f"h{number}"), f"port{number}"
            peer = ["peer", "name", port, "netns", middle.name]
            end.ip("link", "add", "eth0", "type", "veth", *peer)
            end.ip("link", "set", "eth0", "mtu", str(MTU), "up")
            middle.ip("link", "set", port, "mtu", str(MTU), "master", "br0", "up")
            address = f"10.79.0.{number}"
            end.ip("addr", "add", f"{address}/24", "dev", "eth0")
            hosts.append(Host(Sandbox(end, lab.roce), "roce_eth0", address))
        yield hosts


def slow(host, rate):
    """Has packets leave a host one by one and at a rate, such as "100mbit". None is lost: the queue
    holds more than sockets may have under way.
    """
    host.as_root(f"tc qdisc replace dev eth0 root tbf rate {rate} {' '.join(SLOW_QUEUE)}")


def queue(host):
    """Statistics of the queue in which packets wait for `slow`."""
    shown = host.sandbox.namespace.output(["tc", "-s", "-j", "qdisc", "show", "dev", "eth0"])
    return json.loads(shown)[0]


def packet_by_packet(host):
    """Has the system cut runs of datagrams before they leave, as it does for a network card."""
    host.as_root("ip link set eth0 gso_max_segs 1")


def lose(host, share):
    """Has a host not receive this share of the datagrams, by chance; 0 ends that.

    nftables do it, because many kernels come without netem.
    """
    rule = f"numgen random mod 10000 < {round(share * 10000)} drop" if share else "accept"
    input_rule(host, rule)


def count(host):
    """Counts from now on what comes to a host for port 4791; see `counted`."""
    input_rule(host, "counter")


def counted(host):
    shown = host.sandbox.namespace.output(["nft", "list", "table", "ip", "load"])
    return int(re.search(r"counter packets (\d+)", shown)[1])


def input_rule(host, rule):
    # Adding a table that is there changes nothing, so this is right the first time, too.
    rules = (
        "add table ip load; delete table ip load; add table ip load;"
        "add chain ip load input { type filter hook input priority 0; };"
        f"add rule ip load input udp dport 4791 {rule};"
    )
    host.sandbox.namespace.output(["nft", rules])
