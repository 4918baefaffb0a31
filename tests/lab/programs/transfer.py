"""What both sides of a transfer between two agents do, whatever moves the memory."""

import os
import sys
import time

import numpy as np

SIZE = 16 << 20
TIMES = 8


def arguments():
    """The arguments that are no variables; those, which are first, become the environment's."""
    words = sys.argv[1:]
    while words and "=" in words[0]:
        name, value = words.pop(0).split("=", 1)
        os.environ[name] = value
    return words


def wanted():
    """What the target's memory is to hold."""
    return np.arange(SIZE // 8, dtype=np.uint64).view(np.uint8)


def serve(peer, memory):
    """The target's side: waits until all is written, and looks at it."""
    peer.hear()
    print("the memory is", "right" if (memory == wanted()).all() else "wrong", flush=True)
    # Who has connections to it closes them first, or waits for answers of one that is gone.
    peer.file.read()


def transfer(peer, memory, write, read):
    """The initiator's side; `write` and `read` move all of `memory`."""
    memory[:] = wanted()
    write()
    started = time.monotonic()
    for _ in range(TIMES):
        write()
    seconds = time.monotonic() - started
    memory[:] = 0
    read()
    print("written and read", "again" if (memory == wanted()).all() else "wrongly")
    print(f"{TIMES * SIZE / seconds / 1e6:.1f} MB/s", flush=True)
    peer.tell("done")
