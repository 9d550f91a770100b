"""Comparing an index with its source, while both change.

Counts and checksums of a range are compared first. Where they differ, rows are; and a row whose
change is under way explains itself: it was changed by a transaction that the follower had not
behind it before anything was read. What differs without that is looked at again, for the log may
have been shortened in between; what differs every time is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.cutover.decide import differing, examples
from tidegate.cutover.values import VerifiedPortion
from tidegate.errors import RowsDiffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.cutover.source import Source
    from tidegate.cutover.targets import Indexes
    from tidegate.cutover.values import Portion

LOOKS = 5
"""How often rows are compared before they are said to differ."""


def compare(
    source: Source, indexes: Indexes, portion: Portion, offset: Callable[[], int]
) -> VerifiedPortion:
    """Raise `RowsDiffer` where an index is not as its source; `offset` tells the follower's."""
    within = portion.within
    shape = source.shape(indexes.columns(portion.index))
    before = offset()
    digest = source.digest(within, shape)
    if digest == indexes.digest(portion.index, within, shape):
        return VerifiedPortion(digest.rows, 0)
    wrong: dict[tuple[str, ...], str] = {}
    for _ in range(LOOKS):
        rows = source.checksums(within, shape)
        found = differing(rows, indexes.checksums(portion.index, within, shape))
        under_way = source.pending_among(before, list(found))
        unexplained = {key: how for key, how in found.items() if key not in under_way}
        wrong = {key: how for key, how in unexplained.items() if not wrong or key in wrong}
        if not wrong:
            return VerifiedPortion(len(rows), len(found))
        before = offset()
    raise RowsDiffer(
        indexes.qualified(portion.index), str(source.table), len(wrong), examples(wrong)
    )
