"""A client asks more of a server than it may at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.errors.serve import ServeError


@dataclass(eq=False)
class TooManyUploads(ServeError):
    """A client has as many chunks waiting to be read as it may."""

    retryable: ClassVar[bool] = True
    most: int
    says: ClassVar[str] = (
        "{most} chunks of this client wait to be read, and more are refused; send this one again"
        " when some were answered, or raise the setting http_uploads_waiting"
    )


@dataclass(eq=False)
class TooManyRequests(ServeError):
    """A client has as many requests at work as it may."""

    retryable: ClassVar[bool] = True
    most: int
    says: ClassVar[str] = (
        "this client has {most} requests at work, and may not have more; try again when some were"
        " answered, or raise the setting http_requests_per_client"
    )


@dataclass(eq=False)
class TooManyDownloads(ServeError):
    """As many results are on their way out as may be."""

    retryable: ClassVar[bool] = True
    most: int
    says: ClassVar[str] = (
        "{most} results are on their way out, and may not be more; try again when one was read, or"
        " raise the settings http_downloads and http_downloads_per_client"
    )


@dataclass(eq=False)
class OpenRunsExceeded(ServeError):
    """A client has as many open runs as it may."""

    retryable: ClassVar[bool] = True
    most: int
    says: ClassVar[str] = (
        "this client has {most} open runs, and may not have more; end or cancel one of them, or"
        " raise the setting client_open_runs"
    )


@dataclass(eq=False)
class OpenBytesExceeded(ServeError):
    """The open runs of a client have as many bytes as they may."""

    retryable: ClassVar[bool] = True
    stored: int
    incoming: int
    most: int
    says: ClassVar[str] = (
        "the open runs of this client have {stored:,} bytes, and with {incoming:,} more they would"
        " exceed {most:,}; end or cancel one of them, or raise the setting client_open_bytes"
    )


@dataclass(eq=False)
class RequestStalled(ServeError):
    """The body of a request takes too long to arrive."""

    retryable: ClassVar[bool] = True
    seconds: float
    says: ClassVar[str] = (
        "the body of the request did not arrive within {seconds:g} s; send it again"
    )


@dataclass(eq=False)
class ServerFull(ServeError):
    """All connections that a server may have are at work."""

    retryable: ClassVar[bool] = True
    most: int
    says: ClassVar[str] = (
        "the server has {most} connections at work and takes no more at the moment; try again, or"
        " raise the settings http_connections and http_connections_per_address"
    )
