"""Calls to a server by HTTP that are repeated while there is hope.

Whatever is called may be repeated, so a call that was cut off is made again: nobody can tell
whether it had its effect. Pauses grow, with jitter, so that many clients do not return in step.
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
"""Seconds for which a call is repeated after it has failed first."""
STARTING = 900.0
"""The same while the server answers that it is starting, at least."""
TELL_EVERY = 30.0
"""Seconds between two reports that the server does not answer."""
SILENCE = 90.0
"""Seconds of silence after which a connection counts as lost; the server tries its database for
60."""
WORK = 900.0
"""The same where the server has to check a whole chunk, or to order a whole result."""
MORE_THAN_A_MOMENT = 3
"""Failures of one call after which that is told."""
PIECE = 1 << 20
RETRIES = Backoff(first=0.1, longest=5.0)
SUCCESS = range(200, 300)
SERVER_ERRORS = range(500, 600)

T = TypeVar("T")


class ConnectionLost(Exception):
    """No answer, or a part of one."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is."""

    scheme: str
    host: str
    port: int | None
    path: str

    @classmethod
    def read(cls, url: str) -> Address:
        """From `http://HOST:PORT`; raises `InvalidServer`."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidServer(url) from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidServer(url)
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))

    def connect(self, silence: float) -> HTTPConnection:
        """A connection, which is made with the first request."""
        kind = HTTPSConnection if self.scheme == "https" else HTTPConnection
        return kind(self.host, self.port, timeout=silence)


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked, once."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | IO[bytes] | None
    silence: float = SILENCE


class _Bounds:
    """Until when a call is repeated: longer while the server answers that it is starting."""

    def __init__(self, patience: float, starting: float) -> None:
        self._patience = patience
        self._starting = starting
        self._until: float | None = None
        self._starting_until: float | None = None

    def deadline(self, error: ConnectionLost | TidegateError, now: float) -> float:
        """When to give up after this failure; an answer of the server restarts the patience."""
        if isinstance(error, ServerStarting):
            self._until = None
            self._starting_until = self._starting_until or now + self._starting
            return self._starting_until
        self._until = self._until or now + self._patience
        return self._until


class HttpClient:
    """Calls a server, as often as it takes; any number of threads may."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        patience: float = PATIENCE,
        *,
        starting: float = STARTING,
        allow_plain_http: bool = False,
    ) -> None:
        """A call is repeated for `patience` seconds, or `starting` where the server is starting.

        Raises `InvalidServer`; `PlainHttpToken` for a token that others could read on its way.

        A redirection is a refusal: a token goes to no other server than this.
        """
        self.url = url
        self._address = Address.read(url)
        if token and not allow_plain_http:
            check_token_way(url, self._address.scheme, self._address.host)
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._patience = patience
        self._starting = max(patience, starting)
        self.say: Callable[[str], None] = lambda _: None
        """Hears when the server goes away for more than a moment, and when it is back."""
        self._outage_reported_at: float | None = None
        self._noticing = Lock()

    def json(
        self,
        method: str,
        path: str,
        body: object = None,
        key: str | None = None,
        silence: float = SILENCE,
    ) -> bytes:
        """What the server answers. `key` tells it that a call is the same as one before."""
        headers = {"idempotency-key": key} if key else {}
        sent = None if body is None else json.dumps(body).encode()
        asked = _Request(method, path, headers, sent, silence)
        return self._until_answered(lambda: self._once(asked, _whole))

    def send(self, path: str, file: Path, size: int) -> bytes:
        """Send a file; it is opened anew for every attempt."""

        def attempt() -> bytes:
            with file.open("rb") as opened:
                length = {"content-length": str(size)}
                return self._once(_Request("PUT", path, length, opened, WORK), _whole)

        return self._until_answered(attempt)

    def fetch(self, path: str, take: Callable[[Iterator[bytes]], T]) -> T:
        """Let `take` read an answer piece by piece; from the start again if it is cut off."""
        asked = _Request("GET", path, {}, None, WORK)
        return self._until_answered(lambda: self._once(asked, lambda answer: take(_pieces(answer))))

    def _until_answered(self, attempt: Callable[[], T]) -> T:
        """Repeat what is lost or may succeed later, until patience ends with the last reason."""
        bounds = _Bounds(self._patience, self._starting)
        for failures, pause in enumerate(RETRIES.pauses(), 1):
            try:
                answer = attempt()
            except (ConnectionLost, TidegateError) as error:
                self._refuse_late(error, monotonic() + pause > bounds.deadline(error, monotonic()))
                if failures >= MORE_THAN_A_MOMENT:
                    self._tell_away(error)
            else:
                self._tell_back()
                return answer
            sleep(pause)
        raise AssertionError("pauses never end")

    def _tell_away(self, error: ConnectionLost | TidegateError) -> None:
        what = (
            f"the server does not answer ({error})"
            if isinstance(error, ConnectionLost)
            else str(error)
        )
        bound = self._starting if isinstance(error, ServerStarting) else self._patience
        if self._is_to_tell():
            self.say(f"{what}; trying again for {bound:g} s")

    def _is_to_tell(self) -> bool:
        """Whether a report is due; several threads may notice the same outage."""
        with self._noticing:
            reported_at, now = self._outage_reported_at, monotonic()
            is_due = reported_at is None or now - reported_at >= TELL_EVERY
            self._outage_reported_at = now if is_due else reported_at
        return is_due

    def _tell_back(self) -> None:
        with self._noticing:
            was_reported, self._outage_reported_at = self._outage_reported_at is not None, None
        if was_reported:
            self.say("the server answers again")

    def _refuse_late(self, error: ConnectionLost | TidegateError, is_late: bool) -> None:
        """Raise what is for good, and in the end everything."""
        if isinstance(error, TidegateError) and (is_late or not error.retryable):
            raise error
        if is_late:
            raise ServerUnreachable(self.url, self._patience, str(error)) from error

    def _once(self, asked: _Request, read: Callable[[HTTPResponse], T]) -> T:
        with closing(self._address.connect(asked.silence)) as connection:
            with _losses(), _secured(self.url):
                answer = self._answered(connection, asked)
            with answer:  # it may outlive the connection
                if answer.status not in SUCCESS:
                    raise _refused(answer)
                return read(answer)

    def _answered(self, connection: HTTPConnection, asked: _Request) -> HTTPResponse:
        path, headers = self._address.path + asked.path, {**self._headers, **asked.headers}
        # A server that refuses a body does not read all of it; what it says is worth reading.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(asked.method, path, body=asked.body, headers=headers)
        return connection.getresponse()


@contextmanager
def _losses() -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPException) as loss:
        raise ConnectionLost(str(loss) or type(loss).__name__) from loss


@contextmanager
def _secured(url: str) -> Iterator[None]:
    """Raise what TLS refuses: it will do so every time, unless it was only cut off."""
    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
        raise
    except ssl.SSLError as refusal:
        reason = getattr(refusal, "verify_message", "") or refusal.reason or str(refusal)
        raise NoSecureConnection(url, reason) from refusal


def _refused(answer: HTTPResponse) -> Exception:
    """What the server says; something else on the way may speak another language."""
    body = _whole(answer)
    try:
        return error_from_body(msgspec.json.decode(body, type=ErrorBody))
    except msgspec.DecodeError:
        said = f"HTTP {answer.status} {answer.reason}"
        is_passing = answer.status in SERVER_ERRORS
        return ConnectionLost(said) if is_passing else RefusedByServer(said, "the server refused")


def _whole(answer: HTTPResponse) -> bytes:
    with _losses():
        return answer.read()


def _pieces(answer: HTTPResponse) -> Iterator[bytes]:
    while piece := _piece(answer):
        yield piece
    if answer.length:  # which read() counts down, and does not miss at the end
        raise ConnectionLost(f"{answer.length} bytes are missing")


def _piece(answer: HTTPResponse) -> bytes:
    with _losses():
        return answer.read(PIECE)
