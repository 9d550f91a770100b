"""Verifies an index against its source while both change.

Counts and checksums of a range are compared first, and single rows where those differ. A row may
differ while a change of it is pending: it was changed by a transaction that the consumer had not
passed when the comparison began. Other differences are compared again, since the log may have been
trimmed meanwhile; a row that differs every time is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.cutover.decide import differing, examples
from tidegate.cutover.values import VerifiedPortion
from tidegate.errors import RowsDiffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.cutover.source import TableSource
    from tidegate.cutover.targets import Indexes
    from tidegate.cutover.values import Portion

ATTEMPTS = 5
"""How often rows are compared before they are reported as different."""


def verify(
    source: TableSource, indexes: Indexes, portion: Portion, offset: Callable[[], int]
) -> VerifiedPortion:
    """Raise `RowsDiffer` if a portion differs from its source; `offset` is the consumer's."""
    within = portion.within
    shape = source.shape(indexes.columns(portion.index))
    before = offset()
    digest = source.digest(within, shape)
    if digest == indexes.digest(portion.index, within, shape):
        return VerifiedPortion(digest.rows, 0)
    wrong: dict[tuple[str, ...], str] = {}
    for _ in range(ATTEMPTS):
        rows = source.checksums(within, shape)
        found = differing(rows, indexes.checksums(portion.index, within, shape))
        pending = source.pending_among(before, list(found))
        unexplained = {key: how for key, how in found.items() if key not in pending}
        wrong = {key: how for key, how in unexplained.items() if not wrong or key in wrong}
        if not wrong:
            return VerifiedPortion(len(rows), len(found))
        before = offset()
    raise RowsDiffer(
        indexes.qualified(portion.index), str(source.table), len(wrong), examples(wrong)
    )
