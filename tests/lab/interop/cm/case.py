"""A case of connection management: the command lines of both sides and what they must print."""

from dataclasses import dataclass

FAMILIES = ["ipv4", "ipv6"]
ROLES = ["server", "client"]
# Multicast group of mckey.
GROUP = "239.1.2.3"
# The stock program, with an exit status that does not depend on the race at its end.
RPING = "guest-rping"


@dataclass(frozen=True)
class CmCase:
    """A run of our tool with the stock one.

    In the command lines {host} and {guest} stand for the addresses, {device} for our device, and
    {roce}, {steps} and {examples} for paths of our programs.
    """

    kernel: str
    tool: str
    role: str  # ours; the stock tool has the other
    family: str
    variant: str
    ours: tuple  # arguments of our tool, or a whole command line
    stock: tuple
    # Regular expressions of whole lines, each as often as it is here, in any order.
    ours_lines: tuple = ()
    stock_lines: tuple = ()
    ours_status: int | None = 0  # None: any
    stock_status: int | None = 0
    faults: tuple = ()
    alone: bool = False  # there is no server
    endless: bool = False  # the server does not end by itself
    slow: bool = False  # most of its time is waiting: others run meanwhile
    opens: int = 1  # number of times that our device is opened
    host_devices: bool = False  # ours takes the host's devices, which are sockets
    own_address: bool = False  # others at the address, of the other guest's cases, would take part

    @property
    def name(self):
        return "/".join(["cm", self.kernel, self.tool, self.role, self.family, self.variant])


def ping_text(number, size):
    """Data of rping's message of this number."""
    head = f"rdma-ping-{number}: "
    letters = [chr(ord("A") + (number + at) % 58) for at in range(size - len(head) - 1)]
    return head + "".join(letters)
