"""Classifies a task failure: bad input of one run, transient store error, or unknown."""

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


def runs_to_fail(error: BaseException) -> tuple[str, ...]:
    """The run whose messages broke a rule; empty if the failure has another cause.

    Also empty if several runs were processed together and the cause is one of them: the task reads
    their messages again one by one.
    """
    if isinstance(error, CountMismatch | ChannelConflict | ValueRefused):
        return (error.run,) if error.run else ()
    if isinstance(error, ProcessorFailed) and is_bad_input(error) and len(error.runs) == 1:
        return error.runs
    return ()


def is_bad_input(error: BaseException) -> bool:
    """Whether a processor or the database cannot handle the content of the messages."""
    if isinstance(error, ValueRefused):
        return True
    return isinstance(error, ProcessorFailed) and isinstance(error.__cause__, _BROKEN_RULES)


def is_transient(error: BaseException) -> bool:
    """Whether the database could not be used; the task is not the cause."""
    return isinstance(error, StoreError) and error.retryable
