"""The guest's agent: executes with pyverbs the commands that our peer (`peer/`) executes with our
API; `agent/src/command.rs` lists them.

Runs in the guest: `agent.py PORT`, a virtio port. A line is a list of commands in JSON, and the
answer is a line with a list of as many answers. A command that fails is answered with
{"error": NAME_OF_ERRNO, "text": REASON}.
"""

import ctypes
import json
import os
import select
import sys
import time
import traceback

from pyverbs import enums
from pyverbs.addr import AH
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

import transitions
from send_ring import SendRing, raw_request
from translate import (
    DEVICE,
    MTUS,
    OPERATIONS,
    PORT,
    SERVICES,
    SYSFS,
    WITH_IMMEDIATE,
    address_vector,
    c_name,
    completion,
    errno_name,
    flags,
    own_addresses,
    pattern,
    scatter_list,
    swapped,
)


class Agent:
    """Objects that were made by commands, and the execution of commands: `do_…`."""

    def __init__(self):
        self.context = Context(name=DEVICE)
        # (kind, name) -> object, in the order in which they were made
        self.objects = {}
        self.rings = {}  # queue pair's name -> its send queue
        self.event_fd = next(
            fd for fd in map(int, os.listdir("/proc/self/fd")) if "event" in link(fd)
        )

    def execute(self, command):
        arguments = dict(command)
        try:
            answer = getattr(self, "do_" + arguments.pop("do"))(**arguments)
            return {} if answer is None else answer
        except PyverbsRDMAError as error:
            return {"error": errno_name(error.error_code), "text": str(error)}
        except Exception:
            return {"error": "EPROTO", "text": traceback.format_exc()}

    def find(self, kind, name):
        return self.objects[kind, name]

    # Objects.

    def do_hello(self):
        active = self.context.query_port(PORT).active_mtu
        return {
            "kind": "rxe",
            "addresses": list(own_addresses()),
            "active_mtu": next(size for size, mtu in MTUS.items() if mtu == active),
        }

    def do_pd(self, name):
        self.objects["pd", name] = PD(self.context)

    def do_mr(self, name, pd, length, access):
        mr = self.objects["mr", name] = MR(
            self.find("pd", pd), length, flags("IBV_ACCESS_", access)
        )
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
        if type == "rc":
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
        attr, mask = getattr(transitions, state)(qp, **arguments)
        qp.modify(attr, mask | enums.IBV_QP_STATE)

    def do_query(self, qp):
        attr, _ = self.find("qp", qp).query(enums.IBV_QP_STATE)
        return {"state": c_name(enums.ibv_qp_state, attr.qp_state, "IBV_QPS_")}

    def do_destroy(self, name):
        kind = next(kind for kind, its in self.objects if its == name)
        self.objects.pop((kind, name)).close()

    def do_clear(self):
        # Windows first: the destruction of a queue pair waits for those that are bound with it.
        for kind in ("mw", "qp", "ah", "mr", "srq", "cq", "pd"):
            for key in [key for key in self.objects if key[0] == kind]:
                self.objects.pop(key).close()
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
        else:
            made = SendWR(wr_id=wr["id"], opcode=enums.IBV_WR_BIND_MW, send_flags=flag_bits)
            made.set_bind_wr(window, info)
            qp.post_send(made)
            keys.append(made.rkey)

    def request(self, wr, flag_bits):
        operation = wr["op"]
        opcode = OPERATIONS[operation]
        immediate = wr.get("imm")
        if immediate is not None:
            opcode = WITH_IMMEDIATE[operation]
        sges = scatter_list(wr.get("sges", []))
        if "inline" in wr:
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
            self.objects[key] = AH(pd, attr=address_vector(address))
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
        return gather(count, timeout, lambda: [completion(wc) for wc in cq.poll(1)[1]])

    def do_events(self, count, timeout):
        def take():
            if not select.select([self.event_fd], [], [], 0)[0]:
                return []
            event = self.context.get_async_event()
            event.ack()
            return [{"event": c_name(enums.ibv_event_type, event.event_type, "IBV_EVENT_")}]

        return gather(count, timeout, take)

    # Memory.

    def do_fill(self, mr, offset, length, seed):
        self.find("mr", mr).write(pattern(seed, length), length, offset)

    def do_differs(self, mr, offset, length, seed):
        found, wanted = self.find("mr", mr).read(length, offset), pattern(seed, length)
        place = None if found == wanted else next(n for n in range(length) if found[n] != wanted[n])
        return {"differs": place if place is None else offset + place}

    def do_set_word(self, mr, offset, value):
        self.find("mr", mr).write(value.to_bytes(8, sys.byteorder), 8, offset)

    def do_word(self, mr, offset):
        return {"value": int.from_bytes(self.find("mr", mr).read(8, offset), sys.byteorder)}

    def do_counters(self):
        directory = f"{SYSFS}/hw_counters"
        return {
            name: int(open(f"{directory}/{name}").read())
            for name in os.listdir(directory)
            if name != "lifespan"
        }


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


def gather(count, timeout, take):
    """Collects until there are `count` or the time, in seconds, is over."""
    end = time.monotonic() + timeout
    taken = []
    while len(taken) < count:
        some = take()
        if not some and time.monotonic() >= end:
            break
        if not some:
            time.sleep(0.0005)
        taken += some
    return taken


def serve(path):
    agent = Agent()
    port = os.open(path, os.O_RDWR)
    pending = b""
    while True:
        while b"\n" not in pending:
            pending += os.read(port, 65536)
        line, pending = pending.split(b"\n", 1)
        answer = (
            json.dumps([agent.execute(command) for command in json.loads(line)]).encode() + b"\n"
        )
        while answer:
            answer = answer[os.write(port, answer) :]


if __name__ == "__main__":
    serve(sys.argv[1])
