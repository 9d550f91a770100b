"""A process that opens connections to a coordinator, holds them and proves nothing.

    python flood.py HOST PORT CONNECTIONS SECONDS

It writes a line when it has opened so many connections, replaces those that are closed, and ends by
itself.
"""

from __future__ import annotations

import selectors
import socket
import sys
from contextlib import suppress
from time import monotonic


def flood(host: str, port: int, most: int, seconds: float) -> None:
    selector = selectors.DefaultSelector()
    until = monotonic() + seconds
    opened = 0
    while monotonic() < until:
        if len(selector.get_map()) < most:
            with suppress(OSError):
                connection = socket.create_connection((host, port), 1.0)
                selector.register(connection, selectors.EVENT_READ)
                opened += 1
                if opened == most:
                    sys.stdout.write("flooding\n")
                    sys.stdout.flush()
        _drop_closed(selector)


def _drop_closed(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(0):
        connection = key.fileobj
        assert isinstance(connection, socket.socket)
        try:
            is_open = bool(connection.recv(4096))
        except OSError:
            is_open = False
        if not is_open:
            selector.unregister(connection)
            connection.close()


if __name__ == "__main__":
    flood(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
