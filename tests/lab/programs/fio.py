"""fio, whose engine "rdma" has a client that writes into a server's memory, reads it, or sends.

The client "writes" whatever the verb, and the server "reads". A server's `--bindname` is the first
byte of its text. SENDs are not paced and allow no RNR retries: a sender faster than the receiver
fails on any adapter, hence `--rate_iops` and a deeper queue at the server. After connecting it
waits half a second.
"""

from lab.dropin.case import Case, Program
from lab.programs.trial import Figure, trials

MEBIBYTES = 256
# Of a measurement: the client of the engine "rdma" sleeps for half a second after it has connected,
# in the time that it measures.
MEASURED = 8192
FIGURE = Figure(r"^ *WRITE: bw=(?P<value>[\d.]+)(?P<unit>[KMG]i(?:B|bit)/s)")
# It allows no retries when a receive is missing, so that the one who sends must be the slower one.
SENDING = ("--rate_iops=2000",)


def fio_trials():
    yield from trials("fio/write", "fio", remote("write"), FIGURE)
    yield from trials("fio/read", "fio", remote("read"), places=("hosts",))
    yield from trials("fio/send", "fio", send, places=("loopback",))


def remote(verb):
    """Makes cases in which the client moves all data, and the server none."""

    def make(name, place, tcp):
        mebibytes = MEASURED if name.endswith((place, "tcp")) else MEBIBYTES
        if tcp:
            client = ("--protocol=tcp", "--hostname={server}")
            # It takes what arrives for all of a block, and would end early.
            server = ("--protocol=tcp", "--listen", f"--size={2 * MEASURED}m")
            return case(name, place, "net", client, server, mebibytes)
        client = ("--hostname={server}", f"--verb={verb}")
        return case(name, place, "rdma", client, (), mebibytes)

    return make


def send(name, place, tcp):
    client = ("--hostname={server}", "--verb=send", "--iodepth=4", *SENDING)
    return case(name, place, "rdma", client, ("--iodepth=128",), 64)


def case(name, place, engine, client, server, mebibytes):
    # A client that reads from the server's memory "writes", too, and a server always "reads".
    common = ("fio", "--thread", f"--ioengine={engine}", "--port=9998", "--bs=64k")
    common += (f"--size={mebibytes}m", "--iodepth=16")
    wanted = (rf"WRITE: bw=.*, io={mebibytes}(\.0)?MiB .*",)
    return Case(
        name,
        place,
        Program((*common, "--name=client", "--rw=write", *client), wanted, ("fio: ",)),
        Program((*common, "--name=server", "--rw=read", *server), endless=engine == "net"),
        "cm" if engine == "rdma" else "tcp:9998",
    )
