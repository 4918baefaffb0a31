"""Where our side runs: network namespaces with all that programs look for, and our library in place of the stock ones."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from casting import ready_here
from lab import LabError, output_of
from matrix import OurSide
from net import HOST_IPV4, HOST_IPV6, MTU, PREFIX, Namespace, Net

HERE = Path(__file__).resolve().parent

# The names by which programs and dlopen ask for our one file.
NAMES = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"]

NOBODY = 65534


def place_library(library, directory):
    """Puts the library under the names of those that it replaces; returns where."""
    place = directory / "roce"
    place.mkdir()
    shutil.copy(library, place / "libroce_abi.so")
    for name in NAMES:
        (place / name).symlink_to("libroce_abi.so")
    return place


class Home:
    """What a namespace becomes by `home.sh`, and programs that run in it as nobody, with our library."""

    def __init__(self, namespace, library, directory, devices):
        self.namespace, self.library = namespace, library
        self.name = namespace.name
        self.directory = directory / namespace.name
        self.directory.mkdir()
        pairs = [f"{device}={interface}" for device, interface in devices.items()]
        self.keeper = namespace.start([HERE / "home.sh", self.directory, *pairs], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        if self.keeper.stdout.readline() != "ready\n":
            raise LabError(f"cannot furnish the namespace {self.name}")

    def command(self, argv):
        # The last setpriv: giving up root takes back what was asked for the parent's death.
        return ["nsenter", "--target", str(self.keeper.pid), "--net", "--mount", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                "--clear-groups", "--pdeathsig", "KILL", "env", "-i", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "LC_ALL=C",
                f"LD_LIBRARY_PATH={self.library}", *map(str, argv)]

    def start(self, argv, **options):
        return subprocess.Popen(self.command(argv), start_new_session=True, cwd="/", stdin=subprocess.DEVNULL, **options)

    def output(self, argv):
        return output_of(self.command(argv))

    def table(self, *names):
        return self.namespace.output(["cat", *(f"/proc/net/{name}" for name in names)])

    def close(self):
        self.keeper.stdin.close()
        self.keeper.wait()
        self.keeper.stdout.close()


class Host:
    """A side of a conversation: a home, the device to use there and its address."""

    def __init__(self, home, device, address):
        self.home, self.device, self.address = home, device, address
        self.gid_index = None

    def facts(self):
        if self.gid_index is None:
            self.gid_index = 0 if self.device == "roce_lo" else self.find_gid()
        return {"device": self.device, "gid": self.gid_index, "own": self.address}

    def find_gid(self):
        """The index of its address in the device's GID table."""
        shown = self.home.output(["ibv_devinfo", "-v", "-d", self.device])
        for index, address in re.findall(r"GID\[ *(\d+)\]:\s*(\S+?),", shown):
            if address in (f"::ffff:{self.address}", self.address):
                return int(index)
        raise LabError(f"{self.device} has no GID of {self.address}:\n{shown}")

    def start(self, argv, path):
        return OurSide(self.home, argv, Path(path))

    def as_root(self, command):
        self.home.namespace.output(command.split())

    def ready(self, sign):
        return ready_here(self.home, sign)


class Pair:
    """Two hosts on one wire, for as long as a worker needs them: 10.78.N.1 and 10.78.N.2."""

    def __init__(self, number, library, directory):
        self.number, self.library, self.directory = number, library, directory
        self.spaces, self.hosts = [], []

    def __enter__(self):
        try:
            for suffix in "ab":
                self.spaces.append(Namespace(f"{PREFIX}pair-{os.getpid()}-{self.number}{suffix}").__enter__())
            first, second = self.spaces
            first.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", second.name)
            for place, space in enumerate(self.spaces, 1):
                address = f"10.78.{self.number}.{place}"
                space.ip("link", "set", "eth0", "mtu", str(MTU), "up")
                space.ip("addr", "add", f"{address}/24", "dev", "eth0")
                space.ip("addr", "add", f"fd78:{self.number}::{place}/64", "dev", "eth0", "nodad")
                # Without a route to them, no group is found.
                space.ip("route", "add", "224.0.0.0/4", "dev", "eth0")
                home = Home(space, self.library, self.directory, {"roce_lo": "lo", "roce_eth0": "eth0"})
                self.hosts.append(Host(home, "roce_eth0", address))
            self.loopback = Host(self.hosts[0].home, "roce_lo", "127.0.0.1")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.home.close()
        for space in self.spaces:
            space.__exit__()


class Stage(Net):
    """The namespace with the bridge, on which our side meets the guest."""

    def __init__(self, library, directory):
        super().__init__()
        self.library, self.directory = library, directory

    def set_up(self):
        super().set_up()
        self.ip("route", "replace", "224.0.0.0/4", "dev", "br0")
        home = Home(self, self.library, self.directory, {"roce_lo": "lo", "roce_br0": "br0"})
        self.host = Host(home, "roce_br0", HOST_IPV4)

    def __exit__(self, *_):
        if hasattr(self, "host"):
            self.host.home.close()
        super().__exit__()
