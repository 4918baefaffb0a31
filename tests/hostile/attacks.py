"""Attacks by a user without rights, each the argument of this program. What an attack has found out
goes to standard output."""

import contextlib
import os
import select
import socket
import struct
import sys
import time

from share import KEEP, RELEASE, Client, Refused, fifo, hoard, request_to_join, varint

PORT = 4791


def take_over(address, victim):
    """Asks for the victim's partition and changes services all the time: how often is it given?"""
    given = 0
    clients = hoard(address)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        other = Client(address, wanted=int(victim))
        given += other.partition is not None
        other.close()
        for client in clients:
            for service in range(8):
                client.claim(service)
                client.tell(RELEASE, 0, varint(service))
    print(len(clients), given)


def former(address):
    """Takes all that it gets, again and again, for two seconds: which partitions are those?"""
    had = set()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        clients = hoard(address)
        for client in clients:
            had.add(client.partition)
            client.close()
    print(*sorted(had))


def hold(address):
    """No attack: takes a partition, says which, and keeps it until its input ends."""
    client = Client(address)
    print(client.partition, flush=True)
    sys.stdin.read()


def everything(address):
    """Takes all partitions that it gets, says so, and keeps them until its input ends."""
    clients = hoard(address)
    print(len(clients), flush=True)
    sys.stdin.read()


def silent(address):
    """Takes all partitions, has datagrams sent to each, and reads nothing."""
    clients = hoard(address)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams = [bytes([4, 0, 255, 255, 0, client.partition << 2, 0, 1]) for client in clients]
    print(len(clients), flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for datagram in datagrams:
            for _ in range(64):
                sender.sendto(datagram, (address, PORT))


def nonsense(address):
    """Writes anything to the FIFO and to the pipes."""
    writer = os.open(fifo(address), os.O_WRONLY | os.O_NONBLOCK)
    end = time.monotonic() + 3
    ended = 0
    while time.monotonic() < end:
        for bytes_ in (b"knock\0\0\4", os.urandom(63), b"k"):
            with contextlib.suppress(BlockingIOError):
                os.write(writer, bytes_)
        try:
            client = Client(address, 0.5)
            os.write(client.requests, os.urandom(1 + ended % 200))
            client.answer()
        except (Refused, BlockingIOError):
            ended += 1
    print(ended)


def join_requests(address):
    """Fills the FIFO with requests of nobody, and of a socket at which nobody accepts."""
    number = os.urandom(16)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0roce client {number.hex()}".encode())
    listener.listen(1000)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for name in (number, os.urandom(16)):
            with contextlib.suppress(BlockingIOError):
                request_to_join(address, name, os.urandom(16))


def records(address):
    """Says that it has connections with another host, and ends."""
    client = Client(address)
    partition = client.partition
    for number in range(500):
        remote = bytes(10) + b"\xff\xff" + socket.inet_aton("127.79.95.9")
        ids = [struct.pack(">I", name) for name in (partition << 26 | number, number)]
        qpns = (5).to_bytes(3, "big") + (7).to_bytes(3, "big")
        client.tell(KEEP, 0, ids[0] + remote + ids[1] + qpns + b"\xff\xff")
    time.sleep(0.2)
    print(partition)


def descriptor(address):
    """Sends descriptors to the service."""
    client = Client(address)
    try:
        socket.send_fds(client.data, [b"x"], [0])
    except BrokenPipeError:
        print("refused")


def fifo_of_others(address):
    """Makes a FIFO of its own."""
    try:
        os.mkfifo(str(fifo(address)) + "x")
    except PermissionError:
        print("refused")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
