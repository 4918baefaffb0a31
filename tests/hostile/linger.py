"""A user who has another process wait: messages with TCP sockets whose close lasts 30 seconds.

linger.py USER connect NAME COUNT   connects as this user, sends one and goes, so often
linger.py USER leave NAME COUNT     the same by a process that has ended then
linger.py USER listen NAME          has the name, and sends one to whoever connects

It says "sent" when all are on their way, or after each, and ends with its standard input.
"""

import os
import socket
import struct
import sys
import threading

LINGER = 30
kept = []


def abstract():
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def lingering():
    """A socket with data that its peer, which stays, does not read."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sender = socket.socket()
        sender.connect(listener.getsockname())
        kept.append(listener.accept()[0])
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    sender.setblocking(False)
    try:
        while True:
            sender.send(bytes(65536))
    except BlockingIOError:
        pass
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
    return sender


def send(connection):
    with lingering() as sender:
        socket.send_fds(connection, [b"x"], [sender.fileno()])


def connect(name, count):
    for _ in range(count):
        with abstract() as connection:
            connection.connect(name)
            send(connection)


def leave(name, count):
    """The sockets are made here, so that what their peers have outlives the one that leaves."""
    senders = [lingering() for _ in range(count)]
    child = os.fork()
    if child == 0:
        for sender in senders:
            connection = abstract()
            connection.connect(name)
            socket.send_fds(connection, [b"x"], [sender.fileno()])
        os._exit(0)
    os.waitpid(child, 0)
    for sender in senders:
        sender.close()


def listen(name):
    listener = abstract()
    listener.bind(name)
    listener.listen()
    threading.Thread(target=accept, args=[listener], daemon=True).start()


def accept(listener):
    print("listens", flush=True)
    while True:
        connection, _ = listener.accept()
        send(connection)
        kept.append(connection)
        print("sent", flush=True)


def main():
    user, mode, name, *count = sys.argv[1:]
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    name = "\0" + name
    if mode == "listen":
        listen(name)
    else:
        {"connect": connect, "leave": leave}[mode](name, int(count[0]))
        print("sent", flush=True)
    sys.stdin.read()


main()
