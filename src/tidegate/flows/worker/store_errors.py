"""Store failures that are no fault of a task.

A worker that cannot read or write what a task needs lets its lease expire. Other workers redo the
task, which counts as a loss and not as an attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.errors import DatabaseUnreachable, TidegateError
from tidegate.store.flows.sql_errors import is_value_refused


class StoreUnavailable(Exception):
    """A worker could not read or write something for a task; raised from the cause."""


@contextmanager
def store_access() -> Iterator[None]:
    """In this block the worker itself, and no user code, accesses the database."""
    try:
        yield
    except DatabaseUnreachable as error:  # after its retries
        raise StoreUnavailable(str(error)) from error
    except TidegateError:
        raise
    except Exception as error:
        if is_value_refused(error):
            raise
        raise StoreUnavailable(str(error)) from error
