"""Advisory locks on files: held by one process, and released by the system when it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.errors import AlreadyUp

UP = "up.lock"
"""In the folder of a deployment: locked by the running `tidegate up`; contains its process id."""


def try_lock(file: Path) -> int | None:
    """A descriptor that holds the lock until it is closed; None if another process holds it."""
    # Not inherited: a child process that outlives this one must not hold the lock.
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def exclusive_use(folder: Path) -> Iterator[None]:
    """Lock a deployment for one `tidegate up`; raises `AlreadyUp` if another process has it.

    The file is never removed: two processes could then lock two different files of that name.
    """
    file = folder / UP
    lock = try_lock(file)
    if lock is None:
        raise AlreadyUp(str(folder), file.read_text().strip() or "unknown")
    try:
        os.truncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)
