"""Where our side runs: network namespaces, and `roce run` in them, which puts our library in the place of the stock ones."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from casting import ready_here
from lab import LabError, output_of
from matrix import OurSide
from net import HOST_IPV4, MTU, PREFIX, Namespace, Net

# The names by which programs and dlopen ask for our one file.
NAMES = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"]

NOBODY = 65534


def place_ours(roce, library, directory):
    """Puts both where every user can execute them, side by side, as they would be installed; returns the command."""
    place = directory / "ours"
    place.mkdir()
    shutil.copy(library, place / "libroce_abi.so")
    return Path(shutil.copy(roce, place))


def place_library(library, directory):
    """Puts the library under the names of those that it replaces, for where there is no `roce run`."""
    place = directory / "roce"
    place.mkdir()
    shutil.copy(library, place / "libroce_abi.so")
    for name in NAMES:
        (place / name).symlink_to("libroce_abi.so")


class Home:
    """A namespace, and programs that run in it as nobody, by `roce run`."""

    def __init__(self, namespace, roce):
        self.namespace, self.roce = namespace, roce
        # What programs leave behind is neither in the way of others nor seen by them.
        self.scratch = roce.parent / f"tmp-{namespace.name}"
        self.scratch.mkdir()
        self.scratch.chmod(0o1777)
        # Where users may have no namespaces, root must be the one who sees what --sysfs shows.
        self.nobody_sees = (
            subprocess.run(
                [*self.as_nobody(), "unshare", "-Urm", "true"], stderr=subprocess.DEVNULL
            ).returncode
            == 0
        )

    def as_nobody(self):
        # The last setpriv: giving up root takes back what was asked for the parent's death.
        return [
            *self.as_root(),
            "setpriv",
            f"--reuid={NOBODY}",
            f"--regid={NOBODY}",
            "--clear-groups",
            "--pdeathsig",
            "KILL",
        ]

    def as_root(self):
        bind = f'mount --bind {self.scratch} /tmp && exec "$@"'
        return self.namespace.command(["sh", "-c", bind, "sh"])

    def command(self, argv, sysfs=False, options=(), variables=()):
        user = self.as_nobody() if self.nobody_sees or not sysfs else self.as_root()
        return [
            *user,
            "env",
            "-i",
            "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME=/tmp",
            "LC_ALL=C",
            *variables,
            str(self.roce),
            "run",
            *(["--sysfs"] if sysfs else []),
            *options,
            "--",
            *map(str, argv),
        ]

    def start(self, argv, sysfs=False, options=(), variables=(), **rest):
        argv = self.command(argv, sysfs, options, variables)
        return subprocess.Popen(
            argv, start_new_session=True, cwd="/", stdin=subprocess.DEVNULL, **rest
        )

    def output(self, argv):
        return output_of(self.command(argv))

    def table(self, *names):
        return self.namespace.output(["cat", *(f"/proc/net/{name}" for name in names)])


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

    def start(self, argv, path, sysfs, options, variables):
        return OurSide(
            self.home, argv, Path(path), sysfs=sysfs, options=options, variables=variables
        )

    def as_root(self, command):
        self.home.namespace.output(command.split())

    def look(self, side):
        """What the program's threads wait for, and what its devices have counted; for when it does not end."""
        threads = Path(f"/proc/{side.process.pid}/task").glob("*")
        shown = [
            f"{(one / 'comm').read_text().strip()}: {(one / 'wchan').read_text()} {(one / 'syscall').read_text()}"
            for one in threads
        ]
        return "\n".join(shown) + output_of(
            [*self.home.as_nobody(), str(self.home.roce), "devinfo", "--counters", "-v"]
        )

    def ready(self, sign):
        return ready_here(self.home, sign)


class Pair:
    """Two hosts on one wire, for as long as a worker needs them: 10.78.N.1 and 10.78.N.2."""

    def __init__(self, number, roce):
        self.number, self.roce = number, roce
        self.spaces, self.hosts = [], []

    def __enter__(self):
        try:
            for suffix in "ab":
                self.spaces.append(
                    Namespace(f"{PREFIX}pair-{os.getpid()}-{self.number}{suffix}").__enter__()
                )
            first, second = self.spaces
            first.ip(
                "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", second.name
            )
            for place, space in enumerate(self.spaces, 1):
                address = f"10.78.{self.number}.{place}"
                space.ip("link", "set", "eth0", "mtu", str(MTU), "up")
                space.ip("addr", "add", f"{address}/24", "dev", "eth0")
                space.ip("addr", "add", f"fd78:{self.number}::{place}/64", "dev", "eth0", "nodad")
                # Without a route to them, no group is found.
                space.ip("route", "add", "224.0.0.0/4", "dev", "eth0")
                self.hosts.append(Host(Home(space, self.roce), "roce_eth0", address))
            self.loopback = Host(self.hosts[0].home, "roce_lo", "127.0.0.1")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in self.spaces:
            space.__exit__()


class Stage(Net):
    """The namespace with the bridge, on which our side meets the guest."""

    def __init__(self, roce):
        super().__init__()
        self.roce = roce

    def set_up(self):
        super().set_up()
        self.ip("route", "replace", "224.0.0.0/4", "dev", "br0")
        self.host = Host(Home(self, self.roce), "roce_br0", HOST_IPV4)
