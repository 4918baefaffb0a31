"""A virtual machine with a stock Debian kernel and its rxe, driven over a port of virtio."""

import ipaddress
import os
import re
import select
import shlex
import subprocess
import time

from lab.host import LabError

BOOT_SECONDS = 120
# Time after the guest's own limit until an answer must have come.
GRACE_SECONDS = 15


class Guest:
    """A running guest. Its number makes its addresses: guest 2 is 10.77.0.2 and fd77::2."""

    def __init__(self, bridge, kernel, initramfs, directory, number=2, processors=1):
        self.number = number
        self.ipv4 = f"10.77.0.{number}"
        self.ipv6 = f"fd77::{number:x}"
        self.console = directory / f"guest{number}-console.log"
        self.agent_socket = directory / f"guest{number}-agent"
        self.commands = 0
        self.jobs = 0
        self.pending = b""
        self.tap = f"tap{number}"
        self.mtu = bridge.mtu
        bridge.add_tap(self.tap)
        # Addresses (the host's, its own) of TCP connections, where the bridge has none for them.
        self.second_network = bridge.add_second_tap(f"beside{number}", number)
        self.qemu = bridge.start(
            self.qemu_command(kernel, initramfs, processors),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            self.read_until(rb"<ready>\n", BOOT_SECONDS)
            self.set_up()
        except BaseException:
            self.close()
            raise

    def qemu_command(self, kernel, initramfs, processors):
        mac = f"52:54:00:77:00:{self.number:02x}"
        # Only software emulation: a KVM that starts and then cannot run the kernel would be worse
        # than none.
        second = [
            *("-netdev", f"tap,id=n1,ifname=beside{self.number},script=no,downscript=no"),
            *("-device", "virtio-net-pci,netdev=n1,romfile="),
        ]
        # With one possible processor, QEMU before 8.0 leaves out memory barriers: now and then it
        # misses a kick of a virtio queue, and the guest stops sending.
        possible = max(processors, 2)
        return [
            *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max"),
            *("-smp", f"{processors},maxcpus={possible}", "-m", "1024"),
            *("-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none"),
            *("-no-reboot", "-kernel", kernel, "-initrd", initramfs),
            *("-append", "console=ttyS0 quiet panic=-1 tsc=reliable"),
            *("-netdev", f"tap,id=n0,ifname={self.tap},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=n0,mac={mac},host_mtu={self.mtu},romfile="),
            *(second if self.second_network else []),
            *("-serial", f"file:{self.console}", "-device", "virtio-serial-pci"),
            *("-chardev", "stdio,id=c0", "-device", "virtserialport,nr=1,chardev=c0"),
            *("-chardev", f"socket,id=c1,path={self.agent_socket},server=on,wait=off"),
            *("-device", "virtserialport,nr=2,chardev=c1"),
        ]

    def close(self):
        # It has no disk that could be harmed.
        self.qemu.kill()
        self.qemu.wait()

    def set_up(self):
        second = []
        if self.second_network:
            address = f"{self.second_network[1]}/24"
            second = ["ip link set eth1 up", f"ip addr add {address} dev eth1"]
        for command in [
            *second,
            "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad",
            "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_ra",
            "ip link set lo up",
            # Before rxe is added: it takes its active MTU from the network device.
            f"ip link set eth0 mtu {self.mtu} up",
            f"ip addr add {self.ipv4}/24 dev eth0",
            f"ip addr add {self.ipv6}/64 dev eth0",
            # Without a route to them, no group is found.
            "ip route add 224.0.0.0/4 dev eth0",
            "rdma link add rxe0 type rxe netdev eth0",
        ]:
            status, output = self.run(command)
            if status != 0:
                text = f"{output}\n{self.console_text()}"
                raise LabError(f"guest: {command}: exit status {status}\n{text}")
        # The GID table is filled by a work queue, some time after the device exists.
        deadline = time.monotonic() + 10
        while not {self.ipv4, self.ipv6} <= self.gids().keys():
            if time.monotonic() > deadline:
                raise LabError(f"guest: rxe0 has only these GIDs: {self.gids()}")
            time.sleep(0.1)

    def address(self, family):
        return self.ipv4 if family == "ipv4" else self.ipv6

    def gids(self):
        """Address -> index in rxe0's GID table."""
        wanted = {gid_text(a): a for a in (self.ipv4, self.ipv6)}
        _, output = self.run("cd /sys/class/infiniband/rxe0/ports/1/gids && grep . [0-7]")
        rows = [line.split(":", 1) for line in output.splitlines()]
        return {wanted[gid]: int(index) for index, gid in rows if gid in wanted}

    def run(self, command, timeout=10):
        """Runs one line of shell to its end. Returns (exit status, output and errors).

        What is still running at the timeout is killed, which gives status 137.
        """
        assert "\n" not in command, command
        self.commands += 1
        self.qemu.stdin.write(f"{self.commands} {timeout} {command}\n".encode())
        self.qemu.stdin.flush()
        end = rb"\n<done %d (\d+)>\n" % self.commands
        output, match = self.read_until(end, timeout + GRACE_SECONDS)
        return int(match[1]), output

    def start(self, argv):
        """Starts a program in the background."""
        self.jobs += 1
        return Job(self, f"/tmp/job{self.jobs}", argv)

    def read_until(self, pattern, seconds):
        deadline = time.monotonic() + seconds
        while not (match := re.search(pattern, self.pending)):
            left = deadline - time.monotonic()
            ended = self.qemu.poll() is not None
            if left <= 0 or ended:
                what = "has ended" if ended else f"does not answer within {seconds} s"
                text = f"{self.pending.decode(errors='replace')}\n{self.console_text()}"
                raise LabError(f"guest {what}\n{text}")
            if select.select([self.qemu.stdout], [], [], min(left, 1))[0]:
                self.pending += os.read(self.qemu.stdout.fileno(), 65536)
        output, self.pending = self.pending[: match.start()], self.pending[match.end() :]
        return output.decode(errors="replace"), match

    def console_text(self):
        """Messages of the kernel."""
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def counters(self):
        """Counters of rxe that are not zero."""
        directory = "/sys/class/infiniband/rxe0/ports/1/hw_counters"
        return self.run(f"cd {directory} && grep . * | grep -v ':0$'")[1]

    def table(self, *names):
        """Tables of /proc/net: `tcp`, `udp`, `igmp`, …"""
        return self.run(f"cat {' '.join(f'/proc/net/{name}' for name in names)}")[1]


class Job:
    """A program that runs in the guest while the host does other things."""

    def __init__(self, guest, directory, argv):
        self.guest = guest
        self.directory = directory
        self.returncode = None
        # exec, so that the recorded number is the program's own and leads its process group.
        program = shlex.quote(f"echo $$ >pid; exec {shlex.join(map(str, argv))} >output 2>&1")
        status, output = guest.run(
            f"mkdir {directory} && cd {directory} && "
            f"(setsid sh -c {program}; echo $? >part; mv part status) >/dev/null 2>&1 & "
        )
        if status != 0:
            raise LabError(f"guest: cannot start {argv}: {output}")

    def poll(self):
        """The exit status, or None while it runs."""
        if self.returncode is None:
            status, output = self.guest.run(f"cat {self.directory}/status 2>/dev/null")
            if status == 0:
                self.returncode = int(output)
        return self.returncode

    def wait(self, timeout):
        """The exit status; None when the time is over."""
        deadline = time.monotonic() + timeout
        pause = 0.02
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(pause)
            # Each question takes time of the emulated processor that the program needs.
            pause = min(pause * 2, 0.5)
        return self.returncode

    def pid(self):
        return self.guest.run(f"cat {self.directory}/pid")[1].strip()

    def kill(self):
        self.guest.run(f"kill -KILL -$(cat {self.directory}/pid)")
        return self.wait(5)

    def output(self):
        return self.guest.run(f"cat {self.directory}/output")[1]


def gid_text(address):
    """An address as sysfs shows it in a GID table: eight groups of four digits, IPv4 mapped into
    IPv6.
    """
    value = ipaddress.ip_address(address)
    if value.version == 4:
        value = ipaddress.IPv6Address(f"::ffff:{value}")
    return value.exploded
