"""Finds the group of a deployment: the coordinator's address and the group's secret.

FOLDER/group.json   written by the coordinating process; readable by its owner only

A process on another host gets both by `--group ADDRESS` and the variable TIDEGATE_SECRET.
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
    """The address of a group's coordinator, and the secret that members prove to know."""

    address: str
    secret: bytes

    def save(self, folder: Path) -> None:
        """Write it to the folder of a deployment, atomically."""
        draft = folder / f"{FILE}.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_bytes(msgspec.json.encode(self))
        draft.replace(folder / FILE)


def remove(folder: Path, address: GroupAddress) -> None:
    """Remove the address from the folder, unless another coordinator has replaced it."""
    if find(folder) == address:
        (folder / FILE).unlink(missing_ok=True)


def find(
    folder: Path, address: str | None = None, environment: Mapping[str, str] = os.environ
) -> GroupAddress | None:
    """The group at the given address, or the one recorded in the deployment's folder, if any."""
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
    """The secret in the environment, or a fresh one."""
    given = environment.get(SECRET, "")
    return given.encode() if given else new_secret()
