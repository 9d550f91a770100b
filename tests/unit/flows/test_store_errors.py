"""Of what the database refuses, a task is to blame for its values alone."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from tidegate.errors import DatabaseUnreachable, UnknownFlowRun
from tidegate.flows.worker.store_errors import StoreUnavailable, store_access


@pytest.mark.parametrize(
    "trouble",
    [
        errors.InvalidTextRepresentation("22P02"),
        errors.DatetimeFieldOverflow("22008"),
        errors.ProgramLimitExceeded("54000"),
        errors.FeatureNotSupported("0A000"),
        psycopg.DataError("a text with a NUL character never goes there"),
        UnknownFlowRun(7),
    ],
)
def test_errors_of_a_value_or_a_run_pass_unchanged(trouble: Exception) -> None:
    with pytest.raises(type(trouble)), store_access():
        raise trouble


@pytest.mark.parametrize(
    "trouble",
    [
        errors.QueryCanceled("57014"),
        errors.LockNotAvailable("55P03"),
        errors.InsufficientPrivilege("42501"),
        errors.InternalError_("XX000"),
        psycopg.OperationalError("the link is lost"),
        OSError("no more files"),
        DatabaseUnreachable("shop on 127.0.0.1:1", 60.0, "the link is lost"),
    ],
)
def test_everything_else_keeps_its_cause_and_is_no_fault_of_the_task(trouble: Exception) -> None:
    with pytest.raises(StoreUnavailable) as untold, store_access():
        raise trouble
    assert untold.value.__cause__ is trouble
