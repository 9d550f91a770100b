"""Maps errors of the flow functions to exceptions: an SQLSTATE each, with fields as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import psycopg

from tidegate.errors import (
    ClaimLost,
    FlowRunClosed,
    InvalidFlowValue,
    NoStepWithItems,
    SignalRefused,
    SpawnRefused,
    StateRegressed,
    StateUndeclared,
    TidegateError,
    UnknownFlowRun,
)

CONDITIONS: dict[str, type[TidegateError]] = {
    "TG001": ClaimLost,
    "TG002": UnknownFlowRun,
    "TG003": FlowRunClosed,
    "TG004": SpawnRefused,
    "TG005": StateRegressed,
    "TG006": StateUndeclared,
    "TG007": SignalRefused,
    "TG008": NoStepWithItems,
    "TG009": InvalidFlowValue,
}
"""By SQLSTATE; the error detail holds the fields as JSON."""


VALUE_REFUSED = (
    "0A",  # unsupported features
    "22",  # data exceptions
    "54",  # limits, such as the size of a document
)
"""Prefixes of error codes that are caused by the value to be stored."""


def is_value_refused(error: BaseException) -> bool:
    """Whether PostgreSQL cannot store a value; retrying does not help."""
    if not isinstance(error, psycopg.Error):
        return False
    code = error.sqlstate
    return isinstance(error, psycopg.DataError) if code is None else code.startswith(VALUE_REFUSED)


@contextmanager
def raised_sql_errors() -> Iterator[None]:
    """Raise errors of flow functions as `TidegateError`."""
    try:
        yield
    except psycopg.DatabaseError as error:
        condition = CONDITIONS.get(error.sqlstate or "")
        if condition is None:
            raise
        fields = msgspec.json.decode(error.diag.message_detail or "{}")
        raise condition(**fields) from None
