"""Reserves free disk space: a full disk stops PostgreSQL, and with it the deployment.

    chunks are refused        below the reserve: the setting, at most 5 % of the disk
    copies are aborted        below the floor: 512 MiB, at most 2.5 % of the disk

The reserve lets runs be cancelled and results of other runs be published.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tidegate.errors import NoSpace, SpaceReserved

MOST_SHARE = 20
"""A reserve is at most this fraction (1/n) of its disk."""
FLOOR_BYTES, FLOOR_SHARE = 512 << 20, 40


class Space(NamedTuple):
    """Bytes on a disk."""

    free: int
    total: int


def reserve_of(total: int, setting: int) -> int:
    """The bytes to keep free on a disk.

    >>> reserve_of(100 << 30, 1 << 30), reserve_of(1000, 1 << 30)
    (1073741824, 50)
    """
    return min(setting, total // MOST_SHARE)


def floor_of(total: int) -> int:
    """The bytes below which nothing more is copied."""
    return min(FLOOR_BYTES, total // FLOOR_SHARE)


def space_at(folder: str) -> Space | None:
    """The space of the disk of a folder, existing or not; None if it is not local."""
    if "://" in folder:
        return None
    path = Path(folder.removeprefix("file:")).absolute()
    existing = next((it for it in (path, *path.parents) if it.exists()), None)
    if existing is None:
        return None
    found = os.statvfs(existing)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def refuse_below_floor(folder: str) -> None:
    """Raise `NoSpace` if the free space is below the floor."""
    space = space_at(folder)
    if space is not None and space.free < floor_of(space.total):
        raise NoSpace(folder)


class DiskReserve:
    """The free space that a deployment keeps on the disks of its folders."""

    def __init__(self, folders: Iterable[str], setting: int) -> None:
        self._folders = tuple(folders)
        self._setting = setting

    def check(self, incoming: int = 0) -> None:
        """Raise `SpaceReserved` if so many bytes more would use the reserve."""
        for folder in self._folders:
            space = space_at(folder)
            if space is not None:
                reserve = reserve_of(space.total, self._setting)
                if self._setting and space.free - incoming < reserve:
                    raise SpaceReserved(folder, space.free, reserve)
