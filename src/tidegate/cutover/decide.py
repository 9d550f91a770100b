"""Pure decisions of a cutover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.backoff import Backoff
from tidegate.cutover.values import BackfilledPortion
from tidegate.errors import PortionsApart, StreamStalled
from tidegate.store.cutover.tables import Key

STORE_IDLE_AFTER = 1.0
"""Seconds after which an offset is stored although no change was applied."""
RETRIES = Backoff(first=0.2, longest=5.0, jitter=0.0)


def should_store_offset(
    stored: int, offset: int, applied: int, seconds: float, watermark: int | None
) -> bool:
    """Whether to store an offset, which moves with every transaction of the server.

    >>> should_store_offset(stored=5, offset=9, applied=0, seconds=0.1, watermark=None)
    False
    >>> should_store_offset(stored=5, offset=9, applied=0, seconds=0.1, watermark=8)
    True
    """
    opens = watermark is not None and stored < watermark <= offset
    return offset > stored and (applied > 0 or seconds >= STORE_IDLE_AFTER or opens)


def rows_of_whole(filled: Iterable[BackfilledPortion]) -> int:
    """The rows of all portions; raises `PortionsApart` if those leave out a key range.

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
    """A key as text; None is the first, or the last if `is_over`."""
    return "/".join(key) if key else "the end" if is_over else "the beginning"


def differing(source: Mapping[Key, int], index: Mapping[Key, int]) -> dict[Key, str]:
    """The keys whose rows differ, and how.

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
    """Some differences as text.

    >>> examples({("1",): "missing", ("a", "2"): "different"})
    '1 is missing, a/2 is different'
    """
    some = list(differences.items())[:most]
    return ", ".join(f"{'/'.join(key)} is {how}" for key, how in some)


@dataclass
class RetryBudget:
    """Bounds how long failures of a source or a target are retried."""

    index: str
    bound: float
    first: BaseException | None = None
    since: float = 0.0
    times: int = 0

    def pause_after(self, error: BaseException, now: float) -> float:
        """The pause before the next attempt; raises `StreamStalled` from the first error."""
        if self.first is None:
            self.first, self.since = error, now
        if now - self.since > self.bound:
            reason = f"{type(error).__name__}: {error}"
            raise StreamStalled(self.index, now - self.since, reason) from self.first
        self.times += 1
        return RETRIES.pause(self.times)

    def reset(self) -> None:
        """Called after a success."""
        self.first, self.times = None, 0
