"""Cases: one program, or a server and a client, where each runs, and what they must print."""

from dataclasses import dataclass

# For `Case.variables`: packets within a host go through sockets, not through shared memory.
SOCKETS = ("ROCE_SOCKETS_ONLY=1",)


@dataclass(frozen=True)
class Program:
    """A command line and its output.

    In the words {device}, {gid} and {own} stand for this side's device, GID index and address,
    {mac} and {peer_mac} for MAC addresses of raw devices,
    {server} for the server's address, and the names of `middleware.build` for their programs.
    """

    argv: tuple
    lines: tuple = ()  # regular expressions of whole lines
    forbidden: tuple = ()  # text that no line may contain
    status: int | None = 0  # None: any
    endless: bool = False  # it does not end by itself


@dataclass(frozen=True)
class Case:
    """A run of a program, or of a server and a client.

    `place` is "alone" or "loopback" (one host with `roce_lo`), "shared" (one host, both programs
    with the same address), "hosts" (two, with a wire), "raw" (the same with raw devices, as root),
    or "rxe-client" or "rxe-server" (the stock program has that role, in the guest, on the kernel's
    rxe and with the stock libraries).
    """

    name: str
    place: str
    client: Program
    server: Program | None = None
    # Sign of a ready server: tcp:PORT, udp:PORT, "cm", "group:ADDRESS", "flow" (of raw packets), or
    # "line" (it has printed all of its lines).
    ready: str = "tcp:18515"
    seconds: float = 30
    sysfs: bool = False  # our side reads /sys and /dev, too
    run: tuple = ()  # further options of `roce run`; {ours} is where our files are
    variables: tuple = ()  # of the environment of our side, as NAME=VALUE
    # Commands of root in the first side's namespace; those of `during` run when an endless program
    # has printed its first line.
    before: tuple = ()
    during: tuple = ()
    after: tuple = ()

    @property
    def in_guest(self):
        return self.place.startswith("rxe-")
