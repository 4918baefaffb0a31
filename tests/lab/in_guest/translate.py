"""Translation between the commands' words and pyverbs."""

import errno
import ipaddress
import sys

from pyverbs import enums
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.wr import SGE

DEVICE = "rxe0"
PORT = 1
SYSFS = f"/sys/class/infiniband/{DEVICE}/ports/1"
PERIOD = 251
SERVICES = {"rc": enums.IBV_QPT_RC, "uc": enums.IBV_QPT_UC, "ud": enums.IBV_QPT_UD}
MTUS = {
    256: enums.IBV_MTU_256,
    512: enums.IBV_MTU_512,
    1024: enums.IBV_MTU_1024,
    2048: enums.IBV_MTU_2048,
    4096: enums.IBV_MTU_4096,
}
OPERATIONS = {
    "send": enums.IBV_WR_SEND,
    "send_invalidate": enums.IBV_WR_SEND_WITH_INV,
    "local_invalidate": enums.IBV_WR_LOCAL_INV,
    "bind_window": enums.IBV_WR_BIND_MW,
    "write": enums.IBV_WR_RDMA_WRITE,
    "read": enums.IBV_WR_RDMA_READ,
    "compare_swap": enums.IBV_WR_ATOMIC_CMP_AND_SWP,
    "fetch_add": enums.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
WITH_IMMEDIATE = {"send": enums.IBV_WR_SEND_WITH_IMM, "write": enums.IBV_WR_RDMA_WRITE_WITH_IMM}
# Names that this rdma-core does not know yet.
NEWER_RIGHTS = {"FLUSH_GLOBAL": 1 << 8, "FLUSH_PERSISTENT": 1 << 9}
NEWER_COMPLETIONS = {8: "FLUSH", 9: "ATOMIC_WRITE"}
# rxe gives programs the kernel's number of the flag, which differs from theirs.
WITH_INVALIDATE = 1 << 2 | enums.IBV_WC_WITH_INV


def errno_name(code):
    return errno.errorcode.get(abs(code or 0), str(code))


def flags(prefix, names):
    bits = 0
    for name in names:
        bits |= NEWER_RIGHTS.get(name) or getattr(enums, prefix + name)
    return bits


def scatter_list(sges):
    # pyverbs wants one at least; one of no bytes does no harm.
    sges = sges or [{"address": 0, "length": 0, "lkey": 0}]
    return [SGE(sge["address"], sge["length"], sge["lkey"]) for sge in sges]


def own_addresses():
    """IP address -> index in the GID table."""
    found = {}
    for index in range(8):
        with open(f"{SYSFS}/gids/{index}") as file:
            gid = ipaddress.IPv6Address(file.read().strip())
        if int(gid) and not gid.is_link_local:
            found[str(gid.ipv4_mapped or gid)] = index
    return found


def address_vector(address):
    """Address vector of an IP address, from the own address of the same family."""
    address = ipaddress.ip_address(address)
    index = next(
        index
        for own, index in own_addresses().items()
        if ipaddress.ip_address(own).version == address.version
    )
    if address.version == 4:
        address = ipaddress.IPv6Address(f"::ffff:{address}")
    route = GlobalRoute(dgid=GID(address.exploded), sgid_index=index)
    return AHAttr(gr=route, is_global=1, port_num=PORT)


def completion(wc):
    seen = {
        "id": wc.wr_id,
        "qpn": wc.qp_num,
        "status": c_name(enums.ibv_wc_status, wc.status, "IBV_WC_"),
    }
    if wc.status != enums.IBV_WC_SUCCESS:
        return {**seen, "reason": f"vendor {wc.vendor_err:#x}"}
    opcode = NEWER_COMPLETIONS.get(int(wc.opcode)) or c_name(
        enums.ibv_wc_opcode, wc.opcode, "IBV_WC_"
    )
    return {
        **seen,
        "opcode": opcode,
        "byte_len": wc.byte_len,
        "invalidated": wc.imm_data if wc.wc_flags & WITH_INVALIDATE else None,
        "imm": swapped(wc.imm_data) if wc.wc_flags & enums.IBV_WC_WITH_IMM else None,
        "src_qp": wc.src_qp,
    }


def swapped(immediate):
    """Immediate data as a number, whose bytes pyverbs takes as a number of this host; or back."""
    return int.from_bytes(immediate.to_bytes(4, "big"), sys.byteorder)


def c_name(enumeration, value, prefix):
    return enumeration(value).name.removeprefix(prefix)


def pattern(seed, length):
    start = seed % PERIOD
    return (bytes(range(PERIOD)) * (length // PERIOD + 2))[start : start + length]
