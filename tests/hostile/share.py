"""The protocol of `roce share`, as a client that keeps to no rule speaks it."""

import array
import os
import socket
import stat
import struct
import time
from pathlib import Path

DOORS = Path("/run/roce-share")
OPEN, QUERY, CLAIM, RELEASE, KEEP, ERASE = range(1, 7)
OPENED, DONE, IN_USE, FULL = range(1, 5)
ANSWER = struct.Struct("BBxxI")


class Refused(Exception):
    """The service has ended the connection, or has not made one."""


def door(address):
    """The path of an address's door, in this network namespace."""
    return DOORS / f"{os.stat('/proc/self/ns/net').st_ino}-{address}"


def knock(address, number, secret):
    assert stat.S_ISFIFO(door(address).stat().st_mode)
    writer = os.open(door(address), os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(writer, (b"knock\0\0\2" + number + secret).ljust(64, b"\0"))
    finally:
        os.close(writer)


class Client:
    """A connection to the service."""

    def __init__(self, address, patience=2.0):
        number, secret = os.urandom(16), os.urandom(16)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(f"\0roce client {number.hex()}".encode())
        listener.listen(16)
        listener.settimeout(patience)
        knock(address, number, secret)
        try:
            self.data, _ = listener.accept()
        except TimeoutError:
            raise Refused("nobody comes") from None
        finally:
            listener.close()
        self.data.settimeout(patience)
        said, ancillary, _, _ = self.data.recvmsg(16, socket.CMSG_SPACE(8))
        descriptors = array.array("i")
        for _, _, bytes_ in ancillary:
            descriptors.frombytes(bytes_)
        if said != secret or len(descriptors) != 2:
            raise Refused("it is not the service")
        self.requests, self.answers = descriptors
        os.set_blocking(self.answers, False)
        self.patience = patience

    def tell(self, kind, second=0, fields=b""):
        try:
            os.write(self.requests, (bytes([kind, second, 0, 0]) + fields).ljust(40, b"\0"))
        except BrokenPipeError:
            raise Refused("the connection has ended") from None

    def answer(self):
        """Kind of the answer, partition, and size of the buffer."""
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            try:
                answer = os.read(self.answers, ANSWER.size)
            except BlockingIOError:
                time.sleep(0.0005)
                continue
            if not answer:
                raise Refused("the connection has ended")
            return ANSWER.unpack(answer)
        raise Refused("no answer")

    def open(self, wanted=0):
        """The partition that this client has; None if it gets none."""
        self.tell(OPEN, wanted)
        kind, partition, _ = self.answer()
        self.partition = partition if kind == OPENED else None
        return self.partition

    def claim(self, service):
        self.tell(CLAIM, 0, struct.pack("Q", service))
        return self.answer()[0]

    def close(self):
        self.data.close()
        os.close(self.requests)
        os.close(self.answers)


def hoard(address, most=100):
    """Clients with all the partitions that this user gets."""
    clients = []
    while len(clients) < most:
        client = Client(address)
        if client.open() is None:
            client.close()
            break
        clients.append(client)
    return clients
