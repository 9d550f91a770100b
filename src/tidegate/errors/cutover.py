"""An index cannot be made from a table, or readers cannot be switched to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.errors.base import TidegateError


@dataclass(eq=False)
class CutoverError(TidegateError):
    """An index cannot be made from a table, or readers cannot be switched to it."""


@dataclass(eq=False)
class UnknownTable(CutoverError):
    """There is no such table."""

    says = "there is no table {table}; write schema.table"

    table: str


@dataclass(eq=False)
class NoPrimaryKey(CutoverError):
    """The rows of a table cannot be told apart."""

    says = "{table} has no primary key, or one that is DEFERRABLE: rows are known by it, so add one"

    table: str


@dataclass(eq=False)
class UnknownTableColumn(CutoverError):
    """A table does not have a column that an index wants."""

    says = "{table} has no column {column!r}; it has {known}"

    table: str
    column: str
    known: str


@dataclass(eq=False)
class TableBusy(CutoverError):
    """Somebody writes to a table for so long that its changes cannot begin to be logged."""

    retryable: ClassVar[bool] = True
    says = (
        "transactions that write to {table} do not end, and its changes can only be logged from a"
        " moment when there is none; end them, or try again when it is quieter"
    )

    table: str


@dataclass(eq=False)
class NotFollowed(CutoverError):
    """No changes are kept for an index: some may have been removed that it does not have."""

    says = (
        "the log of {table} keeps no changes for {index}, so it may lack some for good;"
        " make another index, and retire this one"
    )

    index: str
    table: str


@dataclass(eq=False)
class IndexDiffers(CutoverError):
    """What is there under the name of an index cannot be used as that."""

    says = "{index} cannot be used: {reason}. Name another index, or drop this one."

    index: str
    reason: str


@dataclass(eq=False)
class AliasDiffers(CutoverError):
    """Readers of an alias would miss a column, or find another type in it."""

    says = (
        "{index} cannot stand behind {alias}: {reason}. Readers rely on the columns they have: keep"
        " them, and add others behind them; or make another alias."
    )

    alias: str
    index: str
    reason: str


@dataclass(eq=False)
class RowsDiffer(CutoverError):
    """An index does not hold what its source holds, and no change is under way that explains it."""

    says = (
        "{index} is not as {source}: {number} rows differ, {examples}. It was not switched to."
        " Retry the run to compare again; if they stay, begin another index."
    )

    index: str
    source: str
    number: int
    examples: str


@dataclass(eq=False)
class CutoverRefused(CutoverError):
    """A cutover is not begun."""

    says = "no cutover to {index} is begun: {reason}"

    index: str
    reason: str


@dataclass(eq=False)
class PortionsApart(CutoverError):
    """The portions of a table that an index was filled with do not meet."""

    says = (
        "the portions that {index} was filled with end at {end} and go on at {begin}, so it is not"
        " known to be whole. Readers were not switched to it: retire it and begin another index."
    )

    index: str
    end: str
    begin: str


@dataclass(eq=False)
class GateClosed(CutoverError):
    """A switch was to be made before its conditions held."""

    retryable: ClassVar[bool] = True
    says = "{alias} was not switched to {index}: {reason}"

    alias: str
    index: str
    reason: str


@dataclass(eq=False)
class AliasBusy(CutoverError):
    """Queries on an alias do not end, or somebody else decides about it at this moment."""

    retryable: ClassVar[bool] = True
    says = (
        "{alias} is in use: queries on it do not end, or somebody else decides about it. A cutover"
        " tries again by itself; give a command again."
    )

    alias: str


@dataclass(eq=False)
class NothingToReverse(CutoverError):
    """There is no index that an alias stood for before."""

    says = "{alias} cannot go back: {reason}"

    alias: str
    reason: str


@dataclass(eq=False)
class IndexBehind(CutoverError):
    """An index that readers would be switched to does not have what has changed since."""

    retryable: ClassVar[bool] = True
    says = (
        "{index} is {changes} behind, the oldest {seconds:.1f} s old, and did not catch up"
        " within {bound:g} s: {held_up_by}. To switch all the same, say --stale"
    )

    index: str
    changes: str
    seconds: float
    bound: float
    held_up_by: str


@dataclass(eq=False)
class IndexInUse(CutoverError):
    """An index that readers see, or that is being filled, is not to be removed."""

    says = "{index} is not removed: {reason}"

    index: str
    reason: str


@dataclass(eq=False)
class StreamStalled(CutoverError):
    """Changes could not be applied for longer than is borne."""

    retryable: ClassVar[bool] = True
    says = "no change has reached {index} for {seconds:.0f} s: {reason}"

    index: str
    seconds: float
    reason: str


@dataclass(eq=False)
class ColumnReserved(CutoverError):
    """A table has a column of a name that an index needs for itself."""

    says = (
        "{index} has a column {column!r} of its own; leave that of the table out with"
        " PostgresTable(…, columns=…), or rename it"
    )

    index: str
    column: str


@dataclass(eq=False)
class FeedRefused(CutoverError):
    """An index is not given a feed: it has one, or would not be whole with it."""

    says = "{index} is given no feed: {reason}"

    index: str
    reason: str


@dataclass(eq=False)
class GeneratedKey(CutoverError):
    """A row is known by a value that the database makes itself, and an index cannot take."""

    says = (
        "the primary key of {table} holds the generated column {column!r}, which an index does not"
        " have; give the table a primary key of plain columns"
    )

    table: str
    column: str


@dataclass(eq=False)
class OffsetAhead(CutoverError):
    """An index has followed transactions that the server of its table has not come to yet."""

    says = (
        "{index} has followed {table} up to transaction {offset}, and its server is at {bound}: it"
        " is another server, or was restored to an earlier time; make another index, and retire"
        " this one"
    )

    index: str
    table: str
    offset: int
    bound: int


@dataclass(eq=False)
class IndexUnfed(CutoverError):
    """An index that readers would be switched to is kept fresh by nobody."""

    says = (
        "nobody keeps {index} fresh; give it a feed with `tidegate cutover feed`, or switch all the"
        " same with --stale"
    )

    index: str


@dataclass(eq=False)
class LoggedTwice(CutoverError):
    """A partition would be logged by itself and with its table; it can have one trigger."""

    says = (
        "{table} cannot be logged: {part} has the trigger of another log. Index the partition or"
        " the whole table; if nobody follows the other any more, DROP TRIGGER tidegate_log there"
    )

    table: str
    part: str


@dataclass(eq=False)
class TypeRefused(CutoverError):
    """The owner of a column's type could run code with the rights of Tidegate's role."""

    says = (
        "the column {column!r} of {table} is of the type {type}: {reason}. Leave it out with"
        " PostgresTable(…, columns=…), or let a superuser or Tidegate's role own the type"
    )

    table: str
    column: str
    type: str
    reason: str


@dataclass(eq=False)
class CodeRefused(CutoverError):
    """Planning a query on a table would run a function of another role as a superuser."""

    says = (
        "{table} has an index, statistics or a partition key with the function {function} of"
        " {owner}, which would run as the superuser that reads the table; let a role read it that"
        " is no superuser (PostgresTable(…, url=…)), or let a superuser own the function"
    )

    table: str
    function: str
    owner: str


@dataclass(eq=False)
class TableChanged(CutoverError):
    """A table has another key than when it was looked at."""

    retryable: ClassVar[bool] = True
    says = "the primary key of {table} has changed since it was looked at; it is looked at again"

    table: str


@dataclass(eq=False)
class WriterTooStrong(CutoverError):
    """The role that writes logs has rights beyond that, which writers of tables could come to."""

    says = (
        "the role {role} writes the logs of changes and must have no rights beyond that: it"
        " {reason}. Take that from it, or rename it: another one is made"
    )

    role: str
    reason: str
