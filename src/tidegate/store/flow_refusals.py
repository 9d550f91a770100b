"""What the functions of flows refuse, as errors: they name a condition and its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import psycopg

from tidegate.errors import (
    ClaimLost,
    FlowRunClosed,
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
}
"""The SQLSTATE of each; the detail holds the fields as JSON."""


@contextmanager
def told_refusals() -> Iterator[None]:
    """Raise what a function of flows has refused as an error of ours."""
    try:
        yield
    except psycopg.DatabaseError as refusal:
        condition = CONDITIONS.get(refusal.sqlstate or "")
        if condition is None:
            raise
        fields = msgspec.json.decode(refusal.diag.message_detail or "{}")
        raise condition(**fields) from None
