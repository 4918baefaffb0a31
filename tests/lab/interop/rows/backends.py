"""Backends of exchanges: the two programs that execute verbs by commands, our peer on the host and
the agent in a guest.

pyverbs has immediate data and the key of an invalidation in one field; the former is in network
byte order. A scatter list must have an element, except for binds and local invalidations, which
must have none. Queues of rxe hold one less than a power of two. Destroying a queue pair waits for
windows of type 2 bound with it. rxe repeats a FLUSH or ATOMIC WRITE with address 0, does not
answer a repeated FLUSH, and reports success of a READ whose responses were reordered while it
requested a part again. rxe 6.1 drops acknowledgements after a local error. rxe marks an
invalidation with the kernel's flag, 4, instead of IBV_WC_WITH_INV.
"""

import json
import select
import socket
import subprocess
import time

from lab.host import LabError
from lab.image import PYTHON_PATH

# Longer than any `timeout` in a command.
ANSWER_SECONDS = 30


class Backend:
    """A program that answers commands, a line of JSON each; `agent/src/command.rs` lists them."""

    pending = b""

    def ask(self, commands):
        """The answers to a list of commands."""
        self.write(json.dumps(commands).encode() + b"\n")
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self.pending:
            left = max(0, deadline - time.monotonic())
            if not select.select([self.reader], [], [], left)[0]:
                raise LabError(f"{self.label} does not answer {commands}\n{self.log()}")
            data = self.read()
            if not data:
                raise LabError(f"{self.label} has ended in {commands}\n{self.log()}")
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)


class Agent(Backend):
    """The agent in a guest, with rxe."""

    ours = False

    def __init__(self, guest):
        self.guest = guest
        self.label = f"the agent of guest {guest.ipv4}"
        agent = f"PYTHONPATH={PYTHON_PATH} python3 -S /agent.py --file /dev/vport*p2"
        command = f"{agent} >/tmp/agent.log 2>&1 &"
        status, output = guest.run(command)
        if status != 0:
            raise LabError(f"guest: cannot start the agent: {output}")
        self.reader = socket.socket(socket.AF_UNIX)
        self.reader.connect(str(guest.agent_socket))
        self.ask([{"do": "hello"}])

    def write(self, data):
        self.reader.sendall(data)

    def read(self):
        return self.reader.recv(1 << 20)

    def log(self):
        return self.guest.run("cat /tmp/agent.log; dmesg | tail")[1]

    def close(self):
        self.reader.close()


class Peer(Backend):
    """Our peer on the host, with our adapter."""

    ours = True

    def __init__(self, network, binary, address, faults, directory):
        self.label = f"our peer at {address}"
        self.errors = directory / f"peer-{address}.log"
        self.faults = faults
        with open(self.errors, "ab") as errors:
            self.process = network.start(
                [binary, network.device(address), "--faults", faults],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
        self.reader = self.process.stdout

    def write(self, data):
        try:
            self.process.stdin.write(data)
        except BrokenPipeError:
            raise LabError(f"{self.label} has ended\n{self.log()}") from None

    def read(self):
        return self.reader.read(1 << 20)

    def log(self):
        return self.errors.read_text(errors="replace")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
