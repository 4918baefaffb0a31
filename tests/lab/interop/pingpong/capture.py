"""Check of a capture that our tool wrote: Wireshark must understand it, and every invariant CRC
must be right.

The CRC is computed here because this Wireshark only shows it. All of it must match, in what ours
sent and in what rxe sent; so this also shows that the IPv4 identifications in the file are those of
the wire.
"""

import ipaddress
import struct
import subprocess
import zlib

ETHERNET, RAW_IP, RAW_IPV4, RAW_IPV6 = 1, 101, 228, 229

# Protocols that are guessed from the first bytes of a payload. The pingpongs' payload is none of
# them, but RPC over RDMA, for one, matches short ones and then calls them malformed.
GUESSED = [
    *("smc", "smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser"),
    *("infiniband.eoib", "infiniband_sdp", "fcoib"),
]
# The frames' numbers as text.
NUMBERS = ("-T", "fields", "-e", "frame.number")


class UnreadableError(Exception):
    """A file that is no capture, or of a kind that is not expected here."""


def capture_problems(path, addresses):
    """Problems of a capture that should hold RoCEv2 packets only, from each of `addresses`."""
    if not path.exists():
        return [f"there is no {path.name}"]
    try:
        return frame_problems(path) or content_problems(path, addresses)
    except UnreadableError as error:
        return [f"{path.name}: {error}"]


def frame_problems(path):
    problems = []
    for text, display_filter in [
        ("are not RoCEv2", "!infiniband"),
        ("are malformed", "_ws.malformed"),
    ]:
        frames = tshark(path, "-Y", display_filter, *NUMBERS).decode().split()
        if frames:
            problems.append(f"{path.name}: these frames {text}: {' '.join(frames)}")
    return problems


def content_problems(path, addresses):
    problems = []
    sources = set()
    for number, datagram in enumerate(datagrams(path), 1):
        sources.add(source_address(datagram))
        computed, found = invariant_crc(datagram)
        if computed != found:
            problems.append(
                f"{path.name}: frame {number}: "
                f"invariant CRC is {found:#010x}, should be {computed:#010x}"
            )
    if sources != addresses:
        problems.append(
            f"{path.name}: packets come from {sorted(sources)}, wanted {sorted(addresses)}"
        )
    return problems


def datagrams(path):
    """The IP datagrams of a capture."""
    # The older format: one header, then the packets, each behind a header of its own.
    data = tshark(path, "-F", "pcap", "-w", "-")
    [link_type] = struct.unpack_from("<I", data, 20)
    at = 24
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        frame = data[at + 16 : at + 16 + length]
        yield from_link(link_type, frame)
        at += 16 + length


def from_link(link_type, frame):
    if link_type in (RAW_IP, RAW_IPV4, RAW_IPV6):
        return frame
    if link_type == ETHERNET:
        return frame[14:]
    raise UnreadableError(f"link type {link_type} is not Ethernet and not IP")


def source_address(datagram):
    raw = datagram[12:16] if datagram[0] >> 4 == 4 else datagram[8:24]
    return str(ipaddress.ip_address(raw))


def invariant_crc(datagram):
    """(computed, found) of one RoCEv2 datagram.

    The CRC is that of Ethernet. It covers everything from the IP header on, with ones in place of
    what may change on the way, and before that eight bytes of ones where InfiniBand has its local
    route header.
    """
    if datagram[0] >> 4 == 4:
        header = (datagram[0] & 15) * 4
        changing = [1, 8, 10, 11]  # type of service, time to live, header checksum
    else:
        header = 40
        changing = [1, 2, 3, 7]  # most of traffic class and flow label, hop limit
    (udp_length,) = struct.unpack_from(">H", datagram, header + 4)
    covered = bytearray(datagram[: header + udp_length - 4])
    (found,) = struct.unpack_from("<I", datagram, header + udp_length - 4)
    if datagram[0] >> 4 == 6:
        covered[0] |= 0x0F  # the upper half of the traffic class
    # The UDP checksum, and the byte of the BTH that holds the congestion marks.
    for at in [*changing, header + 6, header + 7, header + 12]:
        covered[at] = 0xFF
    return zlib.crc32(b"\xff" * 8 + covered), found


def tshark(path, *arguments):
    disabled = [word for name in GUESSED for word in ("--disable-protocol", name)]
    argv = ["tshark", "-r", str(path), *disabled, *arguments]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        text = done.stderr.decode(errors="replace").strip()
        raise UnreadableError(f"tshark: exit status {done.returncode}: {text}")
    return done.stdout
