"""A wire with VLAN tags: a program that joins two interfaces, of which one carries frames of a VLAN
with their tags, and the other the same frames without. What has another tag, or none, is lost.

Not a bridge of the kernel's: not every kernel of those who test knows VLANs.
"""

import select
import socket
import struct
import sys

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_AUXDATA = 8
TP_STATUS_VLAN_VALID = 1 << 4
SO_RCVBUFFORCE = 33
BUFFER = 64 << 20
LONGEST = 1 << 16
TAG = 0x8100


def port(name):
    """A packet socket on an interface."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    end.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    end.bind((name, ETH_P_ALL))
    end.setblocking(False)
    return end


def frames(end):
    """What has arrived at an interface: the tag, which the kernel removes, or None; the rest."""
    while True:
        try:
            frame, ancillary, _, address = end.recvmsg(LONGEST, 64)
        except BlockingIOError:
            return
        if address[2] == socket.PACKET_OUTGOING:
            continue
        tag = None
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                status, _, _, _, _, tci, _ = struct.unpack("IIIHHHH", data[:20])
                tag = tci if status & TP_STATUS_VLAN_VALID else None
        yield tag, frame


def send(end, frame):
    try:
        end.send(frame)
    except OSError as error:
        # As on a wire: it is lost. Its interface may be full, or going.
        print(f"lost {len(frame)} bytes: {error}", file=sys.stderr, flush=True)


def main():
    vlan, tagged, plain = int(sys.argv[1]), port(sys.argv[2]), port(sys.argv[3])
    print("ready", flush=True)
    while True:
        readable, _, _ = select.select([tagged, plain], [], [])
        if tagged in readable:
            for tag, frame in frames(tagged):
                if tag is not None and tag & 0xFFF == vlan:
                    send(plain, frame)
        if plain in readable:
            for tag, frame in frames(plain):
                if tag is None:
                    send(tagged, frame[:12] + struct.pack(">HH", TAG, vlan) + frame[12:])


if __name__ == "__main__":
    main()
