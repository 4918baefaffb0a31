#!/usr/bin/env python3
"""Drives an RDMA device with pyverbs for a test on another host: `roce conform ADDRESS` there.

This one file is all that the device's host needs, besides python3-pyverbs of rdma-core. Without an
argument it takes the first device that has an address. It listens on loopback, `--listen` says
where else, and prints a token, or has it from ROCE_AGENT_TOKEN.

Who knows the token and reaches the port drives the device, and the memory that this program has
given it, and nothing else of the host. The first line is the token, and its answer []. Any other
line is a list of commands in JSON, and the answer is a line with a list of as many answers. A
command that fails is answered with {"error": NAME_OF_ERRNO, "text": REASON}.
"""

import argparse
import ctypes
import errno
import hmac
import ipaddress
import json
import os
import re
import secrets
import select
import socket
import struct
import sys
import time
import traceback

try:
    from pyverbs import enums
    from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
    from pyverbs.cq import CQ
    from pyverbs.device import Context
    from pyverbs.mr import MR, MW, MWBind, MWBindInfo
    from pyverbs.pd import PD
    from pyverbs.pyverbs_error import PyverbsRDMAError
    from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
    from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
    from pyverbs.wr import SGE, RecvWR, SendWR
except ImportError as error:
    sys.exit(
        f"agent: {error}: install python3-pyverbs (Debian, Ubuntu, Fedora), or pyverbs of rdma-core"
    )

CLASS = "/sys/class/infiniband"
# Port where agents listen, and the longest line of commands.
LISTEN, LONGEST = 4792, 1 << 20
# Seconds in which a test sends its next line, in which who connects shows the token, and for which
# the commands of a line may wait.
SILENCE, GREETING, WAIT = 60, 2, 30
# Commands in a line, objects at a time, bytes of all regions, and what arguments are at most.
COMMANDS, OBJECTS, MEMORY = 1024, 4096, 256 << 20
MOST = {"length": 64 << 20, "offset": 64 << 20, "count": 1 << 16, "size": 1 << 16, "timeout": WAIT}
INLINE, NAME = 4096, 64
PERIOD = 251
SERVICES = {"rc": enums.IBV_QPT_RC, "uc": enums.IBV_QPT_UC, "ud": enums.IBV_QPT_UD}
MTUS = {size: getattr(enums, f"IBV_MTU_{size}") for size in (256, 512, 1024, 2048, 4096)}
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


class Refusal(Exception):
    """A command that asks for too much."""


class Device:
    """A device's port, as sysfs shows it."""

    def __init__(self, name, port):
        self.name, self.port = name, port
        self.directory = f"{CLASS}/{name}/ports/{port}"

    @property
    def is_rxe(self):
        return os.path.exists(f"{CLASS}/{self.name}/parent")

    def gids(self):
        """(IP address, index in the GID table) of RoCEv2, in order, and read one by one: to read a
        thousand entries takes long.
        """
        for index in sorted(map(int, os.listdir(f"{self.directory}/gids"))):
            gid = ipaddress.IPv6Address(self.read(f"gids/{index}"))
            if not int(gid):
                continue
            if not gid.is_link_local and "v2" in self.read(f"gid_attrs/types/{index}"):
                yield gid.ipv4_mapped or gid, index

    def addresses(self):
        return list(dict.fromkeys(str(address) for address, _ in self.gids()))

    def read(self, name):
        with open(f"{self.directory}/{name}") as file:
            return file.read().strip()

    def address_vector(self, address):
        """Address vector of an IP address, from the own address of the same family."""
        address = ipaddress.ip_address(address)
        index = next(index for own, index in self.gids() if own.version == address.version)
        if address.version == 4:
            address = ipaddress.IPv6Address(f"::ffff:{address}")
        route = GlobalRoute(dgid=GID(address.exploded), sgid_index=index)
        return AHAttr(gr=route, is_global=1, port_num=self.port)

    def interface(self, version):
        """Index of the network interface with the own address of this version of IP."""
        index = next(index for own, index in self.gids() if own.version == version)
        return socket.if_nametoindex(self.read(f"gid_attrs/ndevs/{index}"))

    def counters(self):
        directory = f"{self.directory}/hw_counters"
        names = os.listdir(directory) if os.path.isdir(directory) else []
        return {name: int(self.read(f"hw_counters/{name}")) for name in names if name != "lifespan"}


class Agent:
    """Objects that were made by commands, and the execution of commands: `do_…`."""

    def __init__(self, device):
        self.device, self.context = device, Context(name=device.name)
        # (kind, name) -> object, in the order in which they were made
        self.objects = {}
        self.rings = {}  # queue pair's name -> its send queue
        self.groups = []
        self.bound = set()  # windows of type 2 that have been bound
        self.lengths = {}  # of regions, by name
        self.end, self.is_gone = 0, lambda: False
        self.event_fd = next(
            fd for fd in map(int, os.listdir("/proc/self/fd")) if "event" in link(fd)
        )

    def answers(self, commands, is_gone):
        """Answers to a list of commands, as long as somebody waits for them."""
        if len(commands) > COMMANDS:
            text = f"too many commands in a line: {len(commands)}; at most {COMMANDS}"
            return [{"error": "EPROTO", "text": text}]
        self.end, self.is_gone = time.monotonic() + WAIT, is_gone
        return [self.execute(command) for command in commands if not is_gone()]

    def execute(self, command):
        try:
            arguments = dict(command)
            self.check(arguments)
            answer = getattr(self, "do_" + arguments.pop("do"))(**arguments)
            return {} if answer is None else answer
        except PyverbsRDMAError as error:
            return {"error": errno_name(error.error_code), "text": str(error)}
        except Refusal as refusal:
            return {"error": "EPROTO", "text": str(refusal)}
        except Exception:
            return {"error": "EPROTO", "text": traceback.format_exc()}

    def check(self, arguments):
        """Refuses what has no bound."""
        for name, most in MOST.items():
            given = arguments.get(name, 0)
            if not isinstance(given, (int, float)) or not 0 <= given <= most:
                raise Refusal(f"{name} {given}: 0 to {most}")
        if len(arguments.get("name", "")) > NAME:
            raise Refusal(f"a name has at most {NAME} letters")
        if "name" in arguments and arguments["do"] != "destroy":
            self.check_room()

    def check_room(self):
        count = len(self.objects) + len(self.groups)
        if count >= OBJECTS:
            raise Refusal(f"too many objects: {count}; at most {OBJECTS}")

    def part(self, mr, offset, length):
        """A region that has these bytes; pyverbs does not look."""
        if offset + length > self.lengths[mr]:
            raise Refusal(f"{mr} has {self.lengths[mr]} bytes")
        return self.find("mr", mr)

    def find(self, kind, name):
        return self.objects[kind, name]

    # Objects.

    def do_hello(self):
        active = self.context.query_port(self.device.port).active_mtu
        return {
            "kind": "rxe" if self.device.is_rxe else "verbs",
            "addresses": self.device.addresses(),
            "active_mtu": next(size for size, mtu in MTUS.items() if mtu == active),
        }

    def do_pd(self, name):
        self.objects["pd", name] = PD(self.context)

    def do_mr(self, name, pd, length, access):
        total = length + sum(self.lengths.values())
        if total > MEMORY:
            raise Refusal(f"too much memory: {total} bytes; at most {MEMORY}")
        mr = self.objects["mr", name] = MR(
            self.find("pd", pd), length, flags("IBV_ACCESS_", access)
        )
        self.lengths[name] = length
        mr.write(bytes(length), length)
        return {"lkey": mr.lkey, "rkey": mr.rkey, "address": mr.buf}

    def do_window(self, name, pd, window_type):
        self.objects["mw", name] = MW(self.find("pd", pd), window_type)

    def do_cq(self, name, size):
        self.objects["cq", name] = CQ(self.context, size)

    def do_srq(self, name, pd, max_wr, max_sge):
        init = SrqInitAttr(SrqAttr(max_wr=max_wr, max_sge=max_sge))
        self.objects["srq", name] = SRQ(self.find("pd", pd), init)

    def do_srq_limit(self, srq, limit):
        attr = SrqAttr()
        attr.srq_limit = limit
        self.find("srq", srq).modify(attr, enums.IBV_SRQ_LIMIT)

    def do_qp(self, name, pd, type, send_cq, recv_cq, srq=None, caps=None, sq_sig_all=False):
        sizes = {
            "max_send_wr": 64,
            "max_recv_wr": 64,
            "max_send_sge": 4,
            "max_recv_sge": 4,
            "max_inline_data": 64,
            **(caps or {}),
        }
        init = {
            "qp_type": SERVICES[type],
            "scq": self.find("cq", send_cq),
            "rcq": self.find("cq", recv_cq),
            "srq": srq and self.find("srq", srq),
            "cap": QPCap(**sizes),
            "sq_sig_all": int(sq_sig_all),
        }
        if type == "rc" and self.device.is_rxe:
            before = SendRing.addresses()
            mask = enums.IBV_QP_INIT_ATTR_PD | enums.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
            qp = QPEx(
                self.context,
                QPInitAttrEx(
                    **init,
                    pd=self.find("pd", pd),
                    comp_mask=mask,
                    send_ops_flags=enums.IBV_QP_EX_WITH_RDMA_WRITE,
                ),
            )
            self.rings[name] = SendRing(SendRing.addresses() - before)
        else:
            qp = QP(self.find("pd", pd), QPInitAttr(**init))
        self.objects["qp", name] = qp
        return {"qpn": qp.qp_num}

    def do_modify(self, qp, to):
        qp = self.find("qp", qp)
        [(state, arguments)] = to.items()
        attr, mask = TRANSITIONS[state](self.device, qp, **arguments)
        qp.modify(attr, mask | enums.IBV_QP_STATE)

    def do_join(self, qp, group):
        self.check_room()
        self.groups.append(Membership(self.device, self.find("qp", qp), group))

    def do_query(self, qp):
        attr, _ = self.find("qp", qp).query(enums.IBV_QP_STATE)
        return {"state": c_name(enums.ibv_qp_state, attr.qp_state, "IBV_QPS_")}

    def do_destroy(self, name):
        kind = next(kind for kind, its in self.objects if its == name)
        self.objects.pop((kind, name)).close()
        if kind == "mr":
            del self.lengths[name]

    def do_clear(self):
        # Groups first: a queue pair stays while it is in one.
        for membership in self.groups:
            membership.leave()
        self.groups.clear()
        # Then windows: the destruction of a queue pair waits for those that are bound with it.
        for kind in ("mw", "qp", "ah", "mr", "srq", "cq", "pd"):
            for key in [key for key in self.objects if key[0] == kind]:
                self.objects.pop(key).close()
        self.bound.clear()
        self.lengths.clear()
        self.do_events(1 << 30, 0)

    # Work.

    def do_send(self, qp, wrs):
        ring, qp = self.rings.get(qp), self.find("qp", qp)
        keys = []
        answer = post(wrs, lambda wr: self.post_send(qp, ring, wr, keys))
        return {**answer, "rkeys": keys}

    def post_send(self, qp, ring, wr, keys):
        """Posts a request; if it gives a key to a window, that is added to `keys`."""
        operation = wr["op"]
        flag_bits = flags("IBV_SEND_", wr["flags"])
        if wr.get("raw") or operation not in OPERATIONS:
            if ring is None:
                raise PyverbsRDMAError(f"{operation} is not known here", errno.EOPNOTSUPP)
            ring.post(qp, raw_request(wr, flag_bits))
        elif operation == "bind_window":
            self.bind(qp, wr, flag_bits, keys)
        else:
            qp.post_send(self.request(wr, flag_bits))

    def bind(self, qp, wr, flag_bits, keys):
        bind = wr["bind"]
        window, mr = self.find("mw", bind["window"]), self.find("mr", bind["region"])
        info = MWBindInfo(
            mr, mr.buf + bind["offset"], bind["length"], flags("IBV_ACCESS_", bind["access"])
        )
        if window.type == enums.IBV_MW_TYPE_1:
            qp.bind_mw(window, MWBind(info, flag_bits, wr["id"]))
            keys.append(window.rkey)
        elif window in self.bound:
            # programs set a member of `struct ibv_mw`, which pyverbs only shows
            raise PyverbsRDMAError("pyverbs binds a window of type 2 once", errno.EOPNOTSUPP)
        else:
            made = SendWR(wr_id=wr["id"], opcode=enums.IBV_WR_BIND_MW, send_flags=flag_bits)
            made.set_bind_wr(window, info)
            qp.post_send(made)
            self.bound.add(window)
            keys.append(made.rkey)

    def request(self, wr, flag_bits):
        operation = wr["op"]
        opcode = OPERATIONS[operation]
        immediate = wr.get("imm")
        if immediate is not None:
            opcode = WITH_IMMEDIATE[operation]
        sges = scatter_list(wr.get("sges", []))
        if "inline" in wr:
            if not 0 <= wr["inline"]["length"] <= INLINE:
                raise Refusal(f"at most {INLINE} bytes inline")
            # The library copies the bytes while it posts.
            self.inline = ctypes.create_string_buffer(
                pattern(wr["inline"]["seed"], wr["inline"]["length"])
            )
            sges = [SGE(ctypes.addressof(self.inline), wr["inline"]["length"], 0)]
            flag_bits |= enums.IBV_SEND_INLINE
        data = {} if operation == "local_invalidate" else {"num_sge": len(sges), "sg": sges}
        made = SendWR(wr_id=wr["id"], opcode=opcode, send_flags=flag_bits, **data)
        if immediate is not None:
            made.imm_data = swapped(immediate)
        if "rkey" in wr:
            made.imm_data = wr["rkey"]  # one field for both
        remote = wr.get("remote")
        if operation in ("write", "read"):
            made.set_wr_rdma(remote["rkey"], remote["address"])
        elif operation == "compare_swap":
            made.set_wr_atomic(remote["rkey"], remote["address"], wr["compare"], wr["swap"])
        elif operation == "fetch_add":
            made.set_wr_atomic(remote["rkey"], remote["address"], wr["add"], 0)
        to = wr.get("destination")
        if to:
            made.set_wr_ud(self.address_handle(to["address"]), to["qpn"], to["qkey"])
        return made

    def address_handle(self, address):
        pd = next(pd for (kind, _), pd in self.objects.items() if kind == "pd")
        key = "ah", address
        if key not in self.objects:
            self.check_room()
            self.objects[key] = AH(pd, attr=self.device.address_vector(address))
        return self.objects[key]

    def do_recv(self, wrs, qp=None, srq=None):
        queue = self.find("srq", srq) if srq else self.find("qp", qp)
        made = []
        for wr in wrs:
            sges = scatter_list(wr["sges"])
            made.append(RecvWR(wr_id=wr["id"], num_sge=len(sges), sg=sges))
        return post(made, queue.post_recv)

    def do_poll(self, cq, count, timeout):
        cq = self.find("cq", cq)
        return self.gather(count, timeout, lambda: [completion(wc) for wc in cq.poll(1)[1]])

    def do_events(self, count, timeout):
        def take():
            if not select.select([self.event_fd], [], [], 0)[0]:
                return []
            event = self.context.get_async_event()
            event.ack()
            return [{"event": c_name(enums.ibv_event_type, event.event_type, "IBV_EVENT_")}]

        return self.gather(count, timeout, take)

    def gather(self, count, timeout, take):
        """Collects until there are `count`, the time is over, or nobody waits for them."""
        end = min(self.end, time.monotonic() + timeout)
        taken = []
        while len(taken) < count:
            some = take()
            if not some and (time.monotonic() >= end or self.is_gone()):
                break
            if not some:
                time.sleep(0.0005)
            taken += some
        return taken

    # Memory.

    def do_fill(self, mr, offset, length, seed):
        self.part(mr, offset, length).write(pattern(seed, length), length, offset)

    def do_differs(self, mr, offset, length, seed):
        found, wanted = self.part(mr, offset, length).read(length, offset), pattern(seed, length)
        place = None if found == wanted else next(n for n in range(length) if found[n] != wanted[n])
        return {"differs": place if place is None else offset + place}

    def do_set_word(self, mr, offset, value):
        self.part(mr, offset, 8).write(value.to_bytes(8, sys.byteorder), 8, offset)

    def do_word(self, mr, offset):
        return {"value": int.from_bytes(self.part(mr, offset, 8).read(8, offset), sys.byteorder)}

    def do_counters(self):
        return self.device.counters()


def link(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def post(wrs, one):
    """Posts requests one by one."""
    for index, wr in enumerate(wrs):
        try:
            one(wr)
        except PyverbsRDMAError as error:
            return {"posted": index, "error": errno_name(error.error_code), "text": str(error)}
    return {"posted": len(wrs)}


# Send queues as rxe's library shares them with the kernel, for requests that it refuses or does not
# know.

RAW_OPCODES = {"fetch_add": enums.IBV_WR_ATOMIC_FETCH_AND_ADD, "flush": 14, "atomic_write": 15}


class Membership:
    """A queue pair in a multicast group, which the host has joined on the device's interface."""

    # Where `struct ibv_qp` has the number of the queue pair.
    NUMBER = 52

    def __init__(self, device, qp, group):
        group = ipaddress.ip_address(group)
        self.library = ctypes.CDLL("libibverbs.so.1", use_errno=True)
        mapped = f"::ffff:{group}" if group.version == 4 else str(group)
        self.gid = ctypes.create_string_buffer(ipaddress.IPv6Address(mapped).packed, 16)
        self.qp = ctypes.c_void_p(self.structure(qp))
        error = self.library.ibv_attach_mcast(self.qp, self.gid, 0)
        if error:
            raise PyverbsRDMAError("ibv_attach_mcast fails", error)
        try:
            self.socket = self.join(device, group)
        except OSError as error:
            self.library.ibv_detach_mcast(self.qp, self.gid, 0)
            text = f"the host cannot join {group}: {error}"
            raise PyverbsRDMAError(text, error.errno) from error

    def leave(self):
        self.socket.close()
        self.library.ibv_detach_mcast(self.qp, self.gid, 0)

    def structure(self, qp):
        """Address of the `struct ibv_qp` that pyverbs holds, and does not show."""
        with open("/proc/self/maps") as file:
            areas = [line.split()[:2] for line in file]
        areas = [
            [int(end, 16) for end in ends.split("-")] for ends, rights in areas if "rw" in rights
        ]
        size = type(qp).__basicsize__
        for word in struct.unpack(f"{size // 8}Q", ctypes.string_at(id(qp), size // 8 * 8)):
            number = word + self.NUMBER
            is_inside = any(first <= word and number + 4 <= end for first, end in areas)
            is_place = is_inside and word % 8 == 0
            if is_place and ctypes.c_uint32.from_address(number).value == qp.qp_num:
                return word
        raise PyverbsRDMAError("this pyverbs has another structure", errno.EOPNOTSUPP)

    @staticmethod
    def join(device, group):
        """A socket with which the host has joined."""
        interface = device.interface(group.version)
        if group.version == 4:
            family, level, option = socket.AF_INET, socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP
            request = struct.pack("4s4si", group.packed, bytes(4), interface)
        else:
            family, level, option = socket.AF_INET6, socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP
            request = struct.pack("16sI", group.packed, interface)
        made = socket.socket(family, socket.SOCK_DGRAM)
        try:
            made.setsockopt(level, option, request)
        except OSError:
            made.close()
            raise
        return made


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


# States: the attributes of each transition, and their mask, by the names in the commands.


def reset(device, qp):
    return QPAttr(qp_state=enums.IBV_QPS_RESET), 0


def init(device, qp, access=(), qkey=0):
    attr = QPAttr(qp_state=enums.IBV_QPS_INIT, port_num=device.port)
    attr.pkey_index = 0
    mask = enums.IBV_QP_PKEY_INDEX | enums.IBV_QP_PORT
    if qp.qp_type == enums.IBV_QPT_UD:
        attr.qkey = qkey
        return attr, mask | enums.IBV_QP_QKEY
    attr.qp_access_flags = flags("IBV_ACCESS_", access)
    return attr, mask | enums.IBV_QP_ACCESS_FLAGS


def rtr(device, qp, peer=None, rq_psn=0, max_dest_rd_atomic=0, min_rnr_timer=0):
    attr = QPAttr(qp_state=enums.IBV_QPS_RTR)
    if qp.qp_type == enums.IBV_QPT_UD:
        return attr, 0
    attr.ah_attr = device.address_vector(peer["address"])
    attr.dest_qp_num = peer["qpn"]
    attr.path_mtu = MTUS[peer["path_mtu"]]
    attr.rq_psn = rq_psn
    mask = enums.IBV_QP_AV | enums.IBV_QP_PATH_MTU | enums.IBV_QP_DEST_QPN | enums.IBV_QP_RQ_PSN
    if qp.qp_type == enums.IBV_QPT_UC:
        return attr, mask
    attr.max_dest_rd_atomic = max_dest_rd_atomic
    attr.min_rnr_timer = min_rnr_timer
    return attr, mask | enums.IBV_QP_MAX_DEST_RD_ATOMIC | enums.IBV_QP_MIN_RNR_TIMER


def rts(device, qp, sq_psn, timeout=0, retry_cnt=0, rnr_retry=0, max_rd_atomic=0):
    attr = QPAttr(qp_state=enums.IBV_QPS_RTS)
    attr.sq_psn = sq_psn
    if qp.qp_type != enums.IBV_QPT_RC:
        return attr, enums.IBV_QP_SQ_PSN
    attr.timeout = timeout
    attr.retry_cnt = retry_cnt
    attr.rnr_retry = rnr_retry
    attr.max_rd_atomic = max_rd_atomic
    return attr, (
        enums.IBV_QP_SQ_PSN
        | enums.IBV_QP_TIMEOUT
        | enums.IBV_QP_RETRY_CNT
        | enums.IBV_QP_RNR_RETRY
        | enums.IBV_QP_MAX_QP_RD_ATOMIC
    )


def resume(device, qp):
    return QPAttr(qp_state=enums.IBV_QPS_RTS), 0


def sqd(device, qp, notify):
    attr = QPAttr(qp_state=enums.IBV_QPS_SQD)
    attr.en_sqd_async_notify = int(notify)
    return attr, enums.IBV_QP_EN_SQD_ASYNC_NOTIFY


def err(device, qp):
    return QPAttr(qp_state=enums.IBV_QPS_ERR), 0


TRANSITIONS = {step.__name__: step for step in (reset, init, rtr, rts, resume, sqd, err)}


# The commands' words, and those of pyverbs.


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


class Connection:
    """A test, by TCP."""

    def __init__(self, connection):
        self.connection, self.pending = connection, b""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def line(self, most, seconds):
        """The next line, if it comes whole within this time; empty if there is none."""
        end = time.monotonic() + seconds
        while b"\n" not in self.pending:
            left = end - time.monotonic()
            if len(self.pending) > most or left <= 0:
                return b""
            self.connection.settimeout(left)
            data = self.connection.recv(65536)
            if not data:
                return b""
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return line

    def read(self):
        return self.line(LONGEST, SILENCE)

    def write(self, data):
        self.connection.settimeout(SILENCE)
        self.connection.sendall(data)

    def is_gone(self):
        if not select.select([self.connection], [], [], 0)[0]:
            return False
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def shows(self, token):
        """True if it shows the token. How long that takes does not tell how much of it is right."""
        said = self.line(64, GREETING).strip().lower()
        is_right = hmac.compare_digest(said, token.encode())
        text = "this is not the token that the agent has printed"
        answer = [] if is_right else [{"error": "EACCES", "text": text}]
        self.write(json.dumps(answer).encode() + b"\n")
        return is_right


class File:
    """A test, by a port of a virtual machine."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR)
        self.lines = os.fdopen(self.file, "rb")

    def read(self):
        line = self.lines.readline()
        return line[:-1] if line.endswith(b"\n") else b""

    def write(self, data):
        while data:
            data = data[os.write(self.file, data) :]

    def is_gone(self):
        return False


def serve(agent, test):
    """Answers lines until there are no more, or one is too long."""
    while line := test.read():
        commands = json.loads(line)
        if not isinstance(commands, list):
            return
        test.write(json.dumps(agent.answers(commands, test.is_gone)).encode() + b"\n")


def listen(agent, place, once):
    """Serves one test after the other."""
    address, port = place
    version = ipaddress.ip_address(address).version
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    try:
        listener = socket.create_server(place, family=family)
    except OSError as error:
        sys.exit(f"agent: cannot listen at {address} port {port}: {error}; choose with --listen")
    given = os.environ.get("ROCE_AGENT_TOKEN")
    if given is not None and not re.fullmatch("[0-9A-Fa-f]{32}", given):
        sys.exit("agent: ROCE_AGENT_TOKEN: not a token; expected 32 hexadecimal digits")
    token = given.lower() if given else secrets.token_hex(16)
    shown = address if version == 4 else f"[{address}]"
    own = ", ".join(agent.device.addresses())
    port = listener.getsockname()[1]
    line = f"device {agent.device.name} ({own}), agent {shown}:{port}"
    print(line if given else f"{line}, token {token}", flush=True)
    is_over = False
    while not (once and is_over):
        connection, _ = listener.accept()
        with connection:
            test = Connection(connection)
            try:
                is_over = test.shows(token)
                if is_over:
                    serve(agent, test)
            except (OSError, ValueError, RecursionError) as error:
                print(f"agent: {error}", file=sys.stderr)  # that test is over
        agent.do_clear()


def found(port):
    """The first device with an address."""
    names = sorted(os.listdir(CLASS)) if os.path.isdir(CLASS) else []
    devices = [Device(name, port) for name in names]
    return next((device for device in devices if any(device.gids())), None)


def place(text):
    address, _, port = text.rpartition(":")
    try:
        return str(ipaddress.ip_address(text)), LISTEN
    except ValueError:
        pass
    try:
        return str(ipaddress.ip_address(address.strip("[]"))), int(port)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no ADDRESS[:PORT]") from None


def loopback(device):
    """Where only programs of this host reach the agent of a device with this address."""
    address = ipaddress.ip_address(device)
    return device if address.is_loopback else "127.0.0.1" if address.version == 4 else "::1"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "device",
        nargs="?",
        help="a name that `ibv_devices` shows; by default the first with an address",
    )
    parser.add_argument("--port", type=int, default=1, help="port of the device; by default 1")
    parser.add_argument(
        "--listen",
        type=place,
        metavar="ADDRESS[:PORT]",
        help="where to listen, by default at port 4792: 127.0.0.1 or ::1",
    )
    parser.add_argument("--once", action="store_true", help="end when the first test is over")
    parser.add_argument(
        "--file", help=argparse.SUPPRESS
    )  # a port of a virtual machine, in the place of TCP
    arguments = parser.parse_args()
    device = Device(arguments.device, arguments.port) if arguments.device else found(arguments.port)
    if device is None:
        sys.exit("agent: no RDMA device has an address; see `rdma link` and `ip address`")
    if not os.path.isdir(device.directory):
        sys.exit(
            f"agent: there is no port {device.port} of {device.name}; `ibv_devices` lists devices"
        )
    addresses = device.addresses()
    if not addresses:
        sys.exit(f"agent: {device.name} has no address for RoCEv2; give its interface one")
    agent = Agent(device)
    if arguments.file:
        serve(agent, File(arguments.file))
    else:
        listen(agent, arguments.listen or (loopback(addresses[0]), LISTEN), arguments.once)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
