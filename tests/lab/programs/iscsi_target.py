"""A tgtd with a disk of 64 MiB over iSER, and one over TCP. It says when it is ready, and stays
until it is killed.

    iscsi_target.py

Each `tgtadm` is told what to do by the same socket. Of iSER, tgtd 1.0.85 wants the address of an
initiator and its name to be allowed.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

INITIATOR = "iqn.2026-01.org.example:initiator"
TARGETS = {"iser": "iqn.2026-01.org.example:iser", "iscsi": "iqn.2026-01.org.example:tcp"}
DISK_BYTES = 64 << 20
READY_SECONDS = 10


def main():
    directory = tempfile.mkdtemp()
    os.environ["TGT_IPC_SOCKET"] = f"{directory}/socket"
    with open(f"{directory}/messages", "w") as messages:
        tgtd = subprocess.Popen(["tgtd", "-f"], stdout=messages, stderr=messages)
    deadline = time.monotonic() + READY_SECONDS
    while not is_up():
        if tgtd.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"tgtd does not start:\n{Path(messages.name).read_text()}")
        time.sleep(0.05)
    for number, (driver, name) in enumerate(TARGETS.items(), 1):
        disk = f"{directory}/{driver}"
        with open(disk, "wb") as file:
            file.truncate(DISK_BYTES)
        add_target(driver, number, name, disk)
    print("the target is ready", flush=True)
    sys.exit(tgtd.wait())


def is_up():
    show = ["tgtadm", "--mode", "target", "--op", "show"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.run(show, **quiet).returncode == 0


def add_target(driver, number, name, disk):
    common = ["tgtadm", "--lld", driver, "--tid", str(number)]
    for words in [
        ["--mode", "target", "--op", "new", "--targetname", name],
        ["--mode", "target", "--op", "bind", "--initiator-address", "ALL"],
        ["--mode", "target", "--op", "bind", "--initiator-name", INITIATOR],
        [
            *("--mode", "logicalunit", "--op", "new", "--lun", "1", "--bstype", "rdwr"),
            *("--backing-store", disk),
        ],
    ]:
        subprocess.run([*common, *words], check=True)


main()
