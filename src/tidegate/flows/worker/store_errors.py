"""Trouble with the database that is no fault of a task: nothing can be said of it, so nothing is.

A worker that cannot read or write what it must for a task lets its lease expire; others do the task
again, and no attempt is counted, only a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.errors import DatabaseUnreachable, TidegateError
from tidegate.store.flows.sql_errors import is_value_refused


class StoreUnavailable(Exception):
    """A worker could not read or write something for a task; the cause says why."""


@contextmanager
def ours() -> Iterator[None]:
    """In this block the worker itself asks the database, and no function of the user's does."""
    try:
        yield
    except DatabaseUnreachable as trouble:  # for longer than is borne
        raise StoreUnavailable(str(trouble)) from trouble
    except TidegateError:
        raise
    except Exception as trouble:
        if is_value_refused(trouble):
            raise
        raise StoreUnavailable(str(trouble)) from trouble
