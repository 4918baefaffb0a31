"""The other one of two agents that do something together, and what they tell each other."""

import pickle
import socket

PORT = 4445
# Connections to other agents, which stay until the process has ended.
OPEN = []


class Peer:
    """The other agent, by TCP: what either has to tell the other, in order."""

    def __init__(self, target):
        if target:
            self.socket = socket.create_connection((target, PORT))
        else:
            self.socket = socket.create_server(("", PORT)).accept()[0]
        self.file = self.socket.makefile("rwb")
        OPEN.append(self)

    def tell(self, what):
        pickle.dump(what, self.file)
        self.file.flush()

    def hear(self):
        return pickle.load(self.file)
