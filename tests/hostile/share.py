"""The protocol of `roce share`, as a client that keeps to no rule speaks it."""

import array
import os
import socket
import stat
import time
from pathlib import Path

DIRECTORY = Path("/run/roce-share")
QUERY, CLAIM, RELEASE, KEEP, ERASE = range(5)
DONE, IN_USE = range(2)
NUMBER = 7


class Refused(Exception):
    """The service has ended the connection, or has not made one."""


def varint(number):
    """An integer as postcard encodes it."""
    bytes_ = bytearray()
    while number >= 0x80:
        bytes_.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*bytes_, number])


def fifo(address):
    """The path of an address's FIFO, in this network namespace."""
    return DIRECTORY / f"{os.stat('/proc/self/ns/net').st_ino}-{address}"


def request_to_join(address, number, secret, wanted=0):
    assert stat.S_ISFIFO(fifo(address).stat().st_mode)
    writer = os.open(fifo(address), os.O_WRONLY | os.O_NONBLOCK)
    try:
        bytes_ = b"knock\0\0\4" + number + secret + bytes([wanted])
        os.write(writer, bytes_.ljust(64, b"\0"))
    finally:
        os.close(writer)


class Client:
    """A connection to the service. `partition` is None if the service gives none."""

    def __init__(self, address, patience=2.0, wanted=0):
        number, secret = os.urandom(16), os.urandom(16)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(f"\0roce client {number.hex()}".encode())
        listener.listen(16)
        listener.settimeout(patience)
        request_to_join(address, number, secret, wanted)
        try:
            self.data, _ = listener.accept()
        except TimeoutError:
            raise Refused("nobody comes") from None
        finally:
            listener.close()
        self.data.settimeout(patience)
        said, ancillary, _, _ = self.data.recvmsg(24, socket.CMSG_SPACE(8))
        descriptors = array.array("i")
        for _, _, bytes_ in ancillary:
            descriptors.frombytes(bytes_)
        if said[:16] != secret or len(descriptors) != 2:
            raise Refused("it is not the service")
        self.requests, self.answers = descriptors
        os.set_blocking(self.answers, False)
        self.partition = said[16] or None
        self.patience = patience

    def tell(self, kind, number=0, fields=b""):
        try:
            os.write(self.requests, (varint(number) + bytes([kind]) + fields).ljust(40, b"\0"))
        except BrokenPipeError:
            raise Refused("the connection has ended") from None

    def answer(self):
        """The number of a request below 128, and the answer to it."""
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            try:
                answer = os.read(self.answers, 8)
            except BlockingIOError:
                time.sleep(0.0005)
                continue
            if not answer:
                raise Refused("the connection has ended")
            return answer
        raise Refused("no answer")

    def claim(self, service):
        self.tell(CLAIM, NUMBER, varint(service))
        return self.answer()[1]

    def close(self):
        self.data.close()
        os.close(self.requests)
        os.close(self.answers)


def hoard(address, most=100):
    """Clients with all the partitions that this user gets."""
    clients = []
    while len(clients) < most:
        client = Client(address)
        if client.partition is None:
            client.close()
            break
        clients.append(client)
    return clients
