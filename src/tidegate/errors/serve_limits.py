"""A client asks more of a server than it may at once."""

from __future__ import annotations

from tidegate.errors.serve import ServeError


class TooManyUploads(ServeError):
    """A client has as many chunks waiting to be read as it may."""

    http_status = 429

    retryable = True
    most: int
    message = (
        "{most} chunks of this client wait to be read, and more are refused; send this one again"
        " when some were answered, or raise the setting http_uploads_waiting"
    )


class TooManyRequests(ServeError):
    """A client has too many concurrent requests."""

    http_status = 429

    retryable = True
    most: int
    message = (
        "this client has {most} concurrent requests, which is the limit; try again when some are"
        " answered, or raise the setting http_requests_per_client"
    )


class TooManyDownloads(ServeError):
    """As many results are on their way out as may be."""

    http_status = 429

    retryable = True
    most: int
    message = (
        "{most} results are on their way out, and may not be more; try again when one was read, or"
        " raise the settings http_downloads and http_downloads_per_client"
    )


class OpenRunsExceeded(ServeError):
    """A client has as many open runs as it may."""

    http_status = 429

    retryable = True
    most: int
    message = (
        "this client has {most} open runs, and may not have more; end or cancel one of them, or"
        " raise the setting client_open_runs"
    )


class OpenBytesExceeded(ServeError):
    """The open runs of a client have as many bytes as they may."""

    http_status = 507

    retryable = True
    stored: int
    incoming: int
    most: int
    message = (
        "the open runs of this client have {stored:,} bytes, and with {incoming:,} more they would"
        " exceed {most:,}; end or cancel one of them, or raise the setting client_open_bytes"
    )


class RequestStalled(ServeError):
    """The body of a request takes too long to arrive."""

    http_status = 408

    retryable = True
    seconds: float
    message = "the body of the request did not arrive within {seconds:g} s; send it again"


class ServerFull(ServeError):
    """The server has no free connection."""

    http_status = 503

    retryable = True
    most: int
    message = (
        "the server has {most} busy connections, which is the limit; try again, or"
        " raise the settings http_connections and http_connections_per_address"
    )
