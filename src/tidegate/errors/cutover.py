"""An index cannot be made from a table, or readers cannot be switched to it."""

from __future__ import annotations

from tidegate.errors.base import TidegateError


class CutoverError(TidegateError):
    """An index cannot be made from a table, or readers cannot be switched to it."""


class UnknownTable(CutoverError):
    """There is no such table."""

    message = "there is no table {table}; write schema.table"

    table: str


class NoPrimaryKey(CutoverError):
    """A table has no usable primary key."""

    message = (
        "{table} has no primary key, or a DEFERRABLE one; rows are identified by it, so add one"
    )

    table: str


class UnknownTableColumn(CutoverError):
    """A table does not have a column that an index wants."""

    message = "{table} has no column {column!r}; it has {known}"

    table: str
    column: str
    known: str


class TableBusy(CutoverError):
    """A long transaction on a table keeps its changes from being logged."""

    retryable = True
    message = (
        "transactions that write to {table} do not end, and its changes can only be logged from a"
        " moment when there is none; end them, or try again when it is quieter"
    )

    table: str


class NotFollowed(CutoverError):
    """No changes are kept for an index: some may have been removed that it does not have."""

    message = (
        "the log of {table} keeps no changes for {index}, so it may lack some for good;"
        " make another index, and retire this one"
    )

    index: str
    table: str


class IndexDiffers(CutoverError):
    """What is there under the name of an index cannot be used as that."""

    message = "{index} cannot be used: {reason}. Name another index, or drop this one."

    index: str
    reason: str


class AliasDiffers(CutoverError):
    """Readers of an alias would miss a column, or find another type in it."""

    message = (
        "{index} cannot stand behind {alias}: {reason}. Readers rely on the columns they have: keep"
        " them, and add others behind them; or make another alias."
    )

    alias: str
    index: str
    reason: str


class RowsDiffer(CutoverError):
    """An index does not hold what its source holds, and no change is under way that explains it."""

    message = (
        "{index} is not as {source}: {number} rows differ, {examples}. It was not switched to."
        " Retry the run to compare again; if they stay, begin another index."
    )

    index: str
    source: str
    number: int
    examples: str


class CutoverRefused(CutoverError):
    """A cutover is not begun."""

    message = "no cutover to {index} is begun: {reason}"

    index: str
    reason: str


class PortionsApart(CutoverError):
    """The portions of a table that an index was filled with do not meet."""

    message = (
        "the portions that {index} was filled with end at {end} and go on at {begin}, so it is not"
        " known to be whole. Readers were not switched to it: retire it and begin another index."
    )

    index: str
    end: str
    begin: str


class GateClosed(CutoverError):
    """A switch was to be made before its conditions held."""

    retryable = True
    message = "{alias} was not switched to {index}: {reason}"

    alias: str
    index: str
    reason: str


class AliasBusy(CutoverError):
    """An alias is locked by queries or by another cutover."""

    retryable = True
    message = (
        "{alias} is locked by queries that do not end or by another cutover. A cutover"
        " tries again by itself; give a command again."
    )

    alias: str


class NothingToReverse(CutoverError):
    """There is no index that an alias stood for before."""

    message = "{alias} cannot go back: {reason}"

    alias: str
    reason: str


class IndexBehind(CutoverError):
    """An index that readers would be switched to does not have what has changed since."""

    retryable = True
    message = (
        "{index} is {changes} behind, the oldest {seconds:.1f} s old, and did not catch up"
        " within {bound:g} s: {held_up_by}. To switch anyway, give --stale"
    )

    index: str
    changes: str
    seconds: float
    bound: float
    held_up_by: str


class IndexInUse(CutoverError):
    """An index that readers see, or that is being filled, is not to be removed."""

    message = "{index} is not removed: {reason}"

    index: str
    reason: str


class StreamStalled(CutoverError):
    """Changes could not be applied for longer than is borne."""

    retryable = True
    message = "no change has reached {index} for {seconds:.0f} s: {reason}"

    index: str
    seconds: float
    reason: str


class ColumnReserved(CutoverError):
    """A table has a column of a name that an index needs for itself."""

    message = (
        "{index} has a column {column!r} of its own; leave that of the table out with"
        " PostgresTable(…, columns=…), or rename it"
    )

    index: str
    column: str


class FeedRefused(CutoverError):
    """An index is not given a feed: it has one, or would not be whole with it."""

    message = "{index} is given no feed: {reason}"

    index: str
    reason: str


class GeneratedKey(CutoverError):
    """A row is known by a value that the database makes itself, and an index cannot take."""

    message = (
        "the primary key of {table} holds the generated column {column!r}, which an index does not"
        " have; give the table a primary key of plain columns"
    )

    table: str
    column: str


class OffsetAhead(CutoverError):
    """An index has followed transactions that the server of its table has not come to yet."""

    message = (
        "{index} has followed {table} up to transaction {offset}, and its server is at {bound}: it"
        " is another server, or was restored to an earlier time; make another index, and retire"
        " this one"
    )

    index: str
    table: str
    offset: int
    bound: int


class IndexUnfed(CutoverError):
    """No feed keeps the index fresh that readers would be switched to."""

    message = (
        "no feed keeps {index} fresh; start one with `tidegate cutover feed`, or switch all the"
        " same with --stale"
    )

    index: str


class LoggedTwice(CutoverError):
    """A partition would be logged by itself and with its table; it can have one trigger."""

    message = (
        "{table} cannot be logged: {part} has the trigger of another log. Index the partition or"
        " the whole table; if no index follows the other, DROP TRIGGER tidegate_log there"
    )

    table: str
    part: str


class TypeRefused(CutoverError):
    """The owner of a column's type could run code with the rights of Tidegate's role."""

    message = (
        "the column {column!r} of {table} is of the type {type}: {reason}. Leave it out with"
        " PostgresTable(…, columns=…), or let a superuser or Tidegate's role own the type"
    )

    table: str
    column: str
    type: str
    reason: str


class CodeRefused(CutoverError):
    """Planning a query on a table would run a function of another role as a superuser."""

    message = (
        "{table} has an index, statistics or a partition key with the function {function} of"
        " {owner}, which would run as the superuser that reads the table; let a role read it that"
        " is no superuser (PostgresTable(…, url=…)), or let a superuser own the function"
    )

    table: str
    function: str
    owner: str


class TableChanged(CutoverError):
    """A table has another key than when it was looked at."""

    retryable = True
    message = "the primary key of {table} has changed since it was looked at; it is looked at again"

    table: str


class WriterTooStrong(CutoverError):
    """The role that writes logs has rights beyond that, which writers of tables could come to."""

    message = (
        "the role {role} writes the logs of changes and must have no rights beyond that: it"
        " {reason}. Take that from it, or rename it: another one is made"
    )

    role: str
    reason: str
