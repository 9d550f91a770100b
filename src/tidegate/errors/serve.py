"""A client and its server do not come together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.errors.base import TidegateError
from tidegate.errors.usage import UsageError


@dataclass(eq=False)
class ServeError(TidegateError):
    """A request by HTTP cannot be answered as it was meant."""


@dataclass(eq=False)
class InvalidTokens(UsageError):
    """A file of tokens has a line that is none."""

    says = (
        "{file}, line {line}: {reason}. Write one `client: SHA-256 of its token` per line,"
        " the digest as 64 hexadecimal digits."
    )

    file: str
    line: int
    reason: str


@dataclass(eq=False)
class UnsafeListen(UsageError):
    """A server that others can reach would let everybody in."""

    says = (
        "{address} can be reached by others, and without tokens everybody would be let in;"
        " name the clients in a file and give it with --tokens, or listen on 127.0.0.1"
    )

    address: str


@dataclass(eq=False)
class InvalidListen(UsageError):
    """What was given to listen on is no address, or none of this machine that is free."""

    says = "nobody can listen on {address!r}: {reason}. Write HOST:PORT, such as 127.0.0.1:8420."

    address: str
    reason: str


@dataclass(eq=False)
class InvalidServer(UsageError):
    """What was given as the address of a server is none."""

    says = "{server!r} is no address of a server; write http://HOST:PORT"

    server: str


@dataclass(eq=False)
class NoSecureConnection(UsageError):
    """A server speaks no TLS, or not one that is trusted here."""

    says = (
        "there is no secure connection to {server}: {reason}. Write http:// if no TLS is spoken"
        " there; otherwise check its certificate."
    )

    server: str
    reason: str


@dataclass(eq=False)
class OtherPipeline(UsageError):
    """The server takes runs of another pipeline."""

    says = "the server at {server} takes runs of {served!r}, not of {pipeline!r}"

    server: str
    pipeline: str
    served: str


@dataclass(eq=False)
class NowhereToWrite(UsageError):
    """Results are to be awaited, and nobody said where they go."""

    says = "with --wait the results of run {run!r} are written; say where with --out DIR"

    run: str


@dataclass(eq=False)
class UnknownToken(ServeError):
    """The request has no token, or one that nobody has."""

    says: ClassVar[str] = (
        "the token is missing, mistyped or withdrawn; send `Authorization: Bearer TOKEN` with one"
        " that this server knows (`tidegate submit` takes it from TIDEGATE_TOKEN)"
    )


@dataclass(eq=False)
class ForeignOrigin(ServeError):
    """A page of another site asks, and without tokens nobody can tell who is behind it."""

    origin: str
    says: ClassVar[str] = (
        "requests from {origin} are refused: a server without tokens answers programs of its own"
        " machine, under its own address and port, only"
    )


@dataclass(eq=False)
class InvalidRunName(ServeError):
    """A run cannot be called this in an address."""

    run: str
    says: ClassVar[str] = (
        "{run!r} cannot be the name of a run: use up to 100 letters, digits, '_', '-' and '.',"
        " starting with a letter or digit"
    )


@dataclass(eq=False)
class InvalidRequest(ServeError):
    """The body or a parameter of a request is not what it should be."""

    reason: str
    says: ClassVar[str] = "the request cannot be understood: {reason}"


@dataclass(eq=False)
class NoSuchRoute(ServeError):
    """There is nothing under this address."""

    path: str
    says: ClassVar[str] = "there is nothing at {path}; docs/http.md lists what there is"


@dataclass(eq=False)
class WrongMethod(ServeError):
    """There is something under this address, and it takes other methods."""

    path: str
    method: str
    allowed: str
    says: ClassVar[str] = "{path} does not take {method}; it takes {allowed}"


@dataclass(eq=False)
class ChunkTooLarge(ServeError):
    """A chunk has more bytes than the server takes at once."""

    source: str
    number: int
    most: int
    says: ClassVar[str] = (
        "chunk {number} of source {source!r} has more than the {most} bytes that this server takes"
        " at once; nothing of it was kept. Cut it into several chunks"
    )


@dataclass(eq=False)
class UnknownUploadFormat(ServeError):
    """Nobody said in which format a chunk is, or in one that cannot be read."""

    given: str
    known: str
    says: ClassVar[str] = (
        "a chunk is sent as {given}, which cannot be read; say ?format= with one of: {known}"
    )


@dataclass(eq=False)
class UploadInterrupted(ServeError):
    """The client went away before its chunk was complete; nothing of it was kept."""

    retryable: ClassVar[bool] = True
    source: str
    number: int
    says: ClassVar[str] = (
        "chunk {number} of source {source!r} did not arrive whole, and nothing of it was kept;"
        " send it again"
    )


@dataclass(eq=False)
class UploadStalled(ServeError):
    """A chunk takes too long to arrive; nothing of it was kept."""

    retryable: ClassVar[bool] = True
    source: str
    number: int
    seconds: float
    says: ClassVar[str] = (
        "chunk {number} of source {source!r} did not go on within {seconds:g} s, and nothing of it"
        " was kept; send it again"
    )


@dataclass(eq=False)
class UploadTooSlow(ServeError):
    """A chunk arrives so slowly that it would keep others waiting; nothing of it was kept."""

    retryable: ClassVar[bool] = True
    source: str
    number: int
    least: int
    says: ClassVar[str] = (
        "chunk {number} of source {source!r} came with less than {least} bytes per second, and"
        " nothing of it was kept; send it again, or in smaller chunks"
    )


@dataclass(eq=False)
class TooManyFollowers(ServeError):
    """A client follows as many runs at a time as it may."""

    retryable: ClassVar[bool] = True
    most: int
    says: ClassVar[str] = (
        "this client has {most} streams of events open, and may not have more; close one of them"
    )


@dataclass(eq=False)
class UnknownSink(ServeError):
    """A result was asked for that the pipeline does not have."""

    sink: str
    known: str
    says: ClassVar[str] = "there is no sink {sink!r}; the pipeline's sinks are: {known}"


@dataclass(eq=False)
class UnknownResultFormat(ServeError):
    """A result was asked for in a format that it is not given in."""

    given: str
    known: str
    says: ClassVar[str] = "results are not given as {given}; say ?format= with one of: {known}"


@dataclass(eq=False)
class ResultsNotReady(ServeError):
    """Results were asked for before the run is complete; there are none until all are there."""

    retryable: ClassVar[bool] = True
    run: str
    says: ClassVar[str] = (
        "run {run!r} is not complete, so it has no results yet; its `why` tells what it waits for"
    )


@dataclass(eq=False)
class ServerTrouble(ServeError):
    """The server cannot do its work at the moment; what it is, its own log says."""

    retryable: ClassVar[bool] = True
    trouble: str
    says: ClassVar[str] = (
        "the server cannot answer at the moment ({trouble}); its log says more. Try again"
    )


@dataclass(eq=False)
class ServerStopping(ServeError):
    """The server is about to stop."""

    retryable: ClassVar[bool] = True
    says: ClassVar[str] = "the server is stopping; try again when it is back"


@dataclass(eq=False)
class ServerFailed(ServeError):
    """A mistake in the server; a client can only tell somebody."""

    says: ClassVar[str] = "the server failed on this request; its log says how"


@dataclass(eq=False)
class ServerUnreachable(ServeError):
    """Nobody answered for as long as the client was ready to try."""

    retryable: ClassVar[bool] = True
    server: str
    seconds: float
    reason: str
    says: ClassVar[str] = (
        "the server at {server} did not answer for {seconds:g} s ({reason}). What it has taken is"
        " safe: give the same command again when it is back"
    )


@dataclass(eq=False)
class RefusedByServer(ServeError):
    """The server refused with a condition that this client does not know."""

    refusal: str
    message: str
    says: ClassVar[str] = "{message} [{refusal}]"


@dataclass(eq=False)
class FilesOnServer(ServeError):
    """The files of a remote result were asked for."""

    sink: str

    says = "the files of sink {sink!r} are on the server; use to_arrow(), to_pandas() or to_df()"
