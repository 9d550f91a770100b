"""What the steps of a cutover hand to each other; JSON in the database, so plain values."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.store.cutover.tables import Key, KeyRange


@dataclass(frozen=True, slots=True)
class CutoverRequest:
    """What a cutover is begun with: the name of the index to be made."""

    index: str


@dataclass(frozen=True, slots=True)
class Created:
    """An index that is there and empty, and the offset from which on it has to follow changes."""

    index: str
    offset: int


@dataclass(frozen=True, slots=True)
class Portion:
    """A range of keys to be filled in by one Spark job."""

    index: str
    low: Key | None
    high: Key | None

    @property
    def within(self) -> KeyRange:
        """The range alone."""
        return KeyRange(self.low, self.high)


@dataclass(frozen=True, slots=True)
class BackfilledPortion:
    """A portion that is in the index, and how many rows the source had there."""

    portion: Portion
    rows: int


@dataclass(frozen=True, slots=True)
class VerifiedPortion:
    """A portion that is in the index as it is in the source."""

    rows: int
    under_way: int
    """Rows that differed only because a change of them was being applied."""


@dataclass(frozen=True, slots=True)
class Switched:
    """How stale the index was when readers were switched to it."""

    index: str
    previous: str | None
    rows: int
    """That were compared."""
    pending: int
    """Changes that were committed and not yet applied."""
    staleness: float
    """Seconds since the oldest of them was made; 0 where there was none."""


@dataclass(frozen=True, slots=True)
class ConsumedChanges:
    """How many changes a follower has applied, and up to which offset."""

    changes: int
    offset: int


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """What a feed is begun with: an index, and the offset up to which it has all changes."""

    index: str
    offset: int


@dataclass(frozen=True, slots=True)
class Cutover:
    """What a whole cutover came to."""

    index: str
    previous: str | None
    rows: int
    changes: int
    pending_at_switch: int
    staleness_at_switch: float
    feed: int
    """The run of the feed that keeps it fresh."""
