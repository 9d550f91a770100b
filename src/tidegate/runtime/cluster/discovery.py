"""Where the processes of a deployment meet: the address of their group, and its secret.

FOLDER/group.json   written by whoever coordinates; readable by its owner only

A process on another host is given both: `--group ADDRESS`, and the secret as TIDEGATE_SECRET.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tidegate.errors import NoSecret
from tidegate.group import new_secret

FILE = "group.json"
SECRET = "TIDEGATE_SECRET"  # noqa: S105  the name of a variable


class GroupAddress(msgspec.Struct, frozen=True):
    """An address that processes can join a group at, with what they have to know."""

    address: str
    secret: bytes

    def save(self, folder: Path) -> None:
        """Tell the processes of a deployment; nobody ever reads half of it."""
        draft = folder / f"{FILE}.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_bytes(msgspec.json.encode(self))
        draft.replace(folder / FILE)


def forget(folder: Path, place: GroupAddress) -> None:
    """Nobody coordinates there any more; somebody else may coordinate elsewhere by now."""
    if find(folder) == place:
        (folder / FILE).unlink(missing_ok=True)


def find(
    folder: Path, address: str | None = None, environment: Mapping[str, str] = os.environ
) -> GroupAddress | None:
    """The group of a deployment: at the address given, or wherever its folder says, if it does."""
    if address is not None:
        secret = environment.get(SECRET, "")
        if not secret:
            raise NoSecret(address, SECRET)
        return GroupAddress(address, secret.encode())
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=GroupAddress)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def secret_for(environment: Mapping[str, str] = os.environ) -> bytes:
    """The secret that was given to this process, or a fresh one."""
    given = environment.get(SECRET, "")
    return given.encode() if given else new_secret()
