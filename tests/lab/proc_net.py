"""Tables of /proc/net: which sockets are open, and which groups are joined."""

import ipaddress
import struct

LISTEN = "0A"


def listens(tcp_table, port):
    """True if tcp or tcp6 shows a listener on `port`."""
    for line in tcp_table.splitlines():
        columns = line.split()
        if len(columns) > 3 and columns[3] == LISTEN and columns[1].endswith(f":{port:04X}"):
            return True
    return False


def udp_socket(port, address=None):
    """A socket as udp and udp6 show it; of any address by default."""
    shown = f" {words(address)}" if address else ""
    return f"{shown}:{port:04X} "


def words(address):
    """An address as udp and udp6 show it: 32-bit words in this host's byte order."""
    packed = ipaddress.ip_address(address).packed
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


def group(address):
    """A group as igmp shows it."""
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))
