"""A client and its server do not come together."""

from __future__ import annotations

from tidegate.errors.base import TidegateError
from tidegate.errors.usage import UsageError


class ServeError(TidegateError):
    """A request by HTTP cannot be answered as it was meant."""


class InvalidTokens(UsageError):
    """A file of tokens has a line that is none."""

    message = (
        "{file}, line {line}: {reason}. Write one `client: SHA-256 of its token` per line,"
        " the digest as 64 hexadecimal digits."
    )

    file: str
    line: int
    reason: str


class UnsafeListen(UsageError):
    """A server without tokens listens beyond loopback."""

    message = (
        "{address} can be reached from other machines, and without tokens every client is accepted;"
        " name the clients in a file and give it with --tokens, or listen on 127.0.0.1"
    )

    address: str


class InvalidListen(UsageError):
    """What was given to listen on is no address, or none of this machine that is free."""

    message = "cannot listen on {address!r}: {reason}. Write HOST:PORT, such as 127.0.0.1:8420."

    address: str
    reason: str


class InvalidServer(UsageError):
    """What was given as the address of a server is none."""

    message = "{server!r} is no address of a server; write http://HOST:PORT"

    server: str


class NoSecureConnection(UsageError):
    """A server speaks no TLS, or not one that is trusted here."""

    message = (
        "there is no secure connection to {server}: {reason}. Write http:// if no TLS is spoken"
        " there; otherwise check its certificate."
    )

    server: str
    reason: str


class OtherPipeline(UsageError):
    """The server takes runs of another pipeline."""

    message = "the server at {server} takes runs of {served!r}, not of {pipeline!r}"

    server: str
    pipeline: str
    served: str


class NowhereToWrite(UsageError):
    """`--wait` was given without `--out`."""

    message = "with --wait the results of run {run!r} are written to a folder; give --out DIR"

    run: str


class UnknownToken(ServeError):
    """The request has no token, or an unknown one."""

    http_status = 401

    message = (
        "the token is missing, mistyped or withdrawn; send `Authorization: Bearer TOKEN` with one"
        " that this server knows (`tidegate submit` takes it from TIDEGATE_TOKEN)"
    )


class ForeignOrigin(ServeError):
    """A web page of another origin sent a request to a server without tokens."""

    http_status = 403

    origin: str
    message = (
        "requests from {origin} are refused: a server without tokens answers programs of its own"
        " machine, under its own address and port, only"
    )


class InvalidRunName(ServeError):
    """A run cannot be called this in an address."""

    http_status = 400

    run: str
    message = (
        "{run!r} cannot be the name of a run: use up to 100 letters, digits, '_', '-' and '.',"
        " starting with a letter or digit"
    )


class InvalidRequest(ServeError):
    """The body or a parameter of a request is not what it should be."""

    http_status = 400

    reason: str
    message = "the request cannot be understood: {reason}"


class NoSuchRoute(ServeError):
    """There is nothing under this address."""

    http_status = 404

    path: str
    message = "there is nothing at {path}; docs/http.md lists what there is"


class WrongMethod(ServeError):
    """There is something under this address, and it takes other methods."""

    http_status = 405

    path: str
    method: str
    allowed: str
    message = "{path} does not take {method}; it takes {allowed}"


class ChunkTooLarge(ServeError):
    """A chunk has more bytes than the server takes at once."""

    http_status = 413

    source: str
    number: int
    most: int
    message = (
        "chunk {number} of source {source!r} has more than the {most} bytes that this server takes"
        " at once; nothing of it was kept. Cut it into several chunks"
    )


class UnknownUploadFormat(ServeError):
    """The format of a chunk is missing or unknown."""

    http_status = 415

    given: str
    known: str
    message = "a chunk is sent as {given}, which cannot be read; give ?format= with one of: {known}"


class UploadInterrupted(ServeError):
    """The client went away before its chunk was complete; nothing of it was kept."""

    http_status = 400

    retryable = True
    source: str
    number: int
    message = (
        "chunk {number} of source {source!r} did not arrive whole, and nothing of it was kept;"
        " send it again"
    )


class UploadStalled(ServeError):
    """A chunk takes too long to arrive; nothing of it was kept."""

    http_status = 408

    retryable = True
    source: str
    number: int
    seconds: float
    message = (
        "chunk {number} of source {source!r} did not go on within {seconds:g} s, and nothing of it"
        " was kept; send it again"
    )


class UploadTooSlow(ServeError):
    """A chunk arrives so slowly that it would keep others waiting; nothing of it was kept."""

    http_status = 408

    retryable = True
    source: str
    number: int
    least: int
    message = (
        "chunk {number} of source {source!r} came with less than {least} bytes per second, and"
        " nothing of it was kept; send it again, or in smaller chunks"
    )


class TooManyFollowers(ServeError):
    """A client follows as many runs at a time as it may."""

    http_status = 429

    retryable = True
    most: int
    message = (
        "this client has {most} streams of events open, and may not have more; close one of them"
    )


class UnknownSink(ServeError):
    """A result was asked for that the pipeline does not have."""

    http_status = 404

    sink: str
    known: str
    message = "there is no sink {sink!r}; the pipeline's sinks are: {known}"


class UnknownResultFormat(ServeError):
    """A result was asked for in a format that it is not given in."""

    http_status = 406

    given: str
    known: str
    message = "there are no results as {given}; give ?format= with one of: {known}"


class ResultsNotReady(ServeError):
    """Results were asked for before the run is complete; there are none until all are there."""

    http_status = 409

    retryable = True
    run: str
    message = (
        "run {run!r} is not complete, so it has no results yet; its `why` names what it waits for"
    )


class ServerTrouble(ServeError):
    """The server is unavailable; its log has the cause."""

    http_status = 503

    retryable = True
    trouble: str
    message = "the server is unavailable ({trouble}); its log has the cause. Try again"


class ServerStopping(ServeError):
    """The server is about to stop."""

    http_status = 503

    retryable = True
    message = "the server is stopping; try again when it is back"


class ServerFailed(ServeError):
    """An internal error of the server."""

    http_status = 500

    message = "the server failed on this request; its log has the cause"


class ServerUnreachable(ServeError):
    """The server did not answer within the client's patience."""

    retryable = True
    server: str
    seconds: float
    reason: str
    message = (
        "the server at {server} did not answer for {seconds:g} s ({reason}). What it has taken is"
        " safe: give the same command again when it is back"
    )


class RefusedByServer(ServeError):
    """The server refused with a condition that this client does not know."""

    refusal: str
    text: str
    message = "{text} [{refusal}]"


class FilesOnServer(ServeError):
    """The files of a remote result were asked for."""

    sink: str

    message = "the files of sink {sink!r} are on the server; use to_arrow(), to_pandas() or to_df()"
