"""Values that the steps of a cutover pass on; plain values, stored as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.store.cutover.tables import Key, KeyRange


@dataclass(frozen=True, slots=True)
class CutoverRequest:
    """The input of a cutover: the name of the index to create."""

    index: str


@dataclass(frozen=True, slots=True)
class Created:
    """An empty index, and the offset from which on it needs changes."""

    index: str
    offset: int


@dataclass(frozen=True, slots=True)
class Portion:
    """A key range that one Spark job backfills."""

    index: str
    low: Key | None
    high: Key | None

    @property
    def within(self) -> KeyRange:
        """The range without the index."""
        return KeyRange(self.low, self.high)


@dataclass(frozen=True, slots=True)
class BackfilledPortion:
    """A portion that is in the index, and the number of its rows in the source."""

    portion: Portion
    rows: int


@dataclass(frozen=True, slots=True)
class VerifiedPortion:
    """A portion that is the same in the index and in the source."""

    rows: int
    pending: int
    """Rows that differed only because a change of them was not applied yet."""


@dataclass(frozen=True, slots=True)
class Switched:
    """How stale the index was when readers were switched to it."""

    index: str
    previous: str | None
    rows: int
    """Verified rows."""
    pending: int
    """Changes committed and not applied yet."""
    staleness: float
    """Seconds since the oldest of them; 0 if there was none."""


@dataclass(frozen=True, slots=True)
class ConsumedChanges:
    """How many changes the consumer has applied, and up to which offset."""

    changes: int
    offset: int


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """The input of a feed: an index, and the offset up to which it has all changes."""

    index: str
    offset: int


@dataclass(frozen=True, slots=True)
class Cutover:
    """The result of a cutover."""

    index: str
    previous: str | None
    rows: int
    changes: int
    pending_at_switch: int
    staleness_at_switch: float
    feed: int
    """The run of its feed."""
