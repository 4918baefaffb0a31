"""The two programs that do verbs on command: our peer on the host and the agent in a guest."""

import json
import select
import socket
import subprocess
import time

from lab import LabError, PYTHON_PATH

# Longer than any `timeout` in a command.
ANSWER_SECONDS = 30


class Side:
    """Commands go out and answers come in, a line of JSON each; `peer/src/command.rs` lists the commands."""

    pending = b""

    def ask(self, commands):
        """The answers to a list of commands."""
        self.write(json.dumps(commands).encode() + b"\n")
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self.pending:
            if not select.select([self.reader], [], [], max(0, deadline - time.monotonic()))[0]:
                raise LabError(f"{self.who} does not answer {commands}\n{self.log()}")
            data = self.read()
            if not data:
                raise LabError(f"{self.who} has ended in {commands}\n{self.log()}")
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)


class Agent(Side):
    """In a guest, with rxe."""

    def __init__(self, guest):
        self.guest = guest
        self.who = f"the agent of guest {guest.ipv4}"
        status, output = guest.run(
            f"PYTHONPATH={PYTHON_PATH} python3 -S /agent.py /dev/vport*p2 >/tmp/agent.log 2>&1 &"
        )
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


class Peer(Side):
    """On the host, with our adapter."""

    def __init__(self, net, binary, address, faults, directory):
        self.who = f"our peer at {address}"
        self.errors = directory / f"peer-{address}.log"
        self.faults = faults
        with open(self.errors, "ab") as errors:
            self.process = net.start(
                [binary, f"udp:{address}", "--faults", faults],
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
            raise LabError(f"{self.who} has ended\n{self.log()}") from None

    def read(self):
        return self.reader.read(1 << 20)

    def log(self):
        return self.errors.read_text(errors="replace")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
