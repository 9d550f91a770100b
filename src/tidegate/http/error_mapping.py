"""Errors as HTTP responses: a status code, and the error as JSON.

    {"condition": "ChunkConflict", "message": "…", "fields": {…}, "retryable": false}

The status code is the `http_status` of the error's class. Of an internal error, such as one of the
database, only the class name is sent; the server's log has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import msgspec

from tidegate import errors
from tidegate.errors import ServerTrouble, TidegateError

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
