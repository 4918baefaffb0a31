"""An agent of NIXL with the backend UCX: a target, or the initiator that names its address.

nixl_agent.py [VARIABLE=VALUE …] [TARGET]
"""

import sys

import numpy as np
from peer import Peer
from transfer import SIZE, arguments, serve, transfer


def main(target=None):
    # UCX reads the variables when it is loaded.
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    name = "initiator" if target else "target"
    agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    memory = np.zeros(SIZE, np.uint8)
    address = memory.ctypes.data
    agent.register_memory([(address, SIZE, 0, "")], "DRAM")
    peer = Peer(target)
    peer.tell((agent.get_agent_metadata(), address))
    metadata, remote = peer.hear()
    agent.add_remote_agent(metadata)
    if not target:
        serve(peer, memory)
        return
    own, other = [agent.get_xfer_descs([(at, SIZE, 0)], "DRAM") for at in (address, remote)]

    def move(operation):
        handle = agent.initialize_xfer(operation, own, other, "target")
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        agent.release_xfer_handle(handle)
        if state != "DONE":
            sys.exit(f"{operation} ended as {state}")

    transfer(peer, memory, lambda: move("WRITE"), lambda: move("READ"))


main(*arguments())
