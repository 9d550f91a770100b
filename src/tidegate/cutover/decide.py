"""Decisions of a cutover, from values alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.backoff import Backoff
from tidegate.cutover.values import BackfilledPortion
from tidegate.errors import PortionsApart, StreamStalled
from tidegate.store.cutover.tables import Key

QUIET = 1.0
"""Seconds after which an offset is told although nothing was changed."""
RETRIES = Backoff(first=0.2, longest=5.0, jitter=0.0)


def is_worth_telling(
    told: int, offset: int, applied: int, seconds: float, watermark: int | None
) -> bool:
    """Whether the state should know of an offset: it moves with every transaction, also of others.

    >>> is_worth_telling(told=5, offset=9, applied=0, seconds=0.1, watermark=None)
    False
    >>> is_worth_telling(told=5, offset=9, applied=0, seconds=0.1, watermark=8)
    True
    """
    opens = watermark is not None and told < watermark <= offset
    return offset > told and (applied > 0 or seconds >= QUIET or opens)


def rows_of_whole(filled: Iterable[BackfilledPortion]) -> int:
    """The rows of all portions, in order, which have to leave out nothing; else `PortionsApart`.

    >>> from tidegate.cutover.values import Portion
    >>> parts = [Portion("v1", None, ("7",)), Portion("v1", ("7",), None)]
    >>> rows_of_whole(BackfilledPortion(it, 5) for it in parts)
    10
    """
    rows, end, is_over = 0, None, False
    for it in filled:
        if is_over or it.portion.low != end:
            raise PortionsApart(it.portion.index, _shown(end, is_over), _shown(it.portion.low))
        rows, end, is_over = rows + it.rows, it.portion.high, it.portion.high is None
    if not is_over:
        raise PortionsApart("the index", _shown(end), _shown(None, is_over=True))
    return rows


def _shown(key: Key | None, is_over: bool = False) -> str:
    """A key for a sentence; None is the first, or the last where all is over."""
    return "/".join(key) if key else "the end" if is_over else "the beginning"


def differing(source: Mapping[Key, int], index: Mapping[Key, int]) -> dict[Key, str]:
    """The keys whose rows are not the same, and how.

    >>> differing({("1",): 7, ("2",): 8}, {("2",): 9, ("3",): 1})
    {('1',): 'missing', ('2',): 'different', ('3',): 'too much'}
    """
    found = {
        key: "different" if key in index else "missing"
        for key, checksum in source.items()
        if index.get(key) != checksum
    }
    return {**found, **{key: "too much" for key in index if key not in source}}


def examples(differences: Mapping[Key, str], most: int = 3) -> str:
    """Some of them for a sentence.

    >>> examples({("1",): "missing", ("a", "2"): "different"})
    '1 is missing, a/2 is different'
    """
    some = list(differences.items())[:most]
    return ", ".join(f"{'/'.join(key)} is {how}" for key, how in some)


@dataclass
class Patience:
    """For how long a source or a target may refuse before its follower gives up."""

    index: str
    bound: float
    first: BaseException | None = None
    since: float = 0.0
    times: int = 0

    def bear(self, error: BaseException, now: float) -> float:
        """The pause before the next attempt; raises `StreamStalled` from the first error."""
        if self.first is None:
            self.first, self.since = error, now
        if now - self.since > self.bound:
            reason = f"{type(error).__name__}: {error}"
            raise StreamStalled(self.index, now - self.since, reason) from self.first
        self.times += 1
        return RETRIES.pause(self.times)

    def relieve(self) -> None:
        """Something went well."""
        self.first, self.times = None, 0
