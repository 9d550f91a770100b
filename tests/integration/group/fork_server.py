"""Fork server of these tests: a process that has imported everything and forks on request.

    python -m tests.integration.group.fork_server FD

It gets the name of a program with its arguments and two file descriptors on that socket, and
answers with the pid of a process whose standard input and output these are.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable

from tests.integration.group import coordinator, peer

PROGRAMS: dict[str, Callable[..., None]] = {"peer": peer.main, "coordinator": coordinator.main}
MOST = 1 << 16


def main() -> None:
    """Fork on request until the socket is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the children are not waited for
    requests = socket.socket(fileno=int(sys.argv[1]))
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, MOST, 2)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            requests.close()
            _become(*json.loads(data), descriptors=descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.sendall(b"%d" % pid)


def _become(program: str, *arguments: str, descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        PROGRAMS[program](*arguments)
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
