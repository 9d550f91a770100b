"""Who may read what a deployment stores: the user it runs as, and no other.

Folders of a deployment are made with mode 0700. Those that were made otherwise are closed when the
deployment is opened. A group that was given more than all others keeps what it has: that was done
on purpose. Nothing outside the deployment is ever changed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

PRIVATE = 0o077
"""The umask of processes that write nothing but files of a deployment."""


def private_folder(folder: Path) -> None:
    """Make a folder that only this user can enter, or close it to others."""
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
        close_to_others(folder)


def close_to_others(folder: Path) -> None:
    """Take away what others may do with a folder of this user."""
    status = folder.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid == os.geteuid() and mode != tightened(mode):
        folder.chmod(tightened(mode))


def tightened(mode: int) -> int:
    """A mode without rights of others, and without those that the group shares with them.

    >>> [oct(tightened(mode)) for mode in (0o755, 0o701, 0o2770, 0o775, 0o700)]
    ['0o700', '0o700', '0o2770', '0o770', '0o700']
    """
    group, others = mode >> 3 & 7, mode & 7
    return mode & ~0o007 if group & ~others else mode & ~0o077
