"""Rows of errors: each class of error, with what both sides must report, and where rxe differs.

In most rows A posts three requests: a good SEND, the bad one, and one behind it. So each row also
shows that the request before is complete, and that the ones behind are flushed, as are the receive
requests of a queue pair in ERR. docs/compliance.md lists the same rows.
"""

from lab.interop.rows.errors import local, queues, remote, transport


def rows():
    yield from remote.access()
    yield from remote.not_enabled()
    yield from remote.windows()
    yield from remote.receive_buffers()
    yield from local.local_buffers()
    yield from transport.not_ready()
    yield from transport.no_response()
    yield from transport.lengths()
    yield from local.flushing()
    yield from local.posting()
    yield from queues.queues()
    yield from transport.unreliable()
    yield from transport.datagrams()
