"""Mooncake's transfer engine: a target, or the initiator that names the target's address.

mooncake_agent.py [VARIABLE=VALUE …] PROTOCOL OWN_ADDRESS DEVICE [TARGET]
"""

import sys

import numpy as np
from mooncake.engine import TransferEngine
from peer import Peer
from transfer import SIZE, arguments, serve, transfer


def main(protocol, own, device, target=None):
    engine = TransferEngine()
    done(engine.initialize(own, "P2PHANDSHAKE", protocol, device))
    memory = np.zeros(SIZE, np.uint8)
    address = memory.ctypes.data
    done(engine.register_memory(address, SIZE))
    peer = Peer(target)
    peer.tell((f"{own}:{engine.get_rpc_port()}", address))
    name, remote = peer.hear()
    if not target:
        serve(peer, memory)
        return
    write, read = engine.transfer_sync_write, engine.transfer_sync_read
    transfer(
        peer,
        memory,
        lambda: done(write(name, address, remote, SIZE)),
        lambda: done(read(name, address, remote, SIZE)),
    )


def done(status):
    if status != 0:
        sys.exit(f"it failed with {status}")


main(*arguments())
