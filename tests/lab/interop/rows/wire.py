"""RoCEv2 packets between the host and a guest, taken from the guest's tap."""

import ctypes
import ipaddress
import os
import socket
import struct
from dataclasses import dataclass

from lab.host import ROCE_PORT

ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
# A message of a megabyte in packets of 256 bytes must fit.
BUFFER = 256 << 20

OPERATIONS = {
    0x00: "SEND first",
    0x01: "SEND middle",
    0x02: "SEND last",
    0x03: "SEND last imm",
    0x04: "SEND only",
    0x05: "SEND only imm",
    0x06: "WRITE first",
    0x07: "WRITE middle",
    0x08: "WRITE last",
    0x09: "WRITE last imm",
    0x0A: "WRITE only",
    0x0B: "WRITE only imm",
    0x0C: "READ request",
    0x0D: "READ response first",
    0x0E: "READ response middle",
    0x0F: "READ response last",
    0x10: "READ response only",
    0x11: "ACK",
    0x12: "ATOMIC ACK",
    0x13: "CMP_SWAP",
    0x14: "FETCH_ADD",
    0x16: "SEND last inv",
    0x17: "SEND only inv",
    0x1C: "FLUSH",
    0x1D: "ATOMIC WRITE",
}
WITH_AETH = {0x0D, 0x0F, 0x10, 0x11, 0x12}

# Short names of NAK codes, as in rows.
NAKS = {0x60: "SEQUENCE", 0x61: "INVALID", 0x62: "ACCESS", 0x63: "OPERATION", 0x64: "RD"}


@dataclass(frozen=True)
class Packet:
    """A RoCEv2 packet."""

    source: str
    destination: str
    opcode: int
    dest_qpn: int
    psn: int
    syndrome: int | None
    length: int  # of the UDP payload

    @property
    def nak(self):
        """Short name of a NAK, or None."""
        if self.syndrome is None or self.syndrome >> 5 == 0:
            return None
        return "RNR" if self.syndrome >> 5 == 1 else NAKS.get(self.syndrome, f"{self.syndrome:#x}")

    def __str__(self):
        name = OPERATIONS.get(self.opcode & 0x1F, "?") if self.opcode < 0x80 else "CNP"
        service = ["RC", "UC", "RD", "UD"][self.opcode >> 5] if self.opcode < 0x80 else ""
        syndrome = "" if self.syndrome is None else f" syndrome {self.syndrome:#04x}"
        return (
            f"{self.source} > {self.destination} qp {self.dest_qpn:#x} psn {self.psn:#x} "
            f"{service} {name}{syndrome} ({self.length})"
        )


class Tap:
    """Packets that pass a network device of the lab."""

    def __init__(self, namespace, device):
        with Inside(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        self.socket.setblocking(False)
        self.socket.bind((device, ETH_P_ALL))

    def close(self):
        self.socket.close()

    def take(self):
        """The packets since the last call."""
        packets = []
        while True:
            try:
                frame = self.socket.recv(256, socket.MSG_TRUNC)
            except BlockingIOError:
                return packets
            packet = parse(frame)
            if packet:
                packets.append(packet)


def parse(frame):
    """A RoCEv2 packet; None if the frame is no such packet."""
    (kind,) = struct.unpack_from(">H", frame, 12)
    if kind == 0x0800:
        addresses, protocol = (frame[26:30], frame[30:34]), frame[23]
        udp = 14 + (frame[14] & 15) * 4
    elif kind == 0x86DD:
        addresses, protocol = (frame[22:38], frame[38:54]), frame[20]
        udp = 54
    else:
        return None
    if protocol != socket.IPPROTO_UDP or len(frame) < udp + 20:
        return None
    _, port, length = struct.unpack_from(">HHH", frame, udp)
    if port != ROCE_PORT:
        return None
    bth = udp + 8
    opcode = frame[bth]
    source, destination = (str(ipaddress.ip_address(bytes(a))) for a in addresses)
    syndrome = frame[bth + 12] if opcode in WITH_AETH and len(frame) > bth + 12 else None
    return Packet(
        source,
        destination,
        opcode,
        int.from_bytes(frame[bth + 5 : bth + 8]),
        int.from_bytes(frame[bth + 9 : bth + 12]),
        syndrome,
        length - 8,
    )


class Inside:
    """Context in which this thread is in a network namespace."""

    def __init__(self, namespace):
        self.path = f"/run/netns/{namespace.name}"
        self.libc = ctypes.CDLL(None, use_errno=True)

    def __enter__(self):
        self.own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.enter(self.path)

    def __exit__(self, *_):
        self.enter(f"/proc/self/fd/{self.own}")
        os.close(self.own)

    def enter(self, path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if self.libc.setns(descriptor, 0) != 0:
                raise OSError(ctypes.get_errno(), f"setns {path}")
        finally:
            os.close(descriptor)
