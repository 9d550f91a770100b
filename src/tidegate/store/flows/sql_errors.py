"""What the functions of flows refuse, as errors: they name a condition and its parameters."""

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
"""The SQLSTATE of each; the detail holds the fields as JSON."""


VALUE_REFUSED = (
    "0A",  # what is not supported
    "22",  # data exceptions
    "54",  # limits, such as the size of a document
)
"""Beginnings of error codes that only what was to be stored can be blamed for."""


def is_value_refused(error: BaseException) -> bool:
    """Whether PostgreSQL cannot hold what it was given; later it could not either."""
    if not isinstance(error, psycopg.Error):
        return False
    code = error.sqlstate
    return isinstance(error, psycopg.DataError) if code is None else code.startswith(VALUE_REFUSED)


@contextmanager
def raised_sql_errors() -> Iterator[None]:
    """Raise what a function of flows has refused as an error of ours."""
    try:
        yield
    except psycopg.DatabaseError as refusal:
        condition = CONDITIONS.get(refusal.sqlstate or "")
        if condition is None:
            raise
        fields = msgspec.json.decode(refusal.diag.message_detail or "{}")
        raise condition(**fields) from None
