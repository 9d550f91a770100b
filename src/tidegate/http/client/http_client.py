"""HTTP calls that are retried.

All calls are idempotent, so a call whose connection is lost is repeated, whether or not it had its
effect. Pauses grow, with jitter, so that many clients do not retry in step.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import IO, TypeVar
from urllib.parse import urlsplit

import msgspec

from tidegate.backoff import Backoff
from tidegate.errors import (
    InvalidServer,
    NoSecureConnection,
    RefusedByServer,
    ServerStarting,
    ServerUnreachable,
    TidegateError,
)
from tidegate.http.client.trust import check_token_way
from tidegate.http.error_mapping import ErrorBody, error_from_body

PATIENCE = 60.0
"""Seconds for which a call is retried after its first failure."""
STARTING = 900.0
"""Least seconds for which a call is retried while the server is starting."""
REPORT_EVERY = 30.0
"""Seconds between two reports that the server does not respond."""
SILENCE = 90.0
"""Read timeout in seconds; the server itself waits up to 60 s for its database."""
WORK = 900.0
"""Read timeout where the server has to check a whole chunk or order a whole result."""
REPORTED_FAILURES = 3
"""Failures of one call after which the outage is reported."""
PIECE = 1 << 20
RETRIES = Backoff(first=0.1, longest=5.0)
SUCCESS = range(200, 300)
SERVER_ERRORS = range(500, 600)

T = TypeVar("T")


class ConnectionLost(Exception):
    """No response, or an incomplete one."""


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """The parts of a server's URL."""

    scheme: str
    host: str
    port: int | None
    path: str

    @classmethod
    def parse(cls, url: str) -> ServerUrl:
        """Parse `http://HOST:PORT`; raises `InvalidServer`."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidServer(url) from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidServer(url)
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))

    def connect(self, silence: float) -> HTTPConnection:
        """A connection, which is opened by the first request."""
        kind = HTTPSConnection if self.scheme == "https" else HTTPConnection
        return kind(self.host, self.port, timeout=silence)


@dataclass(frozen=True, slots=True)
class _Request:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | IO[bytes] | None
    silence: float = SILENCE


class _RetryBound:
    """The time limit for retries: longer while the server is starting."""

    def __init__(self, patience: float, starting: float) -> None:
        self._patience = patience
        self._starting = starting
        self._until: float | None = None
        self._starting_until: float | None = None

    def deadline(self, error: ConnectionLost | TidegateError, now: float) -> float:
        """When to give up after this failure; a response of the server restarts the patience."""
        if isinstance(error, ServerStarting):
            self._until = None
            self._starting_until = self._starting_until or now + self._starting
            return self._starting_until
        self._until = self._until or now + self._patience
        return self._until


class HttpClient:
    """Calls a server and retries; thread-safe."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        patience: float = PATIENCE,
        *,
        starting: float = STARTING,
        allow_plain_http: bool = False,
    ) -> None:
        """A call is retried for `patience` seconds, or `starting` while the server is starting.

        Raises `InvalidServer`; `PlainHttpToken` for a token that the network could read.

        A redirection is an error: the token is sent to no other server.
        """
        self.url = url
        self._address = ServerUrl.parse(url)
        if token and not allow_plain_http:
            check_token_way(url, self._address.scheme, self._address.host)
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._patience = patience
        self._starting = max(patience, starting)
        self.on_outage: Callable[[str], None] = lambda _: None
        """Called with a message when the server stops responding, and when it responds again."""
        self._outage_reported_at: float | None = None
        self._reporting = Lock()

    def json(
        self,
        method: str,
        path: str,
        body: object = None,
        key: str | None = None,
        silence: float = SILENCE,
    ) -> bytes:
        """The body of the response. `key` is the idempotency key of the request."""
        headers = {"idempotency-key": key} if key else {}
        sent = None if body is None else json.dumps(body).encode()
        request = _Request(method, path, headers, sent, silence)
        return self._retry(lambda: self._once(request, _whole))

    def send(self, path: str, file: Path, size: int) -> bytes:
        """Send a file; it is opened again for every attempt."""

        def attempt() -> bytes:
            with file.open("rb") as opened:
                length = {"content-length": str(size)}
                return self._once(_Request("PUT", path, length, opened, WORK), _whole)

        return self._retry(attempt)

    def fetch(self, path: str, take: Callable[[Iterator[bytes]], T]) -> T:
        """Let `take` read the response piece by piece; from the start again if it is incomplete."""
        request = _Request("GET", path, {}, None, WORK)
        return self._retry(lambda: self._once(request, lambda answer: take(_pieces(answer))))

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Retry lost and retryable calls until the time limit, then raise the last error."""
        bound = _RetryBound(self._patience, self._starting)
        for failures, pause in enumerate(RETRIES.pauses(), 1):
            try:
                answer = attempt()
            except (ConnectionLost, TidegateError) as error:
                self._raise_final(error, monotonic() + pause > bound.deadline(error, monotonic()))
                if failures >= REPORTED_FAILURES:
                    self._report_outage(error)
            else:
                self._report_recovery()
                return answer
            sleep(pause)
        raise AssertionError("pauses never end")

    def _report_outage(self, error: ConnectionLost | TidegateError) -> None:
        is_lost = isinstance(error, ConnectionLost)
        what = f"the server does not respond ({error})" if is_lost else str(error)
        bound = self._starting if isinstance(error, ServerStarting) else self._patience
        if self._is_report_due():
            self.on_outage(f"{what}; retrying for {bound:g} s")

    def _is_report_due(self) -> bool:
        """Whether a report is due; several threads may see the same outage."""
        with self._reporting:
            reported_at, now = self._outage_reported_at, monotonic()
            is_due = reported_at is None or now - reported_at >= REPORT_EVERY
            self._outage_reported_at = now if is_due else reported_at
        return is_due

    def _report_recovery(self) -> None:
        with self._reporting:
            was_reported, self._outage_reported_at = self._outage_reported_at is not None, None
        if was_reported:
            self.on_outage("the server responds again")

    def _raise_final(self, error: ConnectionLost | TidegateError, is_late: bool) -> None:
        """Raise an error that is not retryable, and any error after the time limit."""
        if isinstance(error, TidegateError) and (is_late or not error.retryable):
            raise error
        if is_late:
            raise ServerUnreachable(self.url, self._patience, str(error)) from error

    def _once(self, request: _Request, read: Callable[[HTTPResponse], T]) -> T:
        with closing(self._address.connect(request.silence)) as connection:
            with _losses(), _secured(self.url):
                answer = self._send(connection, request)
            with answer:  # it may outlive the connection
                if answer.status not in SUCCESS:
                    raise _error_of(answer)
                return read(answer)

    def _send(self, connection: HTTPConnection, request: _Request) -> HTTPResponse:
        path, headers = self._address.path + request.path, {**self._headers, **request.headers}
        # A server that refuses a body does not read all of it; its response is still read.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(request.method, path, body=request.body, headers=headers)
        return connection.getresponse()


@contextmanager
def _losses() -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPException) as loss:
        raise ConnectionLost(str(loss) or type(loss).__name__) from loss


@contextmanager
def _secured(url: str) -> Iterator[None]:
    """Raise TLS errors, which a retry does not cure unless the connection was only closed."""
    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
        raise
    except ssl.SSLError as refusal:
        reason = getattr(refusal, "verify_message", "") or refusal.reason or str(refusal)
        raise NoSecureConnection(url, reason) from refusal


def _error_of(answer: HTTPResponse) -> Exception:
    """The error that the server sent; a proxy on the way may answer in another format."""
    body = _whole(answer)
    try:
        return error_from_body(msgspec.json.decode(body, type=ErrorBody))
    except msgspec.DecodeError:
        status = f"HTTP {answer.status} {answer.reason}"
        if answer.status in SERVER_ERRORS:
            return ConnectionLost(status)
        return RefusedByServer(status, "the server refused the request")


def _whole(answer: HTTPResponse) -> bytes:
    with _losses():
        return answer.read()


def _pieces(answer: HTTPResponse) -> Iterator[bytes]:
    while piece := _piece(answer):
        yield piece
    if answer.length:  # read() counts it down, and does not raise at an early end
        raise ConnectionLost(f"{answer.length} bytes are missing")


def _piece(answer: HTTPResponse) -> bytes:
    with _losses():
        return answer.read(PIECE)
