"""Connection management in the guest, step by step, with librdmacm: steps that no stock tool takes.

Runs in the guest: `cm_steps.py STEP...`. The host's `roce-interop-steps` (`peer/src/bin/steps.rs`)
takes the same steps and lists them.
"""

import ctypes
import os
import select
import socket
import struct
import sys
import time
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_uint8, c_uint32, c_void_p

PORT = 7174
# As in stock tools. The kernel looks again at the end of that time if it has missed the answer of
# ARP.
RESOLVE_MS = 2000
EVENT_SECONDS = 30
COMPLETION_SECONDS = 30
PAUSE_SECONDS = 1
RDMA_PS_TCP = 0x0106
RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT = 0, 3
# 4.096 µs · 2^14, and few repeats, so that a vanished peer is noticed soon.
ACK_TIMEOUT = 14
RETRY_COUNT = 3
IBV_QPT_RC, IBV_WR_SEND, IBV_SEND_SIGNALED = 2, 2, 2

cm = ctypes.CDLL("librdmacm.so.1", use_errno=True)
verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)


class ConnParam(ctypes.Structure):
    """`struct rdma_conn_param`."""

    _fields_ = [
        ("private_data", c_void_p),
        ("private_data_len", c_uint8),
        ("responder_resources", c_uint8),
        ("initiator_depth", c_uint8),
        ("flow_control", c_uint8),
        ("retry_count", c_uint8),
        ("rnr_retry_count", c_uint8),
        ("srq", c_uint8),
        ("qp_num", c_uint32),
    ]


class Event(ctypes.Structure):
    """`struct rdma_cm_event`, of a connection."""

    _fields_ = [
        ("id", c_void_p),
        ("listen_id", c_void_p),
        ("event", c_int),
        ("status", c_int),
        ("conn", ConnParam),
    ]


class QpInitAttr(ctypes.Structure):
    """`struct ibv_qp_init_attr`."""

    _fields_ = [
        ("qp_context", c_void_p),
        ("send_cq", c_void_p),
        ("recv_cq", c_void_p),
        ("srq", c_void_p),
        ("max_send_wr", c_uint32),
        ("max_recv_wr", c_uint32),
        ("max_send_sge", c_uint32),
        ("max_recv_sge", c_uint32),
        ("max_inline_data", c_uint32),
        ("qp_type", c_int),
        ("sq_sig_all", c_int),
    ]


class Id:
    """Offsets in a `struct rdma_cm_id`."""

    QP, SEND_CQ, RECV_CQ = 24, 368, 384


class Ops:
    """Offsets of functions in a `struct ibv_context`."""

    POLL_CQ, POST_SEND, POST_RECV = 96, 208, 216


def call(function, *arguments):
    """Calls a function whose failure ends the program."""
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{function.__name__}: {os.strerror(ctypes.get_errno())}")


def pointer_at(address):
    return c_void_p.from_address(address).value


def operation(context, place, *types):
    """A function of the verbs driver, which C's headers call inline."""
    return CFUNCTYPE(c_int, *types)(pointer_at(context + place))


class Steps:
    """Steps by their names: `do_…`. Each works on the id that was made last."""

    def __init__(self):
        cm.rdma_create_event_channel.restype = POINTER(c_int)
        cm.rdma_event_str.restype = verbs.ibv_wc_status_str.restype = c_char_p
        self.channel = cm.rdma_create_event_channel()
        self.id = None

    def create_id(self):
        made = c_void_p()
        call(cm.rdma_create_id, self.channel, byref(made), None, RDMA_PS_TCP)
        self.id = made

    def create_qp(self):
        """Creates a queue pair with a receive request."""
        attr = QpInitAttr(
            max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1, qp_type=IBV_QPT_RC
        )
        call(cm.rdma_create_qp, self.id, None, byref(attr))
        wr = (ctypes.c_char * 32)()
        self.post(Ops.POST_RECV, wr)

    def post(self, place, wr):
        qp = pointer_at(self.id.value + Id.QP)
        failed = operation(pointer_at(qp), place, c_void_p, c_void_p, c_void_p)(
            qp, ctypes.addressof(wr), byref(c_void_p())
        )
        if failed:
            raise OSError(failed, f"posting: {os.strerror(failed)}")

    def complete(self, what, place):
        """Waits for a completion."""
        cq = pointer_at(self.id.value + place)
        poll = operation(pointer_at(cq), Ops.POLL_CQ, c_void_p, c_int, c_void_p)
        wc = (ctypes.c_char * 48)()
        deadline = time.monotonic() + COMPLETION_SECONDS
        while poll(cq, 1, ctypes.addressof(wc)) == 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: no completion")
            time.sleep(0.01)
        say(f"{what}: {verbs.ibv_wc_status_str(c_int.from_buffer(wc, 8)).decode()}")

    def next_event(self):
        """Waits for the next event and prints it; returns its name and its id."""
        if not select.select([self.channel[0]], [], [], EVENT_SECONDS)[0]:
            raise TimeoutError("no event")
        taken = POINTER(Event)()
        call(cm.rdma_get_cm_event, self.channel, byref(taken))
        event = taken.contents
        name = cm.rdma_event_str(event.event).decode()
        data = (
            ctypes.string_at(event.conn.private_data, event.conn.private_data_len)
            if event.conn.private_data
            else b""
        )
        words = data.rstrip(b"\0").decode(errors="backslashreplace")
        say(f"{name}, error {event.status}" + (f', "{words}"' if words else ""))
        event_id = event.id
        call(cm.rdma_ack_cm_event, taken)
        return name, event_id

    def param(self, words):
        return ConnParam(
            private_data=ctypes.cast(c_char_p(words), c_void_p),
            private_data_len=len(words),
            retry_count=RETRY_COUNT,
            rnr_retry_count=7,
        )

    # The steps.

    def do_listen(self, _):
        self.create_id()
        call(cm.rdma_bind_addr, self.id, ipv4("0.0.0.0"))
        call(cm.rdma_listen, self.id, 0)

    def do_request(self, _):
        name, event_id = "", None
        while name != "RDMA_CM_EVENT_CONNECT_REQUEST":
            name, event_id = self.next_event()
        self.id = c_void_p(event_id)
        self.create_qp()

    def do_to(self, address):
        self.create_id()
        timeout = c_uint8(ACK_TIMEOUT)
        call(
            cm.rdma_set_option,
            self.id,
            RDMA_OPTION_ID,
            RDMA_OPTION_ID_ACK_TIMEOUT,
            byref(timeout),
            1,
        )
        call(cm.rdma_resolve_addr, self.id, None, ipv4(address.decode()), RESOLVE_MS)
        self.next_event()
        call(cm.rdma_resolve_route, self.id, RESOLVE_MS)
        self.next_event()
        self.create_qp()

    def do_connect(self, words):
        call(cm.rdma_connect, self.id, byref(self.param(words)))

    def do_accept(self, words):
        call(cm.rdma_accept, self.id, byref(self.param(words)))

    def do_reject(self, words):
        call(cm.rdma_reject, self.id, words, c_uint8(len(words)))

    def do_disconnect(self, _):
        call(cm.rdma_disconnect, self.id)

    def do_event(self, _):
        self.next_event()

    def do_send(self, _):
        wr = (ctypes.c_char * 128)()
        struct.pack_into("iI", wr, 28, IBV_WR_SEND, IBV_SEND_SIGNALED)
        self.post(Ops.POST_SEND, wr)
        self.complete("sent", Id.SEND_CQ)

    def do_received(self, _):
        self.complete("received", Id.RECV_CQ)

    def do_destroy_qp(self, _):
        cm.rdma_destroy_qp(self.id)

    def do_pause(self, _):
        time.sleep(PAUSE_SECONDS)


def ipv4(address):
    """A `struct sockaddr_in`."""
    return ctypes.create_string_buffer(
        struct.pack("=H", socket.AF_INET) + struct.pack("!H", PORT) + socket.inet_aton(address), 16
    )


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    steps = Steps()
    for step in sys.argv[1:]:
        name, _, words = step.partition(":")
        getattr(steps, "do_" + name.replace("-", "_"))(words.encode())
    say("done")
