"""Send queues as the library shares them with the kernel, for requests that the library refuses or
does not know.
"""

import ctypes
import struct

from pyverbs import enums

RAW_OPCODES = {"fetch_add": enums.IBV_WR_ATOMIC_FETCH_AND_ADD, "flush": 14, "atomic_write": 15}


class SendRing:
    """The send queue of a queue pair (`struct rxe_queue_buf`)."""

    PRODUCER, DATA = 128, 384

    def __init__(self, mapped):
        # The receive queue's ring has smaller elements.
        self.address = max(mapped, key=self.element_bits)
        self.bits = self.element_bits(self.address)
        self.mask = ctypes.c_uint32.from_address(self.address + 4).value
        self.producer = ctypes.c_uint32.from_address(self.address + self.PRODUCER)

    @staticmethod
    def addresses():
        """Addresses of all queues that are mapped."""
        with open("/proc/self/maps") as file:
            return {int(line.split("-")[0], 16) for line in file if "/dev/infiniband/" in line}

    @staticmethod
    def element_bits(address):
        return ctypes.c_uint32.from_address(address).value

    def post(self, qp, request):
        ctypes.memmove(
            self.address + self.DATA + (self.producer.value << self.bits), request, len(request)
        )
        self.producer.value = (self.producer.value + 1) & self.mask
        # A list of no requests: the library only notifies the kernel.
        qp.wr_start()
        qp.wr_complete()


def raw_request(wr, flag_bits):
    """A `struct rxe_send_wqe`."""
    operation, remote, sges = wr["op"], wr["remote"], wr.get("sges", [])
    header = struct.pack("<QIIII", wr["id"], 0, RAW_OPCODES[operation], flag_bits, 0)
    data = b"".join(struct.pack("<QII", sge["address"], sge["length"], sge["lkey"]) for sge in sges)
    length, count = sum(sge["length"] for sge in sges), len(sges)
    if operation == "fetch_add":
        body = struct.pack("<QQQI", remote["address"], wr["add"], 0, remote["rkey"])
    elif operation == "atomic_write":
        body = struct.pack("<QI", remote["address"], remote["rkey"])
        data, count = ctypes.string_at(sges[0]["address"], 8), 0  # its bytes are in the request
    else:
        flush = wr["flush"]
        length = flush["length"]
        placement = sum({"GLOBAL": 1, "PERSISTENT": 2}[name] for name in flush["placement"])
        body = struct.pack(
            "<QIIBB", remote["address"], length, remote["rkey"], placement, flush["whole"]
        )
    progress = struct.pack("<IIQIIIIII", 0, 0, remote["address"], 0, 0, 0, 0, 0, 0)
    dma = struct.pack("<IIIIII", length, length, 0, count, 0, 0)
    return header + body.ljust(120, b"\0") + progress + dma + data
