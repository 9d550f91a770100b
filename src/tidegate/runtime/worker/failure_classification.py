"""Whose fault it is that a task has died: a run's, nobody's, or the database's."""

from __future__ import annotations

from tidegate.errors import (
    AlignmentError,
    ChannelConflict,
    CountMismatch,
    NotABatch,
    ProcessorFailed,
    StoreError,
    ValueRefused,
)

_BROKEN_RULES = (AlignmentError, NotABatch)


def runs_to_fail(trouble: BaseException) -> tuple[str, ...]:
    """The run whose messages broke a rule; not those that the world around them has hurt.

    Where several were handled together nobody knows which it was: they are read again with care.
    """
    if isinstance(trouble, CountMismatch | ChannelConflict | ValueRefused):
        return (trouble.run,) if trouble.run else ()
    if isinstance(trouble, ProcessorFailed) and is_bad_input(trouble) and len(trouble.runs) == 1:
        return trouble.runs
    return ()


def is_bad_input(trouble: BaseException) -> bool:
    """Whether a processor or the database cannot handle the content of the messages."""
    if isinstance(trouble, ValueRefused):
        return True
    return isinstance(trouble, ProcessorFailed) and isinstance(trouble.__cause__, _BROKEN_RULES)


def is_transient(trouble: BaseException) -> bool:
    """Whether it is the database that could not be used, whatever the task did."""
    return isinstance(trouble, StoreError) and trouble.retryable
