"""Errors as HTTP responses: a status code, and the error as JSON.

    {"condition": "ChunkConflict", "message": "…", "fields": {…}, "retryable": false}

`STATUS` is the whole table. A class that is not in it has the code of its parent. Of an internal
error, such as one of the database, only the class name is sent; the server's log has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import msgspec

from tidegate import errors
from tidegate.errors import ServerTrouble, TidegateError

STATUS: Mapping[type[TidegateError], int] = {
    TidegateError: 500,
    # the request
    errors.InvalidRequest: 400,
    errors.InvalidRunName: 400,
    errors.InvalidChunkNumber: 400,
    errors.UploadInterrupted: 400,
    errors.UnexpectedToken: 400,
    errors.UnknownToken: 401,
    errors.ForeignOrigin: 403,
    errors.ProxiedRequest: 403,
    errors.NoSuchRoute: 404,
    errors.UnknownPipeline: 404,
    errors.UnknownRun: 404,
    errors.UnknownSource: 404,
    errors.UnknownSink: 404,
    errors.UnknownCheckpoint: 404,
    errors.WrongMethod: 405,
    errors.UnknownResultFormat: 406,
    errors.UploadStalled: 408,
    errors.UploadTooSlow: 408,
    errors.RequestStalled: 408,
    errors.OpenRunsExceeded: 429,
    errors.TooManyRequests: 429,
    errors.TooManyDownloads: 429,
    errors.TooManyFollowers: 429,
    errors.TooManyUploads: 429,
    # the state of the run
    errors.RunExists: 409,
    errors.RunEnded: 409,
    errors.RunFailed: 409,
    errors.RunCancelled: 409,
    errors.NothingToCancel: 409,
    errors.ResultsNotReady: 409,
    errors.NothingToCheckpoint: 409,
    errors.CheckpointUnderWay: 409,
    errors.CheckpointDamaged: 409,
    errors.OtherPlan: 409,
    errors.ChunkConflict: 409,
    errors.SourceEnded: 409,
    errors.CountConflict: 409,
    errors.ChunksMissing: 409,
    errors.ChunksBeyond: 409,
    errors.IdempotencyConflict: 422,
    errors.BatchAborted: 409,
    errors.BatchNotDelivered: 409,
    # the chunk
    errors.ChunkTooLarge: 413,
    errors.ChunkDecodesTooLarge: 413,
    errors.ValueTooLarge: 413,
    errors.LineTooLong: 413,
    errors.ChunkNeedsMemory: 413,
    errors.RowGroupTooLarge: 413,
    errors.ChunkTooSlow: 413,
    errors.UnknownUploadFormat: 415,
    errors.UnknownFormat: 415,
    errors.MissingColumns: 422,
    errors.BadValue: 422,
    errors.BadLine: 422,
    errors.WrongColumnType: 422,
    errors.UnreadableChunk: 422,
    errors.ChunkCrashedChecker: 422,
    # the server
    errors.ServerFailed: 500,
    errors.ChunkNotCopied: 503,
    errors.CheckerUnavailable: 503,
    errors.ServerTrouble: 503,
    errors.ServerStarting: 503,
    errors.ServerStopping: 503,
    errors.ServerFull: 503,
    errors.NoSpace: 507,
    errors.OpenBytesExceeded: 507,
}
RETRY_AFTER: Mapping[int, int] = {429: 1, 503: 2, 507: 30}
"""Value of the Retry-After header in seconds, by status code."""
INSIDE = (
    errors.StoreError,
    errors.SparkUnavailable,
    errors.SparkUnprotected,
    errors.SparkLost,
    errors.GroupError,
    errors.WorkerGaveUp,
)
"""Internal errors: their fields may reveal paths of the deployment or activity of other clients."""


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The JSON body of an error response."""

    condition: str
    message: str
    fields: dict[str, object]
    retryable: bool


def status_of(error: TidegateError) -> int:
    """The status code of the nearest class in the table."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def visible_error(error: TidegateError) -> TidegateError:
    """The error that a client may see in place of this one."""
    if isinstance(error, errors.NoSpace):
        return replace(error, where="the server's disk")
    return ServerTrouble(trouble=error.condition) if isinstance(error, INSIDE) else error


def error_body(error: TidegateError) -> ErrorBody:
    """The JSON body for an error."""
    given = {field.name: getattr(error, field.name) for field in fields(error)}
    plain = msgspec.to_builtins(given, enc_hook=str)
    return ErrorBody(error.condition, str(error), plain, error.retryable)


def error_from_body(refusal: ErrorBody) -> TidegateError:
    """The error of a body; `RefusedByServer` with its message if the class is unknown here."""
    kind = getattr(errors, refusal.condition, None)
    names = _names(kind)
    unknown = errors.RefusedByServer(refusal.condition, refusal.message)
    if names is None or not names <= refusal.fields.keys():
        return unknown
    assert kind is not None
    error: TidegateError = kind(**{name: _as_value(refusal.fields[name]) for name in names})
    return error if _is_readable(error) else unknown


def _is_readable(error: TidegateError) -> bool:
    """Whether the message can be formatted: the fields that a server sent may be of any type."""
    try:
        return bool(str(error))
    except (ValueError, TypeError, AttributeError, LookupError):
        return False


def _names(kind: object) -> set[str] | None:
    if isinstance(kind, type) and issubclass(kind, TidegateError):
        return {field.name for field in fields(kind)}
    return None


def _as_value(plain: object) -> object:
    """The value of a field: errors have tuples where JSON has lists."""
    return tuple(plain) if isinstance(plain, list) else plain
