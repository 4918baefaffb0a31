"""One side of a live migration by QEMU: `migrate.py incoming|outgoing URI FILE`.

FILE is in the memory of the machine that leaves; it must be in that of the machine that arrives,
whose processor then runs.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

QEMU = ["qemu-system-x86_64", "-M", "q35,accel=tcg", "-m", "256", "-nodefaults", "-S"]
OPTIONS = ["-display", "none", "-qmp", "stdio"]
PLACE = 0x4000000
# As fast as it can, in bytes per second.
LIMIT = 10**11
SECONDS = 40


class Machine:
    """A machine that does not run yet, and its commands."""

    def __init__(self, *options):
        self.process = subprocess.Popen(
            [*QEMU, *OPTIONS, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.process.stdout.readline()
        self.execute("qmp_capabilities")

    def execute(self, command, **arguments):
        request = json.dumps({"execute": command, "arguments": arguments})
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        while True:
            line = self.process.stdout.readline() or '{"error": "it has ended"}'
            if not line.startswith("{"):
                continue  # about its device
            answer = json.loads(line)
            if "error" in answer:
                sys.exit(f"{command}: {answer['error']}")
            if "return" in answer:
                return answer["return"]

    def migrated(self):
        """What QEMU knows of the migration when it is over."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            state = self.execute("query-migrate")
            if state.get("status") == "completed":
                return state
            if state.get("status") == "failed":
                sys.exit(f"the migration failed: {state.get('error-desc', 'without a reason')}")
            time.sleep(0.02)
        sys.exit(f"the migration has not ended: {state}")

    def quit(self):
        self.execute("quit")
        self.process.wait()


def incoming(uri, file):
    machine = Machine("-incoming", uri)
    machine.migrated()
    arrived = Path("/tmp/arrived")
    size = Path(file).stat().st_size
    machine.execute("pmemsave", val=PLACE, size=size, filename=str(arrived))
    same = arrived.read_bytes() == Path(file).read_bytes()
    arrived.unlink()
    machine.execute("cont")
    running = machine.execute("query-status")["running"]
    machine.quit()
    if not same or not running:
        sys.exit(f"memory is {'the same' if same else 'another'}, running: {running}")
    print("the machine has arrived with its memory")


def outgoing(uri, file):
    machine = Machine("-device", f"loader,file={file},addr={PLACE:#x},force-raw=on")
    machine.execute("migrate-set-parameters", **{"max-bandwidth": LIMIT})
    machine.execute("migrate", uri=uri)
    state = machine.migrated()
    machine.quit()
    megabytes = state["ram"]["transferred"] / 1e6
    print(f"{megabytes / state['total-time'] * 1000:.1f} MB/s, {megabytes:.0f} MB")


if __name__ == "__main__":
    {"incoming": incoming, "outgoing": outgoing}[sys.argv[1]](*sys.argv[2:])
