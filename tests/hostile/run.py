#!/usr/bin/env python3
"""Attacks on programs of other users that share a host, run by root in namespaces of their own.

Each case starts `roce share`, programs of users that use it, and an attack of another user. What it
checks is what the users notice.

  run --roce PATH          all cases
  run --roce PATH CASE...  these
  run --list
  run --roce PATH --soak MINUTES
                           no attacks: the service is killed and started again every two minutes
"""

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT, ALICE, BOB, MALLORY = 0, 65_530, 65_531, 65_532
# one that every user can start
PYTHON = "/usr/bin/python3"
ADDRESS = "127.79.95.1"
DEVICE = f"udp:{ADDRESS}"
CASES = []


def case(function):
    CASES.append(function)
    return function


class Host:
    """The tool and the attacks, where every user can start them."""

    def __init__(self, roce):
        self.directory = Path(tempfile.mkdtemp(prefix="roce-hostile-"))
        self.directory.chmod(0o755)
        self.roce = shutil.copy(roce, self.directory)
        for source in HERE.glob("*.py"):
            shutil.copy(source, self.directory)
        self.running = []

    def start(self, user, *argv, **options):
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, **options}
        program = subprocess.Popen(argv, user=user, group=user, extra_groups=[], **options)
        self.running.append(program)
        return program

    def share(self):
        service = self.start(ROOT, self.roce, "share", DEVICE)
        assert service.stdout.readline() == f"{DEVICE}: {ADDRESS}\n"
        return service

    def attack(self, name, *arguments, user=MALLORY):
        return self.start(
            user, PYTHON, str(self.directory / "attacks.py"), name, ADDRESS, *arguments
        )

    def attacked(self, name, *arguments):
        """What an attack has found out."""
        output, _ = self.attack(name, *arguments).communicate(timeout=60)
        return output.split()

    def rping(self, user, role, count, port=7174):
        argv = [
            "rping",
            role,
            "-a",
            ADDRESS,
            "-p",
            str(port),
            "-C",
            str(count),
            "-S",
            "4000",
            "--device",
            DEVICE,
        ]
        return self.start(user, self.roce, *argv, stderr=subprocess.PIPE)

    def exchange(self, count=2000, port=7174):
        """A program of Alice's and one of Bob's, which exchange messages."""
        server = self.rping(ALICE, "-s", count, port)
        client = retried(lambda: self.rping(BOB, "-c", count, port))
        return server, client

    def end(self):
        for program in self.running:
            program.kill()
            program.wait()
            for stream in (program.stdin, program.stdout, program.stderr):
                if stream:
                    stream.close()
        self.running = []


def retried(start):
    """A client that has found its server: one that has not ends at once."""
    end = time.monotonic() + 20
    while True:
        client = start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            client.wait(2)
        if client.returncode in (None, 0) or time.monotonic() > end:
            return client


def expect_success(programs, seconds=60):
    for program in programs:
        _, error = program.communicate(timeout=seconds)
        assert program.returncode == 0, error


def partitions(host, user):
    """A client of a user's, with a partition."""
    client = host.attack("hold", user=user)
    return client, client.stdout.readline().strip()


def memory(process):
    """Resident memory of a process, in KiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@case
def a_live_partition_is_not_taken_over(host):
    host.share()
    _, victim = partitions(host, ALICE)
    programs = host.exchange()
    assert host.attacked("take_over", victim) == ["20", "0"]
    expect_success(programs)


@case
def the_partition_of_a_killed_process_rests(host):
    host.share()
    client, victim = partitions(host, ALICE)
    client.kill()
    client.wait()
    had = host.attacked("former")
    assert victim not in had and len(had) == 20, (victim, had)


@case
def one_user_does_not_take_all(host):
    host.share()
    attack = host.attack("everything")
    assert attack.stdout.readline() == "20\n"
    for user in (ALICE, ROOT):
        assert partitions(host, user)[1].isdigit()
    expect_success(host.exchange())


@case
def silent_clients_cost_little(host):
    service = host.share()
    before = memory(service)
    attack = host.attack("silent")
    assert attack.stdout.readline() == "20\n"
    programs = host.exchange()
    time.sleep(5)
    most = memory(service)
    attack.stdin.write("end\n")
    attack.stdin.flush()
    attack.wait()
    expect_success(programs)
    print(f"  {before} KiB, with silent clients {most} KiB, after them {memory(service)} KiB")
    assert most <= 32 << 10


@case
def nonsense_keeps_nobody_out(host):
    host.share()
    attack = host.attack("nonsense")
    expect_success(host.exchange())
    output, _ = attack.communicate(timeout=60)
    assert int(output) > 0


@case
def join_requests_keep_nobody_out(host):
    host.share()
    attack = host.attack("join_requests")
    assert attack.stdout.readline() == "ready\n"
    expect_success(host.exchange())


@case
def no_other_host_hears_of_connections_that_never_were(host):
    host.share()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.79.95.9", 4791))
        other.settimeout(2)
        assert host.attacked("records")
        with contextlib.suppress(TimeoutError):
            raise AssertionError(other.recv(4096))


@case
def no_descriptor_reaches_the_service(host):
    host.share()
    assert host.attacked("descriptor") == ["refused"]


@case
def no_user_is_the_service(host):
    """Nor is root of a user namespace, whatever capabilities it has there."""
    host.share()
    assert host.attacked("fifo_of_others") == ["refused"]
    argv = ["unshare", "--user", "--map-root-user", host.roce, "share", "udp:127.79.95.7"]
    root = host.start(MALLORY, *argv, stderr=subprocess.PIPE)
    assert "cannot make the file" in root.stderr.readline()


def soak(host, minutes):
    """Programs of two users come and go, while the service is killed every two minutes."""
    service = host.share()
    end, restart = time.monotonic() + 60 * minutes, time.monotonic() + 120
    running, runs, restarts, port = {}, 0, 0, 7200
    while time.monotonic() < end or running:
        if time.monotonic() > restart:
            service.kill()
            service.wait()
            service, restart = host.share(), time.monotonic() + 120
            restarts += 1
        while len(running) < 3 and time.monotonic() < end:
            port += 1
            running[port] = host.exchange(20_000, port)
        for number, programs in list(running.items()):
            if all(program.poll() is not None for program in programs):
                expect_success(programs)
                del running[number]
                runs += 1
        time.sleep(0.2)
    print(f"{runs} pairs of programs, {restarts} restarts, all well")


def inside(arguments):
    if arguments.soak:
        host = Host(arguments.roce)
        try:
            soak(host, arguments.soak)
            return 0
        finally:
            host.end()
            shutil.rmtree(host.directory)
    failed = []
    for function in CASES:
        if arguments.cases and function.__name__ not in arguments.cases:
            continue
        host = Host(arguments.roce)
        try:
            function(host)
            print(f"ok      {function.__name__}", flush=True)
        except Exception as error:  # the others are run all the same
            failed.append(function.__name__)
            print(f"FAILED  {function.__name__}: {type(error).__name__} {error}", flush=True)
        finally:
            host.end()
            shutil.rmtree(host.directory)
    print(f"{len(failed)} failed")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--roce", type=Path, help="the tool")
    parser.add_argument("--list", action="store_true", help="names of the cases")
    parser.add_argument("--soak", type=int, metavar="MINUTES", help="restarts instead of attacks")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(function.__name__ for function in CASES))
        return 0
    if arguments.inside:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return inside(arguments)
    if os.geteuid() != 0 or not arguments.roce:
        sys.exit("run: needs root, and the tool: --roce target/release/roce")
    argv = [
        sys.executable,
        __file__,
        "--inside",
        f"--soak={arguments.soak or 0}",
        "--roce",
        str(arguments.roce.resolve()),
        *arguments.cases,
    ]
    return subprocess.run(["unshare", "--net", "--mount", *argv]).returncode


sys.exit(main())
