"""Quotas: open runs and stored bytes of one client. Every call may block."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.errors import OpenBytesExceeded, OpenRunsExceeded
from tidegate.http.auth.tokens import beginning_of, stored_name
from tidegate.spark.ingest.disk_space import Space, space_at
from tidegate.store.runs.quotas import open_bytes_like, open_runs_like

if TYPE_CHECKING:
    from tidegate.runtime.deployment import Deployment

FRESH = 2.0
"""Seconds for which a count of a client's bytes is reused."""


DISK_SHARE = 2
"""One client may use at most the disk divided by this, whatever the settings."""


def bytes_quota(setting: int, disk: Space | None) -> int:
    """The bytes that a client's open runs may have; 0 is unlimited.

    >>> bytes_quota(1 << 40, Space(free=0, total=1000)), bytes_quota(0, None)
    (500, 0)
    """
    return setting if not setting or disk is None else min(setting, disk.total // DISK_SHARE)


@dataclass(frozen=True, slots=True)
class ByteCount:
    """The bytes of a client's open runs, including those admitted since they were counted."""

    bytes: int
    at: float


class Quotas:
    """The quotas of a deployment's settings; 0 is unlimited."""

    def __init__(self, deployment: Deployment, pipeline: str) -> None:
        settings = deployment.settings
        self._database = deployment.database
        self._pipeline = pipeline
        self._most_runs = settings.client_open_runs
        self._most_bytes = bytes_quota(settings.client_open_bytes, space_at(deployment.root))
        self._counted: dict[str, ByteCount] = {}
        self._counting = Lock()

    def check_runs(self, client: str, run: str) -> None:
        """Raise `OpenRunsExceeded` if another run of the client would exceed the quota."""
        if not self._most_runs:
            return
        beginning, name = beginning_of(client), stored_name(client, run)
        found = self._database.transact(
            lambda c: open_runs_like(c, beginning, self._pipeline, name)
        )
        if found >= self._most_runs:
            raise OpenRunsExceeded(self._most_runs)

    def check_bytes(self, client: str, incoming: int) -> None:
        """Raise `OpenBytesExceeded` if the client's open runs would exceed the quota."""
        if not self._most_bytes:
            return
        with self._counting:
            counted = self._counted.get(client)
        if counted is None or monotonic() > counted.at + FRESH:
            counted = ByteCount(self._bytes_of(client), monotonic())
        if counted.bytes + incoming > self._most_bytes:
            raise OpenBytesExceeded(counted.bytes, incoming, self._most_bytes)
        with self._counting:
            self._counted[client] = ByteCount(counted.bytes + incoming, counted.at)

    def _bytes_of(self, client: str) -> int:
        beginning = beginning_of(client)
        return self._database.transact(lambda c: open_bytes_like(c, beginning))
