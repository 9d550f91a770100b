"""Limits of the HTTP interface, derived from the settings in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.http.server.descriptors import allowed, connections_within

if TYPE_CHECKING:
    from tidegate.settings import Settings

CHUNK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How much the HTTP interface accepts at once."""

    chunk_bytes: int = CHUNK_BYTES
    uploads: int = 4
    """Chunks of one client that are received at the same time; further ones wait."""
    uploads_waiting: int = 64
    """Chunks of one client that wait before they are read; more are refused."""
    gap: float = 60.0
    """Seconds within which the next bytes of a chunk have to arrive."""
    least_rate: int = 16 << 10
    """Average bytes per second with which a chunk has to arrive."""
    patience: float = 60.0
    """Seconds after which the rate of a chunk is checked."""
    followers: int = 32
    """Streams of events that one client may have at the same time."""
    connections: int = 512
    """Open connections of all clients. Idle ones are closed for further ones."""
    connections_per_address: int = 256
    requests: int = 128
    """Requests of one client at the same time, streams included."""
    downloads: int = 16
    """Results that are being sent at the same time."""
    downloads_per_client: int = 4
    head: float = 10.0
    """Seconds within which a whole request head has to arrive on a connection."""
    body: float = 60.0
    """Seconds within which a JSON body has to arrive."""
    send: float = 60.0
    """Seconds within which a client has to read the next megabyte of a response."""
    deliveries: int = 3
    """Chunks that are checked and copied at the same time; of one client at most one fewer."""
    results: int = 3
    """Results that are read, or ordered for CSV, at once; of one client at most one fewer."""
    writes: int = 2
    """Threads that write arriving chunks to the disk."""
    calls: int = 4
    """Requests that query PostgreSQL at once; of one client at most one fewer."""
    grace: float = 10.0
    """Seconds for which running requests may continue when the server stops."""

    @classmethod
    def of(cls, settings: Settings, chunk_bytes: int = CHUNK_BYTES) -> HttpLimits:
        """The limits for the settings of a deployment."""
        return cls(
            chunk_bytes=chunk_bytes,
            uploads=max(1, settings.http_uploads_per_client),
            uploads_waiting=settings.http_uploads_waiting,
            connections=connections_within(settings.http_connections, allowed()),
            connections_per_address=max(1, settings.http_connections_per_address),
            requests=max(1, settings.http_requests_per_client),
            downloads=max(1, settings.http_downloads),
            downloads_per_client=max(1, settings.http_downloads_per_client),
            head=settings.http_head_seconds,
            send=settings.http_send_seconds,
            deliveries=max(1, settings.http_deliveries),
            results=max(1, settings.http_results),
            calls=max(1, settings.http_calls),
            grace=settings.http_stop_seconds,
        )
