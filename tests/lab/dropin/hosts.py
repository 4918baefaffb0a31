"""Hosts of programs: network namespaces with our library in the place of the stock ones, by
`roce run`, and the guest.
"""

import os
import re
import shlex
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from lab import binaries, proc_net
from lab.host import ROCE_PORT, LabError, output_of
from lab.namespaces import HOST_IPV4, MTU, PREFIX, Bridge, Namespace
from lab.running import GuestProgram, HostProgram

# Names by which programs and dlopen ask for our one file.
NAMES = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"]
# User and group of our programs.
NOBODY = 65534
# Time from the open port to the listening program, where nothing shows that it listens.
LISTEN_DELAY = 0.3


def place_ours(roce, library, directory):
    """Copies both to where every user can execute them, side by side as if installed; returns the
    tool's path.
    """
    place = directory / "ours"
    place.mkdir()
    shutil.copy(library, place / "libroce_abi.so")
    return Path(shutil.copy(roce, place))


def place_sockets(roce):
    """Copies the library that has TCP go over rsockets to the others."""
    shutil.copy(binaries.sockets(), roce.parent)


def place_library(library, directory):
    """Copies the library, with the names of those that it replaces, for where no `roce run` is."""
    place = directory / "roce"
    place.mkdir()
    shutil.copy(library, place / "libroce_abi.so")
    for name in NAMES:
        (place / name).symlink_to("libroce_abi.so")


class Sandbox:
    """A namespace, and programs that run in it as nobody, by `roce run`."""

    def __init__(self, namespace, roce):
        self.namespace, self.roce = namespace, roce
        # A /tmp of its own: files of one program neither disturb others nor are seen by them.
        self.scratch = roce.parent / f"tmp-{namespace.name}"
        self.scratch.mkdir(exist_ok=True)
        self.scratch.chmod(0o1777)
        # Where users may have no namespaces, programs with --sysfs run as root.
        test = [*self.as_nobody(), "unshare", "-Urm", "true"]
        self.user_namespaces = subprocess.run(test, stderr=subprocess.DEVNULL).returncode == 0

    def as_nobody(self):
        # The last setpriv: the change of the user clears the signal at the parent's death.
        user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        return [*self.as_root(NOBODY), "setpriv", *user, "--pdeathsig", "KILL"]

    def as_root(self, cache_of=0):
        # `roce run` makes its links where nobody else could, which is neither /tmp nor /var/tmp.
        cache = f"mount -t tmpfs -o mode=700,uid={cache_of},gid={cache_of} roce-cache /mnt"
        bind = f'mount --bind {self.scratch} /tmp && {cache} && exec "$@"'
        return self.namespace.command(["sh", "-c", bind, "sh"])

    def command(self, argv, sysfs=False, options=(), variables=()):
        user = self.as_nobody() if self.user_namespaces or not sysfs else self.as_root()
        fixed = ["PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "XDG_CACHE_HOME=/mnt"]
        environment = [*fixed, "LC_ALL=C", *variables]
        options = [str(word).replace("{ours}", str(self.roce.parent)) for word in options]
        run = [str(self.roce), "run", *(["--sysfs"] if sysfs else []), *options, "--"]
        return [*user, "env", "-i", *environment, *run, *map(str, argv)]

    def start(self, argv, sysfs=False, options=(), variables=(), **rest):
        argv = self.command(argv, sysfs, options, variables)
        return subprocess.Popen(
            argv, start_new_session=True, cwd="/", stdin=subprocess.DEVNULL, **rest
        )

    def output(self, argv):
        return output_of(self.command(argv))


class Host:
    """A side of a case on this machine: a sandbox, the device to use there and its address."""

    def __init__(self, sandbox, device, address):
        self.sandbox, self.device, self.address = sandbox, device, address
        self.gid_index = None

    def facts(self):
        """Words of command lines."""
        if self.gid_index is None:
            self.gid_index = 0 if self.device == "roce_lo" else self.find_gid()
        return {"device": self.device, "gid": self.gid_index, "own": self.address}

    def find_gid(self):
        """Index of its address in the device's GID table."""
        shown = self.sandbox.output(["ibv_devinfo", "-v", "-d", self.device])
        for index, address in re.findall(r"GID\[ *(\d+)\]:\s*(\S+?),", shown):
            if address in (f"::ffff:{self.address}", self.address):
                return int(index)
        raise LabError(f"{self.device} has no GID of {self.address}:\n{shown}")

    def start(self, argv, path, case):
        options = {"sysfs": case.sysfs, "options": case.run, "variables": case.variables}
        return HostProgram(self.sandbox, argv, Path(path), **options)

    def as_root(self, command):
        self.sandbox.namespace.output(shlex.split(command))

    def look(self, program):
        """Counters of the devices, for a program that does not end."""
        devinfo = [str(self.sandbox.roce), "devinfo", "--counters", "-v"]
        return output_of([*self.sandbox.as_nobody(), *devinfo])

    def ready(self, sign):
        """True if a server is ready, by the tables of the namespace."""
        table = self.sandbox.namespace.table
        if sign.startswith("tcp:"):
            return proc_net.listens(table("tcp", "tcp6"), int(sign.removeprefix("tcp:")))
        if sign.startswith("udp:"):
            port = int(sign.removeprefix("udp:"))
            return proc_net.udp_socket(port) in table("udp", "udp6")
        if sign == "cm":
            if proc_net.udp_socket(ROCE_PORT) not in table("udp", "udp6"):
                return False
            time.sleep(LISTEN_DELAY)
            return True
        return proc_net.group(sign.removeprefix("group:")) in table("igmp")


class RootSandbox(Sandbox):
    """The same, as root: raw devices need a capability."""

    def as_nobody(self):
        return self.as_root()


class RawHost(Host):
    """A side with a raw device that has addresses of its own."""

    MACS = ("02:00:00:00:00:0a", "02:00:00:00:00:0b")

    def __init__(self, sandbox, number, place):
        address = f"10.79.{number}.{place + 1}"
        super().__init__(sandbox, f"raw:{address}", address)
        self.mac, self.peer_mac = self.MACS[place], self.MACS[1 - place]
        self.gid_index = 0

    def facts(self):
        return {**super().facts(), "mac": self.mac, "peer_mac": self.peer_mac}

    @property
    def variables(self):
        return (f"ROCE_DEVICES=raw:eth0,ip={self.address}/24,mac={self.mac}",)

    def start(self, argv, path, case):
        return super().start(argv, path, replace(case, variables=self.variables))

    def ready(self, sign):
        if sign != "flow":
            return super().ready(sign)
        # Beside the device's own socket, that of raw packets hears every protocol.
        table = self.sandbox.namespace.table("packet").splitlines()
        return sum(line.split()[3] == "0003" for line in table[1:]) > 1


class GuestHost:
    """The guest as a side: rxe0."""

    def __init__(self, guest):
        self.guest = guest
        self.address = guest.ipv4
        self.words = {"device": "rxe0", "gid": guest.gids()[guest.ipv4], "own": guest.ipv4}

    def facts(self):
        return self.words

    def start(self, argv, path, case):
        return GuestProgram(self.guest, argv)

    def look(self, program):
        """Connections of the guest, for a program that does not end."""
        command = "rdma resource show qp; rdma resource show cm_id; cat /proc/net/tcp"
        return self.guest.run(command)[1]

    def ready(self, sign):
        """True if a server is ready."""
        if sign.startswith("tcp:"):
            table = self.guest.table("tcp", "tcp6")
            return proc_net.listens(table, int(sign.removeprefix("tcp:")))
        if sign == "cm":
            return "LISTEN" in self.guest.run("rdma resource show cm_id")[1]
        return proc_net.group(sign.removeprefix("group:")) in self.guest.table("igmp")


class HostPair:
    """Two hosts on one wire, for as long as a worker needs them: 10.78.N.1 and 10.78.N.2."""

    def __init__(self, number, roce, mtu=MTU):
        self.number, self.roce, self.mtu = number, roce, mtu
        self.namespaces, self.hosts = [], []

    def __enter__(self):
        try:
            for suffix in "ab":
                name = f"{PREFIX}pair-{os.getpid()}-{self.number}{suffix}"
                self.namespaces.append(Namespace(name).__enter__())
            first, second = self.namespaces
            peer = ["peer", "name", "eth0", "netns", second.name]
            first.ip("link", "add", "eth0", "type", "veth", *peer)
            for place, namespace in enumerate(self.namespaces, 1):
                address = f"10.78.{self.number}.{place}"
                ipv6 = f"fd78:{self.number}::{place}/64"
                namespace.ip("link", "set", "eth0", "mtu", str(self.mtu), "up")
                namespace.ip("addr", "add", f"{address}/24", "dev", "eth0")
                namespace.ip("addr", "add", ipv6, "dev", "eth0", "nodad")
                # Without a route to them, no group is found.
                namespace.ip("route", "add", "224.0.0.0/4", "dev", "eth0")
                self.hosts.append(Host(Sandbox(namespace, self.roce), "roce_eth0", address))
            sandboxes = [RootSandbox(space, self.roce) for space in self.namespaces]
            self.raw = [RawHost(box, self.number, end) for end, box in enumerate(sandboxes)]
            self.loopback = Host(self.hosts[0].sandbox, "roce_lo", "127.0.0.1")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for namespace in self.namespaces:
            namespace.__exit__()

    def sides(self, place):
        """(server's host, client's host) in a place."""
        if place == "hosts":
            return self.hosts
        if place == "raw":
            return self.raw
        return [self.hosts[0] if place == "shared" else self.loopback] * 2


class GuestBridge(Bridge):
    """The namespace with the bridge, and our host of cases with the guest."""

    def __init__(self, roce):
        super().__init__()
        self.roce = roce

    def set_up(self):
        super().set_up()
        self.host = Host(Sandbox(self, self.roce), "roce_br0", HOST_IPV4)

    def sides(self, place, guest_host):
        """(server's host, client's host) in a place."""
        hosts = [guest_host, self.host]
        return hosts if place == "rxe-server" else hosts[::-1]
