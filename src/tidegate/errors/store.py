"""PostgreSQL is not there, or is not what it should be; and who writes is not the owner."""

from __future__ import annotations

from tidegate.errors.base import TidegateError


class StoreError(TidegateError):
    """PostgreSQL is not there, is not what it should be, or refused a write."""


class EmbeddedServerFailed(StoreError):
    """The embedded PostgreSQL did not do what was asked within its bound."""

    retryable = True
    folder: str
    doing: str
    seconds: float
    log: str
    message = (
        "the embedded PostgreSQL in {folder} did not {doing} within {seconds:g} s."
        " The end of its log:\n{log}"
    )


class EmbeddedServerElsewhere(StoreError):
    """The embedded PostgreSQL runs already and listens where it was started to listen."""

    folder: str
    wanted: str
    listens: str
    message = (
        "the embedded PostgreSQL in {folder} was asked to listen on {wanted} but already runs"
        " and listens on {listens}; end the processes that use it, or ask for the same"
    )


class InvalidDatabase(StoreError):
    """What was given as a database is no address of one."""

    database: str
    reason: str
    message = (
        "{database!r} does not name a database ({reason});"
        " write postgresql://user@host:port/name, or leave it out for the embedded one"
    )


class DatabaseUnreachable(StoreError):
    """The database did not answer, or kept losing the connection. `__cause__` is the last loss."""

    retryable = True
    database: str
    seconds: float
    reason: str
    message = (
        "database {database} could not be used for {seconds:g} s ({reason});"
        " see that PostgreSQL runs there and takes connections"
    )


class DatabaseTooOld(StoreError):
    """The server is older than what Tidegate needs."""

    database: str
    version: str
    needed: int
    message = (
        "database {database} is PostgreSQL {version}; use {needed} or later, or the embedded one"
    )


class SchemaTooNew(StoreError):
    """A later Tidegate has migrated this database."""

    database: str
    found: int
    known: int
    message = (
        "the tidegate schema of {database} is at migration {found} and this Tidegate knows {known};"
        " install the Tidegate that migrated it, or a later one"
    )


class Fenced(StoreError):
    """A write under a stale lease; it changed nothing."""

    kind: str
    key: str
    owner: str
    epoch: int
    holder: str
    current: int
    message = (
        "{owner} does not own {kind} {key!r} under epoch {epoch} any more: it is at epoch {current}"
        " and held by {holder}. Nothing was written; acquire it again or leave it alone"
    )


class ChannelConflict(StoreError):
    """A channel is not where its only writer left it."""

    task: str
    reason: str
    run: str = ""
    """The key of the run that cannot be completed by it, if it is about one."""
    message = (
        "the channels of task {task!r} are not as this worker left them ({reason});"
        " nothing was written. Give the task up and acquire it again"
    )


class ValueRefused(StoreError):
    """PostgreSQL cannot hold a value that a step would store; it changed nothing."""

    task: str
    reason: str
    run: str = ""
    """The key of the run whose value it is; empty if the step was for several runs."""
    message = (
        "PostgreSQL refused a value that task {task!r} would store ({reason}); nothing was written."
        " The run that it stems from cannot be completed: correct its data and begin another run"
    )


class Overtaken(StoreError):
    """A step keeps something for checkpoints that no longer wait for it; it changed nothing."""

    task: str
    runs: tuple[int, ...]
    message = (
        "task {task!r} comes too late to a checkpoint of runs {runs}: what it has read belongs to"
        " what was on its way. Nothing was written; read these runs anew"
    )
