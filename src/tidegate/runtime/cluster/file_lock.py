"""Locks on files: held by one living process, and free as soon as that is gone, however it went."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.errors import AlreadyUp

UP = "up.lock"
"""In the folder of a deployment: held by the `tidegate up` that runs it, and has its process id."""


def locked(file: Path) -> int | None:
    """The lock, until it is closed; None if somebody has it."""
    # Not inherited: a process that we start and that outlives us must not hold it.
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def exclusive_use(folder: Path) -> Iterator[None]:
    """Run a deployment until the end of the block; `AlreadyUp` if another process does.

    The file stays: one that was removed could be locked by two, each by its own file of that name.
    """
    file = folder / UP
    lock = locked(file)
    if lock is None:
        raise AlreadyUp(str(folder), file.read_text().strip() or "unknown")
    try:
        os.truncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)
