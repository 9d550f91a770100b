"""A client or a server refuses a request or an answer that is not safe to accept."""

from __future__ import annotations

from tidegate.errors.runs import RunError
from tidegate.errors.serve import ServeError
from tidegate.errors.usage import UsageError

# ── refused by clients ──


class UntrustedName(ServeError):
    """A server names a source or a sink that cannot be one, or that was not asked for."""

    server: str
    kind: str
    name: str
    reason: str
    message = (
        "the server at {server} names a {kind} {name!r}, which {reason}; no file is read or written"
        " for it. Check that --server is the server you mean"
    )


class PlainHttpToken(UsageError):
    """A token would be sent to another host without encryption."""

    message = (
        "the token is not sent to {server}: without TLS any machine on the way to {host} could read"
        " and use it. Give an https:// address, or --allow-plain-http (in Python"
        " allow_plain_http=True) where the network itself is encrypted"
    )

    server: str
    host: str


# ── refused by servers ──


class UnexpectedToken(ServeError):
    """A token was sent to a server that has none, so it protects nothing."""

    http_status = 400

    message = (
        "this server has no tokens and lets in every program of its machine: start it with --tokens"
        " FILE, or leave the token out (`tidegate submit` takes it from TIDEGATE_TOKEN)"
    )


class ProxiedRequest(ServeError):
    """A request came through a proxy to a server that lets in everything on its machine."""

    http_status = 403

    header: str
    message = (
        "the request came through a proxy (it has the header {header}), so other hosts can reach"
        " this server, and it has no tokens: start it with --tokens FILE"
    )


class IdempotencyConflict(RunError):
    """An Idempotency-Key was used again for another request."""

    http_status = 422

    run: str
    message = (
        "this Idempotency-Key has begun run {run!r} with another body; give every request a key of"
        " its own"
    )


class ServerStarting(ServeError):
    """The server listens, and cannot work yet."""

    http_status = 503

    retryable = True
    seconds: float
    message = (
        "the server is starting, since {seconds:g} s; its log names what it waits for. Try again"
    )
