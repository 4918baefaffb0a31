"""Connection management in steps that no tool takes: rejections with private data, destroyed queue
pairs, a stale connection.
"""

from lab.image import PYTHON_PATH
from lab.interop.cm.case import ROLES, CmCase

# The most private data of a rejection, 148 bytes.
REASON = "no room for you, " * 8 + "not even one"
REQUEST = "RDMA_CM_EVENT_CONNECT_REQUEST, error 0"
ESTABLISHED = "RDMA_CM_EVENT_ESTABLISHED, error 0"
DISCONNECTED = "RDMA_CM_EVENT_DISCONNECTED, error 0"
# The program in the guest.
GUEST_STEPS = ("env", f"PYTHONPATH={PYTHON_PATH}", "python3", "-S", "/cm_steps.py")


def reject_with_data(kernel):
    """Private data of a rejection, which no stock tool sends or shows."""
    rejected = "RDMA_CM_EVENT_REJECTED, error 28"
    yield stepwise(
        kernel,
        "server",
        "reject-with-words",
        ["listen", "request", f"reject:{REASON}"],
        ["to:{host}", "connect:may I?", "event"],
        (f'{REQUEST}, "may I\\?"', "done"),
        (f'{rejected}, "{REASON}"', "done"),
    )
    yield stepwise(
        kernel,
        "client",
        "reject-with-words",
        ["to:{guest}", "connect:may I?", "event"],
        ["listen", "request", f"reject:{REASON}"],
        (f'{rejected}, "{REASON}"', "done"),
        (f'{REQUEST}, "may I\\?"', "done"),
    )
    yield CmCase(
        kernel,
        "rping",
        "client",
        "ipv4",
        "reject-with-words",
        ("rping", "-c", "-C", "1", "-a", "{guest}"),
        (*GUEST_STEPS, "listen", "request", f"reject:{REASON}"),
        (f'.*{rejected}: .*"{REASON}".*',),
        (REQUEST, "done"),
        ours_status=1,
    )


def destroyed_queue_pairs(kernel):
    """One side destroys its queue pair while it is connected, and the other side sends to it."""
    # There is no receive request for the second message, which is therefore never complete, even if
    # it is faster than the destruction.
    loses, sends = (
        ["received", "destroy-qp", "event", "disconnect"],
        ["send", "pause", "send", "disconnect", "event"],
    )
    lost_lines = ("received: success", DISCONNECTED, "done")
    our_error, stock_error = "RetryExcErr", "transport retry counter exceeded"
    for role in ROLES:
        for loser in ["ours", "peers"]:
            ours, stock = (loses, sends) if loser == "ours" else (sends, loses)
            ours_lines = (
                lost_lines
                if loser == "ours"
                else ("sent: success", f"sent: {our_error}", DISCONNECTED, "done")
            )
            stock_lines = (
                lost_lines
                if loser == "peers"
                else ("sent: success", f"sent: {stock_error}", DISCONNECTED, "done")
            )
            accepting = ["listen", "request", "accept:you may", "event"]
            connecting = [
                "to:" + ("{host}" if role == "server" else "{guest}"),
                "connect:may I?",
                "event",
            ]
            accepts_lines = (f'{REQUEST}, "may I\\?"', ESTABLISHED)
            connects_lines = (f'{ESTABLISHED}, "you may"',)
            if role == "server":
                ours, stock = accepting + ours, connecting + stock
                ours_lines, stock_lines = accepts_lines + ours_lines, connects_lines + stock_lines
            else:
                ours, stock = connecting + ours, accepting + stock
                ours_lines, stock_lines = connects_lines + ours_lines, accepts_lines + stock_lines
            yield stepwise(
                kernel, role, f"{loser}-queue-pair-gone", ours, stock, ours_lines, stock_lines
            )


def stale_connection(kernel):
    """Ours exits without a DREQ, and the next process has the same GUID and queue pair number: the
    kernel refuses, ends the old connection, and then accepts.
    """
    ours = "{steps} {device} --seed 1 to:{guest}"
    # Random numbers are drawn, or else it would be the same request, not another one.
    runs = (
        f"{ours} connect event die; {ours} draw connect event pause; "
        f"{ours} draw draw connect event disconnect event"
    )
    # The last line is the number of different queue pair numbers.
    ours = (
        "sh",
        "-c",
        f'said=$({runs}); echo "$said"; echo "$said" | grep \'^queue pair\' | sort -u | wc -l',
    )
    server = (*GUEST_STEPS, "listen", *["request", "accept", "event", "event"] * 2)
    return CmCase(
        kernel,
        "steps",
        "client",
        "ipv4",
        "stale-connection",
        ours,
        server,
        (
            ESTABLISHED,
            "RDMA_CM_EVENT_REJECTED, error 10",
            "done",
            ESTABLISHED,
            DISCONNECTED,
            "done",
            "1",
        ),
        (*(REQUEST, ESTABLISHED, DISCONNECTED) * 2, "done"),
        # whoever else is at the address says goodbye for a process that has ended
        own_address=True,
    )


def stepwise(kernel, role, variant, ours, stock, ours_lines, stock_lines):
    """Both sides step by step: `roce-interop-steps` and `cm_steps.py`."""
    return CmCase(
        kernel,
        "steps",
        role,
        "ipv4",
        variant,
        ("{steps}", "{device}", *ours),
        (*GUEST_STEPS, *stock),
        ours_lines,
        stock_lines,
    )
