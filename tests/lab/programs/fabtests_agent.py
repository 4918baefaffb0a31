"""One side of fabtests: the server, which names the tests that both run, or the client, which names
the server's address.

fabtests_agent.py DIRECTORY PROVIDER OWN_ADDRESS CHOICE [SERVER]

The tests are those of the set "quick" in runfabtests.sh, less those that fabtests itself excludes
for the provider, and less those that the regular expression CHOICE does not find.
"""

import errno
import re
import subprocess
import sys
import time
from pathlib import Path

from peer import Peer

SECONDS = 60
# Time from the open port of RoCE, or of TCP, to the listening program.
LISTEN_DELAY = 0.3
# Statuses of a test that its provider cannot do.
NOT_RUN = {errno.ENODATA, errno.ENOSYS}
# Statuses of a test that was ended here.
LATE = "late"


class Tests:
    """The tests for a provider, with the command lines of both sides."""

    def __init__(self, directory, provider, choice):
        self.directory, self.provider, self.choice = Path(directory), provider, choice
        self.script = (self.directory / "scripts" / "runfabtests.sh").read_text()
        # "verbs;ofi_rxm" has the excludes of its upper layer.
        layer = provider.split(";")[-1]
        excludes = (self.directory / "test_configs" / layer / f"{layer}.exclude").read_text()
        self.excluded = [line for line in excludes.splitlines() if line and line[0] != "#"]

    def of(self, kind):
        """The chosen tests of a kind: "unit", "functional" or "short"."""
        [body] = re.findall(rf"^{kind}_tests=\((.*?)^\)", self.script, re.DOTALL | re.MULTILINE)
        for test in re.findall(r'"(.*)"', body):
            excluded = any(re.search(pattern, test) for pattern in self.excluded)
            if not excluded and re.search(self.choice, test):
                yield test

    def start(self, test, *addresses):
        program, *options = test.split()
        argv = [self.directory / program, *options, "-p", self.provider, *addresses]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process, seconds=SECONDS):
    """(Status, output) of a program that ends, or is ended."""
    try:
        output = process.communicate(timeout=seconds)[0]
        return process.returncode, output
    except subprocess.TimeoutExpired:
        process.kill()
        return LATE, process.communicate()[0]


def serve(tests, own):
    peer = Peer(None)
    counts = {"passed": 0, "not run": 0, "failed": 0}

    def count(test, *results):
        statuses = [status for status, _ in results]
        outcome = "passed" if not any(statuses) else "failed"
        if len(set(statuses)) == 1 and statuses[0] in NOT_RUN:
            outcome = "not run"
        counts[outcome] += 1
        print(f"{test}: {outcome}", flush=True)
        if outcome == "failed":
            for status, output in results:
                print(f"status {status}\n{output}", flush=True)

    for test in tests.of("unit"):
        words = test.replace("GOOD_ADDR", own).replace("SERVER_ADDR", own)
        count(test, finish(tests.start(words)))
    for test in [*tests.of("functional"), *tests.of("short")]:
        server = tests.start(test, "-s", own)
        time.sleep(LISTEN_DELAY)
        peer.tell((test, own))
        client = peer.hear()
        # A server whose client has failed may wait for ever.
        count(test, finish(server, 2 if client[0] else SECONDS), client)
    peer.tell(None)
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()), flush=True)


def connect(tests, own, server):
    peer = Peer(server)
    while message := peer.hear():
        test, address = message
        peer.tell(finish(tests.start(test, "-s", own, address)))
    print("all were run", flush=True)


def main(directory, provider, own, choice, server=None):
    tests = Tests(directory, provider, choice)
    if server:
        connect(tests, own, server)
    else:
        serve(tests, own)


main(*sys.argv[1:])
