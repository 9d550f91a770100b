"""The name of a flow worker: at most one running worker has it, under a lease of its own.

The owner of the lease identifies the process: a worker that is restarted on the same machine takes
over its name at once, and on another machine when the lease has expired.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from tidegate.errors import NameTaken
from tidegate.store import acquire
from tidegate.store.core.leases import Lease, expire, forget_below, held_now

if TYPE_CHECKING:
    from tidegate.store import Connection

KIND = "flow worker name"


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A process, identified so that other processes can check whether it runs."""

    host: str
    space: str
    """Its PID namespace; two containers may share a host name."""
    pid: int
    token: str
    """Unique to this holder of a name."""

    @classmethod
    def own(cls) -> WorkerProcess:
        """This process, as another holder."""
        return cls(socket.gethostname(), _space(), os.getpid(), uuid4().hex[:12])

    @property
    def is_gone(self) -> bool:
        """Whether it certainly has ended; False for a process of another host."""
        if (self.host, self.space) != (socket.gethostname(), _space()):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def take_name(connection: Connection, name: str, seconds: float) -> Lease:
    """Take a name that no running worker has, or raise `NameTaken`."""
    forget_below(connection, KIND, "")
    holder = msgspec.json.encode(WorkerProcess.own()).decode()
    lease = acquire(connection, KIND, name, holder, seconds)
    if lease is not None:
        return lease
    present = held_now(connection, KIND, name)
    if present is not None:
        _end_if_gone(connection, name, present)
    lease = acquire(connection, KIND, name, holder, seconds)
    if lease is None:
        raise _taken(name, present.owner if present else "")
    return lease


def _end_if_gone(connection: Connection, name: str, present: Lease) -> None:
    process = msgspec.json.decode(present.owner, type=WorkerProcess)
    if not process.is_gone:
        raise _taken(name, present.owner)
    expire(connection, present)


def _taken(name: str, holder: str) -> NameTaken:
    if not holder:
        return NameTaken(name, 0, "another host")
    process = msgspec.json.decode(holder, type=WorkerProcess)
    return NameTaken(name, process.pid, process.host)


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # another system than Linux
        return ""
