"""File permissions: only the user that runs a deployment can read what it stores.

Folders of a deployment are created with mode 0700. Existing folders are restricted when the
deployment is opened. A group that has more rights than others keeps them, since they were granted
on purpose. Nothing outside the deployment is changed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

PRIVATE = 0o077
"""The umask of processes that write only files of a deployment."""


def private_folder(folder: Path) -> None:
    """Create a folder that only this user can access, or restrict an existing one."""
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
        restrict(folder)


def restrict(folder: Path) -> None:
    """Remove the rights of others to a folder of this user."""
    status = folder.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid == os.geteuid() and mode != restricted(mode):
        folder.chmod(restricted(mode))


def restricted(mode: int) -> int:
    """A mode without the rights of others, and without group rights that others had too.

    >>> [oct(restricted(mode)) for mode in (0o755, 0o701, 0o2770, 0o775, 0o700)]
    ['0o700', '0o700', '0o2770', '0o770', '0o700']
    """
    group, others = mode >> 3 & 7, mode & 7
    return mode & ~0o007 if group & ~others else mode & ~0o077
